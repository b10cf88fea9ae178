// `llmprof list WHAT`: the registries, so that the code is the manual.
#include <functional>

#include "analyze/analysis.h"
#include "base/nearest.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/lists.h"

namespace llmprof::cli {

void add_list(CLI::App& app, Action& action) {
  struct Options {
    std::string what;
    bool markdown = false;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("list", "print what llmprof knows: importers, analyses, findings, GPUs, models, ...");
  std::string names;
  for (const List& list : lists()) names += (names.empty() ? "" : ", ") + std::string(list.name);
  command->add_option("WHAT", options->what, "one of: " + names)->required()->type_name("WHAT");
  command->add_flag("--markdown", options->markdown, "as a Markdown document (metrics only)");
  command->footer("Example:  llmprof list gpus");
  command->callback([options, names, &action] {
    action = [options, names]() -> int {
      std::vector<std::string> all;
      for (const List& list : lists()) {
        all.emplace_back(list.name);
        if (list.name != options->what) continue;
        const Status status = write_output(list.print(options->markdown), {});
        return status ? 0 : report_error(status.error());
      }
      return report_error({"expected one of " + names + ", found \"" + options->what + "\"", "",
                           "llmprof list " + nearest_names(options->what, all, 1).front(), ExitCode::kUsage});
    };
  });
}

}  // namespace llmprof::cli
