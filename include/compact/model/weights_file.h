#pragma once
#include <string>
#include <utility>
#include <vector>

#include "compact/core/tensor.h"
#include "compact/io/safetensors.h"
#include "compact/memory/host_access.h"
#include "compact/model/config.h"

namespace compact {

/// The weights of a LLaMA model in a Hugging Face folder: names and shapes ([out, in] for matrices), in the
/// order of the layers. lm_head.weight is absent where the head is the embedding.
std::vector<std::pair<std::string, Shape>> hugging_face_weights(const ModelConfig& config);

/// The type that a folder's weights are computed in: BF16 where all of them are stored so, else F32. Throws
/// InputError.
DType weights_dtype(const std::string& folder);

/// Reads model.safetensors of a model folder into `into`, whose tensors are named as in hugging_face_weights
/// and lie as on disk ([out, in], contiguous). Throws InputError that names file and tensor unless the file
/// holds every weight of `config` in exactly its shape, nothing else, and only finite values. Old files'
/// rotary_emb.inv_freq, which follows from the config, is passed over, and so is the copy of a shared head.
/// `host` writes to the tensors.
void load_weights(const std::string& folder, const ModelConfig& config, const std::vector<NamedTensor>& into,
                  HostAccess host = HostAccess());

}  // namespace compact
