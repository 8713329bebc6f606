#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compact/io/safetensors.h"

namespace compact {

/// What a checkpoint holds (design, section 5). Texts are whole file contents.
struct CheckpointContents {
  std::int64_t step = 0;
  std::string config_json;             ///< Hugging Face config
  std::vector<NamedTensor> weights;    ///< Hugging Face names
  std::vector<NamedTensor> optimizer;  ///< may be empty (export)
  std::string state_json;              ///< may be empty (export)
  std::string tokenizer_file;          ///< path to copy into the folder under its own name; may be empty
  HostReader read = {};                ///< how the tensors are read; empty where all lie whole in host memory
};

/// "step_00000100"
std::string checkpoint_name(std::int64_t step);

/// Writes `folder` as a whole or not at all: files go to `folder`.tmp, each fsynced, MANIFEST.json (sizes and
/// XXH3) last, then the folder is renamed. Stale .tmp folders of checkpoints beside it are removed first. A
/// folder of the same name is replaced in one step, and lost only once the new one is whole. A failure
/// removes the .tmp, leaves everything else as it was and throws RunError.
void write_checkpoint(const std::string& folder, const CheckpointContents& contents);

/// MANIFEST.json of a checkpoint.
struct CheckpointManifest {
  struct File {
    std::string name;
    std::int64_t bytes = 0;
    std::string xxh3;
  };
  std::int64_t step = 0;
  std::vector<File> files;
};

/// Reads and checks MANIFEST.json. Throws InputError.
CheckpointManifest read_checkpoint_manifest(const std::string& folder);

/// Checks that every file named in MANIFEST.json is there with its size (and hash, if `hashes`). Throws
/// InputError naming the file.
void verify_checkpoint(const std::string& folder, bool hashes);

/// Complete checkpoints of a run folder (names step_<digits> that hold MANIFEST.json), oldest first. Others
/// with such a name are reported through `passed_over` (path, reason).
std::vector<std::string> list_checkpoints(const std::string& run_folder,
                                          const std::function<void(std::string, std::string)>& passed_over);

/// Removes all but the newest `keep` checkpoints (0: none is removed) after verifying the newest one; throws
/// RunError if that fails, and then removes nothing.
void retain_checkpoints(const std::string& run_folder, std::int64_t keep);

/// Throws InputError saying what is missing unless `folder` holds a model: config.json and model.safetensors.
void require_model_folder(const std::string& folder);

/// Copies what others need to use the model (config.json, model.safetensors, tokenizer; no training state) to
/// the folder `out`, which must be new or empty. The checkpoint is found and verified by resolve_checkpoint.
/// Throws InputError, or RunError after removing what it wrote. Returns the names of the files.
std::vector<std::string> export_checkpoint(const std::string& checkpoint, const std::string& out);

/// The folder of the model that `path` names: itself if it is a model folder, the newest checkpoint if it is
/// a run folder (a line on stderr says which). Where it has a MANIFEST.json, sizes and hashes must hold.
/// Throws InputError.
std::string resolve_checkpoint(const std::string& path);

}  // namespace compact
