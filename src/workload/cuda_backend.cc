#include "workload/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "device/fill.h"
#include "kernels/cuda/cuda_op.h"
#include "workload/cuda_attention.h"
#include "workload/cuda_linear.h"
#include "workload/pinned.h"
#include "workload/sizes.h"

namespace llmprof::workload {
namespace {

using cuda_abi::DevicePtr;
using device::cuda::Context;
using device::cuda::CudaDevice;
using device::cuda::Kernel;

constexpr size_t kCudaAlignment = 256, kPackBytes = 16;
constexpr size_t kCudaSlabBytes = size_t{64} << 20;  // small tensors share an allocation
constexpr unsigned kThreads = 256, kRowThreadsMax = 512, kArgmaxThreads = 1024;
constexpr uint64_t kBlocksPerSm = 32;  // of kernels that walk; more is left to the walk

DevicePtr at(const Tensor& tensor) { return reinterpret_cast<DevicePtr>(tensor.data); }

size_t bytes_of(const Tensor& tensor) {
  return static_cast<size_t>(tensor.elements()) * static_cast<size_t>(dtype_bytes(tensor.dtype));
}
// Of a row, in packs of 16 bytes.
uint32_t packs_of(const Tensor& tensor) {
  return narrow(tensor.columns * static_cast<int64_t>(dtype_bytes(tensor.dtype)) / static_cast<int64_t>(kPackBytes));
}
uint64_t all_packs(const Tensor& tensor) { return static_cast<uint64_t>(tensor.rows) * packs_of(tensor); }
// Threads of a block that takes a row of so many packs.
unsigned row_threads(uint32_t packs, unsigned most) { return std::clamp((packs + 31) / 32 * 32, 32U, most); }

// Kernels of one type, loaded when the backend is opened.
struct Kernels {
  Kernel fill, add, gelu, layernorm, rotate, append, merge, advance, swiglu, gather, argmax;
  std::vector<std::pair<Kernel, Kernel>> rmsnorm;  // plain and with a residual, for 1, 2 and 4 packs a thread
};
constexpr int kItems[] = {1, 2, 4};

Result<Kernels> load_kernels(Context& context, DType dtype) {
  const std::string type = dtype == DType::kBf16 ? "T=Bf16" : "T=Fp32";
  Kernels all;
  LLMPROF_ASSIGN(all.fill,
                 context.kernel({"fill.cu", {}}, dtype == DType::kBf16 ? "fill_scaled_bf16" : "fill_scaled_fp32"));
  LLMPROF_ASSIGN(all.add, context.kernel({"workload.cu", {type}}, "add_into"));
  LLMPROF_ASSIGN(all.gelu, context.kernel({"workload.cu", {type}}, "gelu"));
  LLMPROF_ASSIGN(all.layernorm, context.kernel({"workload.cu", {type}}, "layernorm"));
  LLMPROF_ASSIGN(all.rotate, context.kernel({"workload.cu", {type}}, "rotary_positions"));
  LLMPROF_ASSIGN(all.append, context.kernel({"workload.cu", {type}}, "store_kv_cache"));
  LLMPROF_ASSIGN(all.merge, context.kernel({"workload.cu", {type}}, "merge_patches"));
  LLMPROF_ASSIGN(all.advance, context.kernel({"workload.cu", {type}}, "advance"));
  LLMPROF_ASSIGN(all.swiglu, context.kernel({"elementwise.cu", {type}}, "swiglu"));
  LLMPROF_ASSIGN(all.gather, context.kernel({"elementwise.cu", {type}}, "gather"));
  LLMPROF_ASSIGN(all.argmax, context.kernel({"sampling.cu", {"T=Fp32"}}, "sample_greedy"));
  for (const int items : kItems) {
    const device::cuda::KernelSource source = {"rows.cu", {type, fmt::format("ITEMS={}", items)}};
    LLMPROF_ASSIGN(const Kernel plain, context.kernel(source, "rmsnorm"));
    LLMPROF_ASSIGN(const Kernel residual, context.kernel(source, "rmsnorm_residual"));
    all.rmsnorm.emplace_back(plain, residual);
  }
  return all;
}

// A recorded graph, ready to be launched.
class Graph {
 public:
  explicit Graph(Context& context) : context_(context) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (exec_ != nullptr) context_.api().graph_exec_destroy(exec_);
  }
  Status record(const Backend::Work& body) {
    const cuda_abi::Api& api = context_.api();
    LLMPROF_CHECK(context_.check(api.capture_begin(context_.stream(), cuda_abi::kCaptureRelaxed), "starting a graph"));
    const Status recorded = body();
    cuda_abi::Graph graph = nullptr;
    const cuda_abi::Result ended = api.capture_end(context_.stream(), &graph);
    if (!recorded) {
      if (graph != nullptr) api.graph_destroy(graph);
      return recorded;
    }
    LLMPROF_CHECK(context_.check(ended, "ending a graph"));
    const cuda_abi::Result made = api.graph_instantiate(&exec_, graph, 0);
    api.graph_destroy(graph);
    LLMPROF_CHECK(context_.check(made, "making a graph runnable"));
    return context_.check(api.graph_upload(exec_, context_.stream()), "uploading a graph");
  }
  Status launch() { return context_.check(context_.api().graph_launch(exec_, context_.stream()), "launching a graph"); }

 private:
  Context& context_;
  cuda_abi::GraphExec exec_ = nullptr;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(std::unique_ptr<CudaDevice> device, std::unique_ptr<CudaLinears> linears, Kernels kernels, DType dtype,
              bool graph)
      : device_(std::move(device)),
        context_(device_->context()),
        linears_(std::move(linears)),
        kernels_(std::move(kernels)),
        attention_(*device_, dtype),
        pinned_(context_),
        dtype_(dtype),
        graph_(graph) {}
  // Whatever still runs uses what is freed now.
  ~CudaBackend() override { static_cast<void>(context_.synchronize()); }

  const device::DeviceIdentity& identity() const override { return device_->identity(); }
  DType dtype() const override { return dtype_; }
  int64_t free_bytes() const override { return device_->free_bytes(); }

  Result<Tensor> allocate(int64_t rows, int64_t columns, DType dtype) override {
    const Tensor shape{nullptr, rows, columns, dtype};
    LLMPROF_ASSIGN(void* const data, take(bytes_of(shape)));
    return Tensor{data, rows, columns, dtype};
  }

  Result<Tensor> weights(int64_t rows, int64_t columns, const Numbers& numbers) override {
    LLMPROF_ASSIGN(const Tensor tensor, allocate(rows, columns, dtype_));
    const uint64_t count = static_cast<uint64_t>(tensor.elements()), seed = device::fill_mix(numbers.seed);
    LLMPROF_CHECK(walk(kernels_.fill, count, at(tensor), count, seed, numbers.scale, numbers.offset));
    return tensor;
  }

  Result<Linear> linear(int64_t in, int64_t out, const Numbers& w, const std::optional<Numbers>& bias, DType out_dtype,
                        std::span<const int64_t> rows) override {
    Tensor b;
    if (bias) {
      LLMPROF_ASSIGN(b, weights(1, out, *bias));
    }
    LLMPROF_ASSIGN(const Tensor plain, weights(out, in, w));
    std::vector<std::unique_ptr<device::Buffer>> borrowed;
    const CudaLinears::Scratch scratch = [&](size_t bytes) -> Result<void*> {
      LLMPROF_ASSIGN(std::unique_ptr<device::Buffer> buffer, device_->allocate(bytes));
      borrowed.push_back(std::move(buffer));
      return borrowed.back()->address();
    };
    LLMPROF_ASSIGN(const int id, linears_->add(plain, b, out_dtype, rows, scratch));
    if (!borrowed.empty()) LLMPROF_CHECK(context_.synchronize());
    return Linear{id, in, out, bias.has_value()};
  }

  Status prepare(const AttentionCall& call) override {
    LLMPROF_CHECK(attention_.prepare(call));
    return context_.synchronize();
  }

  Status upload(const Tensor& to, const void* from) override { return pinned_.upload(at(to), from, bytes_of(to)); }
  Status download(const Tensor& from, void* to) override { return pinned_.download(to, at(from), bytes_of(from)); }
  Status wait() override { return pinned_.wait(); }

  bool records() const override { return graph_; }
  Result<Work> repeatable(Work body) override {
    if (!graph_) return body;
    const std::shared_ptr<Graph> graph = std::make_shared<Graph>(context_);
    LLMPROF_CHECK(graph->record(body));
    return Work([graph] { return graph->launch(); });
  }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    if (!attention_.why_own().empty())
      notes.push_back("attention of prompts by an own kernel, which is slower: " + attention_.why_own());
    return notes;
  }

  Status apply(const Linear& linear, const Tensor& x, const Tensor& out) override {
    return linears_->run(linear.id, x, out);
  }

  Status gather(const Tensor& table, const Tensor& ids, const Tensor& out) override {
    const uint64_t count = all_packs(out);
    return walk(kernels_.gather, count, at(table), at(ids), at(out), count, packs_of(out));
  }

  Status copy(const Tensor& x, const Tensor& out) override {
    return context_.check(context_.api().copy_on_device(at(out), at(x), bytes_of(out), context_.stream()), "copying");
  }

  Status add(const Tensor& x, const Tensor& to) override {
    const uint64_t count = all_packs(to);
    return walk(kernels_.add, count, at(x), at(to), count);
  }

  Status rmsnorm(const Tensor& x, const Tensor* residual, const Tensor& gain, const Tensor& out) override {
    const uint32_t packs = packs_of(out);
    size_t shape = 0;
    while (shape + 1 < std::size(kItems) && packs > kRowThreadsMax * static_cast<unsigned>(kItems[shape])) ++shape;
    const unsigned items = static_cast<unsigned>(kItems[shape]);
    const unsigned threads = row_threads((packs + items - 1) / items, kArgmaxThreads), grid = narrow(out.rows);
    const uint64_t rows = static_cast<uint64_t>(out.rows);
    const auto& [plain, with_residual] = kernels_.rmsnorm[shape];
    if (residual == nullptr)
      return context_.launch(plain, grid, threads, at(x), at(gain), at(out), rows, packs, kNormEpsilon);
    return context_.launch(with_residual, grid, threads, at(x), at(*residual), at(gain), at(out), rows, packs,
                           kNormEpsilon);
  }

  Status layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias, const Tensor& out) override {
    const uint32_t packs = packs_of(out);
    return context_.launch(kernels_.layernorm, narrow(out.rows), row_threads(packs, kThreads), at(x), at(gain),
                           at(bias), at(out), packs, kNormEpsilon);
  }

  Status gelu(const Tensor& x, const Tensor& out) override {
    const uint64_t count = all_packs(out);
    return walk(kernels_.gelu, count, at(x), at(out), count);
  }

  Status swiglu(const Tensor& x, const Tensor& out) override {
    const uint64_t count = all_packs(out);
    return walk(kernels_.swiglu, count, at(x), at(out), count, packs_of(out));
  }

  Status rope(const Tensor& x, int64_t heads, int64_t kv_heads, int64_t head_size, const Tensor& angles,
              const Tensor& positions) override {
    const uint32_t half = packs_of({nullptr, 1, head_size / 2, dtype_}), all = narrow(heads + kv_heads);
    const uint64_t count = static_cast<uint64_t>(x.rows) * all * half;
    return walk(kernels_.rotate, count, at(x), at(angles), at(positions), count, all, half, packs_of(x));
  }

  Status append(const Tensor& qkv, int64_t query_width, const Tensor& positions, int64_t sequences,
                const Cache& cache) override {
    const uint32_t head = packs_of(cache.keys), query = packs_of({nullptr, 1, query_width, dtype_}),
                   row = packs_of(qkv), kv_heads = (row - query) / 2 / head;
    const uint64_t count = static_cast<uint64_t>(qkv.rows) * kv_heads * head;
    return walk(kernels_.append, count, at(qkv), at(positions), at(cache.keys), at(cache.values), count, row, query,
                head, kv_heads, narrow(qkv.rows / sequences), narrow(cache.capacity));
  }

  Status attention(const AttentionCall& call) override { return attention_.run(call); }

  Status merge(const Tensor& x, int64_t merge, const Tensor& out) override {
    const uint64_t count = all_packs(out);
    uint32_t side = 1;  // squares a side
    while (int64_t{side} * side < out.rows) ++side;
    return walk(kernels_.merge, count, at(x), at(out), count, packs_of(x), narrow(merge), side);
  }

  Status argmax(const Tensor& x, const Tensor& out) override {
    const uint32_t packs = packs_of(x);
    return context_.launch(kernels_.argmax, narrow(x.rows), row_threads(packs, kArgmaxThreads), at(x), at(out), packs);
  }

  Status advance(const Tensor& numbers) override {
    const uint64_t count = static_cast<uint64_t>(numbers.elements());
    return walk(kernels_.advance, count, at(numbers), count);
  }

 private:
  // A kernel whose threads walk over `count` things.
  template <class... Parameters>
  Status walk(const Kernel& kernel, uint64_t count, const Parameters&... parameters) {
    const uint64_t all = (count + kThreads - 1) / kThreads, most = kBlocksPerSm * static_cast<uint64_t>(context_.sms());
    return context_.launch(kernel, static_cast<unsigned>(std::clamp<uint64_t>(all, 1, most)), kThreads, parameters...);
  }

  // Large tensors lie alone, small ones together.
  Result<void*> take(size_t bytes) {
    bytes = (std::max<size_t>(bytes, 1) + kCudaAlignment - 1) / kCudaAlignment * kCudaAlignment;
    const bool alone = bytes > kCudaSlabBytes / 4;
    if (alone || slab_ == nullptr || slab_used_ + bytes > slab_->bytes()) {
      LLMPROF_ASSIGN(std::unique_ptr<device::Buffer> made, device_->allocate(alone ? bytes : kCudaSlabBytes));
      memory_.push_back(std::move(made));
      if (alone) return memory_.back()->address();
      slab_ = memory_.back().get();
      slab_used_ = 0;
    }
    void* const address = static_cast<char*>(slab_->address()) + slab_used_;
    slab_used_ += bytes;
    return address;
  }

  // Before everything that lies in it.
  std::unique_ptr<CudaDevice> device_;
  Context& context_;
  std::unique_ptr<CudaLinears> linears_;
  Kernels kernels_;
  CudaAttention attention_;
  Pinned pinned_;
  std::vector<std::unique_ptr<device::Buffer>> memory_;
  device::Buffer* slab_ = nullptr;  // the one of memory_ that is being filled
  size_t slab_used_ = 0;
  DType dtype_;
  bool graph_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_cuda_backend(std::unique_ptr<device::Device> device, DType dtype, bool graph) {
  if (dtype != DType::kFp32 && dtype != DType::kBf16)
    return fail(fmt::format("expected fp32 or bf16, found {}", dtype_name(dtype)), "--dtype", "--dtype bf16",
                ExitCode::kUsage);
  std::unique_ptr<CudaDevice> gpu(static_cast<CudaDevice*>(device.release()));
  LLMPROF_ASSIGN(std::unique_ptr<CudaLinears> linears, CudaLinears::open(gpu->context()));
  gpu->note_library(linears->about());
  LLMPROF_ASSIGN(Kernels kernels, load_kernels(gpu->context(), dtype));
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(std::move(gpu), std::move(linears), std::move(kernels), dtype, graph));
}

Status check_cuda_libraries(device::Device& device) {
  Context& context = static_cast<CudaDevice&>(device).context();
  LLMPROF_CHECK(context.nvrtc());
  LLMPROF_CHECK(context.cublaslt());
  return {};
}

}  // namespace llmprof::workload
