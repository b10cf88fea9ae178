// Operators over rows by own kernels: normalisations, softmax, quantisation. Each is offered with one to four packs of
// 16 bytes per thread, and with blocks that stay; LayerNorm also by kernels made for the length of its rows.
#include "kernels/reference/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/compare.h"
#include "kernels/reference/moves.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr float kEpsilon = 1e-5F;
// Eight only where four would take blocks of more than 512 threads, for which there may not be the registers.
constexpr int kItems[] = {1, 2, 4, 8};
constexpr unsigned kThreadsMin = 32, kThreadsMax = 1024;

const char* type_macro(DType dtype) {
  switch (dtype) {
    case DType::kFp32:
      return "T=Fp32";
    case DType::kFp16:
      return "T=Fp16";
    default:
      return "T=Bf16";
  }
}

class RowsOp : public CudaOp {
 public:
  RowsOp(Device& device, const OpParams& params) : CudaOp(device, params) {}

 protected:
  // Rows of `columns` elements; an error where they are no whole packs.
  Status set_shape(std::string_view row_axis, std::string_view column_axis) {
    rows_ = params_.axis(row_axis);
    columns_ = params_.axis(column_axis);
    element_bytes_ = static_cast<size_t>(dtype_bytes(params_.dtype));
    const int64_t pack = static_cast<int64_t>(16 / element_bytes_);
    if (columns_ % pack != 0)
      return fail(fmt::format("own kernels take rows of whole 16 bytes: {} of {} must be a multiple of {}, found {}",
                              column_axis, dtype_name(params_.dtype), pack, columns_),
                  {}, {}, ExitCode::kUsage);
    packs_ = static_cast<uint32_t>(columns_ / pack);
    return {};
  }
  size_t matrix_bytes() const { return static_cast<size_t>(rows_ * columns_) * element_bytes_; }
  size_t row_bytes() const { return static_cast<size_t>(columns_) * element_bytes_; }
  Array matrix(std::string name, Role role) const {
    return {std::move(name), matrix_bytes(), role, {Fill::Kind::kUniform, params_.dtype, 1, 0}};
  }
  Array vector(std::string name) const {
    return {std::move(name), row_bytes(), Role::kInput, {Fill::Kind::kUniform, params_.dtype, 1, 0}};
  }
  Fill number_fill() const { return {Fill::Kind::kUniform, params_.dtype, 1, 0}; }

  using Run = std::function<Status(const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set)>;
  // The kernel with every number of packs per thread that fits a row.
  Status add_shapes(const char* name, const Run& run) {
    struct Shape {
      int items;
      unsigned threads;
    };
    std::vector<Shape> shapes;
    std::vector<device::cuda::KernelSource> sources;
    for (const int items : kItems) {
      const unsigned threads = threads_for(items);
      if (threads > kThreadsMax || (items > 1 && threads_for(items / 2) == kThreadsMin)) continue;
      if (items == 8 && threads_for(4) <= kThreadsMax / 2) continue;
      shapes.push_back({items, threads});
      sources.push_back({"rows.cu", {type_macro(params_.dtype), fmt::format("ITEMS={}", items)}});
    }
    context_.compile_ahead(sources);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto [items, threads] = shapes[i];
      LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel(sources[i], name));
      if (!context_.fits(kernel, threads)) continue;
      for (const bool persistent : {false, true}) add_grid(kernel, items, threads, persistent, run);
    }
    if (!candidates().empty()) return {};
    return fail(fmt::format("rows of {} elements do not fit the registers of a block", columns_), {},
                fmt::format("take rows of up to {}", kThreadsMax / 2 * 8 * 16 / element_bytes_));
  }
  void add_grid(const device::cuda::Kernel& kernel, int items, unsigned threads, bool persistent, const Run& run) {
    const int64_t resident = static_cast<int64_t>(context_.sms()) * context_.blocks_per_sm(kernel, threads);
    if (persistent && rows_ <= resident) return;
    const unsigned grid = static_cast<unsigned>(std::min<int64_t>(persistent ? resident : rows_, 0x7fffffff));
    add(fmt::format("own {} x 16 B, {} threads a row{}", items, threads, persistent ? ", persistent" : ""),
        [kernel, grid, threads, run](int set) { return run(kernel, grid, threads, set); });
  }
  unsigned threads_for(int items) const {
    const uint32_t threads = (packs_ + static_cast<uint32_t>(items) - 1) / static_cast<uint32_t>(items);
    return std::max((threads + 31) / 32 * 32, kThreadsMin);
  }
  uint64_t row_count() const { return static_cast<uint64_t>(rows_); }

  int64_t rows_ = 0, columns_ = 0;
  size_t element_bytes_ = 0;
  uint32_t packs_ = 0;
};

// out, x, gain [, residual]
class RmsnormOp : public RowsOp {
 public:
  using RowsOp::RowsOp;
  Status prepare() {
    LLMPROF_CHECK(set_shape("tokens", "hidden"));
    residual_ = params_.variant == "residual";
    std::vector<Array> arrays = {matrix("out", Role::kOutput), matrix("x", Role::kInput), vector("gain")};
    if (residual_) arrays.push_back(matrix("residual", Role::kInOut));
    LLMPROF_CHECK(begin(std::move(arrays)));
    if (residual_)
      return add_shapes("rmsnorm_residual",
                        [this](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
                          return context_.launch(kernel, grid, threads, at(set, 1), at(set, 3), at(set, 2), at(set, 0),
                                                 row_count(), packs_, kEpsilon);
                        });
    return add_shapes("rmsnorm", [this](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
      return context_.launch(kernel, grid, threads, at(set, 1), at(set, 2), at(set, 0), row_count(), packs_, kEpsilon);
    });
  }

 protected:
  Result<Check> compare(size_t) override {
    const RowReader x = rows_of(device_, array(0, 1), params_.dtype, columns_);
    LLMPROF_ASSIGN(const Row gain, rows_of(device_, array(0, 2), params_.dtype, columns_)(0));
    const double epsilon = static_cast<double>(kEpsilon);
    // The input of the norm: x, or its sum with what the residual was, as it is stored.
    const RowReader input = [&, before = residual_ ? rows_as_filled(fill_of(0, 3), columns_)
                                                   : RowReader()](int64_t row) -> Result<Row> {
      LLMPROF_ASSIGN(Row values, x(row));
      if (!before) return values;
      LLMPROF_ASSIGN(const Row kept, before(row));
      for (size_t i = 0; i < values.size(); ++i) values[i] = rounded_to(params_.dtype, values[i] + kept[i]);
      return values;
    };
    LLMPROF_ASSIGN(const Check out, check_rows(device_, array(0, 0), params_.dtype, columns_, rows_, params_.seed,
                                               [&](int64_t row) -> Result<RowResult> {
                                                 LLMPROF_ASSIGN(const Row values, input(row));
                                                 return rmsnorm_row(values, gain, epsilon);
                                               }));
    if (!residual_) return out;
    LLMPROF_ASSIGN(const Check sum, check_rows(
                                        device_, array(0, 3), params_.dtype, columns_, rows_, params_.seed,
                                        [&](int64_t row) -> Result<RowResult> {
                                          LLMPROF_ASSIGN(Row values, input(row));
                                          return RowResult{values, Row(values.size(), 0)};
                                        },
                                        true));
    return worse_of(out, sum);
  }

 private:
  bool residual_ = false;
};

// out, x, gain, bias
class LayernormGeluOp : public RowsOp {
 public:
  using RowsOp::RowsOp;
  Status prepare() {
    LLMPROF_CHECK(set_shape("tokens", "hidden"));
    LLMPROF_CHECK(begin({matrix("out", Role::kOutput), matrix("x", Role::kInput), vector("gain"), vector("bias")}));
    LLMPROF_CHECK(add_shapes("layernorm_gelu",
                             [this](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
                               return context_.launch(kernel, grid, threads, at(set, 1), at(set, 2), at(set, 3),
                                                      at(set, 0), row_count(), packs_, kEpsilon);
                             }));
    return add_exact_shapes();
  }

 protected:
  Result<Check> compare(size_t) override {
    const RowReader x = rows_of(device_, array(0, 1), params_.dtype, columns_);
    LLMPROF_ASSIGN(const Row gain, rows_of(device_, array(0, 2), params_.dtype, columns_)(0));
    LLMPROF_ASSIGN(const Row bias, rows_of(device_, array(0, 3), params_.dtype, columns_)(0));
    return check_rows(device_, array(0, 0), params_.dtype, columns_, rows_, params_.seed,
                      [&](int64_t row) -> Result<RowResult> {
                        LLMPROF_ASSIGN(const Row values, x(row));
                        return layernorm_gelu_row(values, gain, bias, static_cast<double>(kEpsilon));
                      });
  }

 private:
  // A form of rows_exact.cu. `warps`: so many an SM is to hold, which leaves a thread 96 registers of 20, 72 of 28, 128
  // of 16, 64 of 32 and 48 of 40: each quarter of an SM has 512 for each lane, handed out by eights.
  struct Exact {
    unsigned items, rows, shared, warps;
  };
  // Those that fit the length of a row; of two packs a thread only where four do not.
  Status add_exact_shapes() {
    if (element_bytes_ != 2 || rows_ * packs_ > 0xffffffff) return {};
    std::vector<Exact> forms;
    std::vector<device::cuda::KernelSource> sources;
    for (const Exact& form : {Exact{8, 1, 0, 20}, Exact{8, 1, 0, 28}, Exact{8, 1, 1, 20}, Exact{8, 2, 0, 16},
                              Exact{4, 1, 0, 32}, Exact{2, 1, 0, 40}}) {
      const unsigned threads = packs_ / form.items;
      if (packs_ % (form.items * 32) != 0 || threads > 256 || (form.items == 2 && packs_ % 128 == 0)) continue;
      forms.push_back(form);
      sources.push_back({"rows_exact.cu",
                         {type_macro(params_.dtype), fmt::format("ITEMS={}", form.items),
                          fmt::format("THREADS={}", threads), fmt::format("ROWS={}", form.rows),
                          fmt::format("SHARED={}", form.shared), fmt::format("MIN_BLOCKS={}", blocks_of(form))}});
    }
    context_.compile_ahead(sources);
    for (size_t i = 0; i < forms.size(); ++i) LLMPROF_CHECK(add_exact(forms[i], sources[i]));
    return {};
  }
  unsigned blocks_of(const Exact& form) const { return form.warps * 32 / (packs_ / form.items); }
  Status add_exact(const Exact& form, const device::cuda::KernelSource& source) {
    const unsigned threads = packs_ / form.items, blocks = blocks_of(form);
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel(source, "layernorm_gelu_exact"));
    const unsigned rows = static_cast<unsigned>(rows_), grid = (rows + form.rows - 1) / form.rows;
    add(fmt::format("own {} x 16 B, {} threads a row, tight, {} blocks{}{}", form.items, threads, blocks,
                    form.rows == 2 ? " of two rows" : "", form.shared != 0 ? ", shared reciprocals" : ""),
        [this, kernel, grid, threads, rows](int set) {
          return context_.launch(kernel, grid, threads, at(set, 1), at(set, 2), at(set, 3), at(set, 0), uint32_t{rows},
                                 kEpsilon);
        });
    return {};
  }
};

// out, x
class SoftmaxOp : public RowsOp {
 public:
  using RowsOp::RowsOp;
  Status prepare() {
    LLMPROF_CHECK(set_shape("rows", "columns"));
    LLMPROF_CHECK(begin({matrix("out", Role::kOutput), matrix("x", Role::kInput)}));
    const Run run = [this](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
      return context_.launch(kernel, grid, threads, at(set, 1), at(set, 0), row_count(), packs_);
    };
    if (threads_for(4) <= kThreadsMax) return add_shapes("softmax", run);
    // Longer than the registers hold.
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel,
                   context_.kernel({"rows.cu", {type_macro(params_.dtype), "ITEMS=4"}}, "softmax_long"));
    for (const unsigned threads : {512U, 1024U}) add_grid(kernel, 4, threads, false, run);
    return {};
  }

 protected:
  Result<Check> compare(size_t) override {
    const RowReader x = rows_of(device_, array(0, 1), params_.dtype, columns_);
    return check_rows(device_, array(0, 0), params_.dtype, columns_, rows_, params_.seed,
                      [&](int64_t row) -> Result<RowResult> {
                        LLMPROF_ASSIGN(const Row values, x(row));
                        return softmax_row(values);
                      });
  }
};

// out, x, scales
class QuantiseOp : public RowsOp {
 public:
  using RowsOp::RowsOp;
  Status prepare() {
    LLMPROF_CHECK(set_shape("tokens", "hidden"));
    const Array out{"out", static_cast<size_t>(rows_ * columns_), Role::kOutput, {}};
    const Array scales{"scales", static_cast<size_t>(rows_) * 4, Role::kOutput, {}};
    LLMPROF_CHECK(begin({out, matrix("x", Role::kInput), scales}));
    return add_shapes("quantise", [this](const device::cuda::Kernel& kernel, unsigned grid, unsigned threads, int set) {
      return context_.launch(kernel, grid, threads, at(set, 1), at(set, 0), at(set, 2), row_count(), packs_);
    });
  }

 protected:
  Result<Check> compare(size_t) override {
    return check_quantised(device_, array(0, 1), params_.dtype, {array(0, 0), array(0, 2), rows_, columns_},
                           params_.seed);
  }
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_rmsnorm(Device& device, const OpParams& params) {
  return prepare_as<RmsnormOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_layernorm_gelu(Device& device, const OpParams& params) {
  return prepare_as<LayernormGeluOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_softmax(Device& device, const OpParams& params) {
  return prepare_as<SoftmaxOp>(device, params);
}
Result<std::unique_ptr<PreparedOp>> prepare_quantise(Device& device, const OpParams& params) {
  return prepare_as<QuantiseOp>(device, params);
}

}  // namespace llmprof::kernels::cuda
