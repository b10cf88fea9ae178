// Completion for fish: one line per option, in force once its command stands first on the line.
#include <fmt/format.h>

#include "cli/shell/command_line.h"

namespace llmprof::cli {
namespace {

constexpr const char* kFishHead = R"(# fish completion for llmprof; written by: llmprof completion fish

# Whether $argv[1] is the command, and the line is still llmprof's own.
function __llmprof_in
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = "$argv[1]"; and not contains -- -- $words[3..]
end

function __llmprof_first
    test (count (commandline -opc)) -eq 1
end

# Whether none of the words stands behind the command: it takes one of them.
function __llmprof_none
    set -l words (commandline -opc)
    for word in $argv
        contains -- $word $words[3..]; and return 1
    end
    return 0
end

function __llmprof_devices
    echo cpu
    for gpu in /dev/nvidia*
        string replace -fr '^/dev/nvidia(\d+)$' 'cuda:$1' $gpu
    end
end

# What follows "run ... --" is another program's command line.
function __llmprof_behind_dashes
    set -l words (commandline -opc)
    test (count $words) -ge 3; and test "$words[2]" = run; and contains -- -- $words[3..]
end
function __llmprof_program
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    set -l rest (string escape -- $words[(math $at + 1)..])
    complete -C (string join ' ' -- $rest (commandline -ct))
end

complete -c llmprof -f
complete -c llmprof -n __llmprof_behind_dashes -a '(__llmprof_program)'
)";

// In single quotes of fish, where only \ and ' have a meaning.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'') out += '\\';
    out += c;
  }
  return out + "'";
}

// A list of answers of `-a`: words with their meanings behind a tab, each a line of printf, or the output of a
// function.
std::string answers(const Values& values) {
  std::string out, words;
  if (values.devices) out += " (__llmprof_devices)";
  for (const Choice& choice : values.words)
    words += " " + quoted(choice.meaning.empty() ? choice.word : choice.word + "\t" + choice.meaning);
  if (!words.empty())
    out += values.list ? " (__fish_append , " + words.substr(1) + ")" : " (printf '%s\\n'" + words + ")";
  if (values.folders && !values.files) out += " (__fish_complete_directories)";
  return out.empty() ? out : " -a " + quoted(out.substr(1));
}

std::string option_line(const OptionText& option, const std::string& condition) {
  std::string out = "complete -c llmprof -n " + quoted(condition);
  for (const std::string& name : option.names)
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (option.takes_value()) out += std::string(option.values.files ? " -r -F" : " -x") + answers(option.values);
  return out + " -d " + quoted(option.meaning) + "\n";
}

std::string argument_line(const CommandText& command, const ArgumentText& argument) {
  if (!argument.values.known()) return {};
  std::string condition = "__llmprof_in " + command.name;
  if (!argument.many && !argument.values.words.empty() && !argument.values.files) {
    condition += "; and __llmprof_none";
    for (const Choice& choice : argument.values.words) condition += " " + choice.word;
  }
  return "complete -c llmprof -n " + quoted(condition) + (argument.values.files ? " -F" : "") +
         answers(argument.values) + "\n";
}

}  // namespace

std::string fish_completion(const CommandLine& line) {
  std::string out = kFishHead;
  for (const CommandText& command : line.commands)
    out += fmt::format("complete -c llmprof -n __llmprof_first -a {} -d {}\n", command.name, quoted(command.meaning));
  for (const OptionText& option : line.options) out += option_line(option, "__llmprof_first");
  for (const CommandText& command : line.commands) {
    out += fmt::format("\n# llmprof {}\n", command.name);
    for (const ArgumentText& argument : command.arguments) out += argument_line(command, argument);
    for (const OptionText& option : command.options) out += option_line(option, "__llmprof_in " + command.name);
    if (command.runs_program)
      out += fmt::format("complete -c llmprof -n '__llmprof_in {}' -a -- -d 'the program follows'\n", command.name);
  }
  return out;
}

}  // namespace llmprof::cli
