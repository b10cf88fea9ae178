// Operators that move each element once, by own kernels: SwiGLU, rotary positions, gather, append, and rows of fp8 made
// wide again.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/moves.h"
#include "kernels/reference/rows.h"

namespace llmprof::kernels::cuda {
namespace {

// Blocks for everything, or as many as the GPU holds.
struct Walk {
  unsigned threads;
  bool persistent;
};
constexpr Walk kWalks[] = {{256, false}, {512, false}, {256, true}, {1024, true}};

class ElementwiseOp : public CudaOp {
 public:
  ElementwiseOp(Device& device, const OpParams& params) : CudaOp(device, params) {}

 protected:
  const char* type_macro() const {
    return params_.dtype == DType::kFp32 ? "T=Fp32" : params_.dtype == DType::kFp16 ? "T=Fp16" : "T=Bf16";
  }
  size_t element_bytes() const { return static_cast<size_t>(dtype_bytes(params_.dtype)); }
  Fill numbers() const { return {Fill::Kind::kUniform, params_.dtype, 1, 0}; }
  // `size` elements as packs of 16 bytes.
  Result<uint32_t> packs_of(std::string_view what, int64_t size) const {
    const int64_t pack = static_cast<int64_t>(16 / element_bytes());
    if (size % pack == 0 && size > 0) return static_cast<uint32_t>(size / pack);
    return fail(fmt::format("own kernels move whole 16 bytes: {} of {} must be a multiple of {}, found {}", what,
                            dtype_name(params_.dtype), pack, size),
                {}, {}, ExitCode::kUsage);
  }
  using Run = std::function<Status(const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set)>;
  Status add_walks(const char* name, uint64_t count, const Run& run) {
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel({"elementwise.cu", {type_macro()}}, name));
    for (const Walk& walk : kWalks) {
      const uint64_t all = std::min<uint64_t>((count + walk.threads - 1) / walk.threads, 0x7fffffff);
      const uint64_t resident =
          static_cast<uint64_t>(context_.sms()) * static_cast<uint64_t>(context_.blocks_per_sm(kernel, walk.threads));
      if (walk.persistent && all <= resident) continue;
      const unsigned grid = static_cast<unsigned>(walk.persistent ? resident : all);
      add(fmt::format("own 16 B, {} threads{}", walk.threads, walk.persistent ? ", persistent" : ""),
          [kernel, grid, walk, run](int set) { return run(kernel, grid, walk.threads, set); });
    }
    return {};
  }
};

// out, gate_up
class SwigluOp : public ElementwiseOp {
 public:
  using ElementwiseOp::ElementwiseOp;
  Status prepare() {
    tokens_ = params_.axis("tokens");
    ffn_ = params_.axis("ffn");
    LLMPROF_ASSIGN(const uint32_t packs, packs_of("ffn", ffn_));
    const size_t bytes = static_cast<size_t>(tokens_ * ffn_) * element_bytes();
    LLMPROF_CHECK(begin({{"out", bytes, Role::kOutput, {}}, {"gate_up", 2 * bytes, Role::kInput, numbers()}}));
    const uint64_t count = static_cast<uint64_t>(tokens_) * packs;
    return add_walks(
        "swiglu", count,
        [this, count, packs](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
          return context_.launch(kernel, grid, threads, at(set, 1), at(set, 0), count, packs);
        });
  }

 protected:
  Result<Check> compare(size_t) override {
    const RowReader in = rows_of(device_, array(0, 1), params_.dtype, 2 * ffn_);
    return check_rows(device_, array(0, 0), params_.dtype, ffn_, tokens_, params_.seed,
                      [&](int64_t row) -> Result<RowResult> {
                        LLMPROF_ASSIGN(const Row values, in(row));
                        return swiglu_row(values);
                      });
  }

 private:
  int64_t tokens_ = 0, ffn_ = 0;
};

// q, k, table
class RopeOp : public ElementwiseOp {
 public:
  using ElementwiseOp::ElementwiseOp;
  Status prepare() {
    tokens_ = params_.axis("tokens");
    heads_ = params_.axis("heads");
    kv_heads_ = params_.axis("kv_heads");
    head_ = params_.axis("head_dim");
    if (head_ % 2 != 0) return fail(fmt::format("expected an even head_dim, found {}", head_));
    LLMPROF_ASSIGN(const uint32_t half, packs_of("half of head_dim", head_ / 2));
    const auto bytes = [&](int64_t heads) { return static_cast<size_t>(tokens_ * heads * head_) * element_bytes(); };
    LLMPROF_CHECK(begin({{"q", bytes(heads_), Role::kInOut, numbers()},
                         {"k", bytes(kv_heads_), Role::kInOut, numbers()},
                         {"table",
                          static_cast<size_t>(tokens_ * head_) * 4,
                          Role::kInput,
                          {Fill::Kind::kUniform, DType::kFp32, 1, 0}}}));
    const uint64_t count = static_cast<uint64_t>(tokens_ * (heads_ + kv_heads_)) * half;
    const uint32_t heads = static_cast<uint32_t>(heads_), kv_heads = static_cast<uint32_t>(kv_heads_);
    return add_walks("rope", count,
                     [=, this](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
                       return context_.launch(kernel, grid, threads, at(set, 0), at(set, 1), at(set, 2), count, heads,
                                              kv_heads, half);
                     });
  }

 protected:
  Status set_made(int set) override {
    if (table_.empty()) table_ = rope_table(tokens_, head_);
    return device_.upload(array(set, 2), 0, table_.data(), table_.size() * sizeof(float));
  }

  Result<Check> compare(size_t) override {
    const auto part = [&](size_t index) {
      return check_rope(device_, array(0, index), fill_of(0, index), array(0, 2), tokens_,
                        index == 0 ? heads_ : kv_heads_, head_, params_.seed);
    };
    LLMPROF_ASSIGN(const Check queries, part(0));
    LLMPROF_ASSIGN(const Check keys, part(1));
    return worse_of(queries, keys);
  }

 private:
  int64_t tokens_ = 0, heads_ = 0, kv_heads_ = 0, head_ = 0;
  std::vector<float> table_;
};

// out, table, index
class EmbeddingOp : public ElementwiseOp {
 public:
  using ElementwiseOp::ElementwiseOp;
  Status prepare() {
    tokens_ = params_.axis("tokens");
    hidden_ = params_.axis("hidden");
    const int64_t vocabulary = params_.axis("vocab");
    LLMPROF_ASSIGN(const uint32_t packs, packs_of("hidden", hidden_));
    const auto bytes = [&](int64_t rows) { return static_cast<size_t>(rows * hidden_) * element_bytes(); };
    LLMPROF_CHECK(begin({{"out", bytes(tokens_), Role::kOutput, {}},
                         {"table", bytes(vocabulary), Role::kInput, numbers()},
                         {"index",
                          static_cast<size_t>(tokens_) * 4,
                          Role::kInput,
                          {Fill::Kind::kIndex, DType::kInt32, 1, vocabulary}}}));
    const uint64_t count = static_cast<uint64_t>(tokens_) * packs;
    return add_walks(
        "gather", count,
        [this, count, packs](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
          return context_.launch(kernel, grid, threads, at(set, 1), at(set, 2), at(set, 0), count, packs);
        });
  }

 protected:
  Result<Check> compare(size_t) override {
    return check_gathered(device_, array(0, 0), array(0, 1), array(0, 2), params_.dtype, hidden_, tokens_,
                          params_.seed);
  }

 private:
  int64_t tokens_ = 0, hidden_ = 0;
};

// keys, values, k, v, slot
class KvAppendOp : public ElementwiseOp {
 public:
  using ElementwiseOp::ElementwiseOp;
  Status prepare() {
    tokens_ = params_.axis("tokens");
    columns_ = params_.axis("kv_heads") * params_.axis("head_dim");
    LLMPROF_ASSIGN(const uint32_t packs, packs_of("kv_heads x head_dim", columns_));
    slots_ = kSlotsPerToken * tokens_;
    const auto bytes = [&](int64_t rows) { return static_cast<size_t>(rows * columns_) * element_bytes(); };
    LLMPROF_CHECK(begin(
        {{"keys", bytes(slots_), Role::kOutput, {}},
         {"values", bytes(slots_), Role::kOutput, {}},
         {"k", bytes(tokens_), Role::kInput, numbers()},
         {"v", bytes(tokens_), Role::kInput, numbers()},
         {"slot", static_cast<size_t>(tokens_) * 4, Role::kInput, {Fill::Kind::kIndex, DType::kInt32, 1, slots_}}}));
    const uint64_t count = static_cast<uint64_t>(tokens_) * packs;
    return add_walks(
        "scatter_two", count,
        [this, count, packs](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
          return context_.launch(kernel, grid, threads, at(set, 2), at(set, 3), at(set, 4), at(set, 0), at(set, 1),
                                 count, packs);
        });
  }

 protected:
  Status set_made(int set) override {
    const std::vector<int32_t> slots = append_slots(tokens_, set);
    return device_.upload(array(set, 4), 0, slots.data(), slots.size() * sizeof(int32_t));
  }

  Result<Check> compare(size_t) override {
    const std::vector<int32_t> slots = append_slots(tokens_, 0);
    const auto part = [&](size_t index) {
      return check_appended(device_, array(0, index), array(0, index + 2), slots, params_.dtype, columns_);
    };
    LLMPROF_ASSIGN(const Check keys, part(0));
    LLMPROF_ASSIGN(const Check values, part(1));
    return worse_of(keys, values);
  }

 private:
  int64_t tokens_ = 0, columns_ = 0, slots_ = 0;
};

// out, codes, scales
class DequantiseOp : public ElementwiseOp {
 public:
  using ElementwiseOp::ElementwiseOp;
  Status prepare() {
    rows_ = params_.axis("tokens");
    columns_ = params_.axis("hidden");
    LLMPROF_ASSIGN(const uint32_t packs, packs_of("hidden", columns_));
    const size_t elements = static_cast<size_t>(rows_ * columns_);
    LLMPROF_CHECK(
        begin({{"out", elements * element_bytes(), Role::kOutput, {}},
               {"codes", elements, Role::kInput, {Fill::Kind::kUniform, DType::kFp8, 1, 0}},
               {"scales", static_cast<size_t>(rows_) * 4, Role::kInput, {Fill::Kind::kUniform, DType::kFp32, 1, 0}}}));
    const uint64_t count = static_cast<uint64_t>(rows_) * packs;
    return add_walks(
        "dequantise", count,
        [this, count, packs](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
          return context_.launch(kernel, grid, threads, at(set, 1), at(set, 2), at(set, 0), count, packs);
        });
  }

 protected:
  Result<Check> compare(size_t) override {
    return check_dequantised(device_, array(0, 0), params_.dtype, {array(0, 1), array(0, 2), rows_, columns_},
                             params_.seed);
  }

 private:
  int64_t rows_ = 0, columns_ = 0;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_swiglu(Device& device, const OpParams& params) {
  return prepare_as<SwigluOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_rope(Device& device, const OpParams& params) {
  return prepare_as<RopeOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_embedding(Device& device, const OpParams& params) {
  return prepare_as<EmbeddingOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_kv_append(Device& device, const OpParams& params) {
  return prepare_as<KvAppendOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_dequantise(Device& device, const OpParams& params) {
  return prepare_as<DequantiseOp>(device, params);
}

}  // namespace llmprof::kernels::cuda
