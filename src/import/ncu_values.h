// Cells of Nsight Compute: numbers as a locale writes them, units with prefixes, sizes of grids, NVTX ranges.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llmprof::ncu {

// Of a unit with a prefix: the unit without one, and the power of ten between them. "Kbyte/second" is 10^3 of
// "byte/s", "usecond" 10^3 of "ns", "Ghz" 10^9 of "hz". Times are in ns, rates per second. What is no prefix stays.
struct Unit {
  std::string name;
  int exponent = 0;
};
Unit plain_unit(std::string_view unit);

// A number as locales write it, in units of 10^-exponent: digits in groups, `decimal` before the fraction. A list of
// instances behind it, "5 (1; 4)", is left out. Empty if the text is not such a number.
std::optional<double> parse_grouped(std::string_view text, char decimal, int exponent);

// Digits alone, below 10^18.
std::optional<int64_t> parse_whole(std::string_view text);

// "(256, 1, 1)"; the parentheses may be missing. Each from 0 to the largest int32_t.
std::optional<std::array<int32_t, 3>> parse_size(std::string_view text);

// "9.0" as 9 and 0.
std::optional<std::array<int32_t, 2>> parse_capability(std::string_view text);

// Texts of the NVTX ranges in a cell of the column of push and pop ranges, outermost first, one a line.
std::string range_texts(std::string_view cell);

}  // namespace llmprof::ncu
