// Operations on the CPU. `device` is a CpuDevice.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::kernels::cpu {

// oneDNN with packed weights, oneDNN and OpenBLAS with weights as they lie; axes and variants in ops/product.h. Groups
// one by one.
Result<std::unique_ptr<PreparedOp>> prepare_gemm(Device& device, const OpParams& params);
Result<std::unique_ptr<PreparedOp>> prepare_gemm_batched(Device& device, const OpParams& params);
Result<std::unique_ptr<PreparedOp>> prepare_gemm_grouped(Device& device, const OpParams& params);
// Own kernels with ordinary and streaming stores, in each width that the CPU has; the C library's memcpy and memset.
Result<std::unique_ptr<PreparedOp>> prepare_memory(Device& device, const OpParams& params);
// Multiply-adds on values that never leave the registers.
Result<std::unique_ptr<PreparedOp>> prepare_registers(Device& device, const OpParams& params);

// An empty body on every thread: variant fork_join.
Result<std::unique_ptr<PreparedOp>> prepare_launch(Device& device, const OpParams& params);
// Own kernels over rows; dtypes fp32 and bf16. Axes tokens, hidden; variants plain, residual.
Result<std::unique_ptr<PreparedOp>> prepare_rmsnorm(Device& device, const OpParams& params);
// Axes tokens, hidden.
Result<std::unique_ptr<PreparedOp>> prepare_layernorm_gelu(Device& device, const OpParams& params);
// Axes rows, columns.
Result<std::unique_ptr<PreparedOp>> prepare_softmax(Device& device, const OpParams& params);
// Axes tokens, ffn: [tokens, 2 ffn] becomes [tokens, ffn].
Result<std::unique_ptr<PreparedOp>> prepare_swiglu(Device& device, const OpParams& params);

// Axes tokens, heads, kv_heads, head_dim (even).
Result<std::unique_ptr<PreparedOp>> prepare_rope(Device& device, const OpParams& params);
std::optional<std::string> rope_unsupported(const OpParams& params);
// Axes tokens, vocab, hidden.
Result<std::unique_ptr<PreparedOp>> prepare_embedding(Device& device, const OpParams& params);
// Axes tokens, kv_heads, head_dim.
Result<std::unique_ptr<PreparedOp>> prepare_kv_append(Device& device, const OpParams& params);
// Axes batch, heads, kv_heads, head_dim, prompt, context; variants causal, full.
Result<std::unique_ptr<PreparedOp>> prepare_attention(Device& device, const OpParams& params);
// Axes batch, heads, kv_heads, head_dim, context; variants contiguous, paged.
Result<std::unique_ptr<PreparedOp>> prepare_attention_decode(Device& device, const OpParams& params);
std::optional<std::string> attention_unsupported(const OpParams& params);

// Why this CPU cannot, in a sentence.
std::optional<std::string> gemm_unsupported(const OpParams& params);
std::optional<std::string> gemm_epilogue_unsupported(const OpParams& params);  // of the variant
std::optional<std::string> registers_unsupported(const OpParams& params);
std::optional<std::string> launch_unsupported(const OpParams& params);
std::optional<std::string> rows_unsupported(const OpParams& params);

}  // namespace llmprof::kernels::cpu
