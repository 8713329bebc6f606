#include "compact/train/trainer.h"

#include <filesystem>

#include "compact/core/error.h"
#include "compact/data/tokenizer.h"
#include "compact/dist/nccl.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/train/cuda_device.h"
#include "compact/train/machine.h"
#include "compact/train/plan.h"
#include "compact/train/run_state.h"
#include "compact/train/signals.h"
#include "rank_checks.h"
#include "run.h"

namespace compact {

namespace fs = std::filesystem;

namespace {

void check_different_data(const Dataset& train, const Dataset& val) {
  for (const auto& a : train.shards)
    for (const auto& b : val.shards)
      if (fs::equivalent(a->path(), b->path()))
        input_error("data.train and data.val both hold {}: a validation loss on training data says nothing",
                    a->path());
}

// The data know which ids begin and end a text; a checkpoint that said otherwise would not stop where its
// texts do.
void adopt_token_ids(ModelConfig& model, const Dataset& data) {
  if (!data.manifest) return;
  model.eos_token_id = data.manifest->end_of_text;
  if (const std::string path = data.tokenizer_path(); !path.empty())
    if (const std::int32_t bos = Tokenizer(path).bos(); bos >= 0) model.bos_token_id = bos;
}

bool holds_a_run(const std::string& out) {
  if (fs::exists(out + "/metrics.jsonl") || fs::exists(out + "/config.resolved.json")) return true;
  return !list_checkpoints(out, [](const std::string&, const std::string&) {}).empty();
}

}  // namespace

void train(const TrainRequest& request, Communicator& communicator) {
  const std::int64_t rss_at_start = resident_bytes();
  RunParts parts;
  parts.rss_at_start = rss_at_start;
  RunConfig& run = parts.run = request.run;
  ModelConfig& model = parts.model;
  const int ranks = communicator.size(), rank = communicator.rank();
  const Patience patience{.seconds = run.dist.timeout_seconds, .hurried = SignalScope::stop_requested};
  communicator.set_patience(patience);
  Dataset train_data, val_data;
  together(communicator, [&] {
    model = model_of(run);
    check_against_model(run, model, request.run_file);
    check_computable(run, model, request.run_file);
    if (rank == 0) warn_of_unused_settings(run, request.run_file);
    train_data = open_dataset(run.data.train, "data.train", model.vocab_size);
    if (run.data.val.empty()) return;
    val_data = open_dataset(run.data.val, "data.val", model.vocab_size);
    check_different_data(train_data, val_data);
  });
  check_ranks_agree(communicator, run, request.run_file, model, train_data, val_data);
  parts.threads = use_threads(run.threads, ranks_on_my_cpus(communicator));

  // Before anything in the folder is read: a run that is going on would change it meanwhile.
  std::unique_ptr<FolderLock> lock;
  together(communicator, [&] {
    adopt_token_ids(model, train_data);
    if (!run.data.val.empty())
      parts.val = std::make_shared<Windows>(std::move(val_data), run.data.sequence_length, model.vocab_size);
    parts.train =
        std::make_shared<Windows>(std::move(train_data), run.data.sequence_length, model.vocab_size);
    if (rank == 0 && !request.dry_run && fs::is_directory(run.train.out_dir))
      lock = std::make_unique<FolderLock>(run.train.out_dir);
  });
  together(communicator, [&] {
    if (request.resume) {
      parts.resumed =
          find_resume(run, model, data_fingerprint(parts.train->dataset()), [rank](const std::string& text) {
            if (rank == 0) fmt::print(stderr, "compact: warning: {}\n", text);
          });
    } else if (rank == 0 && holds_a_run(run.train.out_dir)) {
      input_error(
          "train.out_dir \"{}\" holds a run already; add --resume to go on with it, or name another out_dir",
          run.train.out_dir);
    }
  });
  if (parts.resumed) require_same_checkpoint(communicator, parts.resumed->folder, run.train.out_dir);

  parts.plan = plan_run(run, model, ranks, rank);
  if (request.dry_run) {
    if (rank != 0) return;
    fmt::print("{}", plan_text(run, model, parts.plan));
    if (run.device == "cuda") fmt::print("The CUDA device itself was not looked at.\n");
    return;
  }
  together(communicator, [&] {
    parts.queue = open_queue(run, communicator);
    require_memory(parts.queue.get(), parts.plan.peak, memory_table(parts.plan.at_peak));
    if (rank != 0 || lock) return;
    make_folders(run.train.out_dir);
    lock = std::make_unique<FolderLock>(run.train.out_dir);
  });
  if (parts.queue && ranks > 1) parts.cards = make_nccl_communicator(communicator, *parts.queue, patience);
  Communicator& between = parts.cards ? *parts.cards : communicator;
  Run training(std::move(parts), between);
  // Here already, so that the memory that other ranks' messages go to is there until all have ended.
  end_together(between, [&] { training.execute(); });
}

}  // namespace compact
