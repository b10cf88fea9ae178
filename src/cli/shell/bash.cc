// Completion for bash: what is known of each option as one case per set of values, and a reader of the line.
#include <fmt/format.h>

#include "cli/shell/command_line.h"

namespace llmprof::cli {
namespace {

constexpr const char* kBashHead = R"(# bash completion for llmprof; written by: llmprof completion bash
)";

// Bash cuts words at = and : (COMP_WORDBREAKS), so "--device=cuda:0" comes as five: they are put together again, and
// what stands before the last cut is taken off the answers.
constexpr const char* kReader = R"(
# The words that can follow: WORD... that begin as $1 does.
_llmprof_offer() {
  local start=$1 cut=$2 word
  shift 2
  for word in "$@"; do
    [[ $word == "$start"* ]] && COMPREPLY+=("${word#"$cut"}")
  done
}

# Values of the option or argument $1, of which $2 is typed; $3 stands before it in the same word.
_llmprof_complete_value() {
  local known='' kinds='' value=$2 front=$3 done='' cut='' whole word
  local -a words
  _llmprof_values "$1"
  if [[ $kinds == *list* && $value == *,* ]]; then
    done=${value%,*},
  fi
  whole=$front$value
  if [[ $COMP_WORDBREAKS == *:* && $whole == *:* ]]; then
    cut=${whole%"${whole##*:}"}
  elif [[ $COMP_WORDBREAKS == *=* && $whole == *=* ]]; then
    cut=${whole%"${whole##*=}"}
  fi
  read -ra words <<<"$known"
  if [[ $kinds == *devices* ]]; then
    words+=(cpu)
    for word in /dev/nvidia[0-9]*; do
      [[ -e $word ]] && words+=("cuda:${word#/dev/nvidia}")
    done
  fi
  _llmprof_offer "$whole" "$cut" "${words[@]/#/$front$done}"
  if [[ $kinds == *list* && -n $known ]]; then
    compopt -o nospace 2>/dev/null
  fi
  if [[ $kinds == *files* || $kinds == *folders* ]]; then
    local how=-f path
    [[ $kinds == *files* ]] || how=-d
    compopt -o filenames 2>/dev/null
    while IFS= read -r path; do
      COMPREPLY+=("$path")
    done < <(compgen "$how" -- "$value")
  fi
}

# What follows "run ... --" is another program's command line; $1 is its place.
_llmprof_program() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
    return
  fi
  local how=-f path
  ((COMP_CWORD > $1)) || how=-c
  compopt -o filenames 2>/dev/null
  while IFS= read -r path; do
    COMPREPLY+=("$path")
  done < <(compgen "$how" -- "${COMP_WORDS[COMP_CWORD]}")
}

_llmprof() {
  COMPREPLY=()
  local -a words=()
  local i word glue='' command='' option='' argument=0
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ ${words[1]-} == run && $word == -- ]] && ((i < COMP_CWORD)); then
      _llmprof_program $((i + 1))
      return
    fi
    if ((${#words[@]} > 1)) && [[ -n $glue || $word == [=:] ]]; then
      words[${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
    glue=
    [[ $word != [=:] ]] || glue=yes
  done
  local last=$((${#words[@]} - 1))
  local current=${words[last]}
  if ((last < 2)); then
    _llmprof_offer "$current" '' $(_llmprof_options '')
    return
  fi
  command=${words[1]}
  for ((i = 2; i < last; ++i)); do
    word=${words[i]}
    if [[ -n $option ]]; then
      option=
    elif [[ $word == -?* ]]; then
      if [[ $word != *=* ]] && _llmprof_values "$command $word"; then option=$word; fi
    else
      ((++argument))
    fi
  done
  if [[ -n $option ]]; then
    _llmprof_complete_value "$command $option" "$current" ''
  elif [[ $current == --*=* ]]; then
    _llmprof_complete_value "$command ${current%%=*}" "${current#*=}" "${current%%=*}="
  elif [[ $current == -* ]]; then
    _llmprof_offer "$current" '' $(_llmprof_options "$command")
  else
    _llmprof_complete_value "$command $argument" "$current" ''
    if ((${#COMPREPLY[@]} == 0)) && [[ -z $current ]]; then
      _llmprof_offer '' '' $(_llmprof_options "$command")
    fi
  fi
}
complete -F _llmprof llmprof
)";

std::string option_words(const std::vector<OptionText>& options) {
  std::string out;
  for (const OptionText& option : options)
    for (const std::string& name : option.names) out += (out.empty() ? "" : " ") + name;
  return out;
}

// Sets of values with the places that have them: "analyze --gpu", "list 0" for a first argument, "bench *" for each.
using Sets = std::vector<std::pair<Values, std::vector<std::string>>>;

void add_place(Sets& sets, const Values& values, std::string place) {
  for (auto& [same, places] : sets)
    if (same == values) return places.push_back(std::move(place));
  sets.push_back({values, {std::move(place)}});
}

Sets sets_of(const CommandLine& line) {
  Sets sets;
  for (const CommandText& command : line.commands) {
    for (const OptionText& option : command.options)
      if (option.takes_value())
        for (const std::string& name : option.names)
          add_place(sets, option.values, shell_quoted(command.name + " " + name));
    for (size_t i = 0; i < command.arguments.size(); ++i)  // the last may be several: those before it are others
      add_place(sets, command.arguments[i].values,
                command.arguments[i].many ? shell_quoted(command.name + " ") + fmt::format("[{}-9]*", i)
                                          : shell_quoted(fmt::format("{} {}", command.name, i)));
  }
  return sets;
}

std::string kinds_of(const Values& values) {
  std::string out;
  const auto add = [&](bool is, const char* name) {
    if (is) out += std::string(out.empty() ? "" : " ") + name;
  };
  add(values.files, "files");
  add(values.folders, "folders");
  add(values.devices, "devices");
  add(values.list, "list");
  return out;
}

}  // namespace

std::string bash_completion(const CommandLine& line) {
  std::string out = kBashHead;
  out += "\n# The options of a command; without one, the commands.\n_llmprof_options() {\n  case $1 in\n";
  std::string commands;
  for (const CommandText& command : line.commands) {
    commands += command.name + " ";
    out += fmt::format("    {}) echo {} ;;\n", command.name,
                       shell_quoted(option_words(command.options) + (command.runs_program ? " --" : "")));
  }
  out += fmt::format("    '') echo {} ;;\n  esac\n}}\n", shell_quoted(commands + option_words(line.options)));
  out +=
      "\n# What can stand for a value, into $known (words) and $kinds; false if nothing stands there.\n"
      "_llmprof_values() {\n  case $1 in\n";
  for (const auto& [values, places] : sets_of(line)) {
    std::string pattern, words;
    for (const std::string& place : places) pattern += (pattern.empty() ? "" : " | ") + place;
    for (const Choice& choice : values.words) words += (words.empty() ? "" : " ") + choice.word;
    out += fmt::format("    {})\n      known={} kinds={} ;;\n", pattern, shell_quoted(words),
                       shell_quoted(kinds_of(values)));
  }
  return out + "    *) return 1 ;;\n  esac\n}\n" + kReader;
}

}  // namespace llmprof::cli
