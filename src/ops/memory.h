// What operations cost that measure the device itself: FLOPs, with a multiply-add as two, and the least traffic, each
// operand once.
//
//   memory      bytes of one array: read n, write n, copy n + n, triad 2 n + n with 2 FLOPs per element
//   registers   the FLOPs that were asked for; no memory
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace llmprof::ops {

Cost memory_cost(const OpParams& params);     // axis bytes; variants read, write, copy, triad; fp32
Cost registers_cost(const OpParams& params);  // axis mflop
int64_t registers_footprint(const OpParams& params);

}  // namespace llmprof::ops
