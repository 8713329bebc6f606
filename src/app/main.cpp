#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>

#include "commands.h"
#include "compact/core/edit_distance.h"
#include "compact/core/error.h"
#include "compact/dist/communicator.h"
#include "compact/dist/launcher.h"

namespace compact {
namespace {

constexpr int kRunFailed = 1;
constexpr int kBadInput = 2;

int fail(int code, const std::string& text) {
  std::cout.flush();
  std::fflush(stdout);
  std::fprintf(stderr, "compact: error: %s\n", text.c_str());
  return code;
}

// The parser reports a misspelt command only as a missing one, so it is looked for first.
void refuse_unknown_command(const CLI::App& app, int count, char** words) {
  if (count < 2 || words[1][0] == '-') return;
  const std::string word = words[1];
  std::string nearest;
  std::size_t fewest = 1 + word.size() / 2;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return;
    const std::size_t distance = edit_distance(word, command->get_name());
    if (distance < fewest) nearest = command->get_name();
    fewest = std::min(fewest, distance);
  }
  input_error("unknown command '{}'; {}", word,
              nearest.empty() ? "see compact --help" : fmt::format("did you mean {}?", nearest));
}

// Each process of a launcher would do the same work again, or write the same files.
void refuse_launcher(int count, char** words) {
  if (count < 2 || words[1][0] == '-' || std::string(words[1]) == "train" || launched_processes() <= 1)
    return;
  input_error("compact {} runs in one process, and a launcher has started {}; only train works in several{}",
              words[1], launched_processes(),
              std::string(words[1]) == "plan" ? " (plan has the option --ranks N)" : "");
}

// "run is required; see compact train --help"
std::string command_line_mistake(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::string command = "compact";
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  return fmt::format("{}; see {} --help", text, command);
}

int run(int count, char** words) {
  CLI::App app("compact pretrains LLaMA models in less memory, full-rank or with compressed gradients.",
               "compact");
  app.set_version_flag("--version", "compact " COMPACT_VERSION);
  app.require_subcommand(1);
  add_train_command(app);
  add_plan_command(app);
  add_tokenize_command(app);
  add_tokenizer_train_command(app);
  add_eval_command(app);
  add_bench_command(app);
  add_generate_command(app);
  add_export_command(app);
  add_inspect_command(app);
  try {
    refuse_unknown_command(app, count, words);
    refuse_launcher(count, words);
    app.parse(count, words);
  } catch (const CLI::Success& asked) {
    app.exit(asked);  // --help and --version, on stdout
  } catch (const CLI::ParseError& error) {
    input_error("{}", command_line_mistake(app, error));
  }
  std::cout.flush();
  if (std::fflush(stdout) != 0 || !std::cout) return fail(kRunFailed, "cannot write to the standard output");
  return 0;
}

}  // namespace
}  // namespace compact

int main(int count, char** words) {
  using namespace compact;
  // A file that grows beyond the limit is a failed write with a reason, not a death.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(count, words);
  } catch (const SaidElsewhere& failure) {
    return failure.code;
  } catch (const InputError& error) {
    // Of several processes it is a mistake of the command line, which all of them make; what ranks find out
    // later comes here as SaidElsewhere.
    return launched_rank() == 0 ? fail(kBadInput, error.what()) : kBadInput;
  } catch (const RunError& error) {
    return fail(kRunFailed, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kRunFailed, "out of memory: the system refused more; compact plan shows what a run needs");
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return fail(kRunFailed, text.starts_with("internal error") ? text : "internal error: " + text);
  }
}
