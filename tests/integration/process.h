#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

/// What tests of the whole program share: a folder of its own, a small run in it, running and killing the
/// program.
namespace compact::testing {

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What a finished program left.
struct Finished {
  int code = 0;  ///< exit code; 128 + n when signal n ended it
  std::string out, err;
};

/// A folder that goes away with it, holding a small model, a run file and shards of a periodic text.
class Workplace {
 public:
  Workplace() {
    char name[] = "/tmp/compact_test_XXXXXX";
    folder_ = mkdtemp(name);
    write("model.json",
          R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 88,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "initializer_range": 0.02})");
    shard("train.bin", 4000);
    shard("val.bin", 600);
    write_run(nlohmann::json::object());
  }
  ~Workplace() { std::filesystem::remove_all(folder_); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  /// run.json: the small run with `changes` merged in.
  void write_run(const nlohmann::json& changes) const {
    nlohmann::json run = nlohmann::json::parse(R"({"model": "model.json",
      "data": {"train": "train.bin", "val": "val.bin", "sequence_length": 16},
      "batch": {"tokens_per_step": 128, "micro_batch": 4},
      "optimizer": {"name": "compact", "lr": 0.01},
      "compact": {"update_gap": 7},
      "train": {"steps": 60, "eval_every": 20, "checkpoint_every": 10, "keep": 3, "out_dir": "out"},
      "threads": 1, "seed": 7})");
    run.merge_patch(changes);
    write("run.json", run.dump(1));
  }
  void shard(const std::string& name, std::uint32_t tokens) const {
    std::vector<std::int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = static_cast<std::int32_t>(tokens);
    std::string data(reinterpret_cast<const char*>(header.data()), 1024);
    std::uint32_t x = tokens;
    for (std::uint32_t i = 0; i < tokens; ++i) {
      x = 1664525 * x + 1013904223;
      // Mostly a pattern, so that there is something to learn, with some noise.
      const std::uint32_t id = (x >> 24) % 5 == 0 ? (x >> 16) % 64 : i * 7 % 64;
      data += static_cast<char>(id);
      data += '\0';
    }
    write(name, data);
  }

  /// Starts the program in the folder; `prefix` are shell words before it (ulimit ...;).
  pid_t start(const std::string& arguments, const std::string& prefix = "") const {
    return start_words(prefix + " exec " + program + " " + arguments);
  }
  /// Starts shell words in the folder.
  pid_t start_words(const std::string& words) const {
    const pid_t child = fork();
    if (child != 0) return child;
    const std::string command = words + " > stdout.txt 2> stderr.txt";
    if (chdir(folder_.c_str()) == 0) execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  Finished wait(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return {code, contents(path("stdout.txt")), contents(path("stderr.txt"))};
  }
  Finished run(const std::string& arguments, const std::string& prefix = "") const {
    return wait(start(arguments, prefix));
  }

  /// Complete checkpoints of out_dir, oldest first.
  std::vector<std::string> checkpoints(const std::string& out = "out") const {
    std::vector<std::string> found;
    if (!std::filesystem::exists(path(out + "/checkpoints"))) return found;
    for (const auto& entry : std::filesystem::directory_iterator(path(out + "/checkpoints")))
      if (entry.path().extension() != ".tmp" && std::filesystem::exists(entry.path() / "MANIFEST.json"))
        found.push_back(entry.path().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  /// Events of one kind in metrics.jsonl.
  std::vector<nlohmann::json> events(const std::string& kind, const std::string& out = "out") const {
    std::vector<nlohmann::json> found;
    std::ifstream file(path(out + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
      if (event.is_object() && event["event"] == kind) found.push_back(event);
    }
    return found;
  }

  std::string program = COMPACT_BINARY;

 private:
  std::string folder_;
};

/// Waits until `condition` holds, at most 60 s.
inline bool wait_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace compact::testing
