// The kernels of attention_kernels.cc, included by vector_targets.h once for each width of vectors. Rows are those of a
// group: row = head of the group * queries + query.

#include "kernels/cpu/vector_bodies.h"

// What stays in registers: so many rows times vectors of sums, beside the vectors that they are multiplied with.
#if LLMPROF_VECTOR_BITS == 512
constexpr int kTileRows = 6, kTileVectors = 4;
#elif LLMPROF_VECTOR_BITS == 256
constexpr int kTileRows = 3, kTileVectors = 2;
#else
constexpr int kTileRows = 2, kTileVectors = 1;
#endif
constexpr int64_t kChunkRows = 24;  // rows whose scores are made, weighted and used before the next

template <class T>
LLMPROF_INLINE const char* row_at(const AttentionArrays& of, const HeadsAt& heads, int64_t sequence, int64_t head,
                                  int64_t token) {
  int64_t at = head * heads.head;
  if (of.table != nullptr)
    at +=
        of.table[sequence * of.pages + token / of.page_tokens] * heads.sequence + token % of.page_tokens * heads.token;
  else
    at += sequence * heads.sequence + token * heads.token;
  return static_cast<const char*>(heads.data) + static_cast<size_t>(at) * T::kBytes;
}

// c[r][.] = (add: c +) sum over d of a[r][d] * b[d][.], a tile of it.
template <int kRows, int kVectors>
LLMPROF_INLINE void multiply_tile(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t depth,
                                  float* c, int64_t c_stride, bool add) {
  Floats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if (add)
        std::memcpy(&sums[r][v], c + r * c_stride + v * kLanes, 64);
      else
        sums[r][v] = Floats{};
    }
  for (int64_t d = 0; d < depth; ++d) {
    Floats right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) std::memcpy(&right[v], b + d * b_stride + v * kLanes, 64);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats left = Floats{} + a[r * a_stride + d];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] += left * right[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) std::memcpy(c + r * c_stride + v * kLanes, &sums[r][v], 64);
}

template <int kRows>
LLMPROF_INLINE void multiply_rows(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t depth,
                                  int64_t vectors, float* c, int64_t c_stride, bool add) {
  int64_t v = 0;
  for (; v + kTileVectors <= vectors; v += kTileVectors)
    multiply_tile<kRows, kTileVectors>(a, a_stride, b + v * kLanes, b_stride, depth, c + v * kLanes, c_stride, add);
  for (; v < vectors; ++v)
    multiply_tile<kRows, 1>(a, a_stride, b + v * kLanes, b_stride, depth, c + v * kLanes, c_stride, add);
}

inline void multiply(const float* a, int64_t a_stride, int64_t rows, const float* b, int64_t b_stride, int64_t depth,
                     int64_t vectors, float* c, int64_t c_stride, bool add) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows)
    multiply_rows<kTileRows>(a + r * a_stride, a_stride, b, b_stride, depth, vectors, c + r * c_stride, c_stride, add);
  for (; r < rows; ++r)
    multiply_rows<1>(a + r * a_stride, a_stride, b, b_stride, depth, vectors, c + r * c_stride, c_stride, add);
}

// The state of a row: the largest score so far, the sum of weights up to its factor, and the weighted values.
struct RowState {
  float* most;
  float* sum;
  float* values;  // [padded head]
};

// Scores of kKeysAtOnce keys become weights, of which the first `seen` count; what was added up before is made to fit
// a new largest score.
inline void weigh(float* scores, int64_t seen, const RowState& row, int64_t padded) {
  constexpr int kVectors = static_cast<int>(kKeysAtOnce / kLanes);
  Floats parts[kVectors];
  if (seen <= 0) {
    std::memset(scores, 0, kKeysAtOnce * sizeof(float));
    return;
  }
  const float lowest = -std::numeric_limits<float>::infinity();
  Floats most = Floats{} + lowest;
  for (int v = 0; v < kVectors; ++v) {
    std::memcpy(&parts[v], scores + v * kLanes, 64);
    const int64_t count = seen - v * kLanes;
    if (count < kLanes) keep_first(parts[v], static_cast<size_t>(std::max<int64_t>(count, 0)), lowest);
    most = parts[v] > most ? parts[v] : most;
  }
  const float here = largest_of(most);
  if (here > *row.most) {
    Floats factor = Floats{} + (*row.most - here);
    exponential(factor);
    *row.most = here;
    *row.sum *= factor[0];
    for (int64_t d = 0; d < padded; d += kLanes) {
      Floats value;
      std::memcpy(&value, row.values + d, 64);
      value *= factor;
      std::memcpy(row.values + d, &value, 64);
    }
  }
  Floats sums{};
  for (int v = 0; v < kVectors; ++v) {
    parts[v] -= *row.most;
    exponential(parts[v]);
    const int64_t count = seen - v * kLanes;
    if (count < kLanes) keep_first(parts[v], static_cast<size_t>(std::max<int64_t>(count, 0)), 0);
    std::memcpy(scores + v * kLanes, &parts[v], 64);
    sums += parts[v];
  }
  *row.sum += sum_of(sums);
}

// A query times the scale, in fp32, zeros behind it.
template <class T>
LLMPROF_INLINE void load_query(const AttentionArrays& of, int64_t sequence, int64_t head, int64_t query, float* to) {
  const HeadsAt& at = of.q;
  const char* const from = static_cast<const char*>(at.data) +
                           static_cast<size_t>(sequence * at.sequence + head * at.head + query * at.token) * T::kBytes;
  for (int64_t d = 0; d < of.head_dim; d += kLanes) {
    Floats value;
    T::load(from + static_cast<size_t>(d) * T::kBytes, left_of(of.head_dim, d), value);
    value *= of.scale;
    std::memcpy(to + d, &value, 64);
  }
}

template <class T>
LLMPROF_INLINE void store_result(const AttentionArrays& of, int64_t sequence, int64_t head, int64_t query,
                                 const float* values, float sum) {
  const HeadsAt& at = of.out;
  char* const to = static_cast<char*>(const_cast<void*>(at.data)) +
                   static_cast<size_t>(sequence * at.sequence + head * at.head + query * at.token) * T::kBytes;
  const float share = 1.0F / sum;
  for (int64_t d = 0; d < of.head_dim; d += kLanes) {
    Floats value;
    std::memcpy(&value, values + d, 64);
    T::store(to + static_cast<size_t>(d) * T::kBytes, left_of(of.head_dim, d), value * share);
  }
}

// Keys as columns, [padded head][kKeysAtOnce], and values as rows, both in fp32; zeros where there are none.
template <class T>
void pack_keys(const AttentionArrays& of, int64_t sequence, int64_t kv_head, int64_t first, int64_t count,
               float* columns, float* rows) {
  const int64_t padded = padded_head(of.head_dim);
  for (int64_t j = 0; j < kKeysAtOnce; ++j) {
    const char* const key = j < count ? row_at<T>(of, of.k, sequence, kv_head, first + j) : nullptr;
    const char* const value = j < count ? row_at<T>(of, of.v, sequence, kv_head, first + j) : nullptr;
    for (int64_t d = 0; d < padded; d += kLanes) {
      Floats part{}, weighted{};
      if (j < count) {
        T::load(key + static_cast<size_t>(d) * T::kBytes, left_of(of.head_dim, d), part);
        T::load(value + static_cast<size_t>(d) * T::kBytes, left_of(of.head_dim, d), weighted);
      }
      float lanes[kLanes];
      std::memcpy(lanes, &part, 64);
      for (int lane = 0; lane < kLanes; ++lane) columns[(d + lane) * kKeysAtOnce + j] = lanes[lane];
      std::memcpy(rows + j * padded + d, &weighted, 64);
    }
  }
}

template <class T>
void attention_many(const AttentionArrays& of, const AttentionPlan& plan, int64_t unit, float* scratch) {
  const int64_t blocks = (of.queries + plan.block_queries - 1) / plan.block_queries;
  const int64_t group = of.heads / of.kv_heads, padded = padded_head(of.head_dim);
  // The last block first: it sees the most keys.
  const int64_t first = (blocks - 1 - unit / (of.sequences * of.kv_heads)) * plan.block_queries;
  const int64_t kv_head = unit % of.kv_heads, sequence = unit / of.kv_heads % of.sequences;
  const int64_t queries = std::min(plan.block_queries, of.queries - first), rows = queries * group;
  float* const q = scratch;
  float* const values = q + rows * padded;
  float* const columns = values + rows * padded;
  float* const key_values = columns + kKeysAtOnce * padded;
  float* const scores = key_values + kKeysAtOnce * padded;
  float* const most = scores + kChunkRows * kKeysAtOnce;
  float* const sums = most + rows;
  int64_t keys = 0;
  for (int64_t row = 0; row < rows; ++row) {
    load_query<T>(of, sequence, kv_head * group + row / queries, first + row % queries, q + row * padded);
    most[row] = -std::numeric_limits<float>::infinity();
    sums[row] = 0;
    keys = std::max(keys, keys_seen(of, sequence, first + row % queries));
  }
  std::memset(values, 0, static_cast<size_t>(rows * padded) * sizeof(float));
  for (int64_t key = 0; key < keys; key += kKeysAtOnce) {
    pack_keys<T>(of, sequence, kv_head, key, std::min(kKeysAtOnce, keys - key), columns, key_values);
    for (int64_t chunk = 0; chunk < rows; chunk += kChunkRows) {
      const int64_t count = std::min(kChunkRows, rows - chunk);
      multiply(q + chunk * padded, padded, count, columns, kKeysAtOnce, padded, kKeysAtOnce / kLanes, scores,
               kKeysAtOnce, false);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = chunk + i;
        weigh(scores + i * kKeysAtOnce, keys_seen(of, sequence, first + row % queries) - key,
              {most + row, sums + row, values + row * padded}, padded);
      }
      multiply(scores, kKeysAtOnce, count, key_values, padded, kKeysAtOnce, padded / kLanes, values + chunk * padded,
               padded, true);
    }
  }
  for (int64_t row = 0; row < rows; ++row)
    store_result<T>(of, sequence, kv_head * group + row / queries, first + row % queries, values + row * padded,
                    sums[row]);
}

// scores[r] = q[r] * key, for kRows rows; `stride` between scores.
template <class T, int kRows>
LLMPROF_INLINE void dots(const float* q, int64_t padded, const char* key, int64_t head, float* scores, int64_t stride) {
  Floats sums[kRows]{};
  for (int64_t d = 0; d < head; d += kLanes) {
    Floats part;
    T::load(key + static_cast<size_t>(d) * T::kBytes, left_of(head, d), part);
    for (int r = 0; r < kRows; ++r) {
      Floats query;
      std::memcpy(&query, q + r * padded + d, 64);
      sums[r] += query * part;
    }
  }
  for (int r = 0; r < kRows; ++r) scores[r * stride] = sum_of(sums[r]);
}

// values[r] += weights[r][j] * row j, for kRows rows and kVectors vectors of each, from element d on.
template <class T, int kRows, int kVectors>
LLMPROF_INLINE void add_weighted(const char* const* rows, int64_t count, int64_t head, int64_t d, const float* weights,
                                 float* values, int64_t padded) {
  Floats sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) std::memcpy(&sums[r][v], values + r * padded + d + v * kLanes, 64);
  for (int64_t j = 0; j < count; ++j) {
    Floats parts[kVectors];
    for (int v = 0; v < kVectors; ++v)
      T::load(rows[j] + static_cast<size_t>(d + v * kLanes) * T::kBytes, left_of(head, d + v * kLanes), parts[v]);
    for (int r = 0; r < kRows; ++r) {
      const Floats weight = Floats{} + weights[r * kKeysAtOnce + j];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += weight * parts[v];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) std::memcpy(values + r * padded + d + v * kLanes, &sums[r][v], 64);
}

template <class T, int kRows>
LLMPROF_INLINE void add_weighted_rows(const char* const* rows, int64_t count, int64_t head, const float* weights,
                                      float* values, int64_t padded) {
  int64_t d = 0;
  for (; d + kTileVectors * kLanes <= padded; d += kTileVectors * kLanes)
    add_weighted<T, kRows, kTileVectors>(rows, count, head, d, weights, values, padded);
  for (; d < padded; d += kLanes) add_weighted<T, kRows, 1>(rows, count, head, d, weights, values, padded);
}

template <class T>
LLMPROF_INLINE void fetch_ahead(const char* row, int64_t head) {
  for (size_t line = 0; line < static_cast<size_t>(head) * T::kBytes; line += 64) __builtin_prefetch(row + line);
}

template <class T>
void attention_few(const AttentionArrays& of, const AttentionPlan& plan, int64_t unit, float* scratch) {
  constexpr int kAtOnce = kTileRows > 4 ? 4 : kTileRows;
  const int64_t split = unit % plan.splits, kv_head = unit / plan.splits % of.kv_heads,
                sequence = unit / plan.splits / of.kv_heads;
  const int64_t group = of.heads / of.kv_heads, rows = group * of.queries, padded = padded_head(of.head_dim);
  float* const q = scratch;
  float* const scores = q + rows * padded;
  float* const values = plan.splits > 1 ? plan.parts + unit * attention_part_floats(of) : scores + rows * kKeysAtOnce;
  float* const most = values + rows * padded;
  float* const sums = most + rows;
  int64_t keys = 0;
  for (int64_t row = 0; row < rows; ++row) {
    load_query<T>(of, sequence, kv_head * group + row / of.queries, row % of.queries, q + row * padded);
    most[row] = -std::numeric_limits<float>::infinity();
    sums[row] = 0;
    keys = std::max(keys, keys_seen(of, sequence, row % of.queries));
  }
  std::memset(values, 0, static_cast<size_t>(rows * padded) * sizeof(float));
  const int64_t all = (keys + kKeysAtOnce - 1) / kKeysAtOnce;
  const int64_t begin = all * split / plan.splits * kKeysAtOnce;
  const int64_t end = std::min(keys, all * (split + 1) / plan.splits * kKeysAtOnce);
  // Where the rows of this block and of the next one are: a cache of pages has those of other heads between them, and
  // the hardware fetches ahead only what lies behind each other.
  const char* blocks[2][2][kKeysAtOnce];
  const auto find_rows = [&](int64_t key, const char*(&found)[2][kKeysAtOnce]) {
    for (int64_t j = 0; j < std::min(kKeysAtOnce, end - key); ++j) {
      found[0][j] = row_at<T>(of, of.k, sequence, kv_head, key + j);
      found[1][j] = row_at<T>(of, of.v, sequence, kv_head, key + j);
    }
  };
  if (begin < end) find_rows(begin, blocks[0]);
  for (int64_t key = begin, block = 0; key < end; key += kKeysAtOnce, block ^= 1) {
    const int64_t count = std::min(kKeysAtOnce, end - key), next = std::min(kKeysAtOnce, end - key - kKeysAtOnce);
    const char *const *const key_rows = blocks[block][0], *const *const value_rows = blocks[block][1];
    find_rows(key + kKeysAtOnce, blocks[block ^ 1]);
    for (int64_t j = 0; j < count; ++j) {
      if (j < next)
        for (const char* row : {blocks[block ^ 1][0][j], blocks[block ^ 1][1][j]}) fetch_ahead<T>(row, of.head_dim);
      int64_t r = 0;
      for (; r + kAtOnce <= rows; r += kAtOnce)
        dots<T, kAtOnce>(q + r * padded, padded, key_rows[j], of.head_dim, scores + r * kKeysAtOnce + j, kKeysAtOnce);
      for (; r < rows; ++r)
        dots<T, 1>(q + r * padded, padded, key_rows[j], of.head_dim, scores + r * kKeysAtOnce + j, kKeysAtOnce);
    }
    for (int64_t row = 0; row < rows; ++row)
      weigh(scores + row * kKeysAtOnce, std::min(count, keys_seen(of, sequence, row % of.queries) - key),
            {most + row, sums + row, values + row * padded}, padded);
    int64_t r = 0;
    for (; r + kAtOnce <= rows; r += kAtOnce)
      add_weighted_rows<T, kAtOnce>(value_rows, count, of.head_dim, scores + r * kKeysAtOnce, values + r * padded,
                                    padded);
    for (; r < rows; ++r)
      add_weighted_rows<T, 1>(value_rows, count, of.head_dim, scores + r * kKeysAtOnce, values + r * padded, padded);
  }
  if (plan.splits > 1) return;
  for (int64_t row = 0; row < rows; ++row)
    store_result<T>(of, sequence, kv_head * group + row / of.queries, row % of.queries, values + row * padded,
                    sums[row]);
}

template <class T>
void attention_join(const AttentionArrays& of, const AttentionPlan& plan, int64_t unit) {
  const int64_t kv_head = unit % of.kv_heads, sequence = unit / of.kv_heads;
  const int64_t group = of.heads / of.kv_heads, rows = group * of.queries, padded = padded_head(of.head_dim);
  float* const parts = plan.parts + unit * plan.splits * attention_part_floats(of);
  for (int64_t row = 0; row < rows; ++row) {
    const auto most_of = [&](int64_t split) { return parts + split * attention_part_floats(of) + rows * padded + row; };
    float top = *most_of(0);
    for (int64_t split = 1; split < plan.splits; ++split) top = std::max(top, *most_of(split));
    // Into the first part. One that saw no keys has weight 0.
    float* const values = parts + row * padded;
    float sum = 0;
    for (int64_t split = 0; split < plan.splits; ++split) {
      const float* const most = most_of(split);
      const float* const from = parts + split * attention_part_floats(of) + row * padded;
      const float factor = std::exp(*most - top);
      sum += factor * most[rows];
      for (int64_t d = 0; d < padded; d += kLanes) {
        Floats value, before{};
        std::memcpy(&value, from + d, 64);
        if (split > 0) std::memcpy(&before, values + d, 64);
        value = before + factor * value;
        std::memcpy(values + d, &value, 64);
      }
    }
    store_result<T>(of, sequence, kv_head * group + row / of.queries, row % of.queries, values, sum);
  }
}

template <class T>
AttentionKernels attention_kernels_of(std::string_view name) {
  return {name, attention_many<T>, attention_few<T>, attention_join<T>};
}
