// What limits what was recorded, by its place on the roofline (hardware/roofline.h).
//
// The memory's bandwidth is a roof only for traffic that must come from memory. Operands that the step before or the
// operator before has left in the last-level cache do not: they are held against the cache's bandwidth where
// `llmprof peaks` measured it, else against arithmetic alone. Of a step that reads more than the cache holds, what runs
// faster than memory gives is held against memory for the part that the cache cannot have kept. Copies are held against
// their link (analyze/copies.h).
#pragma once

#include "analyze/analysis.h"
#include "hardware/roofline.h"

namespace llmprof {

// A group of activities: what it did in all its calls, and the roof it is held against.
struct KernelRoof {
  bool known = false;                  // flops and bytes are: from recorded shapes, of copies from the recorder
  double flops = 0, bytes = 0;         // least traffic
  OptDouble flops_per_s, bytes_per_s;  // the ceilings; bytes_per_s: of memory, cache or link, whichever takes longer
  bool link = false;                   // bytes_per_s is that of a copy's link or of its memory
  bool cache = false;                  // bytes_per_s is that of the cache
  double held_bytes = 0;               // what is held against bytes_per_s: less than `bytes` where the cache keeps some
  RoofPoint point;
};
KernelRoof kernel_roof(const Context& context, uint32_t kernel);

// What limits an activity: by its place on the roof where its arithmetic is known; else by nature: copies,
// communication, short kernels (latency), and passes over memory (norm, elementwise, ...). A GEMM or attention kernel
// without recorded shape is unknown.
Bound kernel_bound(const Context& context, uint32_t kernel);
Bound kernel_bound(const Context& context, uint32_t kernel, const KernelRoof& roof);

// Bytes of one call that come from memory: parts that are larger than the last-level cache, and weights and old keys of
// steps that read more than it holds before they come to them again. kNothing: as where the least recently used goes
// first, which keeps nothing of a loop that is too long. kAllItCan: at least so much, whatever it chooses to keep.
enum class CacheKeeps : uint8_t { kNothing, kAllItCan };
double bytes_from_memory(const Works& works, WorkId work, const StageGroup& stage, double cache_bytes,
                         CacheKeeps keeps = CacheKeeps::kNothing);

}  // namespace llmprof
