#include "import/session_spool.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "import/session_records.h"

namespace llmprof::session_importer {

// ---- definitions -------------------------------------------------------------------------------------------------

LaunchConfigId SpoolReader::add_config(const spool::KernelDef& def) {
  const int64_t fixed = std::max<int64_t>(def.static_shared_bytes, 0);
  const int64_t dynamic = std::max<int64_t>(def.dynamic_shared_bytes, 0);
  const bool known = def.static_shared_bytes >= 0 || def.dynamic_shared_bytes >= 0;
  return builder_.launch_config(
      {.grid_x = def.grid[0],
       .grid_y = def.grid[1],
       .grid_z = def.grid[2],
       .block_x = def.block[0],
       .block_y = def.block[1],
       .block_z = def.block[2],
       .registers_per_thread = def.registers_per_thread,
       .shared_bytes = !known || fixed > INT32_MAX || dynamic > INT32_MAX ? -1 : fixed + dynamic});
}

StringId SpoolReader::kernel_name(spool::Id id) {
  const auto [at, fresh] = kernel_names_.try_emplace(id, StringId::kEmpty);
  if (fresh) at->second = builder_.text(demangled(trace_.text(text(id))));
  return at->second;
}

void SpoolReader::operator()(const spool::KernelDef& def) {
  const StreamId on_stream = stream(def.stream);
  kernels_.push_back({kernel_name(def.name), on_stream, add_config(def)});
  define(def.id, Kind::kKernel, static_cast<Row>(kernels_.size() - 1));
}

void SpoolReader::operator()(const spool::DeviceDef& def) {
  Devices& devices = trace_.devices;
  if (std::find(devices.device.begin(), devices.device.end(), def.device) != devices.device.end()) return;
  constexpr size_t kDevicesMax = 1024;
  if (devices.size() >= kDevicesMax) return problem(DiagnosticId::kLimitReached, "more than 1024 GPUs");
  builder_.add<Devices>({.device = def.device,
                         .name = text(def.name),
                         .sm_count = def.sm_count,
                         .compute_major = def.compute_major,
                         .compute_minor = def.compute_minor,
                         .memory_bytes = def.memory_bytes,
                         .threads_per_sm_max = def.threads_per_sm_max,
                         .registers_per_sm = def.registers_per_sm,
                         .shared_bytes_per_sm = def.shared_bytes_per_sm,
                         .uuid = text(def.uuid),
                         .whole_uuid = text(def.whole_uuid)});
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
  set.source = trace_.text(text(def.source)) == "gpm" ? CounterSource::kGpm : CounterSource::kPmSampling;
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
  builder_.add<NvmlSamples>({.time_ns = time_ns,
                             .device = -1,
                             .gpu_util_frac = r.gpu_util_frac,
                             .memory_util_frac = r.memory_util_frac,
                             .sm_clock_mhz = r.sm_clock_mhz,
                             .memory_clock_mhz = r.memory_clock_mhz,
                             .power_w = r.power_w,
                             .energy_j = r.energy_j,
                             .temperature_c = r.temperature_c,
                             .memory_temperature_c = r.memory_temperature_c,
                             .memory_used_bytes = r.memory_used_bytes,
                             .throttle_reasons = r.throttle_reasons,
                             .throttle_power_ns = r.throttle_power_ns,
                             .throttle_thermal_sw_ns = r.throttle_thermal_sw_ns,
                             .throttle_thermal_hw_ns = r.throttle_thermal_hw_ns,
                             .throttle_brake_ns = r.throttle_brake_ns,
                             .throttle_sync_boost_ns = r.throttle_sync_boost_ns,
                             .pcie_rx_bytes_per_s = r.pcie_rx_bytes_per_s,
                             .pcie_tx_bytes_per_s = r.pcie_tx_bytes_per_s});
  file_.nvml_sample_uuids.push_back(text(r.gpu_uuid));
}

void SpoolReader::operator()(const spool::GpuSample& r) {
  int64_t start_ns = 0, dur_ns = 0;
  const Row row = find(r.set, Kind::kMetricSet);
  if (row == kNoRow || !span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  const MetricSet& set = metric_sets_[row];
  builder_.add<GpuSamples>({.start_ns = start_ns, .dur_ns = dur_ns, .device = -1, .source = set.source});
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
  for (size_t i = 0; i < levels_.size(); ++i) {
    const int64_t end_ns = i + 1 < levels_.size() ? levels_[i + 1].time_ns : last_ns_;
    builder_.add<Recorded>({.start_ns = levels_[i].time_ns,
                            .dur_ns = std::max<int64_t>(end_ns - levels_[i].time_ns, 0),
                            .process_id = file_.head.process_id,
                            .level = static_cast<RecordingLevel>(levels_[i].level),
                            .reason = levels_[i].reason,
                            .cut_ns = 0});
  }
}

// A copy may come with the time of a later flush as its end, whether records went off by then or not: what began behind
// it on its stream says that it was over. Looked for among what runs into time without records, and among long copies.
// Nodes of a graph need not follow each other.
void SpoolReader::correct_ends(const std::vector<std::pair<int64_t, int64_t>>& off) {
  constexpr int64_t kOverlapMinNs = 100'000;
  GpuOps& ops = trace_.gpu_ops;
  const auto end_of = [&](Row row) { return ops.start_ns[row] + ops.dur_ns[row]; };
  // When records went off while it ran.
  const auto off_within = [&](Row row) -> std::optional<int64_t> {
    const auto next = std::upper_bound(off.begin(), off.end(),
                                       std::make_pair(ops.start_ns[row], std::numeric_limits<int64_t>::max()));
    return next != off.end() && next->first < end_of(row) ? std::optional(next->first) : std::nullopt;
  };
  std::map<StreamId, std::vector<std::pair<int64_t, Row>>> late;  // by start
  for (Row row = 0; row < ops.size(); ++row) {
    if (ops.graph_node[row] != 0) continue;
    const bool long_copy = ops.kind[row] != GpuOpKind::kKernel && ops.dur_ns[row] > kOverlapMinNs;
    if (long_copy || off_within(row)) late[ops.stream[row]].emplace_back(ops.start_ns[row], row);
  }
  if (late.empty()) return;
  std::map<Row, int64_t> next_ns;
  for (auto& [stream, starts] : late) std::sort(starts.begin(), starts.end());
  for (Row row = 0; row < ops.size(); ++row) {
    const auto found = late.find(ops.stream[row]);
    if (found == late.end()) continue;
    const auto behind = std::lower_bound(found->second.begin(), found->second.end(),
                                         std::make_pair(ops.start_ns[row], std::numeric_limits<Row>::min()));
    if (behind == found->second.begin()) continue;
    int64_t& next = next_ns.try_emplace(std::prev(behind)->second, ops.start_ns[row]).first->second;
    next = std::min(next, ops.start_ns[row]);
  }
  for (const auto& [row, next] : next_ns) {
    const bool overlaps = ops.kind[row] != GpuOpKind::kKernel && end_of(row) - next >= kOverlapMinNs;
    const std::optional<int64_t> off_ns = off_within(row);
    if (!overlaps && !(off_ns && next < *off_ns)) continue;
    ops.dur_ns[row] = next - ops.start_ns[row];
    trace_.diagnostics.add(DiagnosticId::kLateEnd, std::string(trace_.text(ops.name[row])));
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
  correct_ends(off);
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
  ops.for_each_column([&](const FieldInfo&, auto& column) {
    size_t to = 0;
    for (size_t from = 0; from < column.size(); ++from)
      if (keep[from] != 0) column[to++] = column[from];
    column.resize(to);
  });
  trace_.diagnostics.add(DiagnosticId::kEdgeActivity, file_.name, dropped);
}

// Instantiation copies nodes, and copies may be copied again: goes back until a node that was captured under a call, or
// at a known place.
void SpoolReader::finish_graph_nodes() {
  FlatMap by_node(graph_nodes_.size()), place_by_node(node_places_.size());
  for (uint32_t i = 0; i < graph_nodes_.size(); ++i) by_node.find_or_insert(graph_nodes_[i].node, i) = i;
  for (uint32_t i = 0; i < node_places_.size(); ++i) {
    place_by_node.find_or_insert(node_places_[i].node, i) = i;
  }
  for (uint32_t i = 0; i < graph_nodes_.size(); ++i) {
    if (by_node.find(graph_nodes_[i].node) != i) continue;  // an earlier node of the same id
    constexpr int kHopsMax = 64;
    const spool::GraphNode* node = &graph_nodes_[i];
    uint64_t first = node->node;  // that it is a copy of
    for (int hop = 0; hop < kHopsMax && node->call == 0 && node->original != 0; ++hop) {
      first = node->original;
      const uint32_t original = by_node.find(node->original);
      if (original == kNoRow) break;
      node = &graph_nodes_[original];
    }
    if (const uint32_t place = place_by_node.find(first); place != kNoRow)
      builder_.add<NodePlaces>({.node = unique(graph_nodes_[i].node), .stack = text(node_places_[place].stack)});
    const Row call = node->call == 0 ? kNoRow : row_by_call_.find(node->call);
    if (call == kNoRow) continue;
    builder_.add<GraphNodes>({.node = unique(graph_nodes_[i].node), .library_call = call});
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
  finish_diagnostics(summary);
}

void read_spool(SpoolTables& file, int64_t base_ns) {
  SpoolReader reader(file, base_ns);
  reader.finish(spool::read(file.bytes, reader));
  file.bytes = std::string();
}

}  // namespace llmprof::session_importer
