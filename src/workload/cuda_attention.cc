#include "workload/cuda_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/cudnn_attention.h"

namespace llmprof::workload {
namespace {

using device::cuda::Context;
using device::cuda::Cudnn;
using kernels::cuda::CudnnGraph;

constexpr size_t kPlans = 4;
constexpr int64_t kKeysAtOnce = 4;  // that a group of lanes of the own kernel reads together
constexpr int64_t kWarpsMax = 8, kSplitsMax = 16, kSplitKeysMin = 128;
constexpr int64_t kWaves = 2;  // blocks per SM that splitting is to give

// cuDNN's kernel is for 16-bit types; one query has no use for it, and positions in memory it does not know.
bool wants_cudnn(const AttentionCall& call, DType dtype) {
  return dtype == DType::kBf16 && call.queries > 1 && call.head_size % 8 == 0 &&
         (call.causal || !call.positions.has_value());
}

std::vector<int64_t> key_of(const AttentionCall& call) {
  return {call.sequences, call.queries,    call.positions && !call.causal ? 0 : call.keys,
          call.capacity,  call.heads,      call.kv_heads,
          call.head_size, call.causal,     call.positions.has_value(),
          call.q.token,   call.q.sequence, call.k.token,
          call.k.head,    call.v.token,    call.v.head};
}

uint64_t wide(int64_t value) { return static_cast<uint64_t>(value); }

}  // namespace

Status CudaAttention::prepare(const AttentionCall& call) {
  LLMPROF_ASSIGN(Shape* const shape, shape_of(call));
  // The first execution loads the kernel.
  return shape->fused ? run_fused(*shape->fused, call) : Status();
}

Status CudaAttention::run(const AttentionCall& call) {
  LLMPROF_ASSIGN(Shape* const shape, shape_of(call));
  return shape->fused ? run_fused(*shape->fused, call) : run_own(*shape->own, call);
}

Result<CudaAttention::Shape*> CudaAttention::shape_of(const AttentionCall& call) {
  const std::vector<int64_t> key = key_of(call);
  if (const auto known = shapes_.find(key); known != shapes_.end()) return &known->second;
  Shape shape;
  if (wants_cudnn(call, dtype_)) {
    Result<Fused> fused = fuse(call);
    if (fused)
      shape.fused = std::move(*fused);
    else if (device_.context().lost())
      return tl::unexpected<Error>(std::move(fused.error()));
    else
      why_own_ = fused.error().what;
  }
  if (!shape.fused) {
    LLMPROF_ASSIGN(shape.own, make_own(call));
  }
  return &shapes_.emplace(key, std::move(shape)).first->second;
}

Result<CudaAttention::Fused> CudaAttention::fuse(const AttentionCall& call) {
  LLMPROF_ASSIGN(cudnn_, device_.context().cudnn());
  device_.note_library(cudnn_->library.about);
  kernels::AttentionShape shape;
  shape.batch = call.sequences;
  shape.heads = call.heads;
  shape.kv_heads = call.kv_heads;
  shape.head_dim = call.head_size;
  shape.queries = call.queries;
  shape.keys = call.keys;
  shape.dtype = dtype_;
  shape.causal = call.causal;
  const auto strides = [](const Heads& heads) { return CudnnGraph::Sizes{heads.sequence, heads.head, heads.token, 1}; };
  const kernels::cuda::AttentionStrides layout = {
      strides(call.q), strides(call.k), strides(call.v),
      CudnnGraph::Sizes{call.queries * call.out.columns, call.head_size, call.out.columns, 1}};
  Fused fused;
  fused.graph = std::make_unique<CudnnGraph>(*cudnn_);
  fused.tensors = describe_attention(*fused.graph, shape, layout);
  LLMPROF_ASSIGN(const std::vector<kernels::cuda::CudnnPlan> plans, fused.graph->plans(kPlans));
  // The first choice: what is fastest today may not be tomorrow, and results would change with it.
  fused.plan = plans.front().plan;
  LLMPROF_CHECK(grow(workspace_, static_cast<size_t>(std::max<int64_t>(plans.front().workspace_bytes, 256))));
  return fused;
}

Status CudaAttention::run_fused(Fused& fused, const AttentionCall& call) {
  kernels::cuda::CudnnDescriptor& pack = fused.packs[{call.out.data, call.q.data, call.k.data, call.v.data}];
  if (!pack) {
    const void* const addresses[] = {call.out.data, call.q.data, call.k.data, call.v.data};
    std::vector<CudnnGraph::Binding> bindings;
    for (const auto& [tensor, place] : fused.tensors) bindings.push_back({tensor, const_cast<void*>(addresses[place])});
    LLMPROF_ASSIGN(pack, fused.graph->pack(bindings, workspace_->address()));
  }
  const cudnn::Api& api = cudnn_->library.api;
  const int status = api.execute(cudnn_->handle, fused.plan.get(), pack.get());
  return status == cudnn::kSuccess ? Status() : kernels::cuda::cudnn_check(api, status, "executing attention");
}

Result<CudaAttention::Own> CudaAttention::make_own(const AttentionCall& call) {
  if (std::find(std::begin(kCudaHeadSizes), std::end(kCudaHeadSizes), call.head_size) == std::end(kCudaHeadSizes))
    return fail(fmt::format("expected heads of 16, 32, 64 or 128 numbers, found {}", call.head_size));
  Context& context = device_.context();
  Own own;
  LLMPROF_ASSIGN(
      own.kernel,
      context.kernel({"workload_attention.cu",
                      {dtype_ == DType::kBf16 ? "T=Bf16" : "T=Fp32", fmt::format("HEAD={}", call.head_size)}},
                     "attention"));
  const int64_t units = call.sequences * call.queries * call.heads, keys = std::max(call.keys, call.capacity);
  const int64_t wanted = (kWaves * context.sms() + units - 1) / units;
  const int64_t splits = std::clamp<int64_t>(std::min(wanted, keys / kSplitKeysMin), 1, kSplitsMax);
  const int64_t lanes = call.head_size * static_cast<int64_t>(dtype_bytes(dtype_)) / 16;
  const int64_t keys_of_warp = 32 / lanes * kKeysAtOnce;
  const int64_t warps = std::clamp<int64_t>((keys / splits + keys_of_warp - 1) / keys_of_warp, 1, kWarpsMax);
  if (units * splits > 0x7fffffff) return fail(fmt::format("{} queries are too many for one launch", units));
  own.splits = narrow(splits);
  own.blocks = static_cast<unsigned>(units * splits);
  own.threads = static_cast<unsigned>(32 * warps);
  if (splits == 1) return own;
  LLMPROF_CHECK(grow(parts_, static_cast<size_t>(units * splits * (call.head_size + 2)) * sizeof(float)));
  const size_t counters = static_cast<size_t>(units) * sizeof(uint32_t);
  if (counters_ && counters_->bytes() >= counters) return own;
  LLMPROF_CHECK(grow(counters_, counters));
  LLMPROF_CHECK(
      context.check(context.api().set_d8(device::cuda::pointer_of(*counters_), 0, counters_->bytes(), context.stream()),
                    "clearing counters"));
  return own;
}

Status CudaAttention::run_own(const Own& own, const AttentionCall& call) {
  const auto address = [](const void* pointer) { return reinterpret_cast<cuda_abi::DevicePtr>(pointer); };
  const auto start = [&](const std::unique_ptr<device::Buffer>& buffer) {
    return own.splits > 1 ? address(buffer->address()) : cuda_abi::DevicePtr{0};
  };
  cuda_abi::DevicePtr q = address(call.q.data), k = address(call.k.data), v = address(call.v.data),
                      positions = address(call.positions ? call.positions->data : nullptr),
                      out = address(call.out.data), parts = start(parts_), counters = start(counters_);
  uint64_t q_sequence = wide(call.q.sequence), q_token = wide(call.q.token), q_head = wide(call.q.head),
           k_sequence = wide(call.k.sequence), k_token = wide(call.k.token), k_head = wide(call.k.head);
  uint32_t queries = narrow(call.queries), keys = narrow(call.keys), heads = narrow(call.heads),
           group = narrow(call.heads / call.kv_heads), splits = own.splits;
  // The kernel's exponentials are of two.
  float scale = static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(call.head_size)));
  void* list[] = {&q,      &k,       &v,    &positions, &out,   &q_sequence, &q_token, &q_head, &k_sequence, &k_token,
                  &k_head, &queries, &keys, &heads,     &group, &splits,     &scale,   &parts,  &counters,   nullptr};
  return device_.context().launch_list(own.kernel, own.blocks, 1, own.threads, 0, list);
}

Status CudaAttention::grow(std::unique_ptr<device::Buffer>& buffer, size_t bytes) {
  if (buffer && buffer->bytes() >= bytes) return {};
  LLMPROF_ASSIGN(std::unique_ptr<device::Buffer> larger, device_.allocate(bytes));
  if (buffer) outgrown_.push_back(std::move(buffer));
  buffer = std::move(larger);
  return {};
}

}  // namespace llmprof::workload
