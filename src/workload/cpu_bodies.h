// The kernels of cpu_kernels.cc, included by device/cpu/ops/vector_targets.h once for each width of vectors, with those
// of device/cpu/ops/row_bodies.h before them.

#include "device/cpu/ops/row_bodies.h"

template <class T>
void add_elements(const void* x, void* to, int64_t first, int64_t last) {
  for (int64_t at = first; at < last; at += kLanes) {
    const size_t count = left_of(last, at), offset = static_cast<size_t>(at) * T::kBytes;
    Floats a, b;
    T::load(static_cast<const char*>(x) + offset, count, a);
    T::load(static_cast<const char*>(to) + offset, count, b);
    T::store(static_cast<char*>(to) + offset, count, a + b);
  }
}

template <class T>
void gelu_elements(const void* x, void* out, int64_t first, int64_t last) {
  for (int64_t at = first; at < last; at += kLanes) {
    const size_t count = left_of(last, at), offset = static_cast<size_t>(at) * T::kBytes;
    Floats value;
    T::load(static_cast<const char*>(x) + offset, count, value);
    gelu(value);
    T::store(static_cast<char*>(out) + offset, count, value);
  }
}

template <class T>
void rope_rows(const Tensor& x, int64_t heads, int64_t head_size, const float* angles, const int32_t* positions,
               int64_t first, int64_t last) {
  const int64_t half = head_size / 2;
  for (int64_t row = first; row < last; ++row) {
    const float* const cosines = angles + positions[row] * head_size;
    for (int64_t head = 0; head < heads; ++head) {
      char* const low =
          static_cast<char*>(x.data) + static_cast<size_t>(row * x.columns + head * head_size) * T::kBytes;
      char* const high = low + static_cast<size_t>(half) * T::kBytes;
      for (int64_t i = 0; i < half; i += kLanes) {
        const size_t count = left_of(half, i), offset = static_cast<size_t>(i) * T::kBytes;
        Floats a, b, cosine, sine;
        T::load(low + offset, count, a);
        T::load(high + offset, count, b);
        Fp32::load(reinterpret_cast<const char*>(cosines + i), count, cosine);
        Fp32::load(reinterpret_cast<const char*>(cosines + half + i), count, sine);
        T::store(low + offset, count, a * cosine - b * sine);
        T::store(high + offset, count, b * cosine + a * sine);
      }
    }
  }
}

// Probabilities of `count` scores in place, up to the factor that is returned.
LLMPROF_INLINE float softmax_of(float* scores, int64_t count) {
  const int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (int64_t j = count; j < padded; ++j) scores[j] = -std::numeric_limits<float>::infinity();
  Floats most;
  std::memcpy(&most, scores, 64);
  for (int64_t j = kLanes; j < padded; j += kLanes) {
    Floats value;
    std::memcpy(&value, scores + j, 64);
    most = value > most ? value : most;
  }
  float top = most[0];
  for (int lane = 1; lane < kLanes; ++lane) top = std::max(top, most[lane]);
  Floats sums{};
  for (int64_t j = 0; j < padded; j += kLanes) {
    Floats value;
    std::memcpy(&value, scores + j, 64);
    value -= top;
    exponential(value);
    if (j + kLanes > count) keep_first(value, left_of(count, j), 0);
    std::memcpy(scores + j, &value, 64);
    sums += value;
  }
  return 1.0F / sum_of(sums);
}

// One query at a time: its keys and values are small enough for the cache that the queries before left them in.
template <class T>
void attention_queries(const AttentionCall& of, float* scores, int64_t first, int64_t last) {
  constexpr int64_t kParts = kHeadSizeMax / kLanes;
  const int64_t parts = std::min(kParts, (of.head_size + kLanes - 1) / kLanes), group = of.heads / of.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(of.head_size));
  const auto at = [](const Heads& heads, int64_t sequence, int64_t head, int64_t token) {
    return static_cast<const char*>(heads.data) +
           static_cast<size_t>(sequence * heads.sequence + head * heads.head + token * heads.token) * T::kBytes;
  };
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t query = unit % of.queries, head = unit / of.queries % of.heads,
                  sequence = unit / of.queries / of.heads, row = sequence * of.queries + query;
    const int64_t keys = of.positions ? static_cast<const int32_t*>(of.positions->data)[row] + int64_t{1} : of.keys;
    Floats q[kParts], sums[kParts];
    for (int64_t part = 0; part < parts; ++part) {
      T::load(at(of.q, sequence, head, query) + static_cast<size_t>(part * kLanes) * T::kBytes,
              left_of(of.head_size, part * kLanes), q[part]);
      q[part] *= scale;
      sums[part] = Floats{};
    }
    for (int64_t j = 0; j < keys; ++j) {
      const char* const key = at(of.k, sequence, head / group, j);
      Floats products{};
      for (int64_t part = 0; part < parts; ++part) {
        Floats value;
        T::load(key + static_cast<size_t>(part * kLanes) * T::kBytes, left_of(of.head_size, part * kLanes), value);
        products += q[part] * value;
      }
      scores[j] = sum_of(products);
    }
    const float share = softmax_of(scores, keys);
    for (int64_t j = 0; j < keys; ++j) {
      const char* const values = at(of.v, sequence, head / group, j);
      for (int64_t part = 0; part < parts; ++part) {
        Floats value;
        T::load(values + static_cast<size_t>(part * kLanes) * T::kBytes, left_of(of.head_size, part * kLanes), value);
        sums[part] += scores[j] * value;
      }
    }
    char* const out =
        static_cast<char*>(of.out.data) + static_cast<size_t>(row * of.out.columns + head * of.head_size) * T::kBytes;
    for (int64_t part = 0; part < parts; ++part)
      T::store(out + static_cast<size_t>(part * kLanes) * T::kBytes, left_of(of.head_size, part * kLanes),
               sums[part] * share);
  }
}

template <class T>
CpuKernels all_kernels() {
  return {layernorm_rows<T, false>, add_elements<T>, gelu_elements<T>, rope_rows<T>, attention_queries<T>};
}
