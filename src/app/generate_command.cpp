#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "compact/core/error.h"
#include "compact/data/tokenizer.h"
#include "compact/io/checkpoint.h"
#include "compact/io/file.h"
#include "compact/train/cuda_device.h"
#include "compact/train/inference.h"
#include "compact/train/machine.h"

namespace compact {

namespace {

// The tokenizer that the checkpoint carries: its only *.model file.
std::string tokenizer_of(const std::string& folder) {
  const std::vector<std::string> found = glob_files(folder + "/*.model");
  if (found.size() == 1) return found.front();
  input_error("{}: {} *.model file in the folder, expected one tokenizer; name it with --tokenizer", folder,
              found.empty() ? "no" : "more than one");
}

void generate(const std::string& folder, const std::string& tokenizer_path, const std::string& prompt,
              const SamplingOptions& options, const std::string& device) {
  const Tokenizer tokenizer(tokenizer_path);
  const ModelConfig config = load_model_config(folder + "/config.json");
  if (tokenizer.vocab_size() > config.vocab_size)
    input_error("{}: the tokenizer has {} ids, the model in {} has {}", tokenizer_path,
                tokenizer.vocab_size(), folder, config.vocab_size);
  std::vector<std::int32_t> ids;
  tokenizer.encode(prompt, ids);
  // A model never trained on an empty context begins where documents begin: after the end of another.
  if (ids.empty() && tokenizer.eos() >= 0) ids.push_back(tokenizer.eos());
  if (ids.empty()) input_error("--prompt: the prompt has no token; give some text");
  const auto prompt_tokens = static_cast<std::int64_t>(ids.size());
  std::int64_t most = options.max_tokens;
  if (config.max_positions > 0) {
    if (prompt_tokens >= config.max_positions)
      input_error("--prompt: the prompt has {} tokens and the model {} positions; give a shorter prompt",
                  prompt_tokens, config.max_positions);
    if (prompt_tokens + most > config.max_positions) {
      most = config.max_positions - prompt_tokens;
      fmt::print(stderr, "compact: the model has {} positions, so {} tokens are generated\n",
                 config.max_positions, most);
    }
  }
  const std::unique_ptr<cuda::Queue> queue = open_queue(device);
  InferenceModel model(folder, {0, 0, prompt_tokens + most, prompt_tokens}, queue.get());
  std::vector<std::int32_t> fed = ids;
  for (std::int64_t i = 0; i < most; ++i) {
    const std::vector<float>& logits = model.next_logits(fed);
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
      run_error("{}: the logits after {} tokens are not finite, so the weights are of no use", folder,
                ids.size());
    const std::int32_t next = sample(logits, options, static_cast<std::uint32_t>(i));
    if (next == tokenizer.eos() || next >= tokenizer.vocab_size()) break;
    ids.push_back(next);
    fed = {next};
  }
  fmt::print("{}\n", tokenizer.decode(ids));
}

}  // namespace

void add_generate_command(CLI::App& app) {
  struct Arguments {
    std::string checkpoint, prompt, tokenizer, device = "cpu";
    SamplingOptions sampling;
    std::int64_t threads = 0;
  };
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a checkpoint");
  command->add_option("checkpoint", args->checkpoint, "checkpoint, run folder or Hugging Face folder")
      ->required();
  command->add_option("--prompt", args->prompt, "text to continue")->required()->type_name("TEXT");
  command->add_option("--max-tokens", args->sampling.max_tokens, "tokens to generate at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--temperature", args->sampling.temperature, "0: always the likeliest token")
      ->capture_default_str()
      ->check([](const std::string& text) {
        double value = 0;
        const bool fine = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= 0;
        return fine ? std::string() : "expected a number >= 0, found " + text;
      });
  command->add_option("--top-k", args->sampling.top_k, "draw among the K likeliest tokens only; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command->add_option("--seed", args->sampling.seed, "another seed, another text")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, INT64_MAX));
  command->add_option("--tokenizer", args->tokenizer, "SentencePiece model; default: the checkpoint's own")
      ->type_name("FILE");
  command->add_option("--device", args->device, "cpu or cuda; default: cpu")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--threads", args->threads, "CPU threads; default: all")->check(CLI::Range(0, 1024));
  command->callback([args] {
    const std::string folder = resolve_checkpoint(args->checkpoint);
    use_threads(args->threads, 1);
    generate(folder, args->tokenizer.empty() ? tokenizer_of(folder) : args->tokenizer, args->prompt,
             args->sampling, args->device);
  });
}

}  // namespace compact
