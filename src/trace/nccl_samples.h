// What NCCL's log and its Inspector say, as labelled values of scraped_values: facts that have no place in time, each
// with its labels. Their type tells them from the samples of metrics pages.
#pragma once

#include <string_view>

namespace llmprof::nccl {

inline constexpr std::string_view kSampleType = "nccl";

// Labels communicator, rank, ranks, host, process, device, bus, version, channels, p2p_channels; the value is 1.
inline constexpr std::string_view kRank = "nccl_rank";
// communicator, from, to, side (send or receive), path; the value is the number of channels.
inline constexpr std::string_view kLink = "nccl_link_channels";
// communicator, operation, dtype, ranks, process, host. One value of each.
inline constexpr std::string_view kCalls = "nccl_collective_calls", kBytes = "nccl_collective_bytes",
                                  kBytesMin = "nccl_collective_bytes_min", kBytesMax = "nccl_collective_bytes_max";
// operation, algorithm, protocol.
inline constexpr std::string_view kChoiceCalls = "nccl_choice_calls", kChoiceBytesMin = "nccl_choice_bytes_min",
                                  kChoiceBytesMax = "nccl_choice_bytes_max", kChoiceChannels = "nccl_choice_channels";
// host, place, text; the value is how often.
inline constexpr std::string_view kWarning = "nccl_warnings";

// ---- of NCCL's Inspector ----

inline constexpr std::string_view kInspectorType = "nccl-inspector";
// An operation: communicator, name, host, process, rank, ranks, nodes, operation, algorithm, protocol, timing, bytes.
// Microseconds, and what the file states in GB/s.
inline constexpr std::string_view kInspectorTime = "nccl_operation_us",
                                  kInspectorAlgorithmRate = "nccl_operation_algorithm_gbs",
                                  kInspectorBusRate = "nccl_operation_bus_gbs";
// communicator, rank, kind (coll or p2p), host, process; the value is how many operations it lost.
inline constexpr std::string_view kInspectorDropped = "nccl_operations_dropped";

}  // namespace llmprof::nccl
