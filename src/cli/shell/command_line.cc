#include "cli/shell/command_line.h"

#include <CLI/CLI.hpp>

namespace llmprof::cli {
namespace {

// What stands for the value in texts: "PATH", "text|json|csv", "N" for numbers.
std::string placeholder_of(const std::string& declared) {
  const size_t open = declared.find('{'), close = declared.find('}');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    std::string words = declared.substr(open + 1, close - open - 1);
    for (char& c : words)
      if (c == ',') c = '|';
    return words;
  }
  const std::string name = declared.substr(0, declared.find(':'));
  if (name == "INT" || name == "UINT" || name == "FLOAT") return "N";
  return name.empty() ? "VALUE" : name;
}

bool holds_many(const CLI::Option& option) {
  return option.get_items_expected_max() >= CLI::detail::expected_max_vector_size;
}

OptionText option_text(const std::string& command, const CLI::Option& option) {
  OptionText out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.meaning = option.get_description();
  out.group = option.get_group();
  if (option.get_items_expected_max() == 0) return out;
  const std::string declared = option.get_type_name();
  out.placeholder = placeholder_of(declared);
  out.preset = option.get_default_str();
  out.values = values_of(command, out.names.back(), declared);
  out.values.list = option.get_delimiter() == ',';
  out.repeatable = holds_many(option);
  return out;
}

CommandText command_text(const CLI::App& app) {
  CommandText out{app.get_name(), app.get_description(), app.get_footer(), {}, {}, app.get_allow_extras()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (option->nonpositional()) {
      out.options.push_back(option_text(out.name, *option));
    } else {
      const std::string name = option->get_name(true);
      out.arguments.push_back({name, option->get_description(), option->get_required(), holds_many(*option),
                               values_of(out.name, name, option->get_type_name())});
    }
  }
  return out;
}

}  // namespace

CommandLine read_command_line(const CLI::App& app) {
  CommandLine out;
  out.meaning = app.get_description();
  out.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional() && !option->get_group().empty()) out.options.push_back(option_text({}, *option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) out.commands.push_back(command_text(*command));
  return out;
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace llmprof::cli
