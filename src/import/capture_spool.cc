#include "import/capture_spool.h"

#include <cmath>
#include <cstring>
#include <unordered_map>

#include "import/capture_records.h"

namespace llmprof::capture {

// ---- definitions -------------------------------------------------------------------------------------------------

Row SpoolReader::add_thread(int64_t thread_id, StringId name) {
  Threads& threads = trace_.threads;
  const Row row = thread_index_.find_or_add(
      mix_bits(static_cast<uint64_t>(thread_id)), [&](Row other) { return threads.thread_id[other] == thread_id; },
      [&] {
        threads.process_id.push_back(file_.head.process_id);
        threads.thread_id.push_back(thread_id);
        threads.name.push_back(StringId::kEmpty);
        return static_cast<Row>(threads.size() - 1);
      });
  if (name != StringId::kEmpty) threads.name[row] = name;
  return row;
}

Row SpoolReader::add_stream(int32_t device, int64_t context, int64_t stream) {
  Streams& streams = trace_.streams;
  const uint64_t hash =
      mix_hash(mix_hash(static_cast<uint64_t>(device), static_cast<uint64_t>(context)), static_cast<uint64_t>(stream));
  return stream_index_.find_or_add(
      hash,
      [&](Row row) {
        return streams.device[row] == device && streams.context[row] == context && streams.stream[row] == stream;
      },
      [&] {
        streams.device.push_back(device);
        streams.context.push_back(context);
        streams.stream.push_back(stream);
        return static_cast<Row>(streams.size() - 1);
      });
}

Row SpoolReader::add_config(const spool::KernelDef& def, int32_t device) {
  LaunchConfigs& table = trace_.launch_configs;
  const int64_t fixed = std::max<int64_t>(def.static_shared_bytes, 0);
  const int64_t dynamic = std::max<int64_t>(def.dynamic_shared_bytes, 0);
  const bool known = def.static_shared_bytes >= 0 || def.dynamic_shared_bytes >= 0;
  const int64_t shared = !known || fixed > INT32_MAX || dynamic > INT32_MAX ? -1 : fixed + dynamic;
  uint64_t hash = mix_hash(static_cast<uint64_t>(def.registers_per_thread), static_cast<uint64_t>(shared));
  hash = mix_hash(hash, static_cast<uint64_t>(device));
  for (int i = 0; i < 3; ++i)
    hash = mix_hash(hash, static_cast<uint64_t>(def.grid[i]) << 32 | static_cast<uint32_t>(def.block[i]));
  return config_index_.find_or_add(
      hash,
      [&](Row row) {
        return table.grid_x[row] == def.grid[0] && table.grid_y[row] == def.grid[1] &&
               table.grid_z[row] == def.grid[2] && table.block_x[row] == def.block[0] &&
               table.block_y[row] == def.block[1] && table.block_z[row] == def.block[2] &&
               table.registers_per_thread[row] == def.registers_per_thread && table.shared_bytes[row] == shared &&
               file_.config_devices[row] == device;
      },
      [&] {
        table.grid_x.push_back(def.grid[0]);
        table.grid_y.push_back(def.grid[1]);
        table.grid_z.push_back(def.grid[2]);
        table.block_x.push_back(def.block[0]);
        table.block_y.push_back(def.block[1]);
        table.block_z.push_back(def.block[2]);
        table.registers_per_thread.push_back(def.registers_per_thread);
        table.shared_bytes.push_back(shared);
        table.occupancy_frac.push_back(kNoFloat);
        table.blocks_per_sm.push_back(kNoFloat);
        table.warps_per_sm.push_back(kNoFloat);
        file_.config_devices.push_back(device);
        return static_cast<Row>(table.size() - 1);
      });
}

StringId SpoolReader::kernel_name(spool::Id id) {
  const auto [at, fresh] = kernel_names_.try_emplace(id, StringId::kEmpty);
  if (fresh) at->second = trace_.strings.intern(demangled(trace_.text(text(id))));
  return at->second;
}

void SpoolReader::operator()(const spool::KernelDef& def) {
  const Row row = stream(def.stream);
  kernels_.push_back({kernel_name(def.name), row, add_config(def, trace_.streams.device[row])});
  define(def.id, Kind::kKernel, static_cast<Row>(kernels_.size() - 1));
}

void SpoolReader::operator()(const spool::DeviceDef& def) {
  Devices& devices = trace_.devices;
  if (std::find(devices.device.begin(), devices.device.end(), def.device) != devices.device.end()) return;
  constexpr size_t kDevicesMax = 1024;
  if (devices.size() >= kDevicesMax) return problem(DiagnosticId::kLimitReached, "more than 1024 GPUs");
  devices.device.push_back(def.device);
  devices.name.push_back(text(def.name));
  devices.sm_count.push_back(def.sm_count);
  devices.compute_major.push_back(def.compute_major);
  devices.compute_minor.push_back(def.compute_minor);
  devices.memory_bytes.push_back(def.memory_bytes);
  devices.threads_per_sm_max.push_back(def.threads_per_sm_max);
  devices.registers_per_sm.push_back(def.registers_per_sm);
  devices.shared_bytes_per_sm.push_back(def.shared_bytes_per_sm);
  devices.uuid.push_back(text(def.uuid));
  devices.kind.push_back(ProcessorKind::kGpu);
  file_.device_uuids.push_back(text(def.uuid));
}

void SpoolReader::operator()(const spool::MetricSetDef& def) {
  MetricSet set{};
  set.columns.fill(-1);
  for (int32_t i = 0; i < def.count; ++i) {
    const std::string_view name = trace_.text(text(def.metrics[i]));
    const size_t at =
        static_cast<size_t>(std::find(sample_names_.begin(), sample_names_.end(), name) - sample_names_.begin());
    if (at < sample_names_.size())
      set.columns[static_cast<size_t>(i)] = static_cast<int8_t>(at);
    else
      trace_.diagnostics.add(DiagnosticId::kUnknownRecord, fmt::format("{}: metric '{}'", file_.name, name));
  }
  set.source = trace_.text(text(def.source)) == "gpm" ? 1 : 0;
  set.gpu_uuid = text(def.gpu_uuid);
  metric_sets_.push_back(set);
  define(def.id, Kind::kMetricSet, static_cast<Row>(metric_sets_.size() - 1));
}

// ---- the recording itself ------------------------------------------------------------------------------------------

void SpoolReader::operator()(const spool::ClockReading& r) {
  int64_t real_ns = 0, cupti_ns = 0;
  if (!moment(r.realtime_ns, real_ns) || r.cupti_ns == 0 || !moment(r.cupti_ns, cupti_ns)) return;
  file_.has_clock_offset = true;
  const int64_t offset_ns = cupti_ns - real_ns;
  if (std::abs(offset_ns) > std::abs(file_.clock_offset_ns)) file_.clock_offset_ns = offset_ns;
}

void SpoolReader::operator()(const spool::Note& r) {
  const std::string_view key = trace_.text(text(r.key));
  std::string where(trace_.text(text(r.text)));
  DiagnosticId id = DiagnosticId::kRecorderNote;
  bool known = false;
  for (size_t i = 0; i < kDiagnosticCount && !known; ++i) {
    known = diagnostic_table()[i].key == key;
    if (known) id = static_cast<DiagnosticId>(i);
  }
  if (!known && !key.empty()) where = fmt::format("{}: {}", key, where);
  // One that is told again and again, with what was added since, is one place.
  const std::vector<std::string>& places = trace_.diagnostics.places(id);
  if (std::find(places.begin(), places.end(), where) != places.end()) where.clear();
  trace_.diagnostics.add(id, std::move(where), std::max<uint64_t>(r.count, 1));
}

void SpoolReader::operator()(const spool::NvmlSample& r) {
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns)) return;
  NvmlSamples& table = trace_.nvml_samples;
  table.time_ns.push_back(time_ns);
  table.device.push_back(-1);
  table.gpu_util_frac.push_back(r.gpu_util_frac);
  table.memory_util_frac.push_back(r.memory_util_frac);
  table.sm_clock_mhz.push_back(r.sm_clock_mhz);
  table.memory_clock_mhz.push_back(r.memory_clock_mhz);
  table.power_w.push_back(r.power_w);
  table.energy_j.push_back(r.energy_j);
  table.temperature_c.push_back(r.temperature_c);
  table.memory_temperature_c.push_back(r.memory_temperature_c);
  table.memory_used_bytes.push_back(r.memory_used_bytes);
  table.throttle_reasons.push_back(r.throttle_reasons);
  table.throttle_power_ns.push_back(r.throttle_power_ns);
  table.throttle_thermal_sw_ns.push_back(r.throttle_thermal_sw_ns);
  table.throttle_thermal_hw_ns.push_back(r.throttle_thermal_hw_ns);
  table.throttle_brake_ns.push_back(r.throttle_brake_ns);
  table.throttle_sync_boost_ns.push_back(r.throttle_sync_boost_ns);
  table.pcie_rx_bytes_per_s.push_back(r.pcie_rx_bytes_per_s);
  table.pcie_tx_bytes_per_s.push_back(r.pcie_tx_bytes_per_s);
  file_.nvml_sample_uuids.push_back(text(r.gpu_uuid));
}

void SpoolReader::operator()(const spool::GpuSample& r) {
  int64_t start_ns = 0, dur_ns = 0;
  const Row row = find(r.set, Kind::kMetricSet);
  if (row == kNoRow || !span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  const MetricSet& set = metric_sets_[row];
  GpuSamples& table = trace_.gpu_samples;
  table.start_ns.push_back(start_ns);
  table.dur_ns.push_back(dur_ns);
  table.device.push_back(-1);
  table.source.push_back(set.source);
  for (std::vector<float>* column : sample_columns_) column->push_back(kNoFloat);
  for (size_t i = 0; i < set.columns.size(); ++i)
    if (set.columns[i] >= 0) sample_columns_[static_cast<size_t>(set.columns[i])]->back() = r.values[i];
  file_.gpu_sample_uuids.push_back(set.gpu_uuid);
}

void SpoolReader::operator()(const spool::Closed& r) {
  int64_t time_ns = 0;
  moment(r.time_ns, time_ns);  // open ranges and the last level end here
  if (r.error != 0)
    trace_.diagnostics.add(DiagnosticId::kSpoolUnwritable, fmt::format("{}: {}", file_.name, std::strerror(r.error)));
  if (r.lost_records != 0) trace_.diagnostics.add(DiagnosticId::kLostRecords, file_.name, r.lost_records);
}

// ---- after the last record
// -------------------------------------------------------------------------------------------

void SpoolReader::close_open_ranges() {
  for (const OpenRange& open : open_ranges_) {
    int64_t start_ns = 0;
    if (open.closed || !moment(open.record.start_ns, start_ns)) continue;
    const StringId name = text(open.record.name);
    add_annotation(thread(open.record.thread), name, text(open.record.domain), start_ns,
                   std::max(last_ns_, start_ns) - start_ns, kNoDouble);
    trace_.diagnostics.add(DiagnosticId::kUnfinishedRange,
                           fmt::format("'{}' was open when process {} ended; it counts until then", trace_.text(name),
                                       file_.head.process_id));
  }
}

void SpoolReader::finish_levels() {
  std::stable_sort(levels_.begin(), levels_.end(),
                   [](const LevelAt& a, const LevelAt& b) { return a.time_ns < b.time_ns; });
  Recorded& table = trace_.recorded;
  for (size_t i = 0; i < levels_.size(); ++i) {
    const int64_t end_ns = i + 1 < levels_.size() ? levels_[i + 1].time_ns : last_ns_;
    table.start_ns.push_back(levels_[i].time_ns);
    table.dur_ns.push_back(std::max<int64_t>(end_ns - levels_[i].time_ns, 0));
    table.process_id.push_back(file_.head.process_id);
    table.level.push_back(static_cast<RecordingLevel>(levels_[i].level));
    table.reason.push_back(levels_[i].reason);
    table.cut_ns.push_back(0);
  }
}

// Where the recording of kernels was switched off, what was in flight comes without its true end (CUPTI stamps it with
// the time of the next flush), and what starts later is recorded by chance: neither belongs to the recorded time.
void SpoolReader::drop_unrecorded() {
  Recorded& levels = trace_.recorded;
  GpuOps& ops = trace_.gpu_ops;
  std::vector<std::pair<int64_t, int64_t>> off;  // in time order, not overlapping
  std::vector<Row> off_rows;
  bool was_on = false;
  for (Row row = 0; row < levels.size(); ++row) {
    const bool on = levels.level[row] >= RecordingLevel::kDefault;
    if (was_on && !on) {
      off.emplace_back(levels.start_ns[row], levels.start_ns[row] + levels.dur_ns[row]);
      off_rows.push_back(row);
    }
    was_on = was_on || on;
  }
  if (off.empty()) return;
  std::vector<uint8_t> keep(ops.size(), 1);
  size_t dropped = 0;
  std::unordered_map<uint64_t, Row> cut;  // correlation of a dropped activity -> row of levels that cut it
  for (Row row = 0; row < ops.size(); ++row) {
    const int64_t start_ns = ops.start_ns[row], end_ns = start_ns + ops.dur_ns[row];
    const auto after =
        std::upper_bound(off.begin(), off.end(), std::make_pair(end_ns, std::numeric_limits<int64_t>::min()));
    // The last window that begins before the activity ends; earlier ones end before that one begins.
    if (after == off.begin() || std::prev(after)->second <= start_ns) continue;
    keep[row] = 0;
    ++dropped;
    cut.emplace(ops.correlation[row], off_rows[static_cast<size_t>(std::prev(after) - off.begin())]);
  }
  if (dropped == 0) return;
  // Their launches may be long before: steps that hold one are not complete, wherever they end.
  for (Row call = 0; call < trace_.api_calls.size(); ++call) {
    const auto found = cut.find(trace_.api_calls.correlation[call]);
    if (found == cut.end()) continue;
    int64_t& cut_ns = levels.cut_ns[found->second];
    cut_ns = std::max(cut_ns, levels.start_ns[found->second] - trace_.api_calls.start_ns[call]);
  }
  ops.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
    size_t to = 0;
    for (size_t from = 0; from < column.size(); ++from)
      if (keep[from] != 0) column[to++] = column[from];
    column.resize(to);
  });
  trace_.diagnostics.add(DiagnosticId::kEdgeActivity, file_.name, dropped);
}

// Instantiation copies nodes, and copies may be copied again: goes back until a node that was captured under a call.
void SpoolReader::finish_graph_nodes() {
  FlatMap by_node(graph_nodes_.size());
  for (uint32_t i = 0; i < graph_nodes_.size(); ++i) by_node.find_or_insert(graph_nodes_[i].node, i) = i;
  for (uint32_t i = 0; i < graph_nodes_.size(); ++i) {
    if (by_node.find(graph_nodes_[i].node) != i) continue;  // an earlier node of the same id
    constexpr int kHopsMax = 64;
    const spool::GraphNode* node = &graph_nodes_[i];
    for (int hop = 0; hop < kHopsMax && node->call == 0 && node->original != 0; ++hop) {
      const uint32_t original = by_node.find(node->original);
      if (original == kNoRow) break;
      node = &graph_nodes_[original];
    }
    const Row call = node->call == 0 ? kNoRow : row_by_call_.find(node->call);
    if (call == kNoRow) continue;
    trace_.graph_nodes.node.push_back(unique(graph_nodes_[i].node));
    trace_.graph_nodes.library_call.push_back(call);
  }
}

void SpoolReader::finish_configs() {
  LaunchConfigs& table = trace_.launch_configs;
  const Devices& devices = trace_.devices;
  constexpr float kWarpThreads = 32;
  for (Row row = 0; row < table.size(); ++row) {
    const auto at = std::find(devices.device.begin(), devices.device.end(), file_.config_devices[row]);
    if (at == devices.device.end()) continue;
    const int32_t sm_count = devices.sm_count[static_cast<size_t>(at - devices.device.begin())];
    if (sm_count <= 0) continue;
    const float blocks = static_cast<float>(table.grid_x[row]) * static_cast<float>(table.grid_y[row]) *
                         static_cast<float>(table.grid_z[row]);
    const float threads = static_cast<float>(table.block_x[row]) * static_cast<float>(table.block_y[row]) *
                          static_cast<float>(table.block_z[row]);
    table.blocks_per_sm[row] = blocks / static_cast<float>(sm_count);
    table.warps_per_sm[row] = table.blocks_per_sm[row] * threads / kWarpThreads;
  }
}

void SpoolReader::finish_diagnostics(const spool::ReadSummary& summary) {
  Diagnostics& found = trace_.diagnostics;
  if (summary.damaged_blocks != 0) found.add(DiagnosticId::kDamagedSpoolBlock, file_.name, summary.damaged_blocks);
  if (summary.unknown_records != 0) found.add(DiagnosticId::kUnknownRecord, file_.name, summary.unknown_records);
  if (!summary.closed)
    found.add(DiagnosticId::kUnfinishedSpool, fmt::format("{} (process {})", file_.name, file_.head.process_id));
  for (const auto& [call, count] : failures_)
    found.add(DiagnosticId::kRecorderNote, fmt::format("{} returned error {}", trace_.text(call.first), call.second),
              count);
}

void SpoolReader::finish(const spool::ReadSummary& summary) {
  close_open_ranges();
  finish_levels();
  drop_unrecorded();
  finish_graph_nodes();
  finish_configs();
  finish_diagnostics(summary);
}

void read_spool(SpoolTables& file, int64_t base_ns) {
  SpoolReader reader(file, base_ns);
  reader.finish(spool::read(file.bytes, reader));
  file.bytes = std::string();
}

}  // namespace llmprof::capture
