// The command line. Parsing is CLI11's; what a command does is in the file of its name.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "base/nearest.h"
#include "capture/launch/signals.h"
#include "cli/checks.h"
#include "cli/command.h"

namespace {

using llmprof::ExitCode;
using llmprof::cli::Action;

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) names.push_back(command->get_name());  // the hidden ones have no group
  return names;
}

bool has_command(const CLI::App& app, std::string_view name) {
  return !app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; }).empty();
}

// An argument in the place of a command that is none: say which commands are near.
int unknown_command(const CLI::App& app, const std::string& given) {
  const std::vector<std::string> near = llmprof::nearest_names(given, command_names(app), 2);
  llmprof::cli::complain("expected a command, found \"" + given + "\"" +
                         (near.empty() ? "" : "\n  try:   llmprof " + near[0]) + "\n  all:   llmprof --help");
  return kUsage;
}

// Cuts "-- CMD..." off the arguments of `run`.
llmprof::cli::ProgramArguments split_program(int& argc, char** argv) {
  llmprof::cli::ProgramArguments program;
  if (argc < 2 || std::string_view(argv[1]) != "run") return program;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    program.separated = true;
    program.words.assign(argv + i + 1, argv + argc);
    argc = i;
  }
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  llmprof::launch::ignore_write_signals();  // `llmprof ... | head` ends quietly; write_output sees EPIPE
  CLI::App app{
      "llmprof: where the time of LLM inference goes, how far it is from the hardware's limit, and what to change"};
  app.name("llmprof");
  app.set_version_flag("-V,--version", "llmprof " LLMPROF_VERSION);
  app.require_subcommand(0, 1);
  // Of an option given twice the last counts: wrappers append theirs. Commands made below inherit it; lists keep all.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.footer(
      "Start with:  llmprof demo\nThen:        llmprof run -- python3 generate.py\nOr:          llmprof analyze "
      "trace.json.gz");
  Action action;
  const llmprof::cli::ProgramArguments program = split_program(argc, argv);
  llmprof::cli::add_run(app, action, program);
  llmprof::cli::add_analyze(app, action);
  llmprof::cli::add_model(app, action);
  llmprof::cli::add_peaks(app, action);
  llmprof::cli::add_bench(app, action);
  llmprof::cli::add_workload(app, action);
  llmprof::cli::add_list(app, action);
  llmprof::cli::add_demo(app, action);
  llmprof::cli::add_doctor(app, action);
  llmprof::cli::add_ctl(app, action);
  llmprof::cli::add_counters(app, action);
  llmprof::cli::add_completion(app, action);  // last: it prints what all declare
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  // What people type first: `llmprof help [COMMAND]` and `llmprof version`.
  const std::string_view first = argv[1];
  std::vector<std::string> words(argv + 1, argv + argc);
  if (first == "help")
    words = argc > 2 ? std::vector<std::string>{argv[2], "--help"} : std::vector<std::string>{"--help"};
  if (first == "version") words = {"--version"};
  if (words[0].empty() || words[0][0] != '-') {
    if (!has_command(app, words[0])) return unknown_command(app, words[0]);
  }
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      app.exit(error, text, text);
      const llmprof::Status written = llmprof::cli::write_page(text.str(), llmprof::cli::output_style());
      return written ? 0 : llmprof::cli::report_error(written.error());
    }
    return llmprof::cli::report_error(llmprof::cli::command_line_error(app, error));
  }
  return action ? action() : kUsage;
}
