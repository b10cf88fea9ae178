// Matrix products by cuBLASLt, and by cuBLAS where groups have rows of their own.
#include "kernels/reference/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "device/fill.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/ops.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr int kRequested = 32;
// The first choice and the fastest of the others are checked; more would cost more checking than they bring.
constexpr size_t kProductsChecked = 6;
// Of few rows, whose outputs are few: the screen is of isolated executions, and of a dozen microseconds these rank
// otherwise than a loop does.
constexpr int64_t kFewRows = 16;
constexpr size_t kCheckedOfFewRows = 16;
// The first cuBLASLt that scales rows and columns of fp8 products.
constexpr size_t kVectorScalesVersion = 120900;
constexpr size_t kBlockScalesVersion = 120800;  // and those of blocks, of fp4
constexpr const char* kAcross = ", weights as [k, n]";
constexpr unsigned kScaleThreads = 256;
constexpr int64_t kScalePack = 8;  // outputs of one thread

size_t bytes_of(int64_t rows, int64_t columns, double element) {
  return static_cast<size_t>(static_cast<double>(rows) * static_cast<double>(columns) * element);
}

// What all of the family have: activations, weights, output and residual in sets; vectors of a product once.
class ProductOp : public CudaOp {
 public:
  ProductOp(Device& device, const OpParams& params, ops::Product product)
      : CudaOp(device, params), product_(std::move(product)) {}

 protected:
  enum : size_t { kA, kW, kOut, kResidual };

  Status begin_product() {
    LLMPROF_ASSIGN(lt_, context_.cublaslt());
    device_.note_library(lt_->library.about);
    const double in = dtype_bytes(product_.dtype), out = dtype_bytes(product_.out_dtype);
    const int64_t rows = product_.rows(), n = product_.n, k = product_.k;
    const Fill numbers{Fill::Kind::kUniform, product_.dtype, 1, 0};
    const Fill outputs{Fill::Kind::kUniform, product_.out_dtype, 1, 0};
    std::vector<Array> arrays = {{"a", bytes_of(rows, k, in), Role::kInput, numbers},
                                 {"w", bytes_of(product_.groups() * n, k, in), Role::kInput, numbers},
                                 {"out", bytes_of(rows, n, out), Role::kOutput, {}}};
    if (product_.residual) arrays.push_back({"residual", bytes_of(rows, n, out), Role::kInput, outputs});
    LLMPROF_CHECK(begin(std::move(arrays)));
    if (product_.bias) {
      LLMPROF_ASSIGN(bias_, device_.allocate(bytes_of(n, 1, out)));
      LLMPROF_CHECK(device_.fill(*bias_, {Fill::Kind::kUniform, product_.out_dtype, params_.seed + 11, 0}));
    }
    if (product_.scales) {
      LLMPROF_CHECK(make_scales(row_scales_, rows, params_.seed + 12));
      LLMPROF_CHECK(make_scales(column_scales_, n, params_.seed + 13));
    }
    return {};
  }

  Result<Check> compare(size_t candidate) override {
    const bool across = takes_across(candidate);
    GemmOperands operands{array(0, kA), array(0, kW), array(0, kOut), product_};
    operands.scale = static_cast<double>(scale_) * static_cast<double>(scale_);
    operands.bias = bias_.get();
    operands.residual = product_.residual ? &array(0, kResidual) : nullptr;
    operands.row_scales = row_scales_.get();
    operands.column_scales = column_scales_.get();
    operands.w_across = across;
    std::optional<GemmExpected>& expected = expected_[across ? 1 : 0];
    if (!expected) {
      LLMPROF_ASSIGN(expected, expect_gemm(device_, operands, params_.seed));
    }
    return check_gemm(device_, operands, *expected);
  }
  // A candidate that reads the weights as [k, n].
  void add_across(std::string backend, std::function<Status(int set)> enqueue) {
    across_.resize(candidates().size(), false);
    across_.push_back(true);
    add(std::move(backend), std::move(enqueue));
  }
  bool takes_across(size_t candidate) const { return candidate < across_.size() && across_[candidate]; }

  // fp8 inputs fill their range of +-448; scaled back to +-1 the outputs fit bf16.
  Status add_one_scale(LtShape& shape) {
    if (!scale_buffer_) {
      scale_ = 1.0F / 448.0F;
      LLMPROF_ASSIGN(scale_buffer_, device_.allocate(256));
      LLMPROF_CHECK(device_.upload(*scale_buffer_, 0, &scale_, sizeof scale_));
    }
    shape.scales = LtScales::kOne;
    shape.w_scale = shape.a_scale = scale_buffer_->address();
    return {};
  }

  ops::Product product_;
  const device::cuda::CublasLt* lt_ = nullptr;
  std::unique_ptr<Buffer> bias_, row_scales_, column_scales_, scale_buffer_;
  float scale_ = 1;  // of both inputs, where it is one number

 private:
  // 0.5 to 1 of what brings the whole range of the type to +-1.
  Status make_scales(std::unique_ptr<Buffer>& made, int64_t count, uint64_t seed) {
    const float range = product_.dtype == DType::kFp8 ? 448.0F : 127.0F;
    std::vector<float> scales(static_cast<size_t>(count));
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = (0.75F + 0.25F * device::fill_uniform(device::fill_hash(seed, i))) / range;
    LLMPROF_ASSIGN(made, device_.allocate(scales.size() * sizeof(float)));
    return device_.upload(*made, 0, scales.data(), scales.size() * sizeof(float));
  }

  std::optional<GemmExpected> expected_[2];  // of both layouts of the weights
  std::vector<bool> across_;                 // of each candidate, as far as there is one
};

// One product, or a batch of them of one shape.
class LtOp : public ProductOp {
 public:
  using ProductOp::ProductOp;
  size_t worth_checking() const override { return product_.rows() <= kFewRows ? kCheckedOfFewRows : kProductsChecked; }

  Status prepare() {
    LLMPROF_CHECK(begin_product());
    if (product_.scales) {
      LLMPROF_CHECK(add_scaled());
      return {};
    }
    LtShape shape = shape_of(product_.out_dtype);
    if (bias_) shape.bias = bias_->address();
    shape.gelu = product_.gelu;
    shape.residual = product_.residual;
    if (product_.dtype == DType::kFp8) LLMPROF_CHECK(add_one_scale(shape));
    if (product_.dtype == DType::kFp4) {
      LLMPROF_CHECK(make_block_scales());
      shape.scales = LtScales::kBlocks;
      shape.w_scale = w_blocks_->address();
      shape.a_scale = a_blocks_->address();
    }
    LLMPROF_CHECK(add_algorithms(shape, ""));
    if (product_.rows() <= kFewRows) LLMPROF_CHECK(add_of_few_rows(shape));
    // Faster, and what fp8 inference usually runs.
    if (product_.dtype == DType::kFp8) {
      shape.fast_accumulation = true;
      LLMPROF_CHECK(add_algorithms(shape, " fast accumulation"));
    }
    return {};
  }

 private:
  LtShape shape_of(DType out) const {
    LtShape shape;
    shape.m = product_.rows_of(0);
    shape.n = product_.n;
    shape.k = product_.k;
    shape.dtype = product_.dtype;
    shape.out_dtype = out;
    shape.batch = product_.groups();
    return shape;
  }

  // All factors are 0.5, so that the order of the tiles does not matter; the product is a quarter.
  Status make_block_scales() {
    if (lt_->library.version < kBlockScalesVersion)
      return fail(fmt::format("fp4 products need cuBLASLt 12.8, found {}", lt_->library.about.version), {},
                  "install a newer PyTorch or CUDA toolkit", ExitCode::kUsage);
    constexpr uint8_t kHalf = 0x30;  // e4m3
    scale_ = 0.5F;
    for (const auto& [buffer, rows] : {std::pair(&w_blocks_, product_.n), std::pair(&a_blocks_, product_.rows())}) {
      const std::vector<uint8_t> factors(block_scale_bytes(rows, product_.k), kHalf);
      LLMPROF_ASSIGN(*buffer, device_.allocate(factors.size()));
      LLMPROF_CHECK(device_.upload(**buffer, 0, factors.data(), factors.size()));
    }
    return {};
  }

  Status add_algorithms(const LtShape& shape, std::string_view how) {
    LLMPROF_ASSIGN(const std::shared_ptr<LtProduct> made, LtProduct::make(context_, *lt_, shape));
    LLMPROF_ASSIGN(const std::vector<cublaslt::Algo> algorithms, made->algorithms(kRequested));
    for (size_t i = 0; i < algorithms.size(); ++i) {
      const auto run = [this, made, algo = algorithms[i]](int set) {
        return made->run(algo, array(set, kA).address(), array(set, kW).address(),
                         product_.residual ? array(set, kResidual).address() : nullptr, array(set, kOut).address());
      };
      std::string backend = fmt::format("cuBLASLt #{}{}", i, how);
      if (shape.w_across)
        add_across(std::move(backend), run);
      else
        add(std::move(backend), run);
    }
    return {};
  }

  // Such products cost the reading of their weights, so whichever way reads fastest counts: also cuBLAS, which has
  // kernels for one row that cuBLASLt does not name, weights that lie the other way round, and own kernels. Each may be
  // missing.
  Status add_of_few_rows(LtShape shape) {
    const bool halves = product_.dtype == DType::kBf16 || product_.dtype == DType::kFp16;
    if (!halves || product_.groups() > 1) return {};
    const bool plain = !product_.bias && !product_.residual;
    if (Result<const device::cuda::Cublas*> cublas = context_.cublas(); cublas && plain) {
      cublas_ = *cublas;
      device_.note_library(cublas_->library.about);
      add("cuBLAS", [this](int set) { return run_cublas(set, false); });
      add_across(fmt::format("cuBLAS{}", kAcross), [this](int set) { return run_cublas(set, true); });
    }
    shape.w_across = true;
    static_cast<void>(add_algorithms(shape, kAcross));
    if (!few_rows_takes(product_) || own_kernel_unsupported(device_.identity(), params_)) return {};
    const Result<std::vector<FewRowsForm>> forms = few_rows_forms(device_, product_);
    if (!forms) return context_.lost() ? Status(tl::unexpected<Error>(forms.error())) : Status{};
    for (const FewRowsForm& form : *forms)
      add(form.name, [this, run = form.run](int set) { return run(at(set, kA), at(set, kW), at(set, kOut)); });
    return {};
  }

  // As PyTorch's mm calls it.
  Status run_cublas(int set, bool across) {
    const int m = static_cast<int>(product_.rows()), n = static_cast<int>(product_.n), k = static_cast<int>(product_.k);
    const int type = product_.dtype == DType::kFp16 ? cublas::kR16F : cublas::kR16BF;
    const float one = 1, zero = 0;
    const int status = cublas_->library.api.gemm(cublas_->handle, across ? cublas::kOpN : cublas::kOpT, cublas::kOpN, n,
                                                 m, k, &one, array(set, kW).address(), type, across ? n : k,
                                                 array(set, kA).address(), type, k, &zero, array(set, kOut).address(),
                                                 type, n, cublas::kCompute32F, cublas::kGemmDefaultTensorOp);
    if (status == cublas::kSuccess) return {};
    return fail(fmt::format("multiplying: cuBLAS says status {}", status));
  }

  // Scales of rows and columns: by cuBLASLt where it can, of fp8; else its sums and a kernel of our own.
  Status add_scaled() {
    const bool fp8 = product_.dtype == DType::kFp8;
    if (fp8 && lt_->library.version >= kVectorScalesVersion) {
      LtShape shape = shape_of(product_.out_dtype);
      shape.scales = LtScales::kVectors;
      shape.w_scale = column_scales_->address();
      shape.a_scale = row_scales_->address();
      shape.fast_accumulation = true;
      // Not of every chip and shape; the sums are, so that this is no error.
      static_cast<void>(add_algorithms(shape, " scaled"));
    }
    const DType sums = fp8 ? DType::kFp32 : DType::kInt32;
    LtShape shape = shape_of(sums);
    shape.fast_accumulation = fp8;
    LLMPROF_ASSIGN(const std::shared_ptr<LtProduct> made, LtProduct::make(context_, *lt_, shape));
    LLMPROF_ASSIGN(const std::vector<cublaslt::Algo> algorithms, made->algorithms(kRequested));
    LLMPROF_ASSIGN(sums_, device_.allocate(bytes_of(product_.rows(), product_.n, 4)));
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel,
                   context_.kernel({"product.cu", {}}, fp8 ? "scale_sums_fp32" : "scale_sums_int32"));
    const uint64_t count = static_cast<uint64_t>(product_.rows() * product_.n / kScalePack);
    const uint32_t packs = static_cast<uint32_t>(product_.n / kScalePack);
    const unsigned grid = static_cast<unsigned>(
        std::min<uint64_t>((count + kScaleThreads - 1) / kScaleThreads, std::numeric_limits<int32_t>::max()));
    for (size_t i = 0; i < algorithms.size(); ++i)
      add(fmt::format("cuBLASLt #{}, own scaling", i), [=, this, algo = algorithms[i]](int set) -> Status {
        LLMPROF_CHECK(made->run(algo, array(set, kA).address(), array(set, kW).address(), nullptr, sums_->address()));
        return context_.launch(kernel, grid, kScaleThreads, device::cuda::pointer_of(*sums_),
                               device::cuda::pointer_of(*row_scales_), device::cuda::pointer_of(*column_scales_),
                               at(set, kOut), count, packs);
      });
    return {};
  }

  std::unique_ptr<Buffer> sums_, w_blocks_, a_blocks_;
  const device::cuda::Cublas* cublas_ = nullptr;
};

// Groups with rows of their own: by cuBLAS in one call, which has no 8-bit types, and one product after the other.
class GroupedOp : public ProductOp {
 public:
  using ProductOp::ProductOp;

  Status prepare() {
    LLMPROF_CHECK(begin_product());
    LLMPROF_CHECK(add_one_by_one());
    // A cuBLAS that is missing, or older than its grouped products, leaves the others.
    if (product_.dtype == DType::kFp8) return {};
    if (Result<const device::cuda::Cublas*> cublas = context_.cublas();
        cublas && (*cublas)->library.api.grouped != nullptr) {
      cublas_ = *cublas;
      device_.note_library(cublas_->library.about);
      add("cuBLAS grouped", [this](int set) { return run_grouped(set); });
    }
    return {};
  }

 protected:
  Status set_made(int set) override {
    // Where each group's operands begin, for cuBLAS to read on the device: weights, activations, outputs.
    std::vector<const char*> addresses;
    for (const size_t index : {kW, kA, kOut}) {
      const double bytes = dtype_bytes(index == kOut ? product_.out_dtype : product_.dtype);
      for (const int64_t group : groups()) {
        const int64_t row = index == kW ? group * product_.n : product_.first_row[static_cast<size_t>(group)];
        addresses.push_back(static_cast<const char*>(array(set, index).address()) +
                            bytes_of(row, index == kOut ? product_.n : product_.k, bytes));
      }
    }
    LLMPROF_ASSIGN(std::unique_ptr<Buffer> buffer, device_.allocate(addresses.size() * sizeof(void*)));
    LLMPROF_CHECK(device_.upload(*buffer, 0, addresses.data(), addresses.size() * sizeof(void*)));
    addresses_.push_back(std::move(buffer));
    return {};
  }

 private:
  // Those that have rows.
  std::vector<int64_t> groups() const {
    std::vector<int64_t> some;
    for (int64_t g = 0; g < product_.groups(); ++g)
      if (product_.rows_of(g) > 0) some.push_back(g);
    return some;
  }

  // The heuristic's first algorithm for each number of rows.
  Status add_one_by_one() {
    struct Part {
      std::shared_ptr<LtProduct> product;
      cublaslt::Algo algo;
      size_t a, w, out;  // bytes
    };
    std::map<int64_t, Part> by_rows;
    std::vector<Part> parts;
    for (const int64_t group : groups()) {
      const int64_t rows = product_.rows_of(group), first = product_.first_row[static_cast<size_t>(group)];
      auto found = by_rows.find(rows);
      if (found == by_rows.end()) {
        LtShape shape{rows, product_.n, product_.k, product_.dtype, product_.out_dtype};
        if (product_.dtype == DType::kFp8) {
          LLMPROF_CHECK(add_one_scale(shape));
          shape.fast_accumulation = true;
        }
        LLMPROF_ASSIGN(const std::shared_ptr<LtProduct> made, LtProduct::make(context_, *lt_, shape));
        LLMPROF_ASSIGN(const std::vector<cublaslt::Algo> algorithms, made->algorithms(1));
        found = by_rows.emplace(rows, Part{made, algorithms[0], 0, 0, 0}).first;
      }
      Part part = found->second;
      const double in = dtype_bytes(product_.dtype), out = dtype_bytes(product_.out_dtype);
      part.a = bytes_of(first, product_.k, in);
      part.w = bytes_of(group * product_.n, product_.k, in);
      part.out = bytes_of(first, product_.n, out);
      parts.push_back(std::move(part));
    }
    add("cuBLASLt, one by one", [this, parts](int set) -> Status {
      const auto place = [&](size_t index, size_t offset) {
        return static_cast<char*>(array(set, index).address()) + offset;
      };
      for (const Part& part : parts)
        LLMPROF_CHECK(
            part.product->run(part.algo, place(kA, part.a), place(kW, part.w), nullptr, place(kOut, part.out)));
      return {};
    });
    return {};
  }

  Status run_grouped(int set) {
    const std::vector<int64_t> some = groups();
    const size_t count = some.size();
    const std::vector<int> transposed(count, cublas::kOpT), plain(count, cublas::kOpN), one(count, 1),
        n(count, static_cast<int>(product_.n)), k(count, static_cast<int>(product_.k));
    std::vector<int> rows;
    for (const int64_t group : some) rows.push_back(static_cast<int>(product_.rows_of(group)));
    const std::vector<float> ones(count, 1), zeros(count, 0);
    const auto* const address = static_cast<void**>(addresses_[static_cast<size_t>(set)]->address());
    const int type = product_.dtype == DType::kFp16 ? cublas::kR16F : cublas::kR16BF;
    const int status = cublas_->library.api.grouped(
        cublas_->handle, transposed.data(), plain.data(), n.data(), rows.data(), k.data(), ones.data(), address, type,
        k.data(), address + count, type, k.data(), zeros.data(), const_cast<void**>(address) + 2 * count, type,
        n.data(), static_cast<int>(count), one.data(), cublas::kCompute32F);
    if (status == cublas::kSuccess) return {};
    return fail(fmt::format("multiplying groups: cuBLAS says status {}", status));
  }

  const device::cuda::Cublas* cublas_ = nullptr;
  std::vector<std::unique_ptr<Buffer>> addresses_;  // of each set
};

template <class Op>
Result<std::unique_ptr<PreparedOp>> prepare_product(Device& device, const OpParams& params, ops::Product product) {
  auto op = std::make_unique<Op>(device, params, std::move(product));
  LLMPROF_CHECK(op->prepare());
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_gemm(Device& device, const OpParams& params) {
  return prepare_product<LtOp>(device, params, ops::gemm_product(params));
}
Result<std::unique_ptr<PreparedOp>> prepare_gemm_batched(Device& device, const OpParams& params) {
  return prepare_product<LtOp>(device, params, ops::gemm_batched_product(params));
}
Result<std::unique_ptr<PreparedOp>> prepare_gemm_w8a8(Device& device, const OpParams& params) {
  return prepare_product<LtOp>(device, params, ops::gemm_w8a8_product(params));
}
Result<std::unique_ptr<PreparedOp>> prepare_gemm_grouped(Device& device, const OpParams& params) {
  return prepare_product<GroupedOp>(device, params, ops::gemm_grouped_product(params));
}

std::optional<std::string> gemm_unsupported(const DeviceIdentity& device, const OpParams& params) {
  const int cc = 10 * device.cc_major + device.cc_minor;
  const auto lacks = [&](std::string_view what, std::string_view from) {
    return fmt::format("{} ({}.{}) has no {} matrix units; they come with {}", device.name, device.cc_major,
                       device.cc_minor, what, from);
  };
  // Of those of m, n and k that the operation has.
  const auto not_multiple = [&](std::initializer_list<std::string_view> axes,
                                int64_t of) -> std::optional<std::string> {
    for (const auto& [axis, value] : params.axes)
      if (std::find(axes.begin(), axes.end(), axis) != axes.end() && value % of != 0)
        return fmt::format("{} products need multiples of {}, {} is {}", dtype_name(params.dtype), of, axis, value);
    return std::nullopt;
  };
  switch (params.dtype) {
    case DType::kFp8:
      if (cc < 89) return lacks("fp8", "8.9");
      return not_multiple({"n", "k"}, 16);  // rows of activations begin at multiples of k bytes, however many they are
    case DType::kInt8:
      if (cc < 75) return lacks("int8", "7.5");
      return not_multiple({"n", "k"}, 4);
    case DType::kBf16:
    case DType::kTf32:
      if (cc < 80) return lacks(dtype_name(params.dtype), "8.0");
      return std::nullopt;
    case DType::kFp64:
    case DType::kFp32:
    case DType::kFp16:
      return std::nullopt;
    case DType::kFp4:
      if (cc < 100) return lacks("fp4", "10.0");
      return not_multiple({"n", "k"}, 32);
    default:
      return fmt::format("products of {} are not measured on a GPU", dtype_name(params.dtype));
  }
}

std::optional<std::string> gemm_epilogue_unsupported(const OpParams& params) {
  if (params.variant == "plain" || params.dtype == DType::kBf16 || params.dtype == DType::kFp16) return std::nullopt;
  const bool narrow = params.dtype == DType::kInt8 || params.dtype == DType::kFp8 || params.dtype == DType::kFp4;
  if (params.variant == "residual" && !narrow) return std::nullopt;
  return fmt::format("{} of {} products is not measured on a GPU; of bf16 and fp16 it is", params.variant,
                     dtype_name(params.dtype));
}

std::optional<std::string> gemm_w8a8_unsupported(const DeviceIdentity& device, const OpParams& params) {
  if (const std::optional<std::string> why = gemm_unsupported(device, params)) return why;
  if (params.axis("n") % kScalePack != 0)
    return fmt::format("its own scaling moves {} outputs at once, n is {}", kScalePack, params.axis("n"));
  return own_kernel_unsupported(device, params);
}

}  // namespace llmprof::kernels::cuda
