#include "cli/shell/command_line.h"

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

OptionText option_text(const std::string& command, const Option& option) {
  OptionText out;
  for (const std::string& name : option.short_names()) out.names.push_back("-" + name);
  for (const std::string& name : option.long_names()) out.names.push_back("--" + name);
  out.meaning = option.description();
  out.group = option.group();
  if (!option.takes_value()) return out;
  const std::string declared = option.type_name();
  out.placeholder = placeholder_of(declared);
  out.preset = option.default_text();
  out.values = values_of(command, out.names.back(), declared);
  out.values.list = option.delimiter() == ',';
  out.repeatable = option.holds_many();
  return out;
}

CommandText command_text(const Command& command) {
  CommandText out{command.name(), command.description(), command.footer(), {}, {}, command.takes_other_words()};
  for (const Option& option : command.options()) {
    if (option.group().empty()) continue;
    if (option.is_argument())
      out.arguments.push_back({option.name(), option.description(), option.is_required(), option.holds_many(),
                               values_of(out.name, option.name(), option.type_name())});
    else
      out.options.push_back(option_text(out.name, option));
  }
  return out;
}

}  // namespace

CommandLine read_command_line(const Parser& parser) {
  CommandLine out;
  const Command program = parser.program();
  out.meaning = program.description();
  out.footer = program.footer();
  for (const Option& option : program.options())
    if (!option.is_argument() && !option.group().empty()) out.options.push_back(option_text({}, option));
  for (const Command& command : parser.commands())
    if (!command.is_hidden()) out.commands.push_back(command_text(command));
  return out;
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace llmprof::cli
