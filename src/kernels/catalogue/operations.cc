// Every operation that can be measured: a row each.
#include <fmt/format.h>

#include <array>

#include "kernels/cpu/ops.h"
#include "kernels/cuda/ops.h"
#include "kernels/op.h"
#include "kernels/reference/routing.h"
#include "ops/attention.h"
#include "ops/layers.h"
#include "ops/memory.h"
#include "ops/product.h"
#include "ops/rows.h"

namespace llmprof::kernels {
namespace {

constexpr std::array kGemmAxes = {Axis{"m", 4096, "rows of the activations: tokens"},
                                  Axis{"n", 4096, "rows of the weights: outputs"},
                                  Axis{"k", 4096, "columns of both: inputs"}};
constexpr std::array kGemmTypes = {DType::kBf16, DType::kFp32, DType::kTf32, DType::kFp16,
                                   DType::kFp64, DType::kFp8,  DType::kFp4,  DType::kInt8};
constexpr std::array<std::string_view, 4> kGemmVariants = {"plain", "bias", "bias_gelu", "residual"};
constexpr std::array kBatchedAxes = {Axis{"batch", 32, "products"}, Axis{"m", 512, "rows of each"},
                                     Axis{"n", 512, "outputs of each"}, Axis{"k", 128, "inputs of each"}};
constexpr std::array kBatchedTypes = {DType::kBf16, DType::kFp32, DType::kTf32, DType::kFp16};
constexpr std::array kW8a8Types = {DType::kFp8, DType::kInt8};
constexpr std::array kGroupedAxes = {Axis{"rows", 4096, "of all groups: tokens times the experts of each"},
                                     Axis{"groups", 8, "weights of their own: experts"}, Axis{"n", 14336, "outputs"},
                                     Axis{"k", 4096, "inputs"}};
constexpr std::array kGroupedTypes = {DType::kBf16, DType::kFp16, DType::kFp8, DType::kFp32};
constexpr std::array<std::string_view, 2> kGroupedVariants = {"even", "skewed"};
constexpr std::array kRoutingAxes = {Axis{"tokens", 4096, "rows of logits"}, Axis{"experts", 128, "logits of a row"},
                                     Axis{"k", 8, "experts of a token"}};
constexpr std::array kMemoryAxes = {Axis{"bytes", 256 << 20, "of each array"}};
constexpr std::array kMemoryTypes = {DType::kFp32};
constexpr std::array<std::string_view, 4> kMemoryVariants = {"copy", "read", "write", "triad"};
constexpr std::array kRegistersAxes = {
    Axis{"mflop", 1000, "millions of FLOPs in one execution, all units together", 1'000'000}};
constexpr std::array kRegistersTypes = {DType::kFp32, DType::kFp64, DType::kTf32, DType::kFp16,
                                        DType::kBf16, DType::kFp8,  DType::kInt8};

constexpr std::array kRowTypes = {DType::kBf16, DType::kFp16, DType::kFp32};
constexpr Axis kTokens{"tokens", 8192, "rows"}, kHidden{"hidden", 4096, "elements of a row"};
constexpr std::array kNormAxes = {kTokens, kHidden};
constexpr std::array<std::string_view, 2> kRmsnormVariants = {"residual", "plain"};
constexpr std::array kSoftmaxAxes = {Axis{"rows", 8192, "of scores"}, Axis{"columns", 4096, "of a row of scores"}};
constexpr std::array kSwigluAxes = {kTokens, Axis{"ffn", 14336, "width of the layer: gate and up are twice that"}};
constexpr std::array kRopeAxes = {kTokens, Axis{"heads", 32, "of the queries"}, Axis{"kv_heads", 8, "of the keys"},
                                  Axis{"head_dim", 128, "elements of a head"}};
constexpr std::array kEmbeddingAxes = {kTokens, Axis{"vocab", 128256, "rows of the table"}, kHidden};
constexpr std::array kKvAppendAxes = {kTokens, Axis{"kv_heads", 8, "of keys and values"},
                                      Axis{"head_dim", 128, "elements of a head"}};

constexpr std::array kAttentionTypes = {DType::kBf16, DType::kFp16, DType::kFp32};
constexpr Axis kHeads{"heads", 32, "of the queries"}, kKvHeads{"kv_heads", 8, "of keys and values"},
    kHeadDim{"head_dim", 128, "elements of a head; on a GPU 64, 128 or 256"};
constexpr std::array kDecodeAxes = {Axis{"batch", 32, "sequences, a new token each"}, kHeads, kKvHeads, kHeadDim,
                                    Axis{"context", 4096, "keys of each sequence"}};
constexpr std::array kAttentionAxes = {Axis{"batch", 1, "sequences"},
                                       kHeads,
                                       kKvHeads,
                                       kHeadDim,
                                       Axis{"prompt", 4096, "queries of each sequence"},
                                       Axis{"context", 1, "keys of each sequence, if more than the prompt"}};
constexpr std::array<std::string_view, 2> kAttentionVariants = {"causal", "full"};
constexpr std::array<std::string_view, 2> kDecodeVariants = {"contiguous", "paged"};

constexpr std::array kLibraryTypes = {DType::kBf16, DType::kFp16, DType::kTf32, DType::kFp32};
constexpr std::array kConvAxes = {Axis{"batch", 32, "images"},
                                  Axis{"height", 56, "of an image"},
                                  Axis{"width", 56, "of an image"},
                                  Axis{"in", 256, "channels of the images"},
                                  Axis{"out", 256, "channels of the result"},
                                  Axis{"kernel", 3, "height and width of a filter"},
                                  Axis{"stride", 1, "of the filters"}};
constexpr std::array<std::string_view, 2> kConvVariants = {"same", "valid"};
constexpr std::array kLstmAxes = {Axis{"batch", 64, "sequences"}, Axis{"tokens", 128, "steps of a sequence"},
                                  Axis{"input", 1024, "elements of an input"},
                                  Axis{"hidden", 1024, "elements of the state"}, Axis{"layers", 1, "one on another"}};

constexpr std::array kSamplingAxes = {Axis{"batch", 32, "rows of logits"}, Axis{"vocab", 128256, "logits of a row"},
                                      Axis{"k", 50, "so many of the most likely tokens are kept, at most 1024"}};
constexpr std::array<std::string_view, 2> kSamplingVariants = {"top_k_top_p", "greedy"};

constexpr std::array kLaunchTypes = {DType::kFp32};
constexpr std::array<std::string_view, 5> kLaunchVariants = {"fork_join", "eager", "graph_node", "stream_sync",
                                                             "event_sync"};
constexpr std::array kMemcpyAxes = {Axis{"bytes", 256 << 20, "of one copy"}};
constexpr std::array<std::string_view, 4> kMemcpyVariants = {"h2d", "d2h", "h2d_pageable", "d2h_pageable"};

constexpr const char* kNotOnCpu = "not measured on a CPU";

std::optional<std::string> unsupported_gemm(const DeviceIdentity& device, const OpParams& params) {
  const bool cpu = device.kind == DeviceKind::kCpu;
  if (auto why = cpu ? cpu::gemm_unsupported(params) : cuda::gemm_unsupported(device, params)) return why;
  return cpu ? cpu::gemm_epilogue_unsupported(params) : cuda::gemm_epilogue_unsupported(params);
}

std::optional<std::string> unsupported_batched(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::gemm_unsupported(params);
  return cuda::gemm_unsupported(device, params);
}

std::optional<std::string> unsupported_w8a8(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return kNotOnCpu;
  return cuda::gemm_w8a8_unsupported(device, params);
}

std::optional<std::string> unsupported_grouped(const DeviceIdentity& device, const OpParams& params) {
  if (params.axis("groups") > 4096) return fmt::format("at most 4096 groups, found {}", params.axis("groups"));
  if (device.kind == DeviceKind::kCpu) return cpu::gemm_unsupported(params);
  if (params.dtype == DType::kFp32) return "groups are multiplied in bf16, fp16 and fp8 on a GPU";
  return cuda::gemm_unsupported(device, params);
}

std::optional<std::string> unsupported_routing(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return kNotOnCpu;
  if (auto why = routing_unsupported(params)) return why;
  return cuda::own_kernel_unsupported(device, params);
}

std::optional<std::string> unsupported_memory(const DeviceIdentity&, const OpParams&) { return std::nullopt; }

std::optional<std::string> unsupported_registers(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::registers_unsupported(params);
  return cuda::registers_unsupported(device, params);
}

std::optional<std::string> unsupported_launch(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::launch_unsupported(params);
  return params.variant == "fork_join" ? std::optional<std::string>("fork_join is a way of CPUs") : std::nullopt;
}

std::optional<std::string> unsupported_memcpy(const DeviceIdentity& device, const OpParams&) {
  if (device.kind == DeviceKind::kCpu) return "copies between host and GPU need a GPU";
  return std::nullopt;
}

std::optional<std::string> unsupported_rows(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::rows_unsupported(params);
  return cuda::own_kernel_unsupported(device, params);
}

std::optional<std::string> unsupported_quantise(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return kNotOnCpu;
  return cuda::own_kernel_unsupported(device, params);
}

std::optional<std::string> unsupported_rope(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::rope_unsupported(params);
  return cuda::own_kernel_unsupported(device, params);
}

std::optional<std::string> unsupported_sampling(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return kNotOnCpu;
  return cuda::own_kernel_unsupported(device, params);
}

constexpr const char* kAttentionFp32 = "attention in fp32 is measured on CPUs only: GPUs do it in bf16 and fp16";

std::optional<std::string> unsupported_attention(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::attention_unsupported(params);
  if (params.dtype == DType::kFp32) return kAttentionFp32;
  return cuda::attention_unsupported(device, params);
}

std::optional<std::string> unsupported_conv2d(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return kNotOnCpu;
  return cuda::conv2d_unsupported(device, params);
}

std::optional<std::string> unsupported_lstm(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return kNotOnCpu;
  return cuda::lstm_unsupported(device, params);
}

std::optional<std::string> unsupported_attention_decode(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::attention_unsupported(params);
  if (params.dtype == DType::kFp32) return kAttentionFp32;
  return cuda::attention_decode_unsupported(device, params);
}

// Bytes that cross the link, once: what its bandwidth is quoted as.
Cost memcpy_cost(const OpParams& params) {
  Cost cost;
  cost.write_bytes = static_cast<double>(params.axis("bytes"));
  return cost;
}
int64_t memcpy_footprint(const OpParams& params) { return 2 * params.axis("bytes"); }

// No arithmetic and no traffic to speak of.
Cost launch_cost(const OpParams&) { return {}; }
int64_t launch_footprint(const OpParams&) { return 0; }

constexpr std::array kOperations = {
    Operation{"gemm", "linear layer: activations [m, k] times weights [n, k]", kGemmAxes, kGemmTypes, kGemmVariants,
              ops::product_cost_of<ops::gemm_product>, ops::product_footprint_of<ops::gemm_product>, unsupported_gemm,
              cpu::prepare_gemm, cuda::prepare_gemm, Ceiling::kProducts},
    Operation{"gemm_batched",
              "products of one shape side by side",
              kBatchedAxes,
              kBatchedTypes,
              {},
              ops::product_cost_of<ops::gemm_batched_product>,
              ops::product_footprint_of<ops::gemm_batched_product>,
              unsupported_batched,
              cpu::prepare_gemm_batched,
              cuda::prepare_gemm_batched},
    Operation{"gemm_w8a8",
              "linear layer in 8 bits with a scale per row of activations and weights, to bf16",
              kGemmAxes,
              kW8a8Types,
              {},
              ops::product_cost_of<ops::gemm_w8a8_product>,
              ops::product_footprint_of<ops::gemm_w8a8_product>,
              unsupported_w8a8,
              nullptr,
              cuda::prepare_gemm_w8a8},
    Operation{"gemm_grouped", "linear layers of experts, each with rows of its own", kGroupedAxes, kGroupedTypes,
              kGroupedVariants, ops::product_cost_of<ops::gemm_grouped_product>,
              ops::product_footprint_of<ops::gemm_grouped_product>, unsupported_grouped, cpu::prepare_gemm_grouped,
              cuda::prepare_gemm_grouped},
    Operation{"moe_routing",
              "experts of each token, their weights, and rows in the order of experts",
              kRoutingAxes,
              kRowTypes,
              {},
              ops::routing_cost,
              nullptr,
              unsupported_routing,
              nullptr,
              cuda::prepare_moe_routing},
    Operation{"memory", "arrays read, written, copied, or two of them combined", kMemoryAxes, kMemoryTypes,
              kMemoryVariants, ops::memory_cost, nullptr, unsupported_memory, cpu::prepare_memory, cuda::prepare_memory,
              Ceiling::kMemory},
    Operation{"registers",
              "multiply-adds that never leave the registers",
              kRegistersAxes,
              kRegistersTypes,
              {},
              ops::registers_cost,
              ops::registers_footprint,
              unsupported_registers,
              cpu::prepare_registers,
              cuda::prepare_registers,
              Ceiling::kRegisters},
    Operation{"rmsnorm", "RMSNorm of rows; residual: x is added to it before, and stored", kNormAxes, kRowTypes,
              kRmsnormVariants, ops::rmsnorm_cost, nullptr, unsupported_rows, cpu::prepare_rmsnorm,
              cuda::prepare_rmsnorm},
    Operation{"layernorm_gelu",
              "LayerNorm of rows, then GELU",
              kNormAxes,
              kRowTypes,
              {},
              ops::layernorm_gelu_cost,
              nullptr,
              unsupported_rows,
              cpu::prepare_layernorm_gelu,
              cuda::prepare_layernorm_gelu},
    Operation{"softmax",
              "softmax of rows",
              kSoftmaxAxes,
              kRowTypes,
              {},
              ops::softmax_cost,
              nullptr,
              unsupported_rows,
              cpu::prepare_softmax,
              cuda::prepare_softmax},
    Operation{"swiglu",
              "silu(gate) * up of rows that hold both",
              kSwigluAxes,
              kRowTypes,
              {},
              ops::swiglu_cost,
              nullptr,
              unsupported_rows,
              cpu::prepare_swiglu,
              cuda::prepare_swiglu},
    Operation{"rope",
              "rotary positions of queries and keys, in place",
              kRopeAxes,
              kRowTypes,
              {},
              ops::rope_cost,
              nullptr,
              unsupported_rope,
              cpu::prepare_rope,
              cuda::prepare_rope},
    Operation{"embedding",
              "rows of a table, gathered by index",
              kEmbeddingAxes,
              kRowTypes,
              {},
              ops::embedding_cost,
              ops::embedding_footprint,
              unsupported_rows,
              cpu::prepare_embedding,
              cuda::prepare_embedding},
    Operation{"kv_append",
              "keys and values written to slots of a cache",
              kKvAppendAxes,
              kRowTypes,
              {},
              ops::kv_append_cost,
              ops::kv_append_footprint,
              unsupported_rows,
              cpu::prepare_kv_append,
              cuda::prepare_kv_append},
    Operation{"quantise",
              "rows to fp8 with a scale each",
              kNormAxes,
              kRowTypes,
              {},
              ops::quantise_cost,
              nullptr,
              unsupported_quantise,
              nullptr,
              cuda::prepare_quantise},
    Operation{"dequantise",
              "rows of fp8 with a scale each made wide: the data type is that of the result",
              kNormAxes,
              kRowTypes,
              {},
              ops::dequantise_cost,
              nullptr,
              unsupported_quantise,
              nullptr,
              cuda::prepare_dequantise},
    Operation{"attention", "attention of a prompt over its keys", kAttentionAxes, kAttentionTypes, kAttentionVariants,
              ops::attention_cost, ops::attention_footprint, unsupported_attention, cpu::prepare_attention,
              cuda::prepare_attention},
    Operation{"attention_decode", "attention of one new query per sequence over the cache", kDecodeAxes,
              kAttentionTypes, kDecodeVariants, ops::attention_decode_cost, ops::attention_decode_footprint,
              unsupported_attention_decode, cpu::prepare_attention_decode, cuda::prepare_attention_decode},
    Operation{"conv2d", "convolution of images, channels last; same: padded by half a filter", kConvAxes, kLibraryTypes,
              kConvVariants, ops::conv2d_cost, ops::conv2d_footprint, unsupported_conv2d, nullptr,
              cuda::prepare_conv2d},
    Operation{"lstm",
              "LSTM layers over sequences",
              kLstmAxes,
              kLibraryTypes,
              {},
              ops::lstm_cost,
              ops::lstm_footprint,
              unsupported_lstm,
              nullptr,
              cuda::prepare_lstm},
    Operation{"sampling",
              "a token drawn from each row of logits: top-k, then top-p 0.9 at temperature 0.8; or the largest",
              kSamplingAxes, kRowTypes, kSamplingVariants, ops::sampling_cost, ops::sampling_footprint,
              unsupported_sampling, nullptr, cuda::prepare_sampling},
    Operation{"memcpy", "copies between host and GPU; GB/s count the bytes once", kMemcpyAxes, kMemoryTypes,
              kMemcpyVariants, memcpy_cost, memcpy_footprint, unsupported_memcpy, nullptr, cuda::prepare_memcpy,
              Ceiling::kLink},
    Operation{"launch",
              "starting work, and waiting for it",
              {},
              kLaunchTypes,
              kLaunchVariants,
              launch_cost,
              launch_footprint,
              unsupported_launch,
              cpu::prepare_launch,
              cuda::prepare_launch,
              Ceiling::kFixedCosts},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(std::string_view name) {
  for (const Operation& operation : kOperations)
    if (operation.name == name) return &operation;
  return nullptr;
}

}  // namespace llmprof::kernels
