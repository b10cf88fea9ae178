// Declaring the command line: commands, their options, and what stands in the help about them. CLI11 does the work
// behind it; declare.cc alone includes that, because it costs seconds per including file.
// Command and Option name what a Parser owns: they may be copied at will and are good as long as the parser is. What is
// wrong with arguments is the Error that parse() returns; only declarations that contradict each other throw.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace llmprof::cli {

// What main() runs once the arguments are parsed; returns the exit code.
using Action = std::function<int()>;

// What the value of an option must be (checks.h has the usual ones).
struct Check {
  std::string range;                                         // stands in the help behind the type; may be empty
  std::function<std::string(const std::string&)> complaint;  // about a value: what was expected and found, or nothing
};

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  // Each returns the option again, so that they can follow each other.
  Option type_name(const std::string& name) const;  // what stands for the value in the help; "": nothing
  Option check(const Check& check) const;
  Option group(const std::string& name) const;          // the heading of the help that it stands under
  Option capture_default() const;                       // the help shows what the variable holds now
  Option shown_default(const std::string& text) const;  // the help shows this; the variable stays as it is
  Option description(const std::string& text) const;
  Option required() const;
  Option delimiter(char between) const;        // several values in one word
  Option one_word() const;                     // of a list: the option takes one word each time, not all that follow
  Option expected(int least, int most) const;  // words

  // What was declared.
  const std::vector<std::string>& short_names() const;  // without the dash
  const std::vector<std::string>& long_names() const;   // without the dashes
  const std::string& name() const;                      // the first long one, else a short one, else the argument's
  const std::string& description() const;
  const std::string& group() const;  // empty: hidden
  std::string type_name() const;     // with the ranges of its checks
  std::string default_text() const;
  char delimiter() const;
  bool is_required() const;
  bool is_argument() const;  // it has no dashes: its place says what it is
  bool takes_value() const;
  bool holds_many() const;

  size_t count() const;  // after parsing: how often it was given

 private:
  CLI::Option* option_;
};

class Command {
 public:
  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  // `names` as "-o,--output", or of an argument a word without a dash. The variable must live until parse() is over.
  Option option(const std::string& names, std::string& value, const std::string& description = {}) const;
  Option option(const std::string& names, int& value, const std::string& description = {}) const;
  Option option(const std::string& names, int64_t& value, const std::string& description = {}) const;
  Option option(const std::string& names, uint64_t& value, const std::string& description = {}) const;
  Option option(const std::string& names, double& value, const std::string& description = {}) const;
  Option option(const std::string& names, std::optional<int64_t>& value, const std::string& description = {}) const;
  Option option(const std::string& names, std::optional<uint64_t>& value, const std::string& description = {}) const;
  Option option(const std::string& names, std::vector<std::string>& value, const std::string& description = {}) const;
  Option option(const std::string& names, std::vector<int64_t>& value, const std::string& description = {}) const;
  Option flag(const std::string& names, bool& value, const std::string& description = {}) const;

  void footer(const std::string& text) const;
  void hide() const;
  void take_other_words() const;  // they are no error, and other_words() has them
  // Called once the options of this command have their values; one function at most. An error without advice gets the
  // command's help for it.
  void check_together(std::function<Status()> check) const;
  void action(Action action) const;  // what is to be done if this command is chosen

  // What was declared. The command has the option.
  Option declared(const std::string& name) const;
  std::vector<Option> options() const;
  const std::string& name() const;
  std::string description() const;
  std::string footer() const;
  bool is_hidden() const;
  bool takes_other_words() const;

  std::vector<std::string> other_words() const;  // after parsing

 private:
  CLI::App* app_;
  Action* chosen_;
};

// What the arguments ask for. Neither is set if they name no command.
struct Request {
  std::string text;  // of --help or --version: to be printed, and nothing else to be done
  Action action;
};

class Parser {
 public:
  Parser(const std::string& name, const std::string& description, const std::string& version);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  Command add_command(const std::string& name, const std::string& description);
  std::vector<Command> commands() const;  // as they were declared, with the hidden ones
  // Of the program itself: its own options, name and description.
  Command program() const;
  std::string help() const;
  // The arguments without the program's name; to be called once.
  Result<Request> parse(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
  std::unique_ptr<Action> chosen_;  // by the callback of a command; here since Commands point to it
};

}  // namespace llmprof::cli
