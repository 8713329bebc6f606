#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "compact/core/error.h"
#include "compact/train/cuda_device.h"
#include "compact/train/machine.h"
#include "compact/train/plan.h"
#include "compact/train/trainer.h"

namespace compact {

void add_plan_command(CLI::App& app) {
  struct Arguments {
    std::string file, fit;
    std::vector<std::string> overrides;
    bool json = false;
    int ranks = 1;
  };
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("plan", "Show the memory and operations a run needs, without running it");
  command->add_option("run", args->file, "run file (JSON)")->required()->type_name("RUN.json");
  command->add_option("overrides", args->overrides, "settings that replace those of the file")
      ->type_name("key.path=value");
  command->add_flag("--json", args->json, "print one JSON value");
  command
      ->add_option("--ranks", args->ranks,
                   "plan for one of so many ranks: its memory, and what it sends in a step")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  CLI::Option* fit = command
                         ->add_option("--fit", args->fit,
                                      "find the fastest preset, micro-batch and chunk that need at most this")
                         ->type_name("BYTES");
  command->callback([args, fit] {
    RunConfig run = load_run_config(args->file, args->overrides, args->ranks);
    const ModelConfig model = model_of(run);
    check_against_model(run, model, args->file);
    if (run.device == "cuda") check_cuda_computes(model, args->file);
    warn_of_unused_settings(run, args->file);
    use_threads(run.threads, 1);
    RunPlan plan;
    if (fit->count() == 0) {
      plan = plan_run(run, model, args->ranks);
    } else {
      const std::int64_t bytes = parse_bytes(args->fit, "--fit");
      const FittingRun found = fit_run(run, model, bytes, args->ranks);
      if (!found.fits)
        run_error(
            "{}: no preset, micro-batch or logits chunk brings this run down to {} ({} bytes); the least is "
            "{} "
            "({} bytes) with memory.preset \"{}\", batch.micro_batch {} and memory.logits_chunk_bytes {}",
            args->file, human_bytes(bytes), bytes, human_bytes(found.plan.peak), found.plan.peak,
            found.run.memory.preset, found.run.batch.micro_batch, found.run.memory.logits_chunk_bytes);
      run = found.run;
      plan = found.plan;
      if (!args->json)
        fmt::print(
            "fits in {}; lines for the run file:\n  \"batch\": {{\"tokens_per_step\": {}, \"micro_batch\": "
            "{}}},\n"
            "  \"memory\": {{\"preset\": \"{}\", \"logits_chunk_bytes\": {}}}\n\n",
            human_bytes(bytes), run.batch.tokens_per_step, run.batch.micro_batch, run.memory.preset,
            run.memory.logits_chunk_bytes);
    }
    fmt::print("{}{}", args->json ? plan_json(run, model, plan) : plan_text(run, model, plan),
               args->json ? "\n" : "");
  });
}

}  // namespace compact
