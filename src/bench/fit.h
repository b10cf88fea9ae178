// Whether a case fits the device's memory, known before anything is allocated, and what would.
#pragma once

#include <optional>
#include <string>

#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::bench {

// The command line's name of an axis: "kv_heads" is "--kv-heads".
std::string option_of(std::string_view axis);

// Left to others on the device: other processes, libraries' workspaces, the buffer that empties the cache.
int64_t reserved_bytes(const device::Device& device);

// The axis that grew most over its usual value, the first of equals: what a user would make smaller.
std::string_view growing_axis(const kernels::Operation& operation, const kernels::OpParams& params);

// The largest value of the axis with which the case needs at most `bytes`; empty if not even 1 does. Footprints grow
// with every axis.
std::optional<int64_t> largest_fitting(const kernels::Operation& operation, kernels::OpParams params,
                                       std::string_view axis, int64_t bytes);

// The sentence that says what is needed, what is free and what would fit; empty if the case fits.
std::optional<std::string> does_not_fit(const device::Device& device, const kernels::Operation& operation,
                                        const kernels::OpParams& params);

}  // namespace llmprof::bench
