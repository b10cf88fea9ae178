// The command line as data: what completions and the manual page are written from. It is read off the declarations that
// the parser itself uses, so an option that is added appears in all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/declare.h"

namespace llmprof::cli {

struct Choice {
  std::string word, meaning;
  bool operator==(const Choice&) const = default;
};

// What can stand for a value, as far as it is known; nothing set: any text or number.
struct Values {
  std::vector<Choice> words;
  bool files = false, folders = false;
  bool devices = false;  // cpu, and cuda:N for the GPUs of the machine
  bool list = false;     // several, with commas between
  bool known() const { return !words.empty() || files || folders || devices; }
  bool operator==(const Values&) const = default;
};

struct OptionText {
  std::vector<std::string> names;  // "-o", "--output"
  std::string meaning, group;
  std::string placeholder;  // "PATH"; empty: it takes no value
  std::string preset;       // the value where none is given; empty: none is declared
  bool repeatable = false;
  Values values;
  bool takes_value() const { return !placeholder.empty(); }
};

struct ArgumentText {
  std::string name, meaning;
  bool required = false, many = false;
  Values values;
};

struct CommandText {
  std::string name, meaning, footer;
  std::vector<OptionText> options;
  std::vector<ArgumentText> arguments;
  bool runs_program = false;  // "-- PROGRAM [ARGUMENTS]" follows
};

struct CommandLine {
  std::string meaning, footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
};

// Hidden commands and options are left out.
CommandLine read_command_line(const Parser& parser);

// The values of `option` ("--gpu"; of an argument its name) in `command`: what the declaration lists, "{text,json}" or
// "auto|FILE", and what is known under that name: models, GPUs, data types and so on.
Values values_of(std::string_view command, std::string_view option, std::string_view declared);

std::string bash_completion(const CommandLine& line);
std::string zsh_completion(const CommandLine& line);
std::string fish_completion(const CommandLine& line);
std::string manual_page(const CommandLine& line, std::string_view version);

// In single quotes, for any POSIX shell.
std::string shell_quoted(std::string_view text);

}  // namespace llmprof::cli
