// Operations on a GPU. `device` is a CudaDevice; axes and variants are those of the operation's row in the catalog.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::kernels::cuda {

// cuBLASLt: its first choice, then the fastest of the others that its heuristic names; axes and variants in
// ops/product.h. Row and column scales by cuBLASLt, or by an own kernel behind it.
Result<std::unique_ptr<PreparedOp>> prepare_gemm(Device& device, const OpParams& params);
Result<std::unique_ptr<PreparedOp>> prepare_gemm_batched(Device& device, const OpParams& params);
Result<std::unique_ptr<PreparedOp>> prepare_gemm_w8a8(Device& device, const OpParams& params);
// cuBLAS, all groups in one call, and cuBLASLt one by one; bf16 and fp16.
Result<std::unique_ptr<PreparedOp>> prepare_gemm_grouped(Device& device, const OpParams& params);
// Own kernels in six shapes, and the driver's copy and fill. Axis bytes; variants copy, read, write, triad.
Result<std::unique_ptr<PreparedOp>> prepare_memory(Device& device, const OpParams& params);
// Multiply-adds that never leave the registers. Axis mflop.
Result<std::unique_ptr<PreparedOp>> prepare_registers(Device& device, const OpParams& params);
// Between host and GPU. Axis bytes; variants h2d, d2h (pinned memory of the host), h2d_pageable, d2h_pageable.
Result<std::unique_ptr<PreparedOp>> prepare_memcpy(Device& device, const OpParams& params);
// What nothing costs: variants eager (a launch of an empty kernel), graph_node (the same in a graph), stream_sync and
// event_sync (a launch and waiting for it).
Result<std::unique_ptr<PreparedOp>> prepare_launch(Device& device, const OpParams& params);

// Own kernels over rows; dtypes bf16, fp16, fp32. Rows must be whole 16 bytes.
// Axes tokens, hidden; variants plain, residual.
Result<std::unique_ptr<PreparedOp>> prepare_rmsnorm(Device& device, const OpParams& params);
// Axes tokens, hidden.
Result<std::unique_ptr<PreparedOp>> prepare_layernorm_gelu(Device& device, const OpParams& params);
// Axes rows, columns.
Result<std::unique_ptr<PreparedOp>> prepare_softmax(Device& device, const OpParams& params);
// To e4m3 with a scale per token. Axes tokens, hidden.
Result<std::unique_ptr<PreparedOp>> prepare_quantise(Device& device, const OpParams& params);
Result<std::unique_ptr<PreparedOp>> prepare_dequantise(Device& device, const OpParams& params);
// Axes tokens, ffn: [tokens, 2 ffn] becomes [tokens, ffn].
Result<std::unique_ptr<PreparedOp>> prepare_swiglu(Device& device, const OpParams& params);
// In place. Axes tokens, heads, kv_heads, head_dim.
Result<std::unique_ptr<PreparedOp>> prepare_rope(Device& device, const OpParams& params);
// Axes tokens, vocab, hidden.
Result<std::unique_ptr<PreparedOp>> prepare_embedding(Device& device, const OpParams& params);
// Keys and values into slots of a cache four times as large. Axes tokens, kv_heads, head_dim.
Result<std::unique_ptr<PreparedOp>> prepare_kv_append(Device& device, const OpParams& params);

// Own kernels, keys split over blocks in several ways. Axes batch, heads, kv_heads, head_dim, context; variants
// contiguous ([sequence][head][token] of a cache), paged ([page][token][head], pages of 16 in no order).
Result<std::unique_ptr<PreparedOp>> prepare_attention_decode(Device& device, const OpParams& params);
// cuDNN: plans of its heuristics. Axes batch, heads, kv_heads, head_dim, prompt, context; variants causal, full.
Result<std::unique_ptr<PreparedOp>> prepare_attention(Device& device, const OpParams& params);
// cuDNN: plans of its heuristics; channels last. Axes batch, height, width, in, out, kernel, stride; variants same,
// valid.
Result<std::unique_ptr<PreparedOp>> prepare_conv2d(Device& device, const OpParams& params);
// cuDNN: its algorithms. Axes batch, tokens, input, hidden, layers.
Result<std::unique_ptr<PreparedOp>> prepare_lstm(Device& device, const OpParams& params);
// A token per row of logits. Axes batch, vocab, k; variants top_k_top_p (0.9 of the weight, temperature 0.8), greedy.
Result<std::unique_ptr<PreparedOp>> prepare_sampling(Device& device, const OpParams& params);

// Own kernels: three, or one block for few tokens. Axes tokens, experts, k.
Result<std::unique_ptr<PreparedOp>> prepare_moe_routing(Device& device, const OpParams& params);

// Why this GPU cannot, in a sentence.
std::optional<std::string> gemm_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> gemm_epilogue_unsupported(const OpParams& params);  // of the variant
std::optional<std::string> gemm_w8a8_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> registers_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> attention_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> attention_decode_unsupported(const DeviceIdentity& device, const OpParams& params);
// cuDNN multiplies fp32 tensors in tf32, which is a type of its own here.
std::optional<std::string> fp32_of_cudnn_unsupported(const OpParams& params);
std::optional<std::string> conv2d_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> lstm_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> own_kernel_unsupported(const DeviceIdentity& device, const OpParams& params);

}  // namespace llmprof::kernels::cuda
