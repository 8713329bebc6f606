#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "compact/train/bench.h"
#include "compact/train/machine.h"
#include "compact/train/trainer.h"

namespace compact {

void add_bench_command(CLI::App& app) {
  struct Arguments {
    std::string file;
    std::vector<std::string> overrides;
    int repeats = 5;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "bench", "Time a run file's step on random tokens beside the sum of its matrix products");
  command->add_option("run", args->file, "run file (JSON)")->required()->type_name("RUN.json");
  command->add_option("overrides", args->overrides, "settings that replace those of the file")
      ->type_name("key.path=value");
  command->add_option("--repeats", args->repeats, "steps to time; the median is reported")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--json", args->json, "print one JSON value");
  command->callback([args] {
    RunConfig run = load_run_config(args->file, args->overrides);
    const ModelConfig model = model_of(run);
    check_against_model(run, model, args->file);
    check_computable(run, args->file);
    use_threads(run.threads, 1);
    const StepBench bench = bench_step(run, model, args->repeats);
    fmt::print("{}\n", args->json ? bench_json(bench) : bench_text(bench));
  });
}

}  // namespace compact
