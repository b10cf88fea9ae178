// Operators over rows: a block takes a row, then the next of the grid. A thread keeps ITEMS packs of 16 bytes of its
// row in registers, so memory is read once. `packs` is the length of a row in packs; blockDim.x * ITEMS covers it.
//
// Macros: T (Bf16, Fp16, Fp32), ITEMS.

#define EACH_ROW for (u64 row = blockIdx.x; row < rows; row += gridDim.x)
#define EACH_ITEM _Pragma("unroll") for (int i = 0; i < ITEMS; ++i)
#define ITEM_INDEX (threadIdx.x + (u32)i * blockDim.x)
#define HAS_ITEM (ITEM_INDEX < packs)

struct RowOfPacks {
  Words words[ITEMS];
  __device__ __forceinline__ void load(const Words* row, u32 packs) {
    EACH_ITEM if (HAS_ITEM) words[i] = load_stream(row + ITEM_INDEX);
  }
};

// out = x / sqrt(mean(x^2) + epsilon) * gain.
__device__ __forceinline__ void write_rmsnorm(const RowOfPacks& in, const Words* gain, Words* out, u32 packs,
                                              float epsilon, float* scratch) {
  float squares = 0;
  EACH_ITEM if (HAS_ITEM) {
    Pack<T> x;
    x.unpack(in.words[i]);
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) squares += x.v[e] * x.v[e];
  }
  squares = block_reduce<Sum>(squares, scratch);
  const float scale = inverse_root(squares / (float)(packs * Pack<T>::kCount) + epsilon);
  EACH_ITEM if (HAS_ITEM) {
    Pack<T> x, g;
    x.unpack(in.words[i]);
    g.unpack(load_words(gain + ITEM_INDEX));
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) x.v[e] *= scale * g.v[e];
    store_stream(out + ITEM_INDEX, x.packed());
  }
}

KERNEL void rmsnorm(const Words* x, const Words* gain, Words* out, u64 rows, u32 packs, float epsilon) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in;
    in.load(x + row * packs, packs);
    write_rmsnorm(in, gain, out + row * packs, packs, epsilon, scratch);
  }
}

// residual += x, rounded as it is stored; out = rmsnorm(residual).
KERNEL void rmsnorm_residual(const Words* x, Words* residual, const Words* gain, Words* out, u64 rows, u32 packs,
                             float epsilon) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in, kept;
    in.load(x + row * packs, packs);
    EACH_ITEM if (HAS_ITEM) kept.words[i] = load_words(residual + row * packs + ITEM_INDEX);
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a, b;
      a.unpack(in.words[i]);
      b.unpack(kept.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) a.v[e] += b.v[e];
      in.words[i] = a.packed();
      store_stream(residual + row * packs + ITEM_INDEX, in.words[i]);
    }
    write_rmsnorm(in, gain, out + row * packs, packs, epsilon, scratch);
  }
}

// y = (x - mean) / sqrt(variance + epsilon) * gain + bias; out = gelu(y) by tanh.
KERNEL void layernorm_gelu(const Words* x, const Words* gain, const Words* bias, Words* out, u64 rows, u32 packs,
                           float epsilon) {
  __shared__ float scratch[64];
  const float share = reciprocal((float)(packs * Pack<T>::kCount));
  EACH_ROW {
    RowOfPacks in;
    in.load(x + row * packs, packs);
    // Moments about the row's first element, so that a mean far from zero costs no digits: one pass and one reduction.
    Pack<T> head;
    head.unpack(load_words(x + row * packs));
    const float shift = head.v[0];
    TwoSums sums = {0, 0};
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) {
        const float d = a.v[e] - shift;
        sums.first += d;
        sums.second += d * d;
      }
    }
    sums = block_sums(sums, scratch);
    const float offset = sums.first * share, mean = offset + shift;
    const float variance = sums.second * share - offset * offset;
    const float scale = inverse_root((variance > 0 ? variance : 0) + epsilon);
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a, g, b;
      a.unpack(in.words[i]);
      g.unpack(load_words(gain + ITEM_INDEX));
      b.unpack(load_words(bias + ITEM_INDEX));
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) {
        const float y = (a.v[e] - mean) * (scale * g.v[e]) + b.v[e];
        // tanh(u) = 2 / (1 + exp(-2 u)) - 1, so gelu(y) = y / (1 + exp(-2 u)), u = sqrt(2 / pi) (y + 0.044715 y^3).
        const float power = y * (-2.302208198f - 0.1029432397f * (y * y));
        a.v[e] = y * reciprocal_fast(1.0f + exp2_fast(power));
      }
      store_stream(out + row * packs + ITEM_INDEX, a.packed());
    }
  }
}

KERNEL void softmax(const Words* x, Words* out, u64 rows, u32 packs) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in;
    in.load(x + row * packs, packs);
    float most = Max::kNone;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) most = Max::of(most, a.v[e]);
    }
    most = block_reduce<Max>(most, scratch);
    float sum = 0;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) sum += exp2_fast((a.v[e] - most) * 1.4426950408889634f);
    }
    const float scale = reciprocal(block_reduce<Sum>(sum, scratch));
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) a.v[e] = exp2_fast((a.v[e] - most) * 1.4426950408889634f) * scale;
      store_stream(out + row * packs + ITEM_INDEX, a.packed());
    }
  }
}

// Rows too long for registers: largest value and sum in one pass, read again from L2 for the second.
KERNEL void softmax_long(const Words* x, Words* out, u64 rows, u32 packs) {
  __shared__ float scratch[32];
  EACH_ROW {
    const Words* from = x + row * packs;
    float most = Max::kNone, sum = 0;
    for (u32 base = 0; base < packs; base += ITEMS * blockDim.x) {
      Words words[ITEMS];
      EACH_ITEM if (base + ITEM_INDEX < packs) words[i] = load_words(from + base + ITEM_INDEX);
      EACH_ITEM if (base + ITEM_INDEX < packs) {
        Pack<T> a;
        a.unpack(words[i]);
        float here = a.v[0];
#pragma unroll
        for (int e = 1; e < Pack<T>::kCount; ++e) here = Max::of(here, a.v[e]);
        if (here > most) {
          sum *= exp2_fast((most - here) * 1.4426950408889634f);
          most = here;
        }
#pragma unroll
        for (int e = 0; e < Pack<T>::kCount; ++e) sum += exp2_fast((a.v[e] - most) * 1.4426950408889634f);
      }
    }
    const float all = block_reduce<Max>(most, scratch);
    const float scale = reciprocal(block_reduce<Sum>(sum * exp2_fast((most - all) * 1.4426950408889634f), scratch));
    for (u32 base = 0; base < packs; base += ITEMS * blockDim.x) {
      Words words[ITEMS];
      EACH_ITEM if (base + ITEM_INDEX < packs) words[i] = load_words(from + base + ITEM_INDEX);
      EACH_ITEM if (base + ITEM_INDEX < packs) {
        Pack<T> a;
        a.unpack(words[i]);
#pragma unroll
        for (int e = 0; e < Pack<T>::kCount; ++e) a.v[e] = exp2_fast((a.v[e] - all) * 1.4426950408889634f) * scale;
        store_stream(out + row * packs + base + ITEM_INDEX, a.packed());
      }
    }
  }
}

// A scale per row, 448 for the largest: out = e4m3(x / scale), scales[row] = largest / 448.
KERNEL void quantise(const Words* x, u8* out, float* scales, u64 rows, u32 packs) {
  __shared__ float scratch[32];
  EACH_ROW {
    RowOfPacks in;
    in.load(x + row * packs, packs);
    float most = 0;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; ++e) most = Max::of(most, a.v[e] < 0 ? -a.v[e] : a.v[e]);
    }
    most = block_reduce<Max>(most, scratch);
    const float scale = most > 0 ? most / 448.0f : 1.0f, inverse = 1.0f / scale;
    if (threadIdx.x == 0) scales[row] = scale;
    EACH_ITEM if (HAS_ITEM) {
      Pack<T> a;
      a.unpack(in.words[i]);
      // As many bytes as there are elements in the pack: 8 or 4.
      u32 bytes[Pack<T>::kCount / 4];
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount; e += 4) {
        bytes[e / 4] = fp8_pair(a.v[e] * inverse, a.v[e + 1] * inverse) |
                       (u32)fp8_pair(a.v[e + 2] * inverse, a.v[e + 3] * inverse) << 16;
      }
      u32* to = (u32*)(out + (row * packs + ITEM_INDEX) * Pack<T>::kCount);
#pragma unroll
      for (int e = 0; e < Pack<T>::kCount / 4; ++e) to[e] = bytes[e];
    }
  }
}
