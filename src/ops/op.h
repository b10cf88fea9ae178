// What an operation is called with, and what it costs: the vocabulary of this room. FLOPs and bytes of every operation
// stand here once, for recordings (derive), models, benchmarks and devices alike. Source of every formula:
// docs/formulas.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace llmprof::ops {

// An axis of an operation, with the value it has unless another is given.
struct Axis {
  std::string_view name;  // "m", "hidden": also the option of the command line
  int64_t usual;
  std::string_view doc;
  int64_t usual_on_gpu =
      0;  // where one execution of the usual one would be little more than a start and an end; 0: same
};

struct OpParams {
  std::vector<std::pair<std::string_view, int64_t>> axes;  // all of the operation's, in its order
  DType dtype = DType::kUnknown;                           // of the inputs
  std::string variant;                                     // one of the operation's, the first if empty
  uint64_t seed = 1;

  int64_t axis(std::string_view name) const;  // asserts that there is one
};

// A multiply-add counts as two FLOPs; bytes are the least traffic there can be, each operand once.
struct Cost {
  double flops = 0, read_bytes = 0, write_bytes = 0;
  bool matrix = false;  // of matrix units; false: of the ordinary ones, or no arithmetic to speak of
  double bytes() const { return read_bytes + write_bytes; }
  double intensity() const { return bytes() > 0 ? flops / bytes() : 0; }
};

}  // namespace llmprof::ops
