#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "compact/core/error.h"
#include "compact/train/signals.h"
#include "compact/train/trainer.h"

namespace compact {

namespace {

/// The end of a run that all ranks know has failed: rank 0 says why while all of them still live, since a
/// launcher that sees one rank end with an error ends the others, whether they have spoken or not.
[[noreturn]] void end_after_word(Communicator& communicator, int code, const char* text) {
  std::fflush(stdout);
  if (text != nullptr) std::fprintf(stderr, "compact: error: %s\n", text);
  std::fflush(stderr);
  double nothing = 0;
  communicator.sum({&nothing, 1});
  throw SaidElsewhere(code);
}

void run_ranks(Communicator& communicator, const std::function<void()>& work) {
  try {
    end_together(communicator, work);
  } catch (const SaidElsewhere& failure) {
    end_after_word(communicator, failure.code, nullptr);
  } catch (const KnownToAll<InputError>& error) {
    end_after_word(communicator, 2, error.what());
  } catch (const KnownToAll<RunError>& error) {
    end_after_word(communicator, 1, error.what());
  }
}

}  // namespace

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
    const SignalScope signals;
    const std::unique_ptr<Communicator> communicator = open_communicator();
    run_ranks(*communicator, [&] {
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
