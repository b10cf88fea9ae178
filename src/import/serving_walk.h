// Walks through documents of any size, JSON or what has its tokens (import/msgpack_stream.h), member by member, and
// reads numbers with what is wrong with them counted.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

#include "base/diagnostics.h"
#include "import/json_stream.h"

namespace llmprof::serving {

using json::JsonStream;
using Token = JsonStream::Token;

inline bool is_scalar(Token token) { return token == Token::kText || token == Token::kNumber || token == Token::kWord; }
inline bool is_container(Token token) { return token == Token::kObject || token == Token::kArray; }

// Functions that return a bool answer false where the document cannot be read further, and have counted why.
template <class Stream>
class DocumentWalkOf {
 protected:
  DocumentWalkOf(InputFile& input, Diagnostics& diagnostics, size_t nesting_max = JsonStream::kNestingMax)
      : document_(input, nesting_max), diagnostics_(diagnostics) {}
  ~DocumentWalkOf() = default;

  // ---- places and remarks ----

  void count(DiagnosticId id, std::string_view what) {
    const bool kept = diagnostics_.places(id).size() < Diagnostics::kKeptPlaces;
    diagnostics_.add(id, kept ? fmt::format("{} ({})", document_.place(), what) : std::string());
  }

  // Says why reading stopped inside a document.
  bool stop(Token token) {
    if (stopped_) return false;
    stopped_ = true;
    if (token == Token::kCut || token == Token::kEnd) {
      cut_ = true;
      count(DiagnosticId::kTruncatedFile, "the document has no end");
    } else {
      count(DiagnosticId::kMalformedEvent, document_.problem());
    }
    return false;
  }

  // ---- walking ----

  // Steps over the rest of a value that began with `token`.
  bool skip(Token token) {
    if (is_scalar(token)) return true;
    if (!is_container(token)) return stop(token);
    const size_t outside = document_.depth() - 1;
    while (document_.depth() > outside) {
      const Token inner = document_.next();
      if (inner == Token::kBad || inner == Token::kCut || inner == Token::kEnd) return stop(inner);
    }
    return true;
  }

  // Calls on_member(key, first token of the value), which reads the whole value, for what is in the open object.
  template <class F>
  bool members(F&& on_member) {
    for (;;) {
      const Token token = document_.next();
      if (token == Token::kObjectEnd) return true;
      if (token != Token::kKey) return stop(token);
      const std::string key(document_.text());
      const Token first = document_.next();
      if (!is_scalar(first) && !is_container(first)) return stop(first);
      if (!on_member(std::string_view(key), first)) return false;
    }
  }
  // The same for the open array.
  template <class F>
  bool entries(F&& on_entry) {
    for (;;) {
      const Token token = document_.next();
      if (token == Token::kArrayEnd) return true;
      if (!is_scalar(token) && !is_container(token)) return stop(token);
      if (!on_entry(token)) return false;
    }
  }

  // ---- values ----

  // The number that the token is; NaN, and counted, where it is a text. null is absent, and nothing to count.
  double number(Token token, std::string_view field) {
    double value = 0;
    if (token == Token::kNumber && json::parse_any_number(document_.text(), value)) {
      if (std::isnan(value)) count(DiagnosticId::kBadNumber, fmt::format("{} is NaN", field));
      return value;
    }
    if (token == Token::kWord && document_.text() == "null") return NAN;
    count(DiagnosticId::kBadNumber,
          fmt::format("{} is {}, not a number", field, token == Token::kText ? "a text" : "no number"));
    return NAN;
  }

  // A length of time as nanoseconds, -1 for absent. `per_ns`: nanoseconds in its unit.
  int64_t length(Token token, double per_ns, std::string_view field) {
    const double value = number(token, field) * per_ns;
    if (std::isnan(value)) return -1;
    if (value < 0) {
      count(DiagnosticId::kNegativeDuration, field);
      return -1;
    }
    if (value >= 9e18) {
      count(DiagnosticId::kBadNumber, fmt::format("{} is more than 292 years", field));
      return -1;
    }
    return std::llround(value);
  }

  int64_t whole(Token token, std::string_view field) {
    const double value = number(token, field);
    if (std::isnan(value)) return -1;
    if (value < 0 || value > 1e15 || value != std::floor(value)) {
      count(DiagnosticId::kBadNumber, fmt::format("{} is no whole number of tokens", field));
      return -1;
    }
    return static_cast<int64_t>(value);
  }

  Stream document_;
  bool stopped_ = false;  // in the open document
  bool cut_ = false;      // the file ends in it

 private:
  Diagnostics& diagnostics_;
};

class DocumentWalk : protected DocumentWalkOf<JsonStream> {
 protected:
  using DocumentWalkOf::DocumentWalkOf;
  ~DocumentWalk() = default;
};

}  // namespace llmprof::serving
