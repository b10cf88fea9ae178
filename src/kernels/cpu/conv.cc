// Convolutions of images by oneDNN, channels last. Weights are packed as each of its ways wants them when a set is
// prepared, as a model does once.
#include "kernels/reference/conv.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/cpu/buffer_sets.h"
#include "kernels/cpu/dnnl_engine.h"
#include "kernels/cpu/ops.h"
#include "ops/layers.h"

namespace llmprof::kernels::cpu {
namespace {

constexpr size_t kWays = 3;
enum : size_t { kOut, kX, kW };  // buffers of a set

std::vector<BufferPlan> buffers_of(const ops::ConvSizes& of, const OpParams& params) {
  const auto bytes = [&](int64_t images, int64_t rows, int64_t columns, int64_t channels) {
    return static_cast<size_t>(images * rows * columns * channels) * static_cast<size_t>(dtype_bytes(params.dtype));
  };
  return {{bytes(of.batch, of.out_height(), of.out_width(), of.filters), params.dtype, true, params.seed},
          {bytes(of.batch, of.height, of.width, of.channels), params.dtype, false, params.seed + 1},
          {bytes(of.filters, of.kernel, of.kernel, of.channels), params.dtype, false, params.seed + 2}};
}

class ConvOp : public PreparedOp {
 public:
  ConvOp(device::cpu::CpuDevice& device, const OpParams& params)
      : device_(device),
        of_(params),
        dtype_(params.dtype),
        seed_(params.seed),
        sets_(device, buffers_of(of_, params)) {}

  Status prepare() {
    LLMPROF_ASSIGN(engine_, DnnlEngine::open());
    const device::cpu::OneDnn& lib = device::cpu::one_dnn();
    const dnnl_data_type_t type = device::cpu::dnnl_type(dtype_);
    const dnnl_dims_t x_dims = {of_.batch, of_.channels, of_.height, of_.width};
    const dnnl_dims_t w_dims = {of_.filters, of_.channels, of_.kernel, of_.kernel};
    const dnnl_dims_t out_dims = {of_.batch, of_.filters, of_.out_height(), of_.out_width()};
    dnnl_memory_desc_t any{};
    LLMPROF_CHECK(
        device::cpu::dnnl_ok(std::max({lib.dnnl_memory_desc_init_by_tag(&x_, 4, x_dims, type, dnnl_nhwc),
                                       lib.dnnl_memory_desc_init_by_tag(&w_, 4, w_dims, type, dnnl_ohwi),
                                       lib.dnnl_memory_desc_init_by_tag(&any, 4, w_dims, type, dnnl_format_tag_any),
                                       lib.dnnl_memory_desc_init_by_tag(&out_, 4, out_dims, type, dnnl_nhwc)}),
                             "describe the images"));
    const dnnl_dims_t strides = {of_.stride, of_.stride}, padding = {of_.padding, of_.padding};
    dnnl_convolution_desc_t operation{};
    LLMPROF_CHECK(device::cpu::dnnl_ok(
        lib.dnnl_convolution_forward_desc_init(&operation, dnnl_forward_inference, dnnl_convolution_direct, &x_, &any,
                                               nullptr, &out_, strides, padding, padding),
        "describe this convolution"));
    LLMPROF_ASSIGN(ways_, engine_->ways(&operation, kWays, "convolve these images"));
    for (size_t way = 0; way < ways_.size(); ++way)
      candidates_.push_back({"oneDNN " + ways_[way].name, [this, way](int set) { return run(way, set); }});
    return prepare_sets(1);
  }

  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override { return sets_.bytes_per_set(); }

  Status prepare_sets(int sets) override {
    for (int set = sets_.count(); set < sets; ++set) {
      LLMPROF_CHECK(sets_.grow(set + 1));
      LLMPROF_ASSIGN(DnnlMemory x, engine_->memory(x_, sets_.data<void>(set, kX)));
      LLMPROF_ASSIGN(DnnlMemory out, engine_->memory(out_, sets_.data<void>(set, kOut)));
      Set made{std::move(x), std::move(out), {}};
      for (const DnnlPrimitive& way : ways_) {
        LLMPROF_ASSIGN(const dnnl_memory_desc_t* const layout, way.weights());
        LLMPROF_ASSIGN(std::unique_ptr<Buffer> buffer,
                       device_.allocate(device::cpu::one_dnn().dnnl_memory_desc_get_size(layout)));
        LLMPROF_CHECK(engine_->reorder(w_, sets_.data<void>(set, kW), *layout, buffer->address()));
        LLMPROF_ASSIGN(DnnlMemory w, engine_->memory(*layout, buffer->address()));
        made.packed.push_back({std::move(buffer), std::move(w)});
      }
      memory_.push_back(std::move(made));
    }
    return {};
  }

  Result<Check> check(size_t candidate) override {
    LLMPROF_CHECK(sets_.poison(0));
    LLMPROF_CHECK(candidates_[candidate].enqueue(0));
    const ConvOperands operands{sets_.at(0, kX), sets_.at(0, kW), sets_.at(0, kOut), of_.batch,
                                of_.channels,    of_.height,      of_.width,         of_.filters,
                                of_.kernel,      of_.stride,      of_.padding,       dtype_};
    if (!expected_) {
      LLMPROF_ASSIGN(expected_, expect_conv(device_, operands, seed_));
    }
    return check_conv(device_, operands, *expected_);
  }

 private:
  struct Packed {
    std::unique_ptr<Buffer> buffer;
    DnnlMemory memory;
  };
  struct Set {
    DnnlMemory x, out;
    std::vector<Packed> packed;  // as the ways
  };

  Status run(size_t way, int index) {
    const Set& set = memory_[static_cast<size_t>(index)];
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, set.x.get()}, {DNNL_ARG_WEIGHTS, set.packed[way].memory.get()}, {DNNL_ARG_DST, set.out.get()}};
    return engine_->run(ways_[way], arguments, "convolve");
  }

  device::cpu::CpuDevice& device_;
  ops::ConvSizes of_;
  DType dtype_;
  uint64_t seed_;
  BufferSets sets_;
  std::unique_ptr<DnnlEngine> engine_;
  dnnl_memory_desc_t x_{}, w_{}, out_{};
  std::vector<DnnlPrimitive> ways_;
  std::vector<Set> memory_;
  std::optional<ConvExpected> expected_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<std::string> library_unsupported(const OpParams& params) {
  if (params.dtype == DType::kBf16 && !device::cpu::cpu_instructions().bf16())
    return "this CPU has no instructions for bf16 products (AVX512-BF16 or AMX)";
  if (params.dtype != DType::kBf16 && params.dtype != DType::kFp32)
    return fmt::format("on CPUs it is measured in fp32 and bf16, not in {}", dtype_name(params.dtype));
  if (!device::cpu::one_dnn().missing.empty()) return device::cpu::one_dnn().missing;
  return std::nullopt;
}

std::optional<std::string> conv2d_unsupported(const OpParams& params) {
  if (std::optional<std::string> why = library_unsupported(params)) return why;
  return ops::filter_too_large(ops::ConvSizes(params));
}

Result<std::unique_ptr<PreparedOp>> prepare_conv2d(Device& device, const OpParams& params) {
  if (const std::optional<std::string> why = conv2d_unsupported(params)) return fail(*why, {}, {}, ExitCode::kUsage);
  auto op = std::make_unique<ConvOp>(static_cast<device::cpu::CpuDevice&>(device), params);
  LLMPROF_CHECK(op->prepare());
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace llmprof::kernels::cpu
