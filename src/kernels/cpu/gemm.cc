// Matrix products by oneDNN and OpenBLAS.
#include "kernels/reference/gemm.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/cpu/math_libraries.h"
#include "kernels/cpu/dnnl_matmul.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/own_op.h"

namespace llmprof::kernels::cpu {
namespace {

// Buffers of a set, the latter two only of products that have them.
enum : size_t { kA, kW, kOut, kBias, kResidual };

size_t bytes_of(int64_t rows, int64_t columns, DType dtype) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns) * static_cast<size_t>(dtype_bytes(dtype));
}

// What a product does not have is one number: indices stay the same.
std::vector<BufferPlan> buffers_of(const ops::Product& product, uint64_t seed) {
  const int64_t rows = product.rows(), n = product.n, k = product.k;
  const auto vector = [&](bool has, int64_t of_rows, int64_t columns, DType dtype, uint64_t number) {
    return BufferPlan{has ? bytes_of(of_rows, columns, dtype) : sizeof(float), has ? dtype : DType::kFp32, false,
                      seed + number};
  };
  return {{bytes_of(rows, k, product.dtype), product.dtype, false, seed},
          {bytes_of(product.groups() * n, k, product.dtype), product.dtype, false, seed + 1},
          {bytes_of(rows, n, product.out_dtype), product.out_dtype, true, seed},
          vector(product.bias, 1, n, product.out_dtype, 2),
          vector(product.residual, rows, n, product.out_dtype, 3)};
}

// What all of the family have.
class ProductOp : public OwnOp {
 public:
  ProductOp(device::cpu::CpuDevice& device, const OpParams& params, ops::Product product)
      : OwnOp(device, params, buffers_of(product, params.seed)), product_(std::move(product)) {}

 protected:
  Result<Check> compare() override {
    GemmOperands operands{sets_.at(0, kA), sets_.at(0, kW), sets_.at(0, kOut), product_};
    if (product_.bias) operands.bias = &sets_.at(0, kBias);
    if (product_.residual) operands.residual = &sets_.at(0, kResidual);
    if (!expected_) {
      LLMPROF_ASSIGN(expected_, expect_gemm(device_, operands, params_.seed));
    }
    return check_gemm(device_, operands, *expected_);
  }

  MatmulShape shape_of(int64_t batch, int64_t rows) const {
    MatmulShape shape;
    shape.batch = batch;
    shape.m = rows;
    shape.n = product_.n;
    shape.k = product_.k;
    shape.dtype = product_.dtype;
    shape.out_dtype = product_.out_dtype;
    shape.bias = product_.bias;
    shape.gelu = product_.gelu;
    shape.residual = product_.residual;
    return shape;
  }
  // Of a set, from row `row` of group `group` on.
  MatmulOperands operands_of(int set, int64_t group, int64_t row) const {
    const auto at = [&](size_t index, int64_t rows, int64_t columns, DType dtype) {
      return sets_.data<char>(set, index) + bytes_of(rows, columns, dtype);
    };
    MatmulOperands operands;
    operands.a = at(kA, row, product_.k, product_.dtype);
    operands.w = at(kW, group * product_.n, product_.k, product_.dtype);
    operands.out = at(kOut, row, product_.n, product_.out_dtype);
    if (product_.bias) operands.bias = sets_.data<char>(set, kBias);
    if (product_.residual) operands.residual = at(kResidual, row, product_.n, product_.out_dtype);
    return operands;
  }

  ops::Product product_;

 private:
  std::optional<GemmExpected> expected_;
};

// One product, or a batch of them of one shape.
class MatmulOp : public ProductOp {
 public:
  using ProductOp::ProductOp;

  // Error only if there is no way at all.
  Status prepare() {
    std::string why;
    if (product_.dtype != DType::kFp64 && device::cpu::one_dnn().missing.empty()) {
      for (const bool packed : {true, false}) {
        Result<std::unique_ptr<DnnlMatmul>> matmul =
            DnnlMatmul::make(shape_of(product_.groups(), product_.rows_of(0)), packed);
        if (!matmul) {
          why = matmul.error().what;
          continue;
        }
        // Once is enough if both are the same.
        if (!packed && !matmuls_.empty() && matmuls_[0]->as_they_lie()) continue;
        add_matmul(packed ? "oneDNN, packed weights" : "oneDNN", std::move(*matmul));
      }
    } else if (product_.dtype != DType::kFp64) {
      why = device::cpu::one_dnn().missing;
    }
    const bool plain = !product_.bias && !product_.residual;
    const bool fits = std::max({product_.rows(), product_.n, product_.k}) <= std::numeric_limits<int>::max();
    if (plain && (product_.dtype == DType::kFp64 || product_.dtype == DType::kFp32)) {
      if (device::cpu::open_blas().missing.empty() && fits)
        add_fallible("OpenBLAS", [this](int set) { return run_open_blas(set); });
      else
        why += (why.empty() ? "" : "; ") + device::cpu::open_blas().missing;
    }
    if (candidates().empty()) return fail("no library here can multiply these matrices: " + why);
    return prepare_sets(1);
  }

 protected:
  Status set_made(int set) override {
    for (const std::unique_ptr<DnnlMatmul>& matmul : matmuls_)
      LLMPROF_CHECK(matmul->add_set(device_, operands_of(set, 0, 0)));
    return {};
  }

 private:
  void add_matmul(const char* name, std::unique_ptr<DnnlMatmul> made) {
    DnnlMatmul* const matmul = made.get();
    matmuls_.push_back(std::move(made));
    add_fallible(name, [matmul](int set) { return matmul->run(set); });
  }

  Status run_open_blas(int set) {
    const device::cpu::OpenBlas& blas = device::cpu::open_blas();
    const int m = static_cast<int>(product_.rows_of(0)), n = static_cast<int>(product_.n),
              k = static_cast<int>(product_.k);
    for (int64_t group = 0; group < product_.groups(); ++group) {
      const MatmulOperands at = operands_of(set, group, product_.first_row[static_cast<size_t>(group)]);
      if (product_.dtype == DType::kFp64)
        blas.cblas_dgemm(device::cpu::OpenBlas::kRowMajor, device::cpu::OpenBlas::kAsIs,
                         device::cpu::OpenBlas::kTransposed, m, n, k, 1, static_cast<double*>(at.a), k,
                         static_cast<double*>(at.w), k, 0, static_cast<double*>(at.out), n);
      else
        blas.cblas_sgemm(device::cpu::OpenBlas::kRowMajor, device::cpu::OpenBlas::kAsIs,
                         device::cpu::OpenBlas::kTransposed, m, n, k, 1, static_cast<float*>(at.a), k,
                         static_cast<float*>(at.w), k, 0, static_cast<float*>(at.out), n);
    }
    return {};
  }

  std::vector<std::unique_ptr<DnnlMatmul>> matmuls_;
};

// Groups with rows of their own, one after the other.
class GroupedOp : public ProductOp {
 public:
  using ProductOp::ProductOp;

  Status prepare() {
    std::string why;
    for (const bool packed : {true, false}) {
      Way way;
      bool refused = false;
      // Groups of as many rows share a product; their weights are sets of it.
      for (int64_t group = 0; group < product_.groups(); ++group) {
        const int64_t rows = product_.rows_of(group);
        if (rows == 0) continue;
        std::unique_ptr<DnnlMatmul>& matmul = way.by_rows[rows];
        if (matmul == nullptr) {
          Result<std::unique_ptr<DnnlMatmul>> made = DnnlMatmul::make(shape_of(1, rows), packed);
          if (!made) {
            why = made.error().what;
            refused = true;
            break;
          }
          matmul = std::move(*made);
        }
        way.groups.push_back(group);
      }
      if (way.groups.empty() || refused) continue;
      if (!packed && !ways_.empty() && ways_[0].by_rows.begin()->second->as_they_lie()) continue;
      const size_t index = ways_.size();
      ways_.push_back(std::move(way));
      add_fallible(packed ? "oneDNN, one by one, packed weights" : "oneDNN, one by one",
                   [this, index](int set) { return run(ways_[index], set); });
    }
    if (candidates().empty()) return fail("no library here can multiply these matrices: " + why);
    return prepare_sets(1);
  }

 protected:
  Status set_made(int set) override {
    for (Way& way : ways_) {
      for (const int64_t group : way.groups) {
        LLMPROF_CHECK(way.of(product_, group)
                          .add_set(device_, operands_of(set, group, product_.first_row[static_cast<size_t>(group)])));
      }
    }
    return {};
  }

 private:
  struct Way {
    std::map<int64_t, std::unique_ptr<DnnlMatmul>> by_rows;
    std::vector<int64_t> groups;  // those that have rows
    DnnlMatmul& of(const ops::Product& product, int64_t group) { return *by_rows.at(product.rows_of(group)); }
  };

  // Sets of a product are those of all its groups, set after set.
  Status run(Way& way, int set) {
    std::map<int64_t, int> of_shape, done;
    for (const int64_t group : way.groups) ++of_shape[product_.rows_of(group)];
    for (const int64_t group : way.groups) {
      const int64_t rows = product_.rows_of(group);
      LLMPROF_CHECK(way.of(product_, group).run(set * of_shape[rows] + done[rows]++));
    }
    return {};
  }

  std::vector<Way> ways_;
};

template <class Op>
Result<std::unique_ptr<PreparedOp>> prepare_product(Device& device, const OpParams& params, ops::Product product) {
  auto op = std::make_unique<Op>(static_cast<device::cpu::CpuDevice&>(device), params, std::move(product));
  LLMPROF_CHECK(op->prepare());
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace

std::optional<std::string> gemm_unsupported(const OpParams& params) {
  const device::cpu::Instructions has = device::cpu::cpu_instructions();
  switch (params.dtype) {
    case DType::kFp32:
      if (!device::cpu::one_dnn().missing.empty() && !device::cpu::open_blas().missing.empty())
        return device::cpu::one_dnn().missing + "; " + device::cpu::open_blas().missing;
      return std::nullopt;
    case DType::kFp64:
      if (!device::cpu::open_blas().missing.empty()) return device::cpu::open_blas().missing;
      return std::nullopt;
    case DType::kBf16:
      if (!has.bf16()) return "this CPU has no instructions for bf16 products (AVX512-BF16 or AMX)";
      break;
    case DType::kInt8:
      if (!has.int8()) return "this CPU has no instructions for int8 products (VNNI or AMX)";
      break;
    default:
      return fmt::format("products of {} are not measured on CPUs; fp32, fp64, bf16 and int8 are",
                         dtype_name(params.dtype));
  }
  if (!device::cpu::one_dnn().missing.empty()) return device::cpu::one_dnn().missing;
  return std::nullopt;
}

std::optional<std::string> gemm_epilogue_unsupported(const OpParams& params) {
  if (params.variant == "plain" || params.dtype == DType::kFp32 || params.dtype == DType::kBf16) return std::nullopt;
  return fmt::format("{} of {} products is not measured on CPUs; of fp32 and bf16 it is", params.variant,
                     dtype_name(params.dtype));
}

Result<std::unique_ptr<PreparedOp>> prepare_gemm(Device& device, const OpParams& params) {
  return prepare_product<MatmulOp>(device, params, ops::gemm_product(params));
}
Result<std::unique_ptr<PreparedOp>> prepare_gemm_batched(Device& device, const OpParams& params) {
  return prepare_product<MatmulOp>(device, params, ops::gemm_batched_product(params));
}
Result<std::unique_ptr<PreparedOp>> prepare_gemm_grouped(Device& device, const OpParams& params) {
  return prepare_product<GroupedOp>(device, params, ops::gemm_grouped_product(params));
}

}  // namespace llmprof::kernels::cpu
