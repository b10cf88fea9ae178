// The smallest JSON scanner that the Kineto importer needs: it walks bytes once, allocates nothing, and can say
// "incomplete" (the block ends here) apart from "bad" (no JSON). Every buffer it reads must be followed by kScanPadding
// zero bytes, so that it may look ahead without a bounds check; a zero byte ends every loop.
#pragma once

#include <emmintrin.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace llmprof::json {

constexpr size_t kScanPadding = 64;

enum class Outcome : uint8_t { kOk, kIncomplete, kBad };

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

inline const char* skip_space(const char* p) {
  while (is_space(*p)) ++p;
  return p;
}

// `p` stands behind the opening quote; afterwards on the closing one. A raw line feed inside a string is not JSON;
// taking it as an error keeps a lost quote from swallowing the rest of the file.
inline Outcome scan_string(const char*& p, const char* end, bool& escaped) {
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i line_feed = _mm_set1_epi8('\n');
  while (p < end) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i hits = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                                      _mm_cmpeq_epi8(bytes, line_feed));
    const unsigned mask = static_cast<unsigned>(_mm_movemask_epi8(hits));
    if (mask == 0) {
      p += 16;
      continue;
    }
    p += std::countr_zero(mask);
    if (p >= end) break;
    if (*p == '"') return Outcome::kOk;
    if (*p == '\n') return Outcome::kBad;
    escaped = true;
    p += 2;
  }
  return Outcome::kIncomplete;
}

// Steps over one value of any kind. Containers are matched by depth, without recursion and without checking the commas
// inside: the importer reads what it needs and only has to find the end of the rest.
inline Outcome skip_value(const char*& p, const char* end) {
  bool escaped = false;
  int64_t depth = 0;
  do {
    p = skip_space(p);
    if (p >= end) return Outcome::kIncomplete;
    switch (*p) {
      case '"': {
        ++p;
        const Outcome outcome = scan_string(p, end, escaped);
        if (outcome != Outcome::kOk) return outcome;
        ++p;
        break;
      }
      case '[':
      case '{':
        ++depth;
        ++p;
        break;
      case ']':
      case '}':
        if (depth == 0) return Outcome::kBad;
        --depth;
        ++p;
        break;
      case ',':
      case ':':
        if (depth == 0) return Outcome::kBad;
        ++p;
        break;
      case '\0':
        return Outcome::kBad;
      default:
        while (*p != ',' && *p != ']' && *p != '}' && *p != '\0' && *p != '"' && !is_space(*p)) ++p;
        if (p >= end) return Outcome::kIncomplete;
    }
  } while (depth != 0);
  return Outcome::kOk;
}

// A scalar token that is not a string: number, true, false, null, NaN. `p` stands on its first byte, afterwards behind
// it.
inline Outcome scan_token(const char*& p, const char* end, std::string_view& token) {
  const char* start = p;
  while (*p != ',' && *p != ']' && *p != '}' && *p != '\0' && *p != '"' && *p != ':' && !is_space(*p)) ++p;
  if (p >= end) return Outcome::kIncomplete;
  token = std::string_view(start, static_cast<size_t>(p - start));
  return token.empty() ? Outcome::kBad : Outcome::kOk;
}

// Decimal text in microseconds to nanoseconds, exactly; digits beyond the nanosecond are rounded to the nearest. False
// for anything that is not a number or does not fit (NaN, Infinity, more than 292 years).
bool micros_to_ns(std::string_view text, int64_t& ns);
bool parse_int(std::string_view text, int64_t& value);
bool parse_uint(std::string_view text, uint64_t& value);  // also accepts a negative number as its two's complement
bool parse_double(std::string_view text, double& value);  // finite values only

// Replaces JSON escapes; broken ones are kept as they stand. Surrogate pairs become one character.
std::string unescape(std::string_view text);

}  // namespace llmprof::json
