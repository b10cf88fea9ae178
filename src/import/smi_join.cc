#include "import/smi_join.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "import/importer.h"
#include "import/utilisation_check.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

constexpr int64_t kJoinSecondNs = 1'000'000'000, kJoinMsNs = 1'000'000;
constexpr int64_t kZoneStepNs = 900 * kJoinSecondNs;
constexpr int64_t kZoneStepsWest = 48, kZoneStepsEast = 56;  // UTC-12 to UTC+14
// Readings further out say nothing of the recording: sensors refresh within a second.
constexpr int64_t kKeptBesideNs = 5 * kJoinSecondNs;

struct UnixSpan {
  int64_t from_ns = 0, to_ns = 0;
};

std::optional<UnixSpan> work_of(const Trace& trace) {
  const GpuOps& ops = trace.gpu_ops;
  if (ops.empty() || trace.base_unix_ns == 0) return std::nullopt;
  UnixSpan out{INT64_MAX, INT64_MIN};
  for (Row op = 0; op < ops.size(); ++op) {
    out.from_ns = std::min(out.from_ns, ops.start_ns[op]);
    out.to_ns = std::max(out.to_ns, ops.start_ns[op] + ops.dur_ns[op]);
  }
  return UnixSpan{out.from_ns + trace.base_unix_ns, out.to_ns + trace.base_unix_ns};
}

// Times are printed cut to seconds or milliseconds.
int64_t resolution_ns(const Trace& part) {
  int64_t out = kJoinSecondNs;
  for (const int64_t time : part.nvml_samples.time_ns) {
    const int64_t printed = time + part.base_unix_ns;
    if (printed % kJoinSecondNs != 0) out = std::min(out, kJoinMsNs);
    if (printed % kJoinMsNs != 0) return 1;
  }
  return out;
}

// Zones, as nanoseconds east of UTC, in which the log and the recording overlap.
std::vector<int64_t> zones(const UnixSpan& local, const UnixSpan& work, int64_t resolution) {
  std::vector<int64_t> out;
  for (int64_t step = -kZoneStepsWest; step <= kZoneStepsEast; ++step) {
    const int64_t zone = step * kZoneStepNs;
    if (local.from_ns - zone < work.to_ns && work.from_ns < local.to_ns - zone + resolution) out.push_back(zone);
  }
  return out;
}

std::string zone_text(int64_t zone_ns) {
  const int64_t minutes = std::abs(zone_ns) / (60 * kJoinSecondNs);
  return fmt::format("UTC{}{:02}:{:02}", zone_ns < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

std::string_view bare_uuid(std::string_view uuid) { return uuid.substr(uuid.starts_with("GPU-") ? 4 : 0); }

struct GpuMatch {
  std::map<int32_t, int32_t> to;  // ordinal in the log -> in the recording
  size_t by_uuid = 0, by_index = 0, only_in_log = 0, only_in_recording = 0;
};

// By uuid where both have one, else by index, unless names differ.
GpuMatch match_gpus(const Trace& part, const Trace& whole) {
  GpuMatch out;
  std::set<int32_t> used(whole.streams.device.begin(), whole.streams.device.end());
  const auto uuid = [](const Trace& trace, Row row) { return bare_uuid(trace.text(trace.devices.uuid[row])); };
  const auto name = [](const Trace& trace, Row row) { return trace.text(trace.devices.name[row]); };
  std::set<int32_t> matched;
  for (Row own = 0; own < part.devices.size(); ++own) {
    std::optional<int32_t> found;
    bool contradicted = false, same_uuid = false;
    for (Row row = 0; row < whole.devices.size(); ++row) {
      const bool uuids = !uuid(part, own).empty() && !uuid(whole, row).empty();
      const bool same_index = whole.devices.device[row] == part.devices.device[own];
      if (uuids && uuid(part, own) == uuid(whole, row)) {
        found = whole.devices.device[row];
        same_uuid = true;
        break;
      }
      const bool names = !name(part, own).empty() && !name(whole, row).empty();
      if (same_index) contradicted = uuids || (names && name(part, own) != name(whole, row));
    }
    if (!found && !contradicted && used.count(part.devices.device[own]) != 0) found = part.devices.device[own];
    if (!found || used.count(*found) == 0 || !matched.insert(*found).second) {
      ++out.only_in_log;
      continue;
    }
    ++(same_uuid ? out.by_uuid : out.by_index);
    out.to[part.devices.device[own]] = *found;
  }
  used.erase(-1);
  out.only_in_recording = used.size() - std::min(used.size(), matched.size());
  return out;
}

struct Placement {
  int64_t shift_ns = 0, half_ns = 0;
  UnixSpan work{};  // on the epoch of the recording
  size_t inside = 0, outside = 0, of_others = 0;
};

// Moves the readings of matched GPUs; leaves those in and near the recording.
void place(NvmlSamples& samples, const GpuMatch& gpus, Placement& placement) {
  std::vector<Row> kept;
  for (Row row = 0; row < samples.size(); ++row) {
    const auto gpu = gpus.to.find(samples.device[row]);
    if (gpu == gpus.to.end()) {
      ++placement.of_others;
      continue;
    }
    const int64_t time = samples.time_ns[row] + placement.shift_ns;
    const bool inside =
        time - placement.half_ns >= placement.work.from_ns && time + placement.half_ns <= placement.work.to_ns;
    ++(inside ? placement.inside : placement.outside);
    if (time < placement.work.from_ns - kKeptBesideNs || time > placement.work.to_ns + kKeptBesideNs) continue;
    samples.device[row] = gpu->second;
    samples.time_ns[row] = time;
    kept.push_back(row);
  }
  samples.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
    for (size_t i = 0; i < kept.size(); ++i) column[i] = column[kept[i]];
    column.resize(kept.size());
  });
}

int64_t shift_of(const Trace& part, const Trace& whole, int64_t zone, int64_t half_ns) {
  return part.base_unix_ns - zone - whole.base_unix_ns + half_ns;
}

struct ZoneByUtilisation {
  std::optional<int64_t> zone{};
  UtilisationAgreement load{};
};

// The only zone; of several the one whose utilisation agrees, where that of all others contradicts.
ZoneByUtilisation choose_zone(const Trace& part, const Trace& whole, const std::vector<int64_t>& zones,
                              const GpuMatch& gpus, int64_t half_ns) {
  const RecordedBusy recorded(whole);
  ZoneByUtilisation out;
  size_t contradicted = 0;
  for (const int64_t zone : zones) {
    const UtilisationAgreement load =
        recorded.compare(part.nvml_samples, gpus.to, shift_of(part, whole, zone, half_ns), half_ns);
    if (zones.size() == 1 || load.agrees()) out = {zone, load};
    contradicted += load.contradicts() ? 1 : 0;
  }
  if (zones.size() > 1 && contradicted + 1 != zones.size()) return {};
  return out;
}

std::string placed_text(int64_t zone, size_t zones, const GpuMatch& gpus, const Placement& placement) {
  return fmt::format(
      "local times read as {}, the only zone in which it overlaps the recording{}; each reading was taken 0 to "
      "{:g} ms after its time, if both clocks are of one machine. {} readings lie within the recording, {} outside or "
      "at its edge. GPUs matched: {} by uuid, {} by index; only in the log: {}, only in the recording: {}",
      zone_text(zone), zones > 1 ? " and its GPU utilisation agrees" : "",
      static_cast<double>(2 * placement.half_ns) / 1e6, placement.inside, placement.outside, gpus.by_uuid,
      gpus.by_index, gpus.only_in_log, gpus.only_in_recording);
}

std::string not_matched_text(const Placement& placement) {
  std::string out;
  if (placement.outside > 0) out = fmt::format("{} lie outside the recording or at its edge", placement.outside);
  if (placement.of_others > 0)
    out += fmt::format("{}{} are of GPUs that are not in it", out.empty() ? "" : ", ", placement.of_others);
  return out;
}

// Why they were not placed; empty where they were, and `how` and `row` say how.
std::string try_to_place(Trace& part, Trace& whole, std::string& how, JoinedFiles::Values& row) {
  NvmlSamples& samples = part.nvml_samples;
  if (part.source.kind == kDcgmDmonImporter)
    return "dcgmi dmon prints no times: log with `nvidia-smi dmon -o DT` or --query-gpu, or record with `llmprof run`";
  if (part.base_unix_ns == 0 || part.diagnostics.count(DiagnosticId::kAssumedTimes) > 0)
    return "its lines have no date and time of the years 1970 to 2262: log with `nvidia-smi dmon -o DT`, or query "
           "timestamp";
  const std::optional<UnixSpan> work = work_of(whole);
  if (!work) return "the recording has no GPU work, or does not say when it was made";
  const std::vector<int64_t>& placed = whole.files_joined.uncertain_ns;
  if (!whole.nvml_samples.empty() && std::none_of(placed.begin(), placed.end(), [](int64_t ns) { return ns >= 0; }))
    return "the recording has readings of its own";
  if (samples.empty()) return "it has no readings";
  const auto [first, last] = std::minmax_element(samples.time_ns.begin(), samples.time_ns.end());
  const int64_t resolution = resolution_ns(part);
  const std::vector<int64_t> found = zones({*first + part.base_unix_ns, *last + part.base_unix_ns}, *work, resolution);
  if (found.empty()) return "it overlaps the recording in no time zone";
  const GpuMatch gpus = match_gpus(part, whole);
  if (gpus.to.empty()) return "none of its GPUs is in the recording, by uuid, index and name";
  const ZoneByUtilisation chosen = choose_zone(part, whole, found, gpus, resolution / 2);
  if (!chosen.zone)
    return fmt::format(
        "its zone is not known, it overlaps the recording in {} of them, {} to {}, and GPU utilisation does not tell "
        "them apart: leave the quarter of an hour around the recording in it",
        found.size(), zone_text(found.front()), zone_text(found.back()));
  for (const int32_t device : whole.nvml_samples.device)
    for (const auto& [own, to] : gpus.to)
      if (to == device) return "another log has readings of the same GPU";
  Placement placement;
  placement.half_ns = resolution / 2;
  placement.shift_ns = shift_of(part, whole, *chosen.zone, placement.half_ns);
  placement.work = {work->from_ns - whole.base_unix_ns, work->to_ns - whole.base_unix_ns};
  place(samples, gpus, placement);
  how = placed_text(*chosen.zone, found.size(), gpus, placement);
  TraceBuilder builder(whole);
  row.joined_by = builder.text(fmt::format("time{} and GPU {}", found.size() > 1 ? ", utilisation" : "",
                                           gpus.by_uuid == 0    ? "index"
                                           : gpus.by_index == 0 ? "uuid"
                                                                : "uuid or index"));
  row.shift_ns = placement.half_ns - *chosen.zone;
  if (const UtilisationAgreement& load = chosen.load; load.compared > 0) {
    row.compared = load.compared;
    if (load.tells_time() || load.contradicts()) row.agreeing = load.agreeing;
  }
  row.uncertain_ns = 2 * placement.half_ns;
  row.matched = static_cast<int64_t>(placement.inside);
  row.not_matched = builder.text(not_matched_text(placement));
  return {};
}

}  // namespace

JoinedFiles::Values join_readings(const std::string& name, Trace part, Trace& whole) {
  JoinedFiles::Values row;
  row.records = static_cast<int64_t>(part.nvml_samples.size());
  std::string how;
  const std::string why_not = try_to_place(part, whole, how, row);
  TraceBuilder builder(whole);
  if (why_not.empty()) {
    whole.diagnostics.add(DiagnosticId::kReadingsPlaced, name + ": " + how);
    if (row.agreeing >= 0 && row.compared >= 6 && 4 * row.agreeing < 3 * row.compared)
      whole.diagnostics.add(
          DiagnosticId::kReadingsContradict,
          fmt::format("{}: {} of {} readings of GPU utilisation agree with the recording; the log may "
                      "be of another GPU or machine, its clock may differ, or another program ran",
                      name, row.agreeing, row.compared));
    whole.metadata.insert(part.metadata.begin(), part.metadata.end());
  } else {
    row.matched = 0;
    row.not_matched = builder.text(why_not);
    part.nvml_samples = NvmlSamples();
    part.gpu_samples = GpuSamples();
  }
  part.recorded = Recorded();  // a log records no kernels
  part.devices = Devices();    // those of the recording hold
  builder.append(std::move(part));
  return row;
}

}  // namespace llmprof
