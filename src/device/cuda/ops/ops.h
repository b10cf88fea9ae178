// Operations on a GPU. `device` is a CudaDevice; axes and variants are those of the operation's row in the catalog.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "device/device.h"
#include "device/op.h"

namespace llmprof::device::cuda {

// cuBLASLt: its first choice, then the fastest of the others that its heuristic names. Axes m, n, k.
Result<std::unique_ptr<PreparedOp>> prepare_gemm(Device& device, const OpParams& params);
// Own kernels in six shapes, and the driver's copy and fill. Axis bytes; variants copy, read, write, triad.
Result<std::unique_ptr<PreparedOp>> prepare_memory(Device& device, const OpParams& params);
// Multiply-adds that never leave the registers. Axis mflop.
Result<std::unique_ptr<PreparedOp>> prepare_registers(Device& device, const OpParams& params);
// Between host and GPU. Axis bytes; variants h2d, d2h (pinned memory of the host), h2d_pageable, d2h_pageable.
Result<std::unique_ptr<PreparedOp>> prepare_memcpy(Device& device, const OpParams& params);
// What nothing costs: variants eager (a launch of an empty kernel), graph_node (the same in a graph), stream_sync and
// event_sync (a launch and waiting for it).
Result<std::unique_ptr<PreparedOp>> prepare_launch(Device& device, const OpParams& params);

// Why this GPU cannot, in a sentence.
std::optional<std::string> gemm_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> registers_unsupported(const DeviceIdentity& device, const OpParams& params);
std::optional<std::string> own_kernel_unsupported(const DeviceIdentity& device, const OpParams& params);

}  // namespace llmprof::device::cuda
