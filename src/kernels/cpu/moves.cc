// Operators that move each element about once, on the CPU's team: rotary positions, gather and append.
#include "kernels/reference/moves.h"

#include <fmt/format.h>

#include <cstring>

#include "device/fill.h"
#include "kernels/cpu/memory_kernels.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/own_op.h"
#include "kernels/cpu/row_kernels.h"

namespace llmprof::kernels::cpu {
namespace {

constexpr size_t kLine = 64;

size_t bytes_of(const OpParams& params, int64_t elements) {
  return static_cast<size_t>(elements) * static_cast<size_t>(dtype_bytes(params.dtype));
}

// q, k, table
class RopeOp : public OwnOp {
 public:
  RopeOp(device::cpu::CpuDevice& device, const OpParams& params)
      : OwnOp(device, params,
              {{bytes_of(params, params.axis("tokens") * params.axis("heads") * params.axis("head_dim")), params.dtype,
                false, params.seed},
               {bytes_of(params, params.axis("tokens") * params.axis("kv_heads") * params.axis("head_dim")),
                params.dtype, false, params.seed + 1},
               {static_cast<size_t>(params.axis("tokens") * params.axis("head_dim")) * sizeof(float), DType::kFp32,
                false, 1}}),
        tokens_(params.axis("tokens")),
        head_(params.axis("head_dim")),
        heads_{params.axis("heads"), params.axis("kv_heads")},
        table_(rope_table(tokens_, head_)) {
    for (const RowKernels& kernels : row_kernels(device.instructions(), params.dtype))
      add(kernels.name, [this, rope = kernels.rope](int set) {
        share(tokens_, [&](int64_t first, int64_t last) {
          for (const size_t which : {size_t{0}, size_t{1}}) {
            const int64_t heads = heads_[which];
            rope({sets_.data<void>(set, which), sets_.data<float>(set, 2), nullptr, heads * head_, heads, head_}, first,
                 last);
          }
        });
      });
  }

 protected:
  Status set_made(int set) override { return upload(set, 2, table_); }
  Status before_check() override {
    for (const size_t which : {size_t{0}, size_t{1}}) LLMPROF_CHECK(device_.fill(sets_.at(0, which), before(which)));
    return {};
  }
  Result<Check> compare() override {
    const auto part = [&](size_t which) {
      return check_rope(device_, sets_.at(0, which), before(which), sets_.at(0, 2), tokens_, heads_[which], head_,
                        params_.seed);
    };
    LLMPROF_ASSIGN(const Check queries, part(0));
    LLMPROF_ASSIGN(const Check keys, part(1));
    return worse_of(queries, keys);
  }

 private:
  Fill before(size_t which) const { return {Fill::Kind::kUniform, params_.dtype, params_.seed + which, 0}; }
  int64_t tokens_, head_, heads_[2];
  std::vector<float> table_;
};

// Copies of rows: own kernels where rows are whole lines, the C library's memcpy for any.
class RowCopyOp : public OwnOp {
 protected:
  RowCopyOp(device::cpu::CpuDevice& device, const OpParams& params, std::vector<BufferPlan> plan, size_t row_bytes)
      : OwnOp(device, params, std::move(plan)), row_bytes_(row_bytes) {}
  using RowCopy = void (*)(float* out, const float* a, size_t count);
  void add_copies() {
    for (const MemoryKernels& kernels : memory_kernels(device_.instructions())) {
      const bool library = kernels.name == "C library";
      if (kernels.copy == nullptr || (row_bytes_ % kLine != 0 && !library)) continue;
      add(kernels.name, [this, copy = library ? nullptr : kernels.copy](int set) { run(copy, set); });
    }
  }
  void copy_row(RowCopy copy, char* to, const char* from) const {
    if (copy == nullptr)
      std::memcpy(to, from, row_bytes_);
    else
      copy(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), row_bytes_ / sizeof(float));
  }
  virtual void run(RowCopy copy, int set) = 0;
  size_t row_bytes_;
};

// out, table, index
class EmbeddingOp : public RowCopyOp {
 public:
  EmbeddingOp(device::cpu::CpuDevice& device, const OpParams& params)
      : RowCopyOp(
            device, params,
            {{bytes_of(params, params.axis("tokens") * params.axis("hidden")), params.dtype, true, params.seed},
             {bytes_of(params, params.axis("vocab") * params.axis("hidden")), params.dtype, false, params.seed + 1},
             {static_cast<size_t>(params.axis("tokens")) * sizeof(int32_t), DType::kFp32, false, 1}},
            bytes_of(params, params.axis("hidden"))),
        tokens_(params.axis("tokens")) {
    add_copies();
  }

 protected:
  void run(RowCopy copy, int set) override {
    char* const out = sets_.data<char>(set, 0);
    const char* const table = sets_.data<char>(set, 1);
    const int32_t* const index = sets_.data<int32_t>(set, 2);
    share(tokens_, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row)
        copy_row(copy, out + static_cast<size_t>(row) * row_bytes_,
                 table + static_cast<size_t>(index[row]) * row_bytes_);
    });
  }
  Status set_made(int set) override {
    return device_.fill(sets_.at(set, 2), {Fill::Kind::kIndex, DType::kInt32,
                                           params_.seed + 2 + static_cast<uint64_t>(set), params_.axis("vocab")});
  }
  Result<Check> compare() override {
    return check_gathered(device_, sets_.at(0, 0), sets_.at(0, 1), sets_.at(0, 2), params_.dtype,
                          params_.axis("hidden"), tokens_, params_.seed);
  }

 private:
  int64_t tokens_;
};

int64_t kv_columns(const OpParams& params) { return params.axis("kv_heads") * params.axis("head_dim"); }

// keys, values, k, v, slot
class KvAppendOp : public RowCopyOp {
 public:
  KvAppendOp(device::cpu::CpuDevice& device, const OpParams& params)
      : RowCopyOp(device, params, plan(params), bytes_of(params, kv_columns(params))), tokens_(params.axis("tokens")) {
    add_copies();
  }

 protected:
  void run(RowCopy copy, int set) override {
    const int32_t* const slot = sets_.data<int32_t>(set, 4);
    share(tokens_, [&](int64_t first, int64_t last) {
      for (const size_t which : {size_t{0}, size_t{1}}) {
        char* const cache = sets_.data<char>(set, which);
        const char* const in = sets_.data<char>(set, which + 2);
        for (int64_t row = first; row < last; ++row)
          copy_row(copy, cache + static_cast<size_t>(slot[row]) * row_bytes_,
                   in + static_cast<size_t>(row) * row_bytes_);
      }
    });
  }
  Status set_made(int set) override { return upload(set, 4, append_slots(tokens_, set)); }
  Result<Check> compare() override {
    const auto part = [&](size_t which) {
      return check_appended(device_, sets_.at(0, which), sets_.at(0, which + 2), append_slots(tokens_, 0),
                            params_.dtype, kv_columns(params_));
    };
    LLMPROF_ASSIGN(const Check keys, part(0));
    LLMPROF_ASSIGN(const Check values, part(1));
    return worse_of(keys, values);
  }

 private:
  static std::vector<BufferPlan> plan(const OpParams& params) {
    const size_t in = bytes_of(params, params.axis("tokens") * kv_columns(params)), cache = kSlotsPerToken * in;
    return {{cache, params.dtype, true, params.seed},
            {cache, params.dtype, true, params.seed},
            {in, params.dtype, false, params.seed + 1},
            {in, params.dtype, false, params.seed + 2},
            {static_cast<size_t>(params.axis("tokens")) * sizeof(int32_t), DType::kFp32, false, 1}};
  }
  int64_t tokens_;
};

}  // namespace

std::optional<std::string> rope_unsupported(const OpParams& params) {
  if (std::optional<std::string> why = rows_unsupported(params)) return why;
  if (params.axis("head_dim") % 2 == 0) return std::nullopt;
  return fmt::format("halves of a head are rotated: head_dim must be even, found {}", params.axis("head_dim"));
}

Result<std::unique_ptr<PreparedOp>> prepare_rope(Device& device, const OpParams& params) {
  if (const std::optional<std::string> why = rope_unsupported(params)) return fail(*why, {}, {}, ExitCode::kUsage);
  return prepare_own<RopeOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_embedding(Device& device, const OpParams& params) {
  return prepare_own<EmbeddingOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_kv_append(Device& device, const OpParams& params) {
  return prepare_own<KvAppendOp>(device, params);
}
}  // namespace llmprof::kernels::cpu
