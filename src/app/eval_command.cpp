#include <CLI/CLI.hpp>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compact/core/error.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/train/cuda_device.h"
#include "compact/train/inference.h"
#include "compact/train/machine.h"
#include "compact/train/run_config.h"

namespace compact {

namespace {

constexpr std::int64_t kPositionsPerPass = 4096;

// T: what the model was trained with, if the folder says; else its number of positions, at most 1024.
std::int64_t sequence_length_of(const std::string& folder) {
  const nlohmann::json state = nlohmann::json::parse(std::ifstream(folder + "/state.json"), nullptr, false);
  if (state.is_object() && state.contains("config"))
    return parse_run_config(state["config"].dump(), folder + "/state.json", kUnknownRanks)
        .data.sequence_length;
  const std::int64_t positions = load_model_config(folder + "/config.json").max_positions;
  return positions > 0 ? std::min<std::int64_t>(positions, 1024) : 1024;
}

}  // namespace

void add_eval_command(CLI::App& app) {
  struct Arguments {
    std::string checkpoint, data, device = "cpu";
    std::int64_t sequence_length = 0, threads = 0;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Loss and perplexity of a checkpoint on token shards");
  command->add_option("checkpoint", args->checkpoint, "checkpoint, run folder or Hugging Face folder")
      ->required();
  command->add_option("--data", args->data, "token shards")->required()->type_name("GLOB");
  command->add_option("--sequence-length", args->sequence_length, "tokens a window; default: as trained")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--threads", args->threads, "CPU threads; default: all")->check(CLI::Range(0, 1024));
  command->add_option("--device", args->device, "cpu or cuda; default: cpu")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--json", args->json, "print one JSON value");
  command->callback([args] {
    const std::string folder = resolve_checkpoint(args->checkpoint);
    use_threads(args->threads, 1);
    const ModelConfig config = load_model_config(folder + "/config.json");
    Dataset dataset = open_dataset(args->data, "--data", config.vocab_size);
    std::int64_t T = args->sequence_length > 0 ? args->sequence_length : sequence_length_of(folder);
    if (dataset.manifest && dataset.manifest->rows) T = dataset.manifest->row_length;
    const Windows windows(std::move(dataset), T, config.vocab_size);
    const std::int64_t batch = std::clamp<std::int64_t>(kPositionsPerPass / T, 1, windows.count());
    const std::unique_ptr<cuda::Queue> queue = open_queue(args->device);
    InferenceModel model(folder, {batch, T, 0, 0}, queue.get());
    const auto alone = make_local_communicator();
    const Evaluation e = *evaluate(
        windows, batch, std::nullopt,
        [&](const auto& inputs, const auto& labels, std::int64_t n) {
          return model.batch_loss(inputs, labels, n);
        },
        [] { return false; }, *alone);
    if (e.tokens == 0)
      input_error("{}: no position has a target (all rows are padding), so there is no loss to report",
                  args->data);
    if (!std::isfinite(e.loss))
      run_error("{}: the loss on {} is not finite, so the weights are of no use", folder, args->data);
    if (args->json) {
      const nlohmann::ordered_json j = {{"loss", e.loss},
                                        {"perplexity", e.perplexity()},
                                        {"tokens", e.tokens},
                                        {"galore_loss", e.galore_loss},
                                        {"galore_perplexity", e.galore_perplexity()}};
      fmt::print("{}\n", j.dump());
    } else {
      fmt::print(
          "{}: loss {:.5f}, perplexity {:.4f} over {} tokens in windows of {} (with the published tables' "
          "divisor, batches of {}: loss {:.5f}, "
          "perplexity {:.4f})\n",
          folder, e.loss, e.perplexity(), e.tokens, T, batch, e.galore_loss, e.galore_perplexity());
    }
  });
}

}  // namespace compact
