// Operators over rows on the CPU's team: rmsnorm, layernorm with gelu, softmax, swiglu.
#include "kernels/reference/rows.h"

#include <fmt/format.h>

#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/own_op.h"
#include "kernels/cpu/row_kernels.h"

namespace llmprof::kernels::cpu {
namespace {

constexpr float kEpsilon = 1e-5F;

enum class Kind : uint8_t { kRmsnorm, kRmsnormResidual, kLayernormGelu, kSoftmax, kSwiglu };
// Buffers of a set: out and x, then gain, then bias or residual.
enum : size_t { kOut, kX, kGain, kThird };

struct RowShape {
  Kind kind;
  int64_t rows, columns;
  DType dtype;
  uint64_t seed;
};

std::vector<BufferPlan> buffers_of(const RowShape& shape) {
  const size_t row = static_cast<size_t>(shape.columns) * static_cast<size_t>(dtype_bytes(shape.dtype));
  const size_t matrix = static_cast<size_t>(shape.rows) * row;
  std::vector<BufferPlan> plan = {
      {matrix, shape.dtype, true, shape.seed},
      {shape.kind == Kind::kSwiglu ? 2 * matrix : matrix, shape.dtype, false, shape.seed + 1}};
  if (shape.kind <= Kind::kLayernormGelu) plan.push_back({row, shape.dtype, false, shape.seed + 2});
  if (shape.kind == Kind::kLayernormGelu) plan.push_back({row, shape.dtype, false, shape.seed + 3});
  if (shape.kind == Kind::kRmsnormResidual) plan.push_back({matrix, shape.dtype, false, shape.seed + 3});
  return plan;
}

class RowsOp : public OwnOp {
 public:
  RowsOp(device::cpu::CpuDevice& device, const OpParams& params, const RowShape& shape)
      : OwnOp(device, params, buffers_of(shape)), shape_(shape) {
    for (const RowKernels& kernels : row_kernels(device.instructions(), shape.dtype)) {
      RowKernel kernel = kernels.rmsnorm;
      if (shape.kind == Kind::kLayernormGelu) kernel = kernels.layernorm_gelu;
      if (shape.kind == Kind::kSoftmax) kernel = kernels.softmax;
      if (shape.kind == Kind::kSwiglu) kernel = kernels.swiglu;
      add(kernels.name, [this, kernel](int set) {
        const RowArrays arrays = arrays_of(set);
        share(shape_.rows, [&](int64_t first, int64_t last) { kernel(arrays, first, last); });
      });
    }
  }

 protected:
  // The residual grows with every run.
  Status before_check() override {
    if (shape_.kind == Kind::kRmsnormResidual) return device_.fill(sets_.at(0, kThird), residual_before());
    return {};
  }

  Result<Check> compare() override {
    const int64_t x_columns = shape_.kind == Kind::kSwiglu ? 2 * shape_.columns : shape_.columns;
    const RowReader x = rows_of(device_, sets_.at(0, kX), shape_.dtype, x_columns);
    const RowReader residual = rows_as_filled(residual_before(), shape_.columns);
    Row gain, bias;
    if (shape_.kind <= Kind::kLayernormGelu) {
      LLMPROF_ASSIGN(gain, rows_of(device_, sets_.at(0, kGain), shape_.dtype, shape_.columns)(0));
    }
    if (shape_.kind == Kind::kLayernormGelu) {
      LLMPROF_ASSIGN(bias, rows_of(device_, sets_.at(0, kThird), shape_.dtype, shape_.columns)(0));
    }
    const auto input = [&](int64_t row) -> Result<Row> {
      LLMPROF_ASSIGN(Row values, x(row));
      if (shape_.kind != Kind::kRmsnormResidual) return values;
      LLMPROF_ASSIGN(const Row added, residual(row));
      for (size_t i = 0; i < values.size(); ++i) values[i] = rounded_to(shape_.dtype, values[i] + added[i]);
      return values;
    };
    const auto expected = [&](int64_t row) -> Result<RowResult> {
      LLMPROF_ASSIGN(const Row values, input(row));
      switch (shape_.kind) {
        case Kind::kLayernormGelu:
          return layernorm_gelu_row(values, gain, bias, static_cast<double>(kEpsilon));
        case Kind::kSoftmax:
          return softmax_row(values);
        case Kind::kSwiglu:
          return swiglu_row(values);
        default:
          return rmsnorm_row(values, gain, static_cast<double>(kEpsilon));
      }
    };
    LLMPROF_ASSIGN(const Check out, check_rows(device_, sets_.at(0, kOut), shape_.dtype, shape_.columns, shape_.rows,
                                               shape_.seed, expected));
    if (shape_.kind != Kind::kRmsnormResidual) return out;
    const auto stored = [&](int64_t row) -> Result<RowResult> {
      LLMPROF_ASSIGN(Row values, input(row));
      Row terms(values.size(), 0);
      return RowResult{std::move(values), std::move(terms)};
    };
    LLMPROF_ASSIGN(const Check sum, check_rows(device_, sets_.at(0, kThird), shape_.dtype, shape_.columns, shape_.rows,
                                               shape_.seed, stored, true));
    return worse_of(out, sum);
  }

 private:
  Fill residual_before() const { return {Fill::Kind::kUniform, shape_.dtype, shape_.seed + 3, 0}; }
  RowArrays arrays_of(int set) const {
    RowArrays arrays;
    arrays.out = sets_.data<void>(set, kOut);
    arrays.x = sets_.data<void>(set, kX);
    if (shape_.kind <= Kind::kLayernormGelu) arrays.gain = sets_.data<void>(set, kGain);
    if (shape_.kind == Kind::kLayernormGelu) arrays.bias = sets_.data<void>(set, kThird);
    if (shape_.kind == Kind::kRmsnormResidual) arrays.residual = sets_.data<void>(set, kThird);
    arrays.columns = shape_.columns;
    arrays.epsilon = kEpsilon;
    return arrays;
  }

  RowShape shape_;
};

Result<std::unique_ptr<PreparedOp>> prepare(Device& device, const OpParams& params, Kind kind, std::string_view rows,
                                            std::string_view columns) {
  const RowShape shape{kind, params.axis(rows), params.axis(columns), params.dtype, params.seed};
  auto op = std::make_unique<RowsOp>(static_cast<device::cpu::CpuDevice&>(device), params, shape);
  LLMPROF_CHECK(op->prepare_sets(1));
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace

std::optional<std::string> rows_unsupported(const OpParams& params) {
  if (params.dtype == DType::kFp32 || params.dtype == DType::kBf16) return std::nullopt;
  return fmt::format("operators over rows are measured in fp32 and bf16 on CPUs, not in {}", dtype_name(params.dtype));
}

Result<std::unique_ptr<PreparedOp>> prepare_rmsnorm(Device& device, const OpParams& params) {
  const Kind kind = params.variant == "residual" ? Kind::kRmsnormResidual : Kind::kRmsnorm;
  return prepare(device, params, kind, "tokens", "hidden");
}
Result<std::unique_ptr<PreparedOp>> prepare_layernorm_gelu(Device& device, const OpParams& params) {
  return prepare(device, params, Kind::kLayernormGelu, "tokens", "hidden");
}
Result<std::unique_ptr<PreparedOp>> prepare_softmax(Device& device, const OpParams& params) {
  return prepare(device, params, Kind::kSoftmax, "rows", "columns");
}
Result<std::unique_ptr<PreparedOp>> prepare_swiglu(Device& device, const OpParams& params) {
  return prepare(device, params, Kind::kSwiglu, "tokens", "ffn");
}

}  // namespace llmprof::kernels::cpu
