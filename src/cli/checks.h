// What the values of options must be, with errors in the words of every other error: what was expected, what was found.
// And what CLI11 says about a command line, put into the same form.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace llmprof::cli {

CLI::Validator whole_number(int64_t low, int64_t high);
CLI::Validator decimal_number(double low, double high);
CLI::Validator one_of(std::vector<std::string> words);

// Of options that do not go together, where there is better advice than the command's help.
class AdvisedError : public CLI::ValidationError {
 public:
  AdvisedError(const std::string& where, const std::string& what, std::string advice)
      : CLI::ValidationError(what), where_(where), advice_(std::move(advice)) {}
  const std::string& where() const { return where_; }
  const std::string& advice() const { return advice_; }

 private:
  std::string where_, advice_;
};

// `app` after its parse() threw `error`.
Error command_line_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace llmprof::cli
