// What the model is made of: tensors in the memory of one device, and the operators it runs on them. The CPU
// (cpu_backend.h) is one implementation; RecordedBackend (recording.h) is another that passes everything on and notes
// what ran when.
//
// Operators are asynchronous where the device is; download and wait wait. Shapes are the caller's: an implementation
// may rely on those that each operator's sentence gives.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "device/device.h"

namespace llmprof::workload {

// A dense matrix, row after row. Memory is the backend's and lives as long as it.
struct Tensor {
  void* data = nullptr;
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kFp32;  // fp32, bf16 or int32

  int64_t elements() const { return rows * columns; }
  Tensor rows_from(int64_t first, int64_t count) const;
};

// offset + scale * u, u = fill_uniform(hash(seed, index)) of device/fill.h, computed in fp32, then rounded to the
// type: equal on every device, so weights need not be stored.
struct Numbers {
  uint64_t seed = 0;
  float scale = 1, offset = 0;
};

// y = x w^T + b; w is [out, in].
struct Linear {
  int id = -1;
  int64_t in = 0, out = 0;
  bool bias = false;
};

// Heads inside a larger tensor: where element 0 of head 0 of token 0 is, and how many elements later the next are.
struct Heads {
  const void* data = nullptr;
  int64_t sequence = 0, token = 0, head = 0;
};

struct AttentionCall {
  int64_t sequences = 0, queries = 0, keys = 0;  // queries of each sequence, and keys that the last one sees
  // How many keys there is room for; a call that repeatable() keeps may see more than `keys` at a later time, up to it.
  int64_t capacity = 0;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  Heads q, k, v;
  Tensor out;                       // [sequences * queries, heads * head_size]
  std::optional<Tensor> positions;  // int32 [1, sequences * queries]: query r sees keys 0 to positions[r]; none: all
  bool causal = false;              // the positions of each sequence are 0, 1, 2, ...
};

// Keys or values of one layer: [sequences, kv_heads, capacity, head_size].
struct Cache {
  Tensor keys, values;  // [sequences * kv_heads * capacity, head_size]
  int64_t capacity = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const device::DeviceIdentity& identity() const = 0;
  virtual DType dtype() const = 0;         // of weights and activations: fp32 or bf16
  virtual int64_t free_bytes() const = 0;  // 0: unknown

  // ---- memory. Errors say what was asked for and what is free.
  virtual Result<Tensor> allocate(int64_t rows, int64_t columns, DType dtype) = 0;
  virtual Result<Tensor> weights(int64_t rows, int64_t columns, const Numbers& numbers) = 0;
  // Prepares everything that takes time for activations of each number of rows in `rows`; no others may come.
  virtual Result<Linear> linear(int64_t in, int64_t out, const Numbers& w, const std::optional<Numbers>& bias,
                                DType out_dtype, std::span<const int64_t> rows) = 0;
  // Everything of this call that takes time but itself. Its tensors may hold anything and do afterwards.
  virtual Status prepare(const AttentionCall&) { return {}; }
  virtual Status upload(const Tensor& to, const void* from) = 0;  // elements of to.dtype
  virtual Status download(const Tensor& from, void* to) = 0;
  virtual Status wait() { return {}; }  // until all that was asked for is done

  // ---- operators that come again and again in the same order on the same tensors
  using Work = std::function<Status()>;
  // What does the same as `body`, which lives on: itself, or a record of its operators that the device runs by itself.
  virtual Result<Work> repeatable(Work body) { return body; }
  // repeatable() calls `body` once, for the record, and nothing is done then: no results to be looked at inside of it.
  virtual bool records() const { return false; }
  virtual std::vector<std::string> notes() const { return {}; }  // on how it works here, in sentences

  // ---- operators; x and out are [rows, columns] of dtype() unless said otherwise
  virtual Status apply(const Linear& linear, const Tensor& x, const Tensor& out) = 0;
  virtual Status gather(const Tensor& table, const Tensor& ids, const Tensor& out) = 0;  // ids int32 [1, rows]
  virtual Status copy(const Tensor& x, const Tensor& out) = 0;
  virtual Status add(const Tensor& x, const Tensor& to) = 0;  // to += x
  // residual += x first, if there is one.
  virtual Status rmsnorm(const Tensor& x, const Tensor* residual, const Tensor& gain, const Tensor& out) = 0;
  virtual Status layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias, const Tensor& out) = 0;
  virtual Status gelu(const Tensor& x, const Tensor& out) = 0;    // by tanh
  virtual Status swiglu(const Tensor& x, const Tensor& out) = 0;  // x is [rows, 2 columns], gates first
  // Rotates the first `heads` heads of each row of `x`, queries, and the `kv_heads` behind them, keys, in place. angles
  // fp32 [positions, head_size]: cosines of the first half, then sines; element i of a head is paired with i +
  // head_size / 2.
  virtual Status rope(const Tensor& x, int64_t heads, int64_t kv_heads, int64_t head_size, const Tensor& angles,
                      const Tensor& positions) = 0;
  // Keys and values of `qkv` rows (behind query_width elements) into the cache, at their positions.
  virtual Status append(const Tensor& qkv, int64_t query_width, const Tensor& positions, int64_t sequences,
                        const Cache& cache) = 0;
  virtual Status attention(const AttentionCall& call) = 0;
  // Joins squares of merge x merge patches: x [side * side, columns] to out [(side / merge)^2, merge^2 * columns],
  // within a square row by row.
  virtual Status merge(const Tensor& x, int64_t merge, const Tensor& out) = 0;
  // The first highest of each row: x fp32, out int32 [1, rows].
  virtual Status argmax(const Tensor& x, const Tensor& out) = 0;
  virtual Status advance(const Tensor& numbers) = 0;  // each int32 one more
};

}  // namespace llmprof::workload
