// Completion for zsh: one call of _arguments per command, and one function per set of values.
#include <fmt/format.h>

#include "base/shell_word.h"
#include "cli/shell/command_line.h"

namespace llmprof::cli {
namespace {

// Functions for the sets of values, each written once.
class ValueFunctions {
 public:
  // The action of a specification.
  std::string action(const Values& values) {
    if (!values.known()) return " ";
    if (values.files && values.words.empty() && !values.devices) return "_files";
    if (values.folders && values.words.empty() && !values.devices) return "_files -/";
    for (size_t i = 0; i < sets_.size(); ++i)
      if (sets_[i] == values) return name(i);
    sets_.push_back(values);
    return name(sets_.size() - 1);
  }

  std::string text() const {
    std::string out;
    for (size_t i = 0; i < sets_.size(); ++i) out += "\n" + function(i);
    return out;
  }

 private:
  static std::string name(size_t i) { return fmt::format("_llmprof_values_{}", i + 1); }

  std::string function(size_t i) const {
    const Values& values = sets_[i];
    std::string out = name(i) + "() {\n  local ret=1\n  local -a words\n";
    std::string words, described;
    bool meanings = false;
    for (const Choice& choice : values.words) {
      meanings |= !choice.meaning.empty();
      words += " " + shell_quoted(choice.word);
      described +=
          "\n    " + shell_quoted(backslashed(choice.word, ":") + (choice.meaning.empty() ? "" : ":" + choice.meaning));
    }
    if (values.devices)
      out += "  local gpu\n  words=(cpu)\n  for gpu in /dev/nvidia<->(N); do words+=(cuda:${gpu#/dev/nvidia}); done\n" +
             std::string("  compadd -a words && ret=0\n");
    if (values.list && !values.words.empty())
      out += "  _sequence compadd -" + words + " && ret=0\n";
    else if (meanings)
      out += "  words=(" + described + "\n  )\n  _describe -t values value words && ret=0\n";
    else if (!values.words.empty())
      out += "  compadd --" + words + " && ret=0\n";
    if (values.files) out += "  _files && ret=0\n";
    if (values.folders && !values.files) out += "  _files -/ && ret=0\n";
    return out + "  return ret\n}\n";
  }

  std::vector<Values> sets_;
};

// "(-o --output)"{-o+,--output=}"[meaning]:PATH:_files" as one word each.
std::string option_specs(const OptionText& option, ValueFunctions& functions) {
  std::string all, out;
  for (const std::string& name : option.names) all += (all.empty() ? "" : " ") + name;
  for (const std::string& name : option.names) {
    const bool longer = name.starts_with("--");
    std::string spec = option.repeatable ? "*" : "(" + all + ")";
    if (name == "-h" || name == "--help") spec = "(- *)";
    spec += name + (!option.takes_value() ? "" : longer ? "=" : "+");
    spec += "[" + backslashed(option.meaning, "[]\\") + "]";
    if (option.takes_value())
      spec += ":" + backslashed(option.placeholder, ":\\") + ":" + functions.action(option.values);
    out += " \\\n        " + shell_quoted(spec);
  }
  return out;
}

std::string command_case(const CommandText& command, ValueFunctions& functions) {
  std::string out = fmt::format("    {})\n", command.name);
  if (command.runs_program)
    out +=
        "      # What follows -- is another program's command line.\n"
        "      local behind=${words[(i)--]}\n"
        "      if ((behind < CURRENT)); then\n"
        "        shift $behind words\n"
        "        ((CURRENT -= behind))\n"
        "        _normal\n"
        "        return\n"
        "      fi\n";
  out += "      _arguments -S";
  for (const OptionText& option : command.options) out += option_specs(option, functions);
  for (const ArgumentText& argument : command.arguments) {
    // Behind " " zsh offers no options in its place either.
    const std::string action = argument.values.known() ? functions.action(argument.values) : "()";
    const char* const many = argument.many ? "*:" : argument.required ? ":" : "::";
    out += " \\\n        " + shell_quoted(many + backslashed(argument.name, ":\\") + ":" + action);
  }
  if (command.runs_program) out += " \\\n        ':program:_llmprof_dashes'";
  return out + "\n      ;;\n";
}

}  // namespace

std::string zsh_completion(const CommandLine& line) {
  ValueFunctions functions;
  std::string commands, cases, top;
  for (const CommandText& command : line.commands) {
    commands += "\n    " + shell_quoted(command.name + ":" + command.meaning);
    cases += command_case(command, functions);
  }
  for (const OptionText& option : line.options) top += option_specs(option, functions);
  return "#compdef llmprof\n# zsh completion for llmprof; written by: llmprof completion zsh\n" + functions.text() +
         "\n_llmprof_dashes() { compadd -- -- }\n"
         "\n_llmprof_commands() {\n  local -a commands\n  commands=(" +
         commands +
         "\n  )\n  _describe -t commands command commands\n}\n"
         "\n_llmprof() {\n"
         "  if ((CURRENT == 2)); then\n"
         "    _arguments" +
         top +
         " \\\n        ':command:_llmprof_commands'\n    return\n  fi\n"
         "  shift words\n"
         "  ((CURRENT -= 1))\n"
         "  local curcontext=\"${curcontext%:*:*}:llmprof-${words[1]}:\"\n"
         "  case ${words[1]} in\n" +
         cases +
         "  esac\n}\n"
         "\nif [[ ${funcstack[1]} == _llmprof ]]; then\n  _llmprof \"$@\"\nelse\n  compdef _llmprof llmprof\nfi\n";
}

}  // namespace llmprof::cli
