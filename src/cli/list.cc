// `llmprof list WHAT`: the registries, so that the code is the manual.
#include <functional>

#include "analyze/analysis.h"
#include "base/nearest.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/lists.h"

namespace llmprof::cli {

namespace {

// {"schema": "llmprof.list/1", "list": "gpus", "rows": [...]}
std::string list_as_json(const List& list) {
  JsonWriter json;
  json.begin_object().field("schema", "llmprof.list/1").field("list", list.name).key("rows").begin_array();
  list.write(json);
  json.end_array().end_object();
  return json.take() + "\n";
}

// Without a name: which lists there are.
std::string lists_as_json() {
  JsonWriter json;
  json.begin_object().field("schema", "llmprof.list/1").field("list", "lists").key("rows").begin_array();
  for (const List& list : lists())
    json.begin_object().field("name", list.name).field("what", list.description).end_object();
  json.end_array().end_object();
  return json.take() + "\n";
}

std::string lists_as_text() {
  TextTable table({{"list", TextTable::Align::kLeft, 0}, {"what", TextTable::Align::kLeft, 0}});
  for (const List& list : lists()) table.add_row({std::string(list.name), std::string(list.description)});
  return table.render("");
}

}  // namespace

void add_list(Parser& parser) {
  struct Options {
    std::string what;
    bool markdown = false, json = false;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  const Command command =
      parser.add_command("list", "print what llmprof knows: importers, analyses, findings, GPUs, models, ...");
  std::string names;
  for (const List& list : lists()) names += (names.empty() ? "" : ", ") + std::string(list.name);
  command.option("WHAT", options->what, "one of: " + names).type_name("WHAT");
  command.flag("--markdown", options->markdown, "as a Markdown document (metrics only)");
  command.flag("--json", options->json, "as JSON");
  command.footer("Example:  llmprof list gpus");
  command.action([options, names]() -> int {
    std::vector<std::string> all;
    if (options->what.empty()) {
      const Status status = write_output(options->json ? lists_as_json() : lists_as_text(), {});
      return status ? 0 : report_error(status.error());
    }
    for (const List& list : lists()) {
      all.emplace_back(list.name);
      if (list.name != options->what) continue;
      if (options->json) {
        const Status status = write_output(list_as_json(list), {});
        return status ? 0 : report_error(status.error());
      }
      TextStyle style = output_style();
      style.more = "a wider terminal, or | less -S";
      const Status status =
          options->markdown ? write_output(list.print(true, style), {}) : write_page(list.print(false, style), style);
      return status ? 0 : report_error(status.error());
    }
    const std::vector<std::string> near = nearest_names(options->what, all, 1);
    return report_error({"expected one of " + names + ", found \"" + options->what + "\"", "",
                         near.empty() ? "llmprof list" : "llmprof list " + near.front(), ExitCode::kUsage});
  });
}

}  // namespace llmprof::cli
