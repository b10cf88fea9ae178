#include "cli/checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/nearest.h"
#include "base/text_table.h"

namespace llmprof::cli {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;  // bounds beyond are there for arithmetic, not for people

std::string grouped(int64_t number) { return format_count(static_cast<double>(number)); }

// "--batch: message" as CLI11 joins them.
struct Parts {
  std::string option, message;
};
Parts parts_of(const std::string& text) {
  const size_t colon = text.find(": ");
  if (colon == std::string::npos || text.find(' ') < colon) return {"", text};
  return {text.substr(0, colon), text.substr(colon + 2)};
}

// The example of a command's help: "Example:  llmprof analyze trace.json.gz" -> what stands behind the word.
std::string example_of(const CLI::App& command) {
  const std::string& footer = command.get_footer();
  const size_t at = footer.find("llmprof ", footer.find("Example"));
  if (footer.find("Example") == std::string::npos || at == std::string::npos) return {};
  return footer.substr(at, footer.find('\n', at) - at);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// The first word that no option and no argument took.
Error unexpected_word(const CLI::App& command, const std::string& name) {
  const std::vector<std::string> rest = command.remaining();
  std::string word = rest.empty() ? "" : rest.front();
  for (const std::string& one : rest)
    if (one.size() > 1 && one.front() == '-') {
      word = one;
      break;
    }
  const std::string help = name + " --help";
  if (word.size() < 2 || word.front() != '-')
    return {fmt::format("expected nothing more, found \"{}\"", word), "", help, ExitCode::kUsage};
  word = word.substr(0, word.find('='));
  const std::vector<std::string> near = nearest_names(word, option_names(command), 1);
  return {fmt::format("{} has no option {}", name, word), "",
          near.empty() ? help : near.front() + "  (all: " + help + ")", ExitCode::kUsage};
}

std::string plain_mismatch(const Parts& parts, std::string& option) {
  option = parts.option;
  const std::string& text = parts.message;
  if (text.find(" required ") != std::string::npos && text.find(" missing") != std::string::npos)
    return fmt::format("expected a value behind {}, found none", option);
  if (text.find("required but received") != std::string::npos) {
    const bool most = text.rfind("At Most", 0) == 0 || text.rfind("At most", 0) == 0;
    return fmt::format("expected at {} {} behind {}, found{}", most ? "most" : "least",
                       text.substr(8, text.find(' ', 8) - 8), option, text.substr(text.rfind(' ')));
  }
  return text;
}

}  // namespace

CLI::Validator whole_number(int64_t low, int64_t high) {
  const bool open = high >= kNoLimit;
  const std::string range =
      open ? fmt::format("of {} or more", grouped(low)) : fmt::format("from {} to {}", grouped(low), grouped(high));
  return CLI::Validator(
      [low, high, range](std::string& text) {
        int64_t value = 0;
        const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = failed == std::errc() && end == text.data() + text.size() && !text.empty();
        if (whole && value >= low && value <= high) return std::string();
        return fmt::format("expected a whole number {}, found \"{}\"", range, text);
      },
      open ? "" : fmt::format("{} to {}", low, high), "");
}

CLI::Validator decimal_number(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool number = !text.empty() && end == text.c_str() + text.size() && std::isfinite(value);
        if (number && value >= low && value <= high) return std::string();
        return fmt::format("expected a number from {} to {}, found \"{}\"", low, high, text);
      },
      fmt::format("{} to {}", low, high), "");
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string description = "{" + fmt::format("{}", fmt::join(words, ",")) + "}";
  return CLI::Validator(
      [words = std::move(words)](std::string& text) {
        for (const std::string& word : words)
          if (text == word) return std::string();
        return fmt::format("expected {}, found \"{}\"", join_or(words), text);
      },
      description, "");
}

Error command_line_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = "llmprof";
  for (const CLI::App* chosen : app.get_subcommands()) {
    command = chosen;
    name += " " + chosen->get_name();
  }
  const std::string help = name + " --help";
  if (const AdvisedError* const advised = dynamic_cast<const AdvisedError*>(&error))
    return {advised->what(), advised->where(), advised->advice(), ExitCode::kUsage};
  const Parts parts = parts_of(error.what());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return unexpected_word(*command, name);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::string what = parts.message.substr(0, parts.message.find(" is required"));
    const std::string example = example_of(*command);
    return {fmt::format("expected {}, found none", what), "",
            example.empty() ? help : example + "  (all: " + help + ")", ExitCode::kUsage};
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    std::string option;
    const std::string what = plain_mismatch(parts, option);
    return {what, option, help, ExitCode::kUsage};
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    const std::string_view kCould = "Could not convert: ";
    const std::string text = error.what();
    const size_t equals = text.find(" = ");
    if (text.starts_with(kCould) && equals != std::string::npos)
      return {fmt::format("expected a number, found \"{}\"", text.substr(equals + 3)),
              text.substr(kCould.size(), equals - kCould.size()), help, ExitCode::kUsage};
    if (!parts.option.empty())
      return {fmt::format("{} takes no value", parts.option), parts.option, help, ExitCode::kUsage};
  }
  return {parts.message, parts.option, help, ExitCode::kUsage};
}

}  // namespace llmprof::cli
