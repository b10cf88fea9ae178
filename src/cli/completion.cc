// `llmprof completion SHELL`, and the hidden `llmprof man`: both print what the declarations of all commands say. The
// build runs them for what is installed.
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/shell/command_line.h"

namespace llmprof::cli {
namespace {

struct Shell {
  const char* name;
  std::string (*script)(const CommandLine&);
};
constexpr Shell kShells[] = {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};

int print(const std::string& text) {
  const Status status = write_output(text, {});
  return status ? 0 : report_error(status.error());
}

int run(const std::string& wanted, const Parser& parser) {
  std::vector<std::string> names;
  for (const Shell& shell : kShells) {
    if (wanted == shell.name) return print(shell.script(read_command_line(parser)));
    names.emplace_back(shell.name);
  }
  return report_error({"expected a shell of " + join_or(names) + ", found \"" + wanted + "\"", "",
                       "llmprof completion bash", ExitCode::kUsage});
}

}  // namespace

void add_completion(Parser& parser) {
  const std::shared_ptr<std::string> shell = std::make_shared<std::string>();
  const Command command =
      parser.add_command("completion", "print the completions of this command line for bash, zsh or fish");
  command.option("SHELL", *shell, "bash, zsh or fish").required().type_name("bash|zsh|fish");
  command.footer(
      "Installed copies have them where the shells look. For this one, in ~/.bashrc:\n"
      "          eval \"$(llmprof completion bash)\"");
  command.action([shell, &parser] { return run(*shell, parser); });

  const Command man = parser.add_command("man", "print the manual page, for man(1)");
  man.hide();  // it is installed as llmprof.1
  man.action([&parser] { return print(manual_page(read_command_line(parser), LLMPROF_VERSION)); });
}

}  // namespace llmprof::cli
