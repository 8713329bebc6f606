#pragma once

namespace CLI {
class App;
}

namespace compact {

// Each adds one subcommand to the command line; its work is done in the callback.
void add_train_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_tokenizer_train_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_inspect_command(CLI::App& app);

}  // namespace compact
