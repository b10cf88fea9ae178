// The default suite: shapes of LLMs, as many as fit into some minutes. A row is an operation, its variant and data type
// ("-": the usual one) and axes; operations that have no row are measured as they come, once per variant.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "bench/plan.h"

namespace llmprof::bench {
namespace {

using kernels::Operation;

enum SuitePart : uint8_t { kGpu = 1, kGpuQuick = 2, kCpu = 4, kCpuQuick = 8 };

struct SuiteRow {
  std::string_view text;
  uint8_t parts;
};
constexpr uint8_t kGpuBoth = kGpu | kGpuQuick, kCpuBoth = kCpu | kCpuQuick;

// The products are those of Llama-3.1-8B's layers at 1, 16, 512 and 4,096 tokens: qkv, o, gate and up, down; and
// lm_head, which has one row for each sequence, however long its prompt is.
// Operators over rows come with more than the caches hold (268 MB a tensor) and with the 16 tokens of a decode step.
constexpr SuiteRow kSuite[] = {
    {"gemm - bf16 m=8192 n=8192 k=8192", kGpuBoth},
    {"gemm - bf16 m=1 n=6144 k=4096", kGpu},
    {"gemm - bf16 m=16 n=6144 k=4096", kGpu},
    {"gemm - bf16 m=512 n=6144 k=4096", kGpu},
    {"gemm - bf16 m=4096 n=6144 k=4096", kGpu},
    {"gemm - bf16 m=1 n=4096 k=4096", kGpuBoth},
    {"gemm - bf16 m=16 n=4096 k=4096", kGpu},
    {"gemm - bf16 m=512 n=4096 k=4096", kGpu},
    {"gemm - bf16 m=4096 n=4096 k=4096", kGpu},
    {"gemm - bf16 m=1 n=28672 k=4096", kGpu},
    {"gemm - bf16 m=16 n=28672 k=4096", kGpu},
    {"gemm - bf16 m=512 n=28672 k=4096", kGpu},
    {"gemm - bf16 m=4096 n=28672 k=4096", kGpu},
    {"gemm - bf16 m=1 n=4096 k=14336", kGpu},
    {"gemm - bf16 m=16 n=4096 k=14336", kGpu},
    {"gemm - bf16 m=512 n=4096 k=14336", kGpuBoth},
    {"gemm - bf16 m=4096 n=4096 k=14336", kGpu},
    {"gemm - bf16 m=1 n=128256 k=4096", kGpu},
    {"gemm - bf16 m=16 n=128256 k=4096", kGpu},
    {"gemm - fp8 m=4096 n=4096 k=4096", kGpu},
    {"gemm - fp4 m=4096 n=4096 k=4096", kGpu},
    {"gemm - int8 m=4096 n=4096 k=4096", kGpu},
    {"gemm bias_gelu bf16 m=4096 n=16384 k=4096", kGpu},
    {"gemm residual bf16 m=512 n=4096 k=4096", kGpu},
    {"gemm_batched - bf16 batch=128 m=512 n=512 k=128", kGpu},
    {"gemm_w8a8 - fp8 m=512 n=6144 k=4096", kGpu},
    {"gemm_w8a8 - int8 m=512 n=6144 k=4096", kGpu},
    // Experts of Qwen3-30B-A3B: a prompt of 2,048 tokens, and a decode step of 32.
    {"gemm_grouped skewed bf16 rows=16384 groups=128 n=1536 k=2048", kGpu},
    {"gemm_grouped even bf16 rows=256 groups=128 n=1536 k=2048", kGpu},
    {"moe_routing - bf16 tokens=2048 experts=128 k=8", kGpu},
    {"moe_routing - bf16 tokens=32 experts=128 k=8", kGpu},
    // Of a model of about 0.5 B parameters, which a CPU can run.
    {"gemm - fp32 m=1024 n=1024 k=1024", kCpuBoth},
    {"gemm - fp32 m=2048 n=2048 k=2048", kCpu},
    {"gemm - fp32 m=1 n=4096 k=4096", kCpu},
    {"gemm - fp32 m=16 n=4096 k=4096", kCpuBoth},
    {"gemm - fp32 m=128 n=896 k=4864", kCpu},
    {"gemm - fp32 m=128 n=4864 k=896", kCpu},
    {"gemm - bf16 m=1024 n=1024 k=1024", kCpuBoth},
    {"gemm - bf16 m=2048 n=2048 k=2048", kCpu},
    {"gemm - bf16 m=1 n=4096 k=4096", kCpu},
    {"gemm - bf16 m=16 n=4096 k=4096", kCpuBoth},
    {"gemm - bf16 m=128 n=896 k=4864", kCpu},
    {"gemm - bf16 m=128 n=4864 k=896", kCpu},
    {"gemm bias_gelu bf16 m=128 n=4864 k=896", kCpu},
    {"gemm_batched - fp32 batch=14 m=128 n=128 k=64", kCpu},
    {"gemm_w8a8 - int8 m=128 n=4864 k=896", kCpu},
    {"gemm_grouped skewed bf16 rows=256 groups=8 n=1536 k=1024", kCpu},
    {"moe_routing - bf16 tokens=512 experts=64 k=8", kCpu},
    {"memory copy - bytes=1073741824", kGpuBoth},
    {"memory read - bytes=1073741824", kGpu},
    {"memory triad - bytes=1073741824", kGpu},
    {"memory copy - bytes=134217728", kCpuBoth},
    {"memory read - bytes=134217728", kCpu},
    {"memory write - bytes=134217728", kCpu},
    {"memory triad - bytes=134217728", kCpu},
    {"registers - fp32", kCpuBoth},
    {"rmsnorm residual bf16 tokens=16384 hidden=8192", kGpuBoth},
    {"rmsnorm plain bf16 tokens=16384 hidden=8192", kGpu},
    {"rmsnorm residual bf16 tokens=16 hidden=8192", kGpu},
    {"rmsnorm residual bf16 tokens=512 hidden=4096", kCpuBoth},
    {"rmsnorm residual bf16 tokens=16 hidden=4096", kCpu},
    {"layernorm_gelu - bf16 tokens=16384 hidden=8192", kGpu},
    {"layernorm_gelu - bf16 tokens=16 hidden=8192", kGpu},
    {"layernorm_gelu - bf16 tokens=512 hidden=4096", kCpu},
    {"softmax - bf16 rows=16384 columns=8192", kGpu},
    {"softmax - bf16 rows=16 columns=128256", kGpu},
    {"softmax - bf16 rows=512 columns=4096", kCpu},
    {"swiglu - bf16 tokens=16384 ffn=8192", kGpu},
    {"swiglu - bf16 tokens=16 ffn=14336", kGpu},
    {"swiglu - bf16 tokens=128 ffn=14336", kCpuBoth},
    {"rope - bf16 tokens=16384 heads=56 kv_heads=8 head_dim=128", kGpu},
    {"rope - bf16 tokens=16 heads=32 kv_heads=8 head_dim=128", kGpu},
    {"embedding - bf16 tokens=16384 vocab=128256 hidden=8192", kGpu},
    {"embedding - bf16 tokens=16 vocab=128256 hidden=4096", kGpu},
    {"kv_append - bf16 tokens=16384 kv_heads=8 head_dim=128", kGpu},
    {"kv_append - bf16 tokens=16 kv_heads=8 head_dim=128", kGpu},
    {"quantise - bf16 tokens=16384 hidden=8192", kGpu},
    {"quantise - bf16 tokens=16 hidden=8192", kGpu},
    {"dequantise - bf16 tokens=16384 hidden=8192", kGpu},
    {"dequantise - bf16 tokens=16 hidden=8192", kGpu},
    {"rope - bf16 tokens=512 heads=32 kv_heads=8 head_dim=128", kCpu},
    {"embedding - bf16 tokens=512 vocab=8192 hidden=4096", kCpu},
    {"kv_append - bf16 tokens=512 kv_heads=8 head_dim=128", kCpu},
    {"quantise - bf16 tokens=512 hidden=4096", kCpu},
    {"dequantise - bf16 tokens=512 hidden=4096", kCpu},
    {"attention causal bf16 batch=1 heads=32 kv_heads=8 head_dim=128 prompt=4096", kGpuBoth},
    {"attention causal bf16 batch=1 heads=32 kv_heads=8 head_dim=128 prompt=16384", kGpu},
    {"attention causal bf16 batch=1 heads=32 kv_heads=8 head_dim=64 prompt=4096", kGpu},
    {"attention full bf16 batch=1 heads=16 kv_heads=16 head_dim=64 prompt=4096", kGpu},
    {"attention_decode contiguous bf16 batch=1 heads=32 kv_heads=8 head_dim=128 context=8192", kGpu},
    {"attention_decode contiguous bf16 batch=32 heads=32 kv_heads=8 head_dim=128 context=4096", kGpuBoth},
    {"attention_decode contiguous bf16 batch=16 heads=64 kv_heads=8 head_dim=128 context=8192", kGpu},
    {"attention_decode paged bf16 batch=32 heads=32 kv_heads=8 head_dim=128 context=4096", kGpu},
    {"attention causal bf16 batch=1 heads=14 kv_heads=2 head_dim=64 prompt=512", kCpuBoth},
    {"attention_decode contiguous bf16 batch=1 heads=32 kv_heads=8 head_dim=128 context=4096", kCpuBoth},
    {"attention_decode paged bf16 batch=1 heads=32 kv_heads=8 head_dim=128 context=4096", kCpu},
    {"sampling top_k_top_p bf16 batch=32 vocab=128256", kGpu},
    {"sampling greedy bf16 batch=32 vocab=128256", kGpu},
    {"sampling top_k_top_p bf16 batch=1 vocab=128256", kCpu},
    {"sampling greedy bf16 batch=1 vocab=128256", kCpu},
    // A layer of ResNet, and the patches of a vision transformer.
    {"conv2d - bf16 batch=32 height=56 width=56 in=256 out=256 kernel=3 stride=1", kGpu},
    {"conv2d valid bf16 batch=32 height=224 width=224 in=8 out=1024 kernel=14 stride=14", kGpu},
    {"lstm - bf16 batch=64 tokens=128 input=1024 hidden=1024 layers=1", kGpu},
    {"conv2d - bf16 batch=1 height=56 width=56 in=64 out=64 kernel=3 stride=1", kCpu},
    {"conv2d - fp32 batch=1 height=56 width=56 in=64 out=64 kernel=3 stride=1", kCpu},
    {"lstm - bf16 batch=16 tokens=16 input=512 hidden=512 layers=1", kCpu},
    {"lstm - fp32 batch=16 tokens=16 input=512 hidden=512 layers=1", kCpu},
    {"memcpy h2d - bytes=67108864", kGpuBoth},
    {"memcpy d2h - bytes=67108864", kGpu},
    {"memcpy h2d_pageable - bytes=67108864", kGpu},
    {"memcpy d2h_pageable - bytes=67108864", kGpu},
    {"launch graph_node -", kGpuBoth},
    {"launch eager -", kGpu},
    {"launch stream_sync -", kGpu},
    {"launch fork_join -", kCpuBoth},
};

struct Words {
  std::string_view operation, variant;
  DType dtype = DType::kUnknown;
  std::vector<std::pair<std::string, int64_t>> axes;
};
Words words_of(std::string_view text) {
  Words words;
  for (size_t word = 0, begin = 0; begin < text.size(); ++word) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;
    if (word == 0) words.operation = part;
    if (word == 1 && part != "-") words.variant = part;
    if (word == 2 && part != "-") words.dtype = parse_dtype(std::string(part)).value_or(DType::kUnknown);
    if (word < 3) continue;
    const size_t equals = part.find('=');
    int64_t value = 0;
    std::from_chars(part.data() + equals + 1, part.data() + part.size(), value);
    words.axes.emplace_back(part.substr(0, equals), value);
  }
  return words;
}

}  // namespace

Result<std::vector<CasePlan>> default_suite(std::span<const Operation> operations, const device::DeviceIdentity& device,
                                            bool quick, uint64_t seed) {
  const bool cpu = device.kind == device::DeviceKind::kCpu;
  const uint8_t part = cpu ? (quick ? kCpuQuick : kCpu) : (quick ? kGpuQuick : kGpu);
  std::vector<CasePlan> plans;
  const auto add = [&](const Operation& operation, DType dtype, std::string_view variant,
                       const AxisValues& axes) -> Status {
    LLMPROF_ASSIGN(CasePlan plan, plan_case(operation, device, dtype, variant, axes));
    plan.params.seed = seed;
    if (possible(operation, device, plan.params)) plans.push_back(std::move(plan));
    return {};
  };
  std::set<std::string_view> known;
  for (const SuiteRow& row : kSuite) known.insert(words_of(row.text).operation);
  for (const Operation& operation : operations) {
    for (const SuiteRow& row : kSuite) {
      const Words words = words_of(row.text);
      if (words.operation != operation.name || (row.parts & part) == 0) continue;
      const auto& types = operation.dtypes;
      if (words.dtype != DType::kUnknown && std::find(types.begin(), types.end(), words.dtype) == types.end()) continue;
      const auto& variants = operation.variants;
      if (!words.variant.empty() && std::find(variants.begin(), variants.end(), words.variant) == variants.end())
        continue;
      LLMPROF_CHECK(add(operation, words.dtype, words.variant, words.axes));
    }
    // Registers are measured by peaks on a GPU, and not again here.
    if (known.count(operation.name) != 0 || operation.ceiling == kernels::Ceiling::kRegisters) continue;
    LLMPROF_CHECK(add(operation, DType::kUnknown, {}, {}));
    for (size_t v = 1; v < operation.variants.size() && !quick; ++v)
      LLMPROF_CHECK(add(operation, DType::kUnknown, operation.variants[v], {}));
  }
  return plans;
}

}  // namespace llmprof::bench
