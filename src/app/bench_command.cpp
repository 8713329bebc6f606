#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "compact/core/error.h"
#include "compact/train/bench.h"
#include "compact/train/machine.h"
#include "compact/train/trainer.h"

namespace compact {

void add_bench_command(CLI::App& app) {
  struct Arguments {
    std::string file;
    std::vector<std::string> overrides;
    BenchOptions options;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "bench",
      "Show where the time of a step goes, on random tokens, beside what the machine can do: a run file's "
      "step, or without one that of LLaMA-60M in fp32 and bf16");
  CLI::Option* file = command->add_option("run", args->file, "run file (JSON)")->type_name("RUN.json");
  command->add_option("overrides", args->overrides, "settings that replace those of the file")
      ->type_name("key.path=value");
  command->add_option("--repeats", args->options.repeats, "steps to time; the median is reported")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--steps-only", args->options.steps_only, "do not time the matrix products alone");
  CLI::Option* device =
      command->add_option("--device", args->options.device, "without a run file: cpu or cuda; default: cpu")
          ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--json", args->json, "print one JSON value");
  command->callback([args, file, device] {
    Bench bench;
    if (file->count() == 0) {
      use_threads(0, 1);
      bench = bench_machine(args->options);
    } else {
      if (args->file.find('=') != std::string::npos && !std::filesystem::exists(args->file))
        input_error("bench: \"{}\" is an override, but no run file stands before it; give one", args->file);
      if (device->count() > 0)
        input_error("bench: --device is for a bench without a run file; add device={} after \"{}\"",
                    args->options.device, args->file);
      RunConfig run = load_run_config(args->file, args->overrides);
      const ModelConfig model = model_of(run);
      check_against_model(run, model, args->file);
      check_computable(run, model, args->file);
      warn_of_unused_settings(run, args->file);
      use_threads(run.threads, 1);
      bench = bench_run(run, model, args->options);
    }
    fmt::print("{}{}", args->json ? bench_json(bench) : bench_text(bench), args->json ? "\n" : "");
  });
}

}  // namespace compact
