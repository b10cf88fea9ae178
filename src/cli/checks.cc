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

}  // namespace

Check whole_number(int64_t low, int64_t high) {
  const bool open = high >= kNoLimit;
  const std::string range =
      open ? fmt::format("of {} or more", grouped(low)) : fmt::format("from {} to {}", grouped(low), grouped(high));
  return {open ? "" : fmt::format("{} to {}", low, high), [low, high, range, open](const std::string& text) {
            int64_t value = 0;
            const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool whole = failed == std::errc() && end == text.data() + text.size() && !text.empty();
            if (whole && value >= low && value <= high) return std::string();
            const bool beyond = open && (failed == std::errc::result_out_of_range || (whole && value > high));
            return fmt::format("expected a whole number {}, found \"{}\"", beyond ? "up to " + grouped(high) : range,
                               text);
          }};
}

Check decimal_number(double low, double high) {
  return {fmt::format("{} to {}", low, high), [low, high](const std::string& text) {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool number = !text.empty() && end == text.c_str() + text.size() && std::isfinite(value);
            if (number && value >= low && value <= high) return std::string();
            return fmt::format("expected a number from {} to {}, found \"{}\"", low, high, text);
          }};
}

Check one_of(std::vector<std::string> words) {
  std::string range = "{" + fmt::format("{}", fmt::join(words, ",")) + "}";
  return {std::move(range), [words = std::move(words)](const std::string& text) {
            for (const std::string& word : words)
              if (text == word) return std::string();
            return fmt::format("expected {}, found \"{}\"", join_or(words), text);
          }};
}

}  // namespace llmprof::cli
