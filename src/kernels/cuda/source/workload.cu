// Operators of the reference workload (src/workload) that no benchmark has: positions lie in memory, and queries, keys
// and values of a token lie side by side. Counts are packs of 16 bytes unless said otherwise.
//
// Macros: T (Bf16, Fp32).

__device__ __forceinline__ u64 first_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 index_step() { return (u64)gridDim.x * blockDim.x; }

// to += x.
KERNEL void add_into(const Words* x, Words* to, u64 count) {
  for (u64 p = first_index(); p < count; p += index_step()) {
    Pack<T> a, b;
    a.unpack(load_stream(x + p));
    b.unpack(load_words(to + p));
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) b.v[e] += a.v[e];
    store_words(to + p, b.packed());
  }
}

// By tanh: y / (1 + exp(-2 u)), u = sqrt(2 / pi) (y + 0.044715 y^3). x and out may be the same.
KERNEL void gelu(const Words* x, Words* out, u64 count) {
  for (u64 p = first_index(); p < count; p += index_step()) {
    Pack<T> a;
    a.unpack(load_words(x + p));
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) {
      const float y = a.v[e];
      a.v[e] = y * reciprocal_fast(1.0f + exp2_fast(y * (-2.302208198f - 0.1029432397f * (y * y))));
    }
    store_words(out + p, a.packed());
  }
}

// A block takes a row: (x - mean) / sqrt(variance + epsilon) * gain + bias. The row is read three times, from L2 after
// the first: it may have any length.
KERNEL void layernorm(const Words* x, const Words* gain, const Words* bias, Words* out, u32 packs, float epsilon) {
  __shared__ float scratch[32];
  const Words* const row = x + (u64)blockIdx.x * packs;
  const float share = reciprocal((float)(packs * Pack<T>::kCount));
  float sum = 0;
  for (u32 p = threadIdx.x; p < packs; p += blockDim.x) {
    Pack<T> a;
    a.unpack(load_words(row + p));
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) sum += a.v[e];
  }
  const float mean = block_reduce<Sum>(sum, scratch) * share;
  float squares = 0;
  for (u32 p = threadIdx.x; p < packs; p += blockDim.x) {
    Pack<T> a;
    a.unpack(load_words(row + p));
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) squares += (a.v[e] - mean) * (a.v[e] - mean);
  }
  const float scale = inverse_root(block_reduce<Sum>(squares, scratch) * share + epsilon);
  for (u32 p = threadIdx.x; p < packs; p += blockDim.x) {
    Pack<T> a, g, b;
    a.unpack(load_words(row + p));
    g.unpack(load_words(gain + p));
    b.unpack(load_words(bias + p));
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) a.v[e] = (a.v[e] - mean) * (scale * g.v[e]) + b.v[e];
    store_words(out + (u64)blockIdx.x * packs + p, a.packed());
  }
}

// Rotates the first `heads` heads of each row in place, as `rope` of elementwise.cu does; `angles` is [positions, 2,
// head / 2] of fp32: cosines, then sines. `count` = rows * heads * half, half and row_packs in packs.
KERNEL void rotary_positions(Words* x, const float* angles, const int* positions, u64 count, u32 heads, u32 half,
                             u32 row_packs) {
  for (u64 p = first_index(); p < count; p += index_step()) {
    const u64 row = p / (heads * half);
    const u32 inside = (u32)(p % (heads * half)), head = inside / half, place = inside % half;
    Words* const first = x + row * row_packs + head * 2 * half + place;
    const float* const cosines = angles + ((u64)positions[row] * 2 * half + place) * Pack<T>::kCount;
    rotate_pack<T>(first, half, cosines);
  }
}

// Keys and values of each row of `qkv`, behind query_packs, into [sequence][head][capacity] of heads, at the row's
// position; a sequence has `tokens` rows. `count` = rows * kv_heads * head_packs.
KERNEL void store_kv_cache(const Words* qkv, const int* positions, Words* keys, Words* values, u64 count, u32 row_packs,
                           u32 query_packs, u32 head_packs, u32 kv_heads, u32 tokens, u32 capacity) {
  for (u64 p = first_index(); p < count; p += index_step()) {
    const u64 row = p / (kv_heads * head_packs);
    const u32 inside = (u32)(p % (kv_heads * head_packs)), head = inside / head_packs, place = inside % head_packs;
    const Words* const from = qkv + row * row_packs + query_packs + inside;
    const u64 to = ((row / tokens * kv_heads + head) * capacity + (u64)positions[row]) * head_packs + place;
    store_words(keys + to, load_words(from));
    store_words(values + to, load_words(from + kv_heads * head_packs));
  }
}

// Squares of merge x merge patches side by side, row by row; `side` squares a side, `packs` of a patch. `count` = packs
// of the output.
KERNEL void merge_patches(const Words* x, Words* out, u64 count, u32 packs, u32 merge, u32 side) {
  for (u64 p = first_index(); p < count; p += index_step()) {
    const u64 square = p / (merge * merge * packs);
    const u32 inside = (u32)(p % (merge * merge * packs)), cell = inside / packs, place = inside % packs;
    const u64 y = square / side * merge + cell / merge, from = square % side * merge + cell % merge;
    store_words(out + p, load_words(x + (y * side * merge + from) * packs + place));
  }
}

// Each number one more; `count` in numbers.
KERNEL void advance(int* numbers, u64 count) {
  for (u64 i = first_index(); i < count; i += index_step()) numbers[i] += 1;
}
