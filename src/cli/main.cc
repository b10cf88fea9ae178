// The command line. What a command does is in the file of its name; how arguments are parsed, in declare.cc.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/page.h"
#include "base/printable.h"
#include "capture/launch/signals.h"
#include "cli/command.h"

namespace {

using llmprof::ExitCode;
using llmprof::cli::Command;
using llmprof::cli::Parser;

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

bool has_command(const Parser& parser, std::string_view name) {
  const std::vector<Command> commands = parser.commands();
  return std::any_of(commands.begin(), commands.end(), [&](const Command& command) { return command.name() == name; });
}

// An argument in the place of a command that is none: say which commands are near.
int unknown_command(const Parser& parser, const std::string& given) {
  std::vector<std::string> names;
  for (const Command& command : parser.commands())
    if (!command.is_hidden()) names.push_back(command.name());
  std::error_code failed;
  if (std::filesystem::exists(given, failed)) {
    llmprof::cli::complain("expected a command, found the file \"" + llmprof::printable(given) +
                           "\"\n  try:   llmprof analyze " + llmprof::printable(given));
    return kUsage;
  }
  const std::vector<std::string> near = llmprof::nearest_names(given, names, 2);
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

// Large vectors, as columns are, lie in memory of their own, which the operating system gets back as soon as they are
// freed. Left alone, glibc raises the limit to 32 MiB as blocks of that size are freed, and keeps them from then on: of
// a recording of millions of kernels a fifth of the memory held nothing.
void give_back_large_blocks() {
#ifdef __GLIBC__
  constexpr int kLarge = 4 << 20;
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_TRIM_THRESHOLD, 2 * kLarge);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  give_back_large_blocks();
  llmprof::launch::ignore_write_signals();  // `llmprof ... | head` ends quietly; write_output sees EPIPE
  Parser parser(
      "llmprof",
      "llmprof: where the time of LLM inference goes, how far it is from the hardware's limit, and what to change",
      "llmprof " LLMPROF_VERSION);
  parser.program().footer(
      "Start with:  llmprof demo\nThen:        llmprof run -- python3 generate.py\nOr:          llmprof analyze "
      "trace.json.gz");
  const llmprof::cli::ProgramArguments program = split_program(argc, argv);
  llmprof::cli::add_run(parser, program);
  llmprof::cli::add_analyze(parser);
  llmprof::cli::add_report(parser);
  llmprof::cli::add_diff(parser);
  llmprof::cli::add_export(parser);
  llmprof::cli::add_model(parser);
  llmprof::cli::add_peaks(parser);
  llmprof::cli::add_bench(parser);
  llmprof::cli::add_call_costs(parser);
  llmprof::cli::add_workload(parser);
  llmprof::cli::add_runs(parser);
  llmprof::cli::add_serve(parser);
  llmprof::cli::add_list(parser);
  llmprof::cli::add_demo(parser);
  llmprof::cli::add_doctor(parser);
  llmprof::cli::add_ctl(parser);
  llmprof::cli::add_counters(parser);
  llmprof::cli::add_completion(parser);  // last: it prints what all declare
  if (argc == 1) {
    std::fputs(llmprof::finish_page(parser.help(), llmprof::cli::error_style()).c_str(), stderr);
    return kUsage;
  }
  // What people type first: `llmprof help [COMMAND]` and `llmprof version`.
  const std::string_view first = argv[1];
  std::vector<std::string> words(argv + 1, argv + argc);
  if (first == "help")
    words = argc > 2 ? std::vector<std::string>{argv[2], "--help"} : std::vector<std::string>{"--help"};
  if (first == "version") words = {"--version"};
  if (words[0].empty() || words[0][0] != '-') {
    if (!has_command(parser, words[0])) return unknown_command(parser, words[0]);
  }
  const llmprof::Result<llmprof::cli::Request> request = parser.parse(std::move(words));
  if (!request) return llmprof::cli::report_error(request.error());
  if (!request->text.empty()) {
    const llmprof::Status written = llmprof::cli::write_page(request->text, llmprof::cli::output_style());
    return written ? 0 : llmprof::cli::report_error(written.error());
  }
  return request->action ? request->action() : kUsage;
}
