// Operators that move each element once. Counts are packs of 16 bytes; the grid walks over them.
//
// Macros: T (Bf16, Fp16, Fp32).

#define EACH_PACK                               \
  const u64 step = (u64)gridDim.x * blockDim.x; \
  for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < count; p += step)

// in: rows of gate, then up, `packs` each; out[row] = silu(gate) * up. `count` = rows * packs.
KERNEL void swiglu(const Words* in, Words* out, u64 count, u32 packs) {
  EACH_PACK {
    const u64 row = p / packs, column = p % packs;
    const Words* from = in + row * 2 * packs + column;
    const Words gate_words = load_stream(from), up_words = load_stream(from + packs);
    Pack<T> gate, up;
    gate.unpack(gate_words);
    up.unpack(up_words);
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e)
      gate.v[e] *= up.v[e] * reciprocal_fast(1.0f + exp2_fast(-1.4426950408889634f * gate.v[e]));
    store_words(out + p, gate.packed());
  }
}

// Rotary positions, halves: (a, b) -> (a cos - b sin, b cos + a sin), a of the first half of a head, b of the second.
// q and k are [tokens, heads, head], in place; `table` is [tokens, 2, head / 2] of fp32: cosines, then sines.
// A thread does a pack of both halves; `count` = tokens * (heads + kv_heads) * half, half in packs.
KERNEL void rope(Words* q, Words* k, const float* table, u64 count, u32 heads, u32 kv_heads, u32 half) {
  EACH_PACK {
    const u32 all = heads + kv_heads;
    const u64 token = p / ((u64)all * half);
    const u32 inside = (u32)(p % ((u64)all * half)), head = inside / half, place = inside % half;
    Words* first = head < heads ? q + ((token * heads + head) * 2) * half + place
                                : k + ((token * kv_heads + (head - heads)) * 2) * half + place;
    const float* cosines = table + (token * 2 * half + place) * Pack<T>::kCount;
    rotate_pack<T>(first, half, cosines);
  }
}

// out[row] = table[index[row]]. `count` = rows * packs.
KERNEL void gather(const Words* table, const int* index, Words* out, u64 count, u32 packs) {
  EACH_PACK {
    const u64 row = p / packs, column = p % packs;
    store_words(out + p, load_stream(table + (u64)index[row] * packs + column));
  }
}

// out[row] = in[row] * scales[row], `in` of e4m3. `count` = rows * packs of the result.
KERNEL void dequantise(const u8* in, const float* scales, Words* out, u64 count, u32 packs) {
  EACH_PACK {
    constexpr int kCount = Pack<T>::kCount;
    const u64 codes = kCount == 8 ? ((const u64*)in)[p] : ((const u32*)in)[p];
    const float scale = scales[p / packs];
    Pack<T> a;
#pragma unroll
    for (int e = 0; e < kCount; ++e) a.v[e] = of_fp8((u8)(codes >> 8 * e)) * scale;
    store_words(out + p, a.packed());
  }
}

// keys[slot[row]] = k[row], and the same of values.
KERNEL void scatter_two(const Words* k, const Words* v, const int* slot, Words* keys, Words* values, u64 count,
                        u32 packs) {
  EACH_PACK {
    const u64 row = p / packs, column = p % packs, to = (u64)slot[row] * packs + column;
    const Words key = load_stream(k + p), value = load_stream(v + p);
    store_words(keys + to, key);
    store_words(values + to, value);
  }
}
