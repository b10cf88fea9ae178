// The fields of every record, once: code_one(coder, record, last) passes them to an Encoder or a Decoder (coding.h) in
// the order in which they lie in the file. `record` is const for an Encoder; `last` is the previous record of its kind
// in the block.
//
// Definitions leave their id to the caller. Frequent records have three flags (flag, same, same_delta), the others
// none. The layout of a frequent record never changes; the others may grow at their end.
#pragma once

#include "capture/spool/coding.h"

namespace llmprof::spool {

// ---- frequent records ----------------------------------------------------------------------------------------------

template <class C, class R>
void code_one(C& c, R& r, const Kernel& last) {
  c.integer(r.def);
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.same_delta(r.correlation, last.correlation);
  c.same_delta(r.graph_node, last.graph_node);
  c.same(r.graph_id, last.graph_id);
}

template <class C, class R>
void code_one(C& c, R& r, const ApiCall& last) {
  c.integer(r.def);
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.delta(r.correlation, last.correlation);
  c.same(r.thread, last.thread);
  c.same(r.result, last.result);  // the third flag is free: no writer has ever set it
}

template <class C, class R>
void code_one(C& c, R& r, const Memcpy& last) {
  c.integer(r.bytes);
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.delta(r.correlation, last.correlation);
  c.same(r.stream, last.stream);
  c.same_delta(r.graph_node, last.graph_node);
  if constexpr (C::kReads) {
    r.copy_kind = last.copy_kind;
    r.source_kind = last.source_kind;
    r.dest_kind = last.dest_kind;
    r.asynchronous = last.asynchronous;
  }
  if (c.flag(r.copy_kind != last.copy_kind || r.source_kind != last.source_kind || r.dest_kind != last.dest_kind ||
             r.asynchronous != last.asynchronous)) {
    c.integer(r.copy_kind);
    c.integer(r.source_kind);
    c.integer(r.dest_kind);
    c.integer(r.asynchronous);
  }
}

template <class C, class R>
void code_one(C& c, R& r, const Memset& last) {
  c.integer(r.bytes);
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.delta(r.correlation, last.correlation);
  c.same(r.stream, last.stream);
  c.same_delta(r.graph_node, last.graph_node);
}

template <class C, class R>
void code_one(C& c, R& r, const GraphLaunch& last) {
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.delta(r.correlation, last.correlation);
  c.same(r.stream, last.stream);
  c.same(r.graph_id, last.graph_id);
}

template <class C, class R>
void code_one(C& c, R& r, const Synchronization& last) {
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.delta(r.correlation, last.correlation);
  c.same(r.kind, last.kind);
  c.same(r.stream, last.stream);
  c.same(r.device, last.device);
}

template <class C, class R>
void code_one(C& c, R& r, const Overhead& last) {
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.same(r.name, last.name);
  c.same(r.thread, last.thread);
}

template <class C, class R>
void code_one(C& c, R& r, const MemoryEvent& last) {
  c.time(r.time_ns, last.time_ns);
  c.delta(r.address, last.address);
  c.integer(r.bytes);
  c.delta(r.correlation, last.correlation);
  c.same(r.thread, last.thread);
  c.same(r.device, last.device);
  c.same(r.memory_kind, last.memory_kind);
}

// The payload of a range or a mark.
template <class C, class R>
void code_payload(C& c, R& r) {
  if (!c.flag(r.payload_kind != PayloadKind::kNone || r.payload != 0)) return;
  c.integer(r.payload_kind);
  c.real(r.payload, 0);
}

template <class C, class R>
void code_one(C& c, R& r, const Range& last) {
  c.integer(r.name);
  c.time(r.end_ns, last.end_ns);
  c.below(r.start_ns, r.end_ns);
  c.same(r.thread, last.thread);
  if (c.flag(r.handle != 0 || r.domain != 0 || r.process_wide != 0)) {
    c.integer(r.handle);
    c.integer(r.domain);
    c.integer(r.process_wide);
  }
  code_payload(c, r);
}

template <class C, class R>
void code_one(C& c, R& r, const Mark& last) {
  c.integer(r.name);
  c.time(r.time_ns, last.time_ns);
  c.same(r.thread, last.thread);
  c.same(r.domain, last.domain);
  code_payload(c, r);
}

template <class C, class R>
void code_one(C& c, R& r, const LibraryCall& last) {
  c.integer(r.def);
  c.time(r.start_ns, last.end_ns);
  c.above(r.end_ns, r.start_ns);
  c.delta(r.call, last.call);
  c.same(r.thread, last.thread);
}

template <class C, class R>
void code_one(C& c, R& r, const Operands& last) {
  c.delta(r.call, last.call);
  c.delta(r.a, last.a);
  c.delta(r.b, last.b);
  c.delta(r.d, last.d);
}

template <class C, class R>
void code_one(C& c, R& r, const GraphNode& last) {
  c.delta(r.node, last.node);
  c.same_delta(r.original, last.original);
  c.same_delta(r.call, last.call);
}

template <class C, class R>
void code_one(C& c, R& r, const RecurringCall& last) {
  c.time(r.time_ns, last.time_ns);
  c.same(r.thread, last.thread);
  c.same(r.key, last.key);
}

template <class C, class R>
void code_one(C& c, R& r, const GpuSample& last) {
  c.time(r.start_ns, last.end_ns);
  const int64_t length =
      static_cast<int64_t>(static_cast<uint64_t>(last.end_ns) - static_cast<uint64_t>(last.start_ns));
  c.delta(r.end_ns, static_cast<int64_t>(static_cast<uint64_t>(r.start_ns) + static_cast<uint64_t>(length)));
  c.same(r.set, last.set);
  const uint32_t count = c.metric_count(0);
  // Most counters of an idle GPU stay at 0: which ones changed is told first. Files from before have all of them.
  uint64_t changed = 0;
  if constexpr (!C::kReads)
    for (uint32_t i = 0; i < count; ++i)
      if (quantise(r.values[i]) != quantise(last.values[i])) changed |= uint64_t{1} << i;
  const bool sparse = c.flag(true);
  if (sparse) c.integer(changed);
  for (uint32_t i = 0; i < count; ++i) {
    if (!sparse || (changed >> i & 1) != 0)
      c.rounded(r.values[i], last.values[i]);
    else if constexpr (C::kReads)
      r.values[i] = restore(quantise(last.values[i]));
  }
  if constexpr (C::kReads)
    for (uint32_t i = count; i < kMetricsMax; ++i) r.values[i] = std::numeric_limits<float>::quiet_NaN();
}

// ---- definitions
// -----------------------------------------------------------------------------------------------------

template <class C, class R>
void code_one(C& c, R& r, const TextDef&) {
  c.rest(r.text);
}

template <class C, class R>
void code_one(C& c, R& r, const ThreadDef&) {
  c.integer(r.thread_id);
  c.integer(r.name);
}

template <class C, class R>
void code_one(C& c, R& r, const StreamDef&) {
  c.integer(r.device);
  c.integer(r.context);
  c.integer(r.stream);
}

template <class C, class R>
void code_one(C& c, R& r, const KernelDef&) {
  c.integer(r.name);
  c.integer(r.stream);
  for (int i = 0; i < 3; ++i) c.integer(r.grid[i]);
  for (int i = 0; i < 3; ++i) c.integer(r.block[i]);
  for (int i = 0; i < 3; ++i) c.integer(r.cluster[i]);
  c.integer(r.registers_per_thread);
  c.integer(r.static_shared_bytes);
  c.integer(r.dynamic_shared_bytes);
}

template <class C, class R>
void code_one(C& c, R& r, const ApiDef&) {
  c.integer(r.layer);
  c.integer(r.cbid);
  c.integer(r.name);
}

template <class C, class R>
void code_one(C& c, R& r, const LibraryDef&) {
  c.integer(r.function);
  c.integer(r.kind);
  c.integer(r.m);
  c.integer(r.n);
  c.integer(r.k);
  c.integer(r.batch);
  c.integer(r.type_a);
  c.integer(r.type_b);
  c.integer(r.type_d);
  c.integer(r.compute_type);
  c.integer(r.transpose_a);
  c.integer(r.transpose_b);
  c.integer(r.row_major);
  c.integer(r.epilogue);
  c.integer(r.detail);
  c.integer(r.heads);  // from here on not in the first files
  c.integer(r.kv_heads);
  c.integer(r.value_size);
  c.integer(r.mask);
}

template <class C, class R>
void code_one(C& c, R& r, const ModuleDef&) {
  c.integer(r.path);
  c.integer(r.build_id);
}

template <class C, class R>
void code_one(C& c, R& r, const MetricSetDef&) {
  c.integer(r.source);
  c.integer(r.gpu_uuid);
  c.integer(r.count);
  const int32_t count = r.count < 0 ? 0 : r.count > kMetricsMax ? kMetricsMax : r.count;
  if constexpr (C::kReads) r.count = count;
  for (int32_t i = 0; i < count; ++i) c.integer(r.metrics[i]);
}

// ---- the rest
// ----------------------------------------------------------------------------------------------------------

template <class C, class R>
void code_one(C& c, R& r, const DeviceDef&) {
  c.integer(r.device);
  c.integer(r.name);
  c.integer(r.sm_count);
  c.integer(r.compute_major);
  c.integer(r.compute_minor);
  c.integer(r.memory_bytes);
  c.integer(r.threads_per_sm_max);
  c.integer(r.registers_per_sm);
  c.integer(r.shared_bytes_per_sm);
  c.integer(r.uuid);
  c.integer(r.pci_bus);
  c.integer(r.whole_uuid);
}

template <class C, class R>
void code_one(C& c, R& r, const RangeOpen& last) {
  c.integer(r.handle);
  c.integer(r.thread);
  c.integer(r.name);
  c.integer(r.domain);
  c.time(r.start_ns, last.start_ns);
  c.integer(r.process_wide);
}

template <class C, class R>
void code_one(C& c, R& r, const LaunchSite& last) {
  c.time(r.time_ns, last.time_ns);
  c.integer(r.thread);
  c.integer(r.function);
  c.integer(r.stack);
  c.integer(r.correlation);
  c.integer(r.frame_count);  // from here on not in the first files
  const int32_t count = r.frame_count < 0 ? 0 : r.frame_count > kFramesMax ? kFramesMax : r.frame_count;
  if constexpr (C::kReads) r.frame_count = count;
  for (int32_t i = 0; i < count; ++i) {
    c.integer(r.frames[i].module);
    c.integer(r.frames[i].offset);
  }
}

template <class C, class R>
void code_one(C& c, R& r, const CallTarget& last) {
  c.delta(r.correlation, last.correlation);
  c.integer(r.stream);
  c.delta(r.event, last.event);
}

template <class C, class R>
void code_one(C& c, R& r, const GraphEdge& last) {
  c.delta(r.node, last.node);
  c.delta(r.after, last.after);
}

template <class C, class R>
void code_one(C& c, R& r, const NodePlace& last) {
  c.delta(r.node, last.node);
  c.integer(r.stack);
}

template <class C, class R>
void code_one(C& c, R& r, const ProductRows& last) {
  c.time(r.time_ns, last.time_ns);
  c.integer(r.thread);
  c.delta(r.rows, last.rows);
}

template <class C, class R>
void code_one(C& c, R& r, const HostPlace& last) {
  c.integer(r.kind);
  c.integer(r.thread);
  c.integer(r.stack);
  c.time(r.end_ns, last.end_ns);
  c.below(r.start_ns, r.end_ns);
}

template <class C, class R>
void code_one(C& c, R& r, const HostPace& last) {
  c.integer(r.thread);
  c.time(r.end_ns, last.end_ns);
  c.below(r.start_ns, r.end_ns);
  c.integer(r.waited_ns);
}

template <class C, class R>
void code_one(C& c, R& r, const CpuReading& last) {
  c.integer(r.thread);
  c.time(r.end_ns, last.end_ns);
  c.below(r.start_ns, r.end_ns);
  c.delta(r.cpu_ns, last.cpu_ns);
}

template <class C, class R>
void code_one(C& c, R& r, const ClockReading& last) {
  c.time(r.realtime_ns, last.realtime_ns);
  c.delta(r.monotonic_raw_ns, last.monotonic_raw_ns);
  c.delta(r.cupti_ns, last.cupti_ns);
}

template <class C, class R>
void code_one(C& c, R& r, const LevelChange& last) {
  c.time(r.time_ns, last.time_ns);
  c.integer(r.level);
  c.integer(r.reason);
}

template <class C, class R>
void code_one(C& c, R& r, const Note&) {
  c.integer(r.key);
  c.integer(r.text);
  c.integer(r.count);
}

template <class C, class R>
void code_one(C& c, R& r, const Fact&) {
  c.integer(r.key);
  c.integer(r.value);
}

template <class C, class R>
void code_one(C& c, R& r, const NvmlSample& last) {
  c.integer(r.gpu_uuid);
  c.time(r.time_ns, last.time_ns);
  c.real(r.gpu_util_frac, last.gpu_util_frac);
  c.real(r.memory_util_frac, last.memory_util_frac);
  c.real(r.sm_clock_mhz, last.sm_clock_mhz);
  c.real(r.memory_clock_mhz, last.memory_clock_mhz);
  c.real(r.power_w, last.power_w);
  c.real(r.energy_j, last.energy_j);
  c.real(r.temperature_c, last.temperature_c);
  c.real(r.memory_temperature_c, last.memory_temperature_c);
  c.delta(r.memory_used_bytes, last.memory_used_bytes);
  c.integer(r.throttle_reasons);
  c.delta(r.throttle_power_ns, last.throttle_power_ns);
  c.delta(r.throttle_thermal_sw_ns, last.throttle_thermal_sw_ns);
  c.delta(r.throttle_thermal_hw_ns, last.throttle_thermal_hw_ns);
  c.delta(r.throttle_brake_ns, last.throttle_brake_ns);
  c.delta(r.throttle_sync_boost_ns, last.throttle_sync_boost_ns);
  c.real(r.pcie_rx_bytes_per_s, last.pcie_rx_bytes_per_s);
  c.real(r.pcie_tx_bytes_per_s, last.pcie_tx_bytes_per_s);
}

template <class C, class R>
void code_one(C& c, R& r, const Closed& last) {
  c.time(r.time_ns, last.time_ns);
  c.integer(r.error);
  c.integer(r.records);
  c.integer(r.lost_records);
}

}  // namespace llmprof::spool
