// The command line. Parsing is CLI11's; what a command does is in the file of its name.
#include <csignal>
#include <cstdio>

#include "base/nearest.h"
#include "cli/command.h"

namespace {

using llmprof::ExitCode;
using llmprof::cli::Action;

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// An argument in the place of a command that is none: say which commands are near.
int unknown_command(const CLI::App& app, const std::string& given) {
  const std::vector<std::string> near = llmprof::nearest_names(given, command_names(app), 2);
  std::fprintf(stderr, "llmprof: expected a command, found \"%s\"\n", given.c_str());
  if (!near.empty()) std::fprintf(stderr, "  try:   llmprof %s\n", near[0].c_str());
  std::fprintf(stderr, "  all:   llmprof --help\n");
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // `llmprof ... | head` ends quietly; write_output sees EPIPE
  CLI::App app{
      "llmprof: where the time of LLM inference goes, how far it is from the hardware's limit, and what to change"};
  app.name("llmprof");
  app.set_version_flag("--version", "llmprof " LLMPROF_VERSION);
  app.require_subcommand(0, 1);
  app.footer("Start with:  llmprof demo\nThen:        llmprof analyze trace.json.gz");
  Action action;
  llmprof::cli::add_analyze(app, action);
  llmprof::cli::add_model(app, action);
  llmprof::cli::add_list(app, action);
  llmprof::cli::add_demo(app, action);
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  if (argv[1][0] != '-') {
    const std::vector<std::string> names = command_names(app);
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) return unknown_command(app, argv[1]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string command = "llmprof";
    for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
    std::fprintf(stderr, "llmprof: %s\n  try:   %s --help\n", error.what(), command.c_str());
    return kUsage;
  }
  return action ? action() : kUsage;
}
