#include "device/reference/gemm.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/cpu/math_libraries.h"
#include "device/cpu/ops/buffer_sets.h"
#include "device/cpu/ops/ops.h"

namespace llmprof::device::cpu {
namespace {

using Memory = DnnlHandle<dnnl_memory_t>;

struct Shape {
  int64_t m, n, k;
  DType dtype, out_dtype;
};

// One matmul of oneDNN with its buffers, of each set. `packed`: weights in the layout that oneDNN chooses, made from
// those of the set when it is prepared; else as they lie, [n, k].
class DnnlMatmul {
 public:
  static Result<std::unique_ptr<DnnlMatmul>> make(const Shape& shape, bool packed) {
    auto matmul = std::make_unique<DnnlMatmul>(packed);
    LLMPROF_CHECK(matmul->prepare(shape));
    return matmul;
  }
  explicit DnnlMatmul(bool packed) : packed_(packed) {}

  size_t packed_bytes() const { return packed_ ? lib_.dnnl_memory_desc_get_size(&weights_) : 0; }
  // The layout that was chosen is the one that the weights have anyway.
  bool as_they_lie() const { return lib_.dnnl_memory_desc_equal(&weights_, &plain_) != 0; }

  Status add_set(Device& device, const Buffer& a, const Buffer& w, const Buffer& out) {
    Set set{Memory(lib_.dnnl_memory_destroy), Memory(lib_.dnnl_memory_destroy), Memory(lib_.dnnl_memory_destroy),
            nullptr};
    LLMPROF_CHECK(memory(set.a, source_, a.address()));
    LLMPROF_CHECK(memory(set.out, out_, out.address()));
    if (packed_) {
      LLMPROF_ASSIGN(set.packed, device.allocate(packed_bytes()));
      LLMPROF_CHECK(memory(set.w, weights_, set.packed->address()));
      LLMPROF_CHECK(pack(w, set.w));
    } else {
      LLMPROF_CHECK(memory(set.w, weights_, w.address()));
    }
    sets_.push_back(std::move(set));
    return {};
  }

  Status run(int index) {
    const Set& set = sets_[static_cast<size_t>(index)];
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, set.a.get()}, {DNNL_ARG_WEIGHTS, set.w.get()}, {DNNL_ARG_DST, set.out.get()}};
    LLMPROF_CHECK(dnnl_ok(lib_.dnnl_primitive_execute(primitive_.get(), stream_.get(), 3, arguments), "multiply"));
    return dnnl_ok(lib_.dnnl_stream_wait(stream_.get()), "wait for its stream");
  }

 private:
  struct Set {
    Memory a, w, out;
    std::unique_ptr<Buffer> packed;
  };

  Status prepare(const Shape& shape) {
    LLMPROF_CHECK(dnnl_ok(lib_.dnnl_engine_create(engine_.out(), dnnl_cpu, 0), "open the CPU"));
    LLMPROF_CHECK(
        dnnl_ok(lib_.dnnl_stream_create(stream_.out(), engine_.get(), dnnl_stream_default_flags), "make a stream"));
    const dnnl_dims_t a_dims = {shape.m, shape.k}, w_dims = {shape.k, shape.n}, out_dims = {shape.m, shape.n};
    const dnnl_dims_t w_strides = {1, shape.k};
    const dnnl_data_type_t type = dnnl_type(shape.dtype);
    dnnl_memory_desc_t any{};
    const Status described =
        dnnl_ok(std::max({lib_.dnnl_memory_desc_init_by_tag(&source_, 2, a_dims, type, dnnl_ab),
                          lib_.dnnl_memory_desc_init_by_tag(&out_, 2, out_dims, dnnl_type(shape.out_dtype), dnnl_ab),
                          lib_.dnnl_memory_desc_init_by_strides(&plain_, 2, w_dims, type, w_strides),
                          lib_.dnnl_memory_desc_init_by_tag(&any, 2, w_dims, type, dnnl_format_tag_any)}),
                "describe the matrices");
    LLMPROF_CHECK(described);
    dnnl_matmul_desc_t operation{};
    LLMPROF_CHECK(dnnl_ok(lib_.dnnl_matmul_desc_init(&operation, &source_, packed_ ? &any : &plain_, nullptr, &out_),
                          "describe this product"));
    DnnlHandle<dnnl_primitive_desc_t> description(lib_.dnnl_primitive_desc_destroy);
    LLMPROF_CHECK(dnnl_ok(
        lib_.dnnl_primitive_desc_create(description.out(), &operation, nullptr, engine_.get(), nullptr), "multiply"));
    const dnnl_memory_desc_t* chosen = lib_.dnnl_primitive_desc_query_md(description.get(), dnnl_query_weights_md, 0);
    if (chosen == nullptr) return fail("oneDNN does not say how it wants the weights");
    weights_ = *chosen;
    return dnnl_ok(lib_.dnnl_primitive_create(primitive_.out(), description.get()), "compile this product");
  }

  Status memory(Memory& made, const dnnl_memory_desc_t& description, void* address) {
    return dnnl_ok(lib_.dnnl_memory_create(made.out(), &description, engine_.get(), address), "take a buffer");
  }

  Status pack(const Buffer& w, const Memory& to) {
    Memory from(lib_.dnnl_memory_destroy);
    LLMPROF_CHECK(memory(from, plain_, w.address()));
    DnnlHandle<dnnl_primitive_desc_t> description(lib_.dnnl_primitive_desc_destroy);
    LLMPROF_CHECK(dnnl_ok(lib_.dnnl_reorder_primitive_desc_create(description.out(), &plain_, engine_.get(), &weights_,
                                                                  engine_.get(), nullptr),
                          "pack the weights"));
    DnnlHandle<dnnl_primitive_t> reorder(lib_.dnnl_primitive_destroy);
    LLMPROF_CHECK(dnnl_ok(lib_.dnnl_primitive_create(reorder.out(), description.get()), "pack the weights"));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}};
    LLMPROF_CHECK(dnnl_ok(lib_.dnnl_primitive_execute(reorder.get(), stream_.get(), 2, arguments), "pack the weights"));
    return dnnl_ok(lib_.dnnl_stream_wait(stream_.get()), "wait for its stream");
  }

  const OneDnn& lib_ = one_dnn();
  bool packed_;
  DnnlHandle<dnnl_engine_t> engine_{lib_.dnnl_engine_destroy};
  DnnlHandle<dnnl_stream_t> stream_{lib_.dnnl_stream_destroy};
  DnnlHandle<dnnl_primitive_t> primitive_{lib_.dnnl_primitive_destroy};
  dnnl_memory_desc_t source_{}, out_{}, plain_{}, weights_{};
  std::vector<Set> sets_;
};

// Buffers of a set: a [m, k], w [n, k], out [m, n].
std::vector<BufferPlan> buffers_of(const Shape& shape, uint64_t seed) {
  const auto bytes = [](int64_t rows, int64_t columns, DType dtype) {
    return static_cast<size_t>(rows) * static_cast<size_t>(columns) * static_cast<size_t>(dtype_bytes(dtype));
  };
  return {{bytes(shape.m, shape.k, shape.dtype), shape.dtype, false, seed},
          {bytes(shape.n, shape.k, shape.dtype), shape.dtype, false, seed + 1},
          {bytes(shape.m, shape.n, shape.out_dtype), shape.out_dtype, true, seed}};
}

class GemmOp : public PreparedOp {
 public:
  GemmOp(CpuDevice& device, const Shape& shape, uint64_t seed)
      : device_(device), shape_(shape), seed_(seed), sets_(device, buffers_of(shape, seed)) {}

  // Error only if there is no way at all.
  Status choose() {
    std::string why;
    if (shape_.dtype != DType::kFp64 && one_dnn().missing.empty()) {
      for (const bool packed : {true, false}) {
        Result<std::unique_ptr<DnnlMatmul>> matmul = DnnlMatmul::make(shape_, packed);
        if (!matmul) {
          why = matmul.error().what;
          continue;
        }
        // Once is enough if both are the same.
        if (!packed && !matmuls_.empty() && matmuls_[0]->as_they_lie()) continue;
        DnnlMatmul* const at = matmul->get();
        matmuls_.push_back(std::move(*matmul));
        candidates_.push_back({packed ? "oneDNN, packed weights" : "oneDNN", [at](int set) { return at->run(set); }});
      }
    } else if (shape_.dtype != DType::kFp64) {
      why = one_dnn().missing;
    }
    const bool fits = std::max({shape_.m, shape_.n, shape_.k}) <= std::numeric_limits<int>::max();
    if (shape_.dtype == DType::kFp64 || shape_.dtype == DType::kFp32) {
      if (open_blas().missing.empty() && fits)
        candidates_.push_back({"OpenBLAS", [this](int set) { return run_open_blas(set); }});
      else
        why += (why.empty() ? "" : "; ") + open_blas().missing;
    }
    if (candidates_.empty()) return fail("no library here can multiply these matrices: " + why);
    return prepare_sets(1);
  }

  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override { return sets_.bytes_per_set(); }

  Status prepare_sets(int sets) override {
    for (int set = sets_.count(); set < sets; ++set) {
      LLMPROF_CHECK(sets_.grow(set + 1));
      for (const std::unique_ptr<DnnlMatmul>& matmul : matmuls_)
        LLMPROF_CHECK(matmul->add_set(device_, sets_.at(set, 0), sets_.at(set, 1), sets_.at(set, 2)));
    }
    return {};
  }

  Result<Check> check(size_t candidate) override {
    LLMPROF_CHECK(sets_.poison(0));
    LLMPROF_CHECK(candidates_[candidate].enqueue(0));
    GemmOperands operands{sets_.at(0, 0), sets_.at(0, 1), sets_.at(0, 2)};
    operands.m = shape_.m;
    operands.n = shape_.n;
    operands.k = shape_.k;
    operands.dtype = shape_.dtype;
    operands.out_dtype = shape_.out_dtype;
    if (!expected_) {
      LLMPROF_ASSIGN(expected_, expect_gemm(device_, operands, seed_));
    }
    return check_gemm(device_, operands, *expected_);
  }

 private:
  Status run_open_blas(int set) {
    const OpenBlas& blas = open_blas();
    const int m = static_cast<int>(shape_.m), n = static_cast<int>(shape_.n), k = static_cast<int>(shape_.k);
    if (shape_.dtype == DType::kFp64)
      blas.cblas_dgemm(OpenBlas::kRowMajor, OpenBlas::kAsIs, OpenBlas::kTransposed, m, n, k, 1,
                       sets_.data<double>(set, 0), k, sets_.data<double>(set, 1), k, 0, sets_.data<double>(set, 2), n);
    else
      blas.cblas_sgemm(OpenBlas::kRowMajor, OpenBlas::kAsIs, OpenBlas::kTransposed, m, n, k, 1,
                       sets_.data<float>(set, 0), k, sets_.data<float>(set, 1), k, 0, sets_.data<float>(set, 2), n);
    return {};
  }

  CpuDevice& device_;
  Shape shape_;
  uint64_t seed_;
  BufferSets sets_;
  std::optional<GemmExpected> expected_;
  std::vector<std::unique_ptr<DnnlMatmul>> matmuls_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<std::string> gemm_unsupported(const OpParams& params) {
  const Instructions has = cpu_instructions();
  switch (params.dtype) {
    case DType::kFp32:
      if (!one_dnn().missing.empty() && !open_blas().missing.empty())
        return one_dnn().missing + "; " + open_blas().missing;
      return std::nullopt;
    case DType::kFp64:
      if (!open_blas().missing.empty()) return open_blas().missing;
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
  if (!one_dnn().missing.empty()) return one_dnn().missing;
  return std::nullopt;
}

Result<std::unique_ptr<PreparedOp>> prepare_gemm(Device& device, const OpParams& params) {
  const Shape shape{params.axis("m"), params.axis("n"), params.axis("k"), params.dtype, gemm_out_dtype(params.dtype)};
  auto op = std::make_unique<GemmOp>(static_cast<CpuDevice&>(device), shape, params.seed);
  LLMPROF_CHECK(op->choose());
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace llmprof::device::cpu
