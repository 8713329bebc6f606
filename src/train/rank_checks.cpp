#include "rank_checks.h"

#include <sched.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <vector>

#include "compact/core/error.h"
#include "compact/dist/launcher.h"
#include "compact/io/file.h"
#include "compact/train/machine.h"
#include "kernels/cpu_isa.h"

namespace compact {

namespace {

/// Where a rank stands that differs from rank 0 in what it gave; 0 where none does.
std::size_t first_other(const std::vector<std::string>& all) {
  for (std::size_t k = 1; k < all.size(); ++k)
    if (all[k] != all[0]) return k;
  return 0;
}

/// "rank 3 (on node-b)"
std::string named(std::size_t rank, const std::vector<std::string>& hosts) {
  return fmt::format("rank {} (on {})", rank, hosts[rank]);
}

constexpr std::int64_t kWholeBytes = std::int64_t{1} << 30;  // that are hashed whole
constexpr std::int64_t kSampleBytes = std::int64_t{64} << 10, kSamples = 256;

/// Hash of a file's content: whole, or of samples spread over it.
std::string content_hash(const std::string& path, bool whole) {
  const InputFile file(path);
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  std::vector<char> buffer(static_cast<std::size_t>(kSampleBytes));
  const std::int64_t size = file.size(), pieces = (size + kSampleBytes - 1) / kSampleBytes;
  const std::int64_t taken = whole ? pieces : std::min(pieces, kSamples);
  for (std::int64_t i = 0; i < taken; ++i) {
    const std::int64_t piece = whole ? i : i * pieces / taken;
    const std::int64_t at = piece * kSampleBytes, bytes = std::min(kSampleBytes, size - at);
    file.read(at, buffer.data(), static_cast<std::size_t>(bytes));
    XXH3_64bits_update(state, buffer.data(), static_cast<std::size_t>(bytes));
  }
  const XXH64_hash_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}", hash);
}

/// A line for each shard: path, tokens, hash.
std::string shards_text(const Dataset& train, const Dataset& val) {
  std::vector<const TokenShard*> shards;
  std::int64_t bytes = 0;
  for (const Dataset* set : {&train, &val})
    for (const auto& shard : set->shards) {
      shards.push_back(shard.get());
      bytes += shard->tokens() * shard->bytes_per_token();
    }
  std::string text;
  for (const TokenShard* shard : shards)
    text += fmt::format("{}: {} tokens, content {}\n", shard->path(), shard->tokens(),
                        content_hash(shard->path(), bytes <= kWholeBytes));
  return text;
}

/// Without the indentation and the comma of a line of JSON.
std::string trimmed(std::string line) {
  if (line.ends_with(',')) line.pop_back();
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

/// The first line of `a` that `b` does not have in its place, and what stands there.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a), lines_b(b);
  while (true) {
    std::string line_a, line_b;
    const bool more_a = static_cast<bool>(std::getline(lines_a, line_a)),
               more_b = static_cast<bool>(std::getline(lines_b, line_b));
    if (line_a != line_b || !more_a || !more_b)
      return {more_a ? trimmed(line_a) : "nothing more", more_b ? trimmed(line_b) : "nothing more"};
  }
}

void check_configs(Communicator& communicator, const RunConfig& run, const std::string& run_file,
                   const std::vector<std::string>& hosts) {
  RunConfig common = run;
  common.threads = 0;
  common.cuda.device = 0;
  const std::vector<std::string> all = communicator.gather_texts(resolved_json(common));
  const std::size_t other = first_other(all);
  if (other == 0) return;
  const RunConfig first = parse_run_config(all[0], "rank 0's config", kUnknownRanks),
                  second = parse_run_config(all[other], "the other config", kUnknownRanks);
  for (const ConfigDifference& d : compare_configs(first, second))
    input_error(
        "{}: {} is {} on rank 0 and {} on {}; all ranks must read the same run file, so copy it to every "
        "machine or put it where all see it",
        run_file, d.key, d.was, d.now, named(other, hosts));
}

}  // namespace

void check_ranks_agree(Communicator& communicator, const RunConfig& run, const std::string& run_file,
                       const ModelConfig& model, const Dataset& train, const Dataset& val) {
  if (communicator.size() == 1) return;
  together(communicator, [&] {
    const std::vector<std::string> hosts = communicator.gather_texts(host_name());
    const auto require_same = [&](const std::string& what, const std::string& mine, const char* advice) {
      const std::vector<std::string> all = communicator.gather_texts(mine);
      if (const std::size_t other = first_other(all); other != 0)
        input_error("{} is {} on rank 0 and {} on {}; {}", what, all[0], all[other], named(other, hosts),
                    advice);
    };
    require_same("the version of compact", COMPACT_VERSION, "put one version on all machines");
    check_configs(communicator, run, run_file, hosts);
    const std::vector<std::string> models =
        communicator.gather_texts(hugging_face_config(model, run.precision));
    if (const std::size_t other = first_other(models); other != 0) {
      const auto [first, second] = first_difference(models[0], models[other]);
      input_error("{}: the model file holds {} on rank 0 and {} on {}; put the same file on all machines",
                  run.init_from.empty() ? run.model : run.init_from, first, second, named(other, hosts));
    }
    if (!run.dist.shard_optimizer)
      require_same("the CPU",
                   fmt::format("{} ({})", cpu_name(), cpu_isa() == Isa::Avx512 ? "AVX-512" : "AVX2"),
                   "such ranks round differently and would drift apart; use machines of one kind, or "
                   "dist.shard_optimizer, with which every weight is computed in one place");
    // The slowest is the last.
    const std::vector<std::string> data = communicator.gather_texts(shards_text(train, val));
    if (const std::size_t other = first_other(data); other != 0) {
      const auto [first, second] = first_difference(data[0], data[other]);
      input_error(
          "the ranks see different data: rank 0 has {}, {} has {}; put the same shards on all machines, or "
          "where all see them",
          first, named(other, hosts), second);
    }
  });
}

void require_same_checkpoint(Communicator& communicator, const std::string& folder,
                             const std::string& out_dir) {
  together(communicator, [&] {
    const std::vector<std::string> all = communicator.gather_texts(folder);
    if (const std::size_t other = first_other(all); other != 0)
      input_error(
          "--resume: rank 0 finds {} and rank {} finds {}; train.out_dir \"{}\" must lie where all ranks see "
          "the "
          "same files",
          all[0], other, all[other], out_dir);
  });
}

void require_same_weights(Communicator& communicator, const std::string& fingerprint, std::int64_t step) {
  together(communicator, [&] {
    const std::size_t other = first_other(communicator.gather_texts(fingerprint));
    if (other != 0)
      run_error(
          "step {}: the weights of rank {} are no longer those of rank 0, so one of the machines computes "
          "something else; nothing is saved. dist.shard_optimizer computes every weight in one place",
          step, other);
  });
}

int ranks_on_my_cpus(Communicator& communicator) {
  const int ranks = communicator.size();
  if (ranks == 1 && !under_launcher()) return 1;
  const auto cpus_of = [](pid_t process) {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::string cpus;
    if (sched_getaffinity(process, sizeof(set), &set) == 0)
      for (int i = 0; i < CPU_SETSIZE; ++i) cpus += CPU_ISSET(i, &set) ? '1' : '0';
    return cpus;
  };
  const auto count = [](const std::string& cpus) { return std::count(cpus.begin(), cpus.end(), '1'); };
  const std::string mine = cpus_of(0), launcher = cpus_of(getppid());
  const std::vector<std::string> all = communicator.gather_texts(mine),
                                 hosts = communicator.gather_texts(host_name());
  int sharing = 0;
  std::string used(mine.size(), '0');
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (hosts[k] != hosts[static_cast<std::size_t>(communicator.rank())]) continue;
    bool shares = all[k].empty() || mine.empty();
    for (std::size_t i = 0; i < std::min(mine.size(), all[k].size()); ++i) {
      shares |= mine[i] == '1' && all[k][i] == '1';
      if (all[k][i] == '1') used[i] = '1';
    }
    sharing += shares;
  }
  if (communicator.rank() == 0 && count(used) < count(launcher))
    std::fprintf(stderr,
                 "compact: warning: the launcher has bound the ranks of this machine to %d of its %d CPUs; "
                 "mpirun --bind-to none lets them use all\n",
                 static_cast<int>(count(used)), static_cast<int>(count(launcher)));
  return sharing;
}

}  // namespace compact
