#include <CLI/CLI.hpp>
#include <memory>

#include "compact/core/error.h"
#include "compact/data/tokenizer.h"
#include "src/app/commands.h"

namespace compact {

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token shards");
  command->add_option("--tokenizer", options->tokenizer, "SentencePiece model")
      ->required()
      ->type_name("FILE");
  command->add_option("--out", options->out_prefix, "Folder and start of the names of the files to write")
      ->required()
      ->type_name("PREFIX");
  command
      ->add_option(
          "--val-fraction", options->val_fraction,
          "Share of the documents that goes to PREFIX_val_*.bin; of too few documents, the end of the text")
      ->type_name("F");
  CLI::Option* rows =
      command
          ->add_option("--rows", options->rows, "One document a row of T tokens, cut or padded; else packed")
          ->type_name("T");
  command->add_option("--shard-tokens", options->shard_tokens, "Most tokens in one shard")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option(
          "INPUT", options->inputs,
          "Text (documents split at lines <|endoftext|>), .jsonl with a field \"text\", either of them "
          "gzipped, or - for standard input")
      ->required()
      ->type_name("");
  command->callback([options, rows] {
    // 0 stands for packed inside the program; a user who writes it means something else.
    if (rows->count() > 0 && options->rows == 0) input_error("--rows must be at least 2, found 0");
    const TokenizeResult result = tokenize(*options);
    fmt::print("{} documents, {} bytes of text: {} tokens for training, {} for validation\n",
               result.documents, result.bytes, result.train_tokens, result.val_tokens);
    for (const std::string& file : result.files) fmt::print("  {}\n", file);
  });
}

}  // namespace compact
