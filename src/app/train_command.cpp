#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "compact/train/trainer.h"

namespace compact {

void add_train_command(CLI::App& app) {
  struct Arguments {
    std::string file;
    std::vector<std::string> overrides;
    bool resume = false, dry_run = false;
  };
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model as a run file says");
  command->add_option("run", args->file, "run file (JSON)")->required()->type_name("RUN.json");
  command->add_option("overrides", args->overrides, "settings that replace those of the file")
      ->type_name("key.path=value");
  command->add_flag("--resume", args->resume, "go on from the newest checkpoint in train.out_dir");
  command->add_flag("--dry-run", args->dry_run, "check everything, print the memory plan, write nothing");
  command->footer([] { return config_help(); });
  command->callback([args] {
    const std::unique_ptr<Communicator> communicator = open_communicator();
    end_together(*communicator, [&] {
      TrainRequest request;
      together(*communicator,
               [&] { request.run = load_run_config(args->file, args->overrides, communicator->size()); });
      request.run_file = args->file;
      request.resume = args->resume;
      request.dry_run = args->dry_run;
      train(request, *communicator);
    });
  });
}

}  // namespace compact
