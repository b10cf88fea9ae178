// The kernels of sampling_kernels.cc, included by vector_targets.h once for each width of vectors.

#include "kernels/cpu/vector_bodies.h"

// Whether any lane of `value` is above.
LLMPROF_INLINE bool any_above(const Floats& value, float limit) {
#if LLMPROF_VECTOR_BITS == 512
  __m512 whole;
  std::memcpy(&whole, &value, 64);
  return _mm512_cmp_ps_mask(whole, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
#else
  using Signs = int32_t __attribute__((vector_size(64)));
  const Signs above = value > limit;
  uint64_t parts[8], all = 0;
  std::memcpy(parts, &above, 64);
  for (const uint64_t part : parts) all |= part;
  return all != 0;
#endif
}

template <class T>
LLMPROF_INLINE void load_part(const char* row, int64_t at, int64_t last, Floats& value) {
  const size_t count = left_of(last, at);
  T::load(row + static_cast<size_t>(at) * T::kBytes, count, value);
  if (count != kLanes) keep_first(value, count, -std::numeric_limits<float>::infinity());
}

// The largest of blocks first, its place in the block that has it afterwards.
template <class T>
Logit largest_logit(const void* row, int64_t first, int64_t last) {
  constexpr int64_t kBlock = 64 * kLanes;
  const char* const from = static_cast<const char*>(row);
  Logit best{-std::numeric_limits<float>::infinity(), static_cast<int32_t>(first)};
  for (int64_t block = first; block < last; block += kBlock) {
    const int64_t end = std::min(last, block + kBlock);
    Floats most[2] = {Floats{} + best.value, Floats{} + best.value};
    for (int64_t at = block; at < end; at += 2 * kLanes) {
      Floats a, b = most[1];
      load_part<T>(from, at, end, a);
      if (at + kLanes < end) load_part<T>(from, at + kLanes, end, b);
      most[0] = a > most[0] ? a : most[0];
      most[1] = b > most[1] ? b : most[1];
    }
    const Floats both = most[0] > most[1] ? most[0] : most[1];
    if (!any_above(both, best.value)) continue;
    for (int64_t at = block; at < end; at += kLanes) {
      Floats value;
      load_part<T>(from, at, end, value);
      if (!any_above(value, best.value)) continue;
      for (int lane = 0; lane < kLanes; ++lane)
        if (value[lane] > best.value) best = {value[lane], static_cast<int32_t>(at + lane)};
    }
  }
  return best;
}

// What is above the k-th of those found so far is kept; when as many again have come, the k-th is found anew.
template <class T>
void top_logits(const void* row, int64_t first, int64_t last, int64_t k, std::vector<Logit>& found) {
  const char* const from = static_cast<const char*>(row);
  found.clear();
  float limit = -std::numeric_limits<float>::infinity();
  const auto narrow = [&] {
    std::nth_element(found.begin(), found.begin() + k - 1, found.end(), is_before);
    found.resize(static_cast<size_t>(k));
    limit = found.back().value;
  };
  for (int64_t at = first; at < last; at += kLanes) {
    Floats value;
    load_part<T>(from, at, last, value);
    if (!any_above(value, limit)) continue;
    for (int lane = 0; lane < kLanes; ++lane)
      if (value[lane] > limit) found.push_back({value[lane], static_cast<int32_t>(at + lane)});
    if (static_cast<int64_t>(found.size()) >= 2 * k) narrow();
  }
  if (static_cast<int64_t>(found.size()) > k) narrow();
}

template <class T>
SamplingKernels sampling_kernels_of(std::string_view name) {
  return {name, largest_logit<T>, top_logits<T>};
}
