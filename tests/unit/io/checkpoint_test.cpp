#include "compact/io/checkpoint.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>

#include "compact/io/file.h"
#include "io_testing.h"

namespace compact {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public FolderTest {
 protected:
  Owned<float> weight_{{64, 32}, DType::F32, 0.5f};
  Owned<std::uint16_t> moment_{{16, 32}, DType::BF16, 7};

  CheckpointContents contents(std::int64_t step) {
    put_file(at("spm.model"), "tokenizer of step-independent bytes");
    return {step,
            "{\"model_type\": \"llama\"}\n",
            {{"model.norm.weight", weight_.tensor}},
            {{"model.norm.weight.m", moment_.tensor}},
            fmt::format("{{\"step\": {}}}\n", step),
            at("spm.model")};
  }
  std::string write(std::int64_t step) {
    const std::string folder = at("run/checkpoints/" + checkpoint_name(step));
    write_checkpoint(folder, contents(step));
    return folder;
  }
  std::vector<std::string> names(const std::string& folder) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  using Names = std::vector<std::string>;
};

TEST_F(Checkpoint, HoldsWhatTheDesignSays) {
  const std::string folder = write(100);
  EXPECT_EQ(names(folder), (Names{"MANIFEST.json", "config.json", "model.safetensors",
                                  "optimizer.safetensors", "spm.model", "state.json"}));
  EXPECT_EQ(names(at("run/checkpoints")), (Names{"step_00000100"}));
  verify_checkpoint(folder, true);
  const CheckpointManifest manifest = read_checkpoint_manifest(folder);
  EXPECT_EQ(manifest.step, 100);
  ASSERT_EQ(manifest.files.size(), 5u);
  for (const auto& file : manifest.files) {
    EXPECT_EQ(file.xxh3, xxh3_of_file(folder + "/" + file.name));
    EXPECT_EQ(file.bytes, static_cast<std::int64_t>(fs::file_size(folder + "/" + file.name)));
  }
  const SafetensorsReader model(folder + "/model.safetensors");
  EXPECT_EQ(model.metadata().at("format"), "pt");  // transformers refuses files without it
  Owned<float> back({64, 32}, DType::F32);
  model.read("model.norm.weight", back.tensor);
  EXPECT_EQ(back.values, weight_.values);
  EXPECT_EQ(bytes_of_file(folder + "/spm.model"), bytes_of_file(at("spm.model")));
  EXPECT_EQ(bytes_of_file(folder + "/state.json"), "{\"step\": 100}\n");
}

TEST_F(Checkpoint, WithoutStateNothingIsWrittenForIt) {
  CheckpointContents model = contents(1);
  model.optimizer.clear();
  model.state_json.clear();
  model.tokenizer_file.clear();
  write_checkpoint(at("model/"), model);
  EXPECT_EQ(names(at("model")), (Names{"MANIFEST.json", "config.json", "model.safetensors"}));
  verify_checkpoint(at("model/"), true);
}

TEST_F(Checkpoint, SameContentsSameBytes) {
  const std::string a = write(5);
  write_checkpoint(at("other"), contents(5));
  for (const std::string& name : names(a))
    EXPECT_EQ(bytes_of_file(a + "/" + name), bytes_of_file(at("other/" + name)));
}

TEST_F(Checkpoint, Names) {
  EXPECT_EQ(checkpoint_name(100), "step_00000100");
  EXPECT_EQ(checkpoint_name(1234567890123), "step_1234567890123");
}

TEST_F(Checkpoint, VerifyNamesTheFileThatIsWrong) {
  const std::string folder = write(7);
  const std::string model = folder + "/model.safetensors", good = bytes_of_file(model);
  std::string bad = good;
  bad[bad.size() - 2000] = static_cast<char>(bad[bad.size() - 2000] ^ 1);
  put_file(model, bad);
  verify_checkpoint(folder, false);
  expect_has(message_of<InputError>([&] { verify_checkpoint(folder, true); }), {model, "hash"});
  put_file(model, good.substr(0, 3000));
  expect_has(message_of<InputError>([&] { verify_checkpoint(folder, false); }),
             {model, "3000", std::to_string(good.size())});
  put_file(model, good);
  verify_checkpoint(folder, true);
  fs::remove(folder + "/state.json");
  expect_has(message_of<InputError>([&] { verify_checkpoint(folder, false); }),
             {folder + "/state.json", "missing"});
  fs::create_directory(folder + "/state.json");
  expect_has(message_of<InputError>([&] { verify_checkpoint(folder, false); }), {folder + "/state.json"});
}

TEST_F(Checkpoint, ManifestFaultsAreNamed) {
  const std::string folder = write(7), path = folder + "/MANIFEST.json", good = bytes_of_file(path);
  const auto with = [&](const std::string& was, const std::string& now) {
    std::string text = good;
    const auto place = text.find(was);
    EXPECT_NE(place, std::string::npos) << was;
    put_file(path, text.replace(place, was.size(), now));
    const std::string message = message_of<InputError>([&] { verify_checkpoint(folder, true); });
    expect_has(message, {path});
    return message;
  };
  expect_has(with("compact-checkpoint", "else"), {"compact-checkpoint"});
  expect_has(with("\"version\": 1", "\"version\": 2"), {"version 2"});
  expect_has(with("\"step\": 7", "\"step\": -7"), {"step", "-7"});
  expect_has(with("\"bytes\": ", "\"bytes\": -"), {"bytes"});
  expect_has(with("\"xxh3\": \"", "\"xxh3\": \"x"), {"hash"});
  expect_has(with("\"files\"", "\"fils\""), {"files"});
  expect_has(with("\"spm.model\"", "\"../spm.model\""), {"plain file name"});
  expect_has(with("\"model.safetensors\"", "\"state.json\""), {"state.json"});  // twice
  expect_has(with("\"model.safetensors\"", "\"other.json\""), {"model.safetensors"});
  put_file(path, good.substr(0, 30));
  expect_has(message_of<InputError>([&] { verify_checkpoint(folder, true); }), {path});
  put_file(path, "");
  expect_has(message_of<InputError>([&] { verify_checkpoint(folder, true); }), {path});
}

/// Files may not grow above `bytes` while this lives: the next write fails with "File too large".
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(Checkpoint, FailedWriteLeavesOnlyTheOlderOnes) {
  const std::string first = write(1);
  for (const rlim_t limit : {rlim_t{10}, rlim_t{4000}}) {
    std::string message;
    {
      const FileLimit small(limit);
      message = message_of<RunError>([&] { write(2); });
    }
    expect_has(message, {limit == 10 ? "config.json" : "model.safetensors", "File too large"});
    EXPECT_EQ(names(at("run/checkpoints")), (Names{"step_00000001"}));
    verify_checkpoint(first, true);
  }
  // The tokenizer fails last of the small files.
  CheckpointContents lost = contents(2);
  lost.tokenizer_file = at("gone.model");
  expect_has(message_of<RunError>([&] { write_checkpoint(at("run/checkpoints/step_00000002"), lost); }),
             {at("gone.model")});
  lost.tokenizer_file = at("config.json");
  put_file(at("config.json"), "x");
  expect_has(message_of<RunError>([&] { write_checkpoint(at("run/checkpoints/step_00000002"), lost); }),
             {at("config.json")});
  EXPECT_EQ(names(at("run/checkpoints")), (Names{"step_00000001"}));
}

TEST_F(Checkpoint, FailedReplacementKeepsTheOldOne) {
  const std::string folder = write(1);
  {
    const FileLimit small(4000);
    message_of<RunError>([&] { write(1); });
  }
  EXPECT_EQ(names(at("run/checkpoints")), (Names{"step_00000001"}));
  verify_checkpoint(folder, true);
}

TEST_F(Checkpoint, UnwritablePlaceIsNamed) {
  expect_has(message_of<RunError>(
                 [&] { write_checkpoint("/proc/compact_run/checkpoints/step_00000001", contents(1)); }),
             {"/proc/compact_run"});
  put_file(at("file"), "x");
  expect_has(message_of<RunError>([&] { write_checkpoint(at("file/step_00000001"), contents(1)); }),
             {at("file")});
  fs::create_directories(at("c"));
  put_file(at("c/step_00000001"), "a file of the user");
  expect_has(message_of<RunError>([&] { write_checkpoint(at("c/step_00000001"), contents(1)); }),
             {at("c/step_00000001"), "in the way"});
  EXPECT_EQ(names(at("c")), (Names{"step_00000001"}));
  EXPECT_EQ(bytes_of_file(at("c/step_00000001")), "a file of the user");
}

TEST_F(Checkpoint, StaleTemporaryFoldersGo) {
  fs::create_directories(at("run/checkpoints/step_00000009.tmp/deep"));
  fs::create_directories(at("run/checkpoints/step_00000003.tmp"));
  fs::create_directories(at("run/checkpoints/notes.tmp"));
  put_file(at("run/checkpoints/step_00000009.tmp/junk"), "x");
  const std::string folder = write(9);
  EXPECT_EQ(names(at("run/checkpoints")), (Names{"notes.tmp", "step_00000009"}));
  EXPECT_FALSE(fs::exists(folder + "/junk"));
}

TEST_F(Checkpoint, ExistingFolderIsReplaced) {
  const std::string folder = write(9);
  put_file(folder + "/extra", "x");
  fs::remove(folder + "/MANIFEST.json");
  weight_.values[0] = 42.0f;
  write(9);
  EXPECT_EQ(names(at("run/checkpoints")), (Names{"step_00000009"}));
  EXPECT_FALSE(fs::exists(folder + "/extra"));
  verify_checkpoint(folder, true);
  Owned<float> back({64, 32}, DType::F32);
  SafetensorsReader(folder + "/model.safetensors").read("model.norm.weight", back.tensor);
  EXPECT_EQ(back.values[0], 42.0f);
}

TEST_F(Checkpoint, UmaskIsKept) {
  const mode_t before = umask(077);
  const std::string folder = write(1);
  umask(before);
  struct stat info {};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const std::string& name : names(folder)) {
    ASSERT_EQ(stat((folder + "/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
}

TEST_F(Checkpoint, ListPassesOverWhatIsNotComplete) {
  const auto ignore = [](const std::string&, const std::string&) {};
  EXPECT_TRUE(list_checkpoints(at("run"), ignore).empty());
  write(20);
  write(3);
  write(100000000);
  fs::copy(at("run/checkpoints/step_00000003"), at("run/checkpoints/step_00001900"));
  fs::remove(at("run/checkpoints/step_00001900/MANIFEST.json"));
  put_file(at("run/checkpoints/step_00001901"), "x");
  put_file(at("run/checkpoints/step_notes.txt"), "x");
  for (const char* other :
       {"step_00000005.tmp", "step_5", "step_000000005", "step_-0000005", "step_00000005x", "best"}) {
    fs::create_directories(at("run/checkpoints/") + other);
    put_file(at("run/checkpoints/") + other + "/MANIFEST.json", "{}");
  }
  std::vector<std::string> passed;
  const auto found = list_checkpoints(at("run/"), [&](const std::string& path, const std::string& reason) {
    passed.push_back(path);
    EXPECT_FALSE(reason.empty());
  });
  const std::string start = at("run/checkpoints/");
  EXPECT_EQ(found, (Names{start + "step_00000003", start + "step_00000020", start + "step_100000000"}));
  std::sort(passed.begin(), passed.end());
  EXPECT_EQ(passed, (Names{start + "step_00001900", start + "step_00001901"}));
}

TEST_F(Checkpoint, RetainKeepsTheNewestAndAllThatIsNotACheckpoint) {
  for (int step = 1; step <= 5; ++step) write(step);
  put_file(at("run/checkpoints/step_notes.txt"), "keep");
  fs::create_directories(at("run/checkpoints/step_1"));
  retain_checkpoints(at("run"), 0);
  EXPECT_EQ(names(at("run/checkpoints")).size(), 7u);
  retain_checkpoints(at("run"), 2);
  EXPECT_EQ(names(at("run/checkpoints")),
            (Names{"step_00000004", "step_00000005", "step_1", "step_notes.txt"}));
  retain_checkpoints(at("run"), 7);
  EXPECT_EQ(names(at("run/checkpoints")).size(), 4u);
  retain_checkpoints(at("run"), 1);
  EXPECT_EQ(names(at("run/checkpoints")), (Names{"step_00000005", "step_1", "step_notes.txt"}));
}

TEST_F(Checkpoint, RetainRemovesNothingWhenTheNewestIsDamaged) {
  for (int step = 1; step <= 3; ++step) write(step);
  const std::string model = at("run/checkpoints/step_00000003/model.safetensors");
  std::string bytes = bytes_of_file(model);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put_file(model, bytes);
  expect_has(message_of<RunError>([&] { retain_checkpoints(at("run"), 1); }),
             {model, "no older one is removed"});
  EXPECT_EQ(names(at("run/checkpoints")).size(), 3u);
}

TEST_F(Checkpoint, ResolveFindsTheModelFolder) {
  const std::string first = write(1), second = write(2);
  EXPECT_EQ(resolve_checkpoint(first), first);
  EXPECT_EQ(resolve_checkpoint(first + "//"), first);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resolve_checkpoint(at("run")), second);
  expect_has(::testing::internal::GetCapturedStderr(), {"using checkpoint " + second});
  fs::remove(second + "/MANIFEST.json");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(resolve_checkpoint(at("run/")), first);
  expect_has(::testing::internal::GetCapturedStderr(),
             {second, "MANIFEST.json", "using checkpoint " + first});
}

TEST_F(Checkpoint, ResolveNamesWhatIsMissing) {
  const auto problem = [&](const std::string& path) {
    return message_of<InputError>([&] { resolve_checkpoint(path); });
  };
  expect_has(problem(at("nowhere")), {at("nowhere"), "no such folder"});
  fs::create_directories(at("run/checkpoints"));
  expect_has(problem(at("run")), {at("run"), "no complete checkpoint"});
  fs::create_directories(at("hf"));
  expect_has(problem(at("hf")), {at("hf"), "config.json"});
  put_file(at("hf/config.json"), "{}");
  expect_has(problem(at("hf")), {at("hf"), "model.safetensors"});
  put_file(at("hf/pytorch_model.bin"), "x");
  expect_has(problem(at("hf")), {at("hf"), "pytorch_model.bin", "model.safetensors"});
  put_file(at("hf/model.safetensors.index.json"), "{}");
  expect_has(problem(at("hf")), {at("hf"), "several files", "model.safetensors"});
  expect_has(problem(at("hf/config.json")), {at("hf/config.json"), "is a file"});
}

TEST_F(Checkpoint, ExportCopiesTheModelAlone) {
  const std::string folder = write(3);
  export_checkpoint(folder, at("a/b/"));
  EXPECT_EQ(names(at("a/b")), (Names{"config.json", "model.safetensors", "spm.model"}));
  for (const std::string& name : names(at("a/b")))
    EXPECT_EQ(bytes_of_file(at("a/b/" + name)), bytes_of_file(folder + "/" + name));
  EXPECT_EQ(resolve_checkpoint(at("a/b")), at("a/b"));
  // A folder without a manifest is exported too, and an empty target is used.
  fs::create_directories(at("empty"));
  export_checkpoint(at("a/b"), at("empty"));
  EXPECT_EQ(names(at("empty")), (Names{"config.json", "model.safetensors"}));
}

TEST_F(Checkpoint, ExportRefusesWhatItWouldHarm) {
  const std::string folder = write(3);
  fs::create_directories(at("full"));
  put_file(at("full/notes"), "x");
  expect_has(message_of<InputError>([&] { export_checkpoint(folder, at("full")); }),
             {at("full"), "not empty"});
  expect_has(message_of<InputError>([&] { export_checkpoint(folder, at("full/notes")); }),
             {at("full/notes")});
  expect_has(message_of<RunError>([&] { export_checkpoint(folder, "/proc/x"); }), {"/proc/x"});
  {
    const FileLimit small(4000);
    expect_has(message_of<RunError>([&] { export_checkpoint(folder, at("new")); }),
               {at("new/model.safetensors")});
  }
  EXPECT_FALSE(fs::exists(at("new")));
  put_file(folder + "/spm.model", "other bytes");
  expect_has(message_of<InputError>([&] { export_checkpoint(folder, at("new")); }), {folder + "/spm.model"});
  EXPECT_FALSE(fs::exists(at("new")));
}

}  // namespace
}  // namespace compact
