// Types of the values that results are made of. What is not known is empty, never 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/record_visitor.h"

namespace llmprof {

using OptDouble = std::optional<double>;
using OptInt = std::optional<int64_t>;
using OptText = std::optional<std::string>;
using Interval95 = std::optional<std::array<double, 2>>;

// A time that is exact in nanoseconds and is shown in milliseconds.
struct Milliseconds {
  int64_t ns = 0;
  double ms() const { return static_cast<double>(ns) / 1e6; }
  Scalar scalar() const { return ms(); }
  friend bool operator==(Milliseconds, Milliseconds) = default;
};

// The same where it may be unknown: ns is 0 then, so that sums of what is known stay right.
struct KnownMilliseconds {
  int64_t ns = 0;
  bool known = true;
  double ms() const { return static_cast<double>(ns) / 1e6; }
  Scalar scalar() const { return known ? Scalar(ms()) : Scalar(); }
};

// The same for a count: of what was not recorded there is none.
struct KnownCount {
  int64_t n = 0;
  bool known = true;
  operator int64_t() const { return n; }
  Scalar scalar() const { return known ? Scalar(n) : Scalar(); }
};

}  // namespace llmprof
