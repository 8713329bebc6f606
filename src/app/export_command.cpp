#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "compact/core/error.h"
#include "compact/io/checkpoint.h"

namespace compact {

void add_export_command(CLI::App& app) {
  struct Options {
    std::string checkpoint, out;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "export", "Copy the model of a checkpoint, without training state, for other programs");
  command->add_option("CHECKPOINT", options->checkpoint, "checkpoint, or run folder (its newest checkpoint)")
      ->required();
  command->add_option("--out", options->out, "folder to write: new or empty")->required();
  command->callback([options] {
    if (options->out.empty()) input_error("export --out: the name of a folder is needed, found an empty one");
    const auto files = export_checkpoint(options->checkpoint, options->out);
    fmt::print("{}: {}\n", options->out, fmt::join(files, ", "));
  });
}

}  // namespace compact
