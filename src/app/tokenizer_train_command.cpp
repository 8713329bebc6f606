#include <CLI/CLI.hpp>
#include <memory>

#include "compact/core/error.h"
#include "compact/data/tokenizer.h"
#include "src/app/commands.h"

namespace compact {

void add_tokenizer_train_command(CLI::App& app) {
  struct Options {
    std::int64_t vocab_size = 0;
    std::string name;
    std::vector<std::string> inputs;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tokenizer-train", "Train a SentencePiece tokenizer");
  command->add_option("--vocab-size", options->vocab_size, "Number of token ids")->required()->type_name("N");
  command->add_option("--out", options->name, "Writes NAME.model and NAME.vocab")
      ->required()
      ->type_name("NAME");
  command
      ->add_option("INPUT", options->inputs, "Text, .jsonl, either of them gzipped, or - for standard input")
      ->required()
      ->type_name("");
  command->callback([options] {
    train_tokenizer(options->vocab_size, options->name, options->inputs);
    fmt::print("wrote {}.model and {}.vocab\n", options->name, options->name);
  });
}

}  // namespace compact
