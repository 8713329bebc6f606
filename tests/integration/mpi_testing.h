#pragma once
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "compact/dist/communicator.h"
#include "compact/io/checkpoint.h"
#include "compact/train/trainer.h"
#include "process.h"

/// Runs of several processes: mpirun, its ranks, and what is expected of their ends.
namespace compact::testing {

#ifdef COMPACT_MPIEXEC
inline const std::string kMpiexec = COMPACT_MPIEXEC;
#else
inline const std::string kMpiexec;
#endif

/// Tests that start `mpirun compact`; skipped where there is none.
class MpiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kMpiexec.empty()) GTEST_SKIP() << "this build has no MPI";
    // Its options are what the tests know.
    static const bool open_mpi =
        std::system((kMpiexec + " --version 2>&1 | grep -qE 'Open ?MPI|OpenRTE'").c_str()) == 0;
    if (!open_mpi) GTEST_SKIP() << kMpiexec << " is not that of Open MPI";
  }
};

/// A Workplace whose runs are shared by 1, 2, 3, 4, 6 or 12 ranks.
class RanksPlace : public Workplace {
 public:
  RanksPlace() { write_shared(nlohmann::json::object()); }
  void write_shared(const nlohmann::json& changes) const {
    nlohmann::json run = {{"batch", {{"tokens_per_step", 192}, {"micro_batch", 1}}}};
    run.merge_patch(changes);
    write_run(run);
  }
  /// Steps of some tens of ms, to have time for what happens in them.
  void write_slow(const nlohmann::json& changes) const {
    nlohmann::json run = {{"batch", {{"tokens_per_step", 3072}, {"micro_batch", 4}}}};
    run.merge_patch(changes);
    write_run(run);
  }

  std::string mpirun(int ranks, const std::string& arguments, const std::string& options = "") const {
    return "exec " + kMpiexec + " --allow-run-as-root --oversubscribe --bind-to none " + options + " -np " +
           std::to_string(ranks) + " " + program + " " + arguments;
  }
  pid_t start_ranks(int ranks, const std::string& arguments, const std::string& options = "") const {
    return start_words(mpirun(ranks, arguments, options));
  }
  Finished run_ranks(int ranks, const std::string& arguments, const std::string& options = "") const {
    return wait(start_ranks(ranks, arguments, options));
  }

  bool reaches(std::size_t steps) const {
    return wait_until([&] { return events("step").size() >= steps; });
  }
};

/// The run of run.json by ranks that are threads of this process.
inline void train_in_threads(const Workplace& w, int ranks, const std::vector<std::string>& changes) {
  std::vector<std::string> overrides = changes;
  for (const char* path : {"model=model.json", "data.train=train.bin", "data.val=val.bin"}) {
    const std::string text = path;
    const std::size_t value = text.find('=') + 1;
    overrides.push_back(text.substr(0, value) + w.path(text.substr(value)));
  }
  auto communicators = make_thread_communicators(ranks);
  std::vector<std::string> failures(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < communicators.size(); ++k)
    threads.emplace_back([&, k] {
      try {
        end_together(*communicators[k], [&] {
          TrainRequest request;
          request.run = load_run_config(w.path("run.json"), overrides, ranks);
          request.run_file = w.path("run.json");
          train(request, *communicators[k]);
        });
      } catch (const std::exception& error) {
        failures[k] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

/// The processes of the ranks that `mpirun` has started, by rank.
inline std::map<int, pid_t> ranks_of(pid_t mpirun) {
  std::map<int, pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0) continue;
    // "12 (name) S 1 ...": the parent comes second after the name.
    const std::string stat = contents(entry.path().string() + "/stat");
    std::istringstream words(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
    std::string state;
    pid_t parent = 0;
    if (!(words >> state >> parent) || parent != mpirun) continue;
    const std::string environment = contents(entry.path().string() + "/environ"),
                      name = std::string(1, '\0') + "OMPI_COMM_WORLD_RANK=";
    if (const std::size_t at = environment.find(name); at != std::string::npos)
      found[std::atoi(environment.c_str() + at + name.size())] = process;
  }
  return found;
}

/// True when the process has ended, whether or not its parent has looked at it.
inline bool has_ended(pid_t process) {
  const std::string stat = contents("/proc/" + std::to_string(process) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.compare(name_end, 3, ") Z") == 0;
}

/// mpirun waits this long, in seconds, before each of SIGTERM and SIGKILL when it ends its ranks; with no
/// grace it kills them as soon as one of them has failed.
inline std::string grace(int seconds) { return "--mca odls_base_sigkill_timeout " + std::to_string(seconds); }

inline std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

/// One failure, told once, with these words in it.
inline void expect_one_error(const Finished& f, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(f.code, code) << f.err;
  EXPECT_EQ(count_of(f.err, "compact: error"), 1u) << f.err;
  const std::size_t at = f.err.find("compact: error");
  const std::string line = at == std::string::npos ? "" : f.err.substr(at, f.err.find('\n', at) - at);
  for (const std::string& word : words)
    EXPECT_NE(line.find(word), std::string::npos) << word << "\n" << f.err;
}

/// The newest checkpoints of two runs are of the same step and the same bits.
inline void expect_same_end(const Workplace& w, const std::string& a, const std::string& b) {
  ASSERT_FALSE(w.checkpoints(a).empty());
  ASSERT_FALSE(w.checkpoints(b).empty());
  const std::string last_a = w.checkpoints(a).back(), last_b = w.checkpoints(b).back();
  EXPECT_EQ(std::filesystem::path(last_a).filename(), std::filesystem::path(last_b).filename());
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    EXPECT_FALSE(contents(last_a + file).empty()) << file;
    EXPECT_TRUE(contents(last_a + file) == contents(last_b + file)) << file << " of " << a << " and " << b;
  }
}

/// The steps of two runs: the same tokens, and losses that are at most `tolerance` apart.
inline void expect_same_steps(const Workplace& w, const std::string& a, const std::string& b,
                              std::size_t steps, double tolerance) {
  const auto in_a = w.events("step", a), in_b = w.events("step", b);
  ASSERT_EQ(in_a.size(), steps);
  ASSERT_EQ(in_b.size(), steps);
  double apart = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    EXPECT_EQ(in_a[i]["step"], i + 1);
    EXPECT_EQ(in_b[i]["step"], i + 1);
    EXPECT_EQ(in_a[i]["tokens"], in_b[i]["tokens"]);
    apart = std::max(apart, std::abs(in_a[i]["loss"].get<double>() - in_b[i]["loss"].get<double>()));
  }
  EXPECT_LE(apart, tolerance) << a << " and " << b;
}

inline void expect_whole_checkpoints(const Workplace& w, const std::string& out = "out") {
  for (const std::string& folder : w.checkpoints(out))
    EXPECT_NO_THROW(verify_checkpoint(folder, true)) << folder;
}

}  // namespace compact::testing
