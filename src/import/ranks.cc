#include "import/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/json_document.h"
#include "base/parallel.h"
#include "import/importer.h"
#include "import/json_scan.h"
#include "trace/rank_collectives.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

// Hosts of one job have their clocks from one source; recordings further apart are of different runs.
constexpr double kClocksApartMostNs = 60e9;
// Without numbers of calls, recordings of other steps look alike: then clocks must not be further apart than that.
constexpr double kPauseMostNs = 1e9;
// Clocks drift by some microseconds a second, and recorders convert the times of GPUs; what contradicts itself by more
// has been matched with the wrong run.
constexpr double kContradictionMostNs = 1e6;
// Sums and differences of times stay in range.
constexpr int64_t kSpanMostNs = int64_t{3'000'000'000} * 100'000'000;  // ten years

struct RankPart {
  std::string path{};
  Trace trace{};
  Status status{};
  int64_t rank = -1, world_size = -1;
  std::string host{};
  std::vector<int32_t> devices{};  // that it uses, by its own ordinals
  int64_t epoch_shift_ns = 0;      // from its epoch to that of the first
  RankClock clock{};
  int64_t shift_ns() const { return clock.excludes_zero() ? static_cast<int64_t>(std::llround(clock.offset_ns)) : 0; }
};

// Of torch.profiler distributedInfo, of a session of llmprof the environment of torchrun.
void read_rank(RankPart& part) {
  const std::map<std::string, std::string>& facts = part.trace.metadata;
  if (const auto found = facts.find("distributedInfo"); found != facts.end()) {
    if (const Result<JsonDocument> info = JsonDocument::parse(found->second); info && info->root().is_object()) {
      part.rank = info->root()["rank"].integer().value_or(-1);
      part.world_size = info->root()["world_size"].integer().value_or(-1);
    }
  } else {
    const auto number = [&](const char* key) {
      int64_t value = -1;
      const auto fact = facts.find(key);
      return fact != facts.end() && json::parse_int(fact->second, value) ? value : -1;
    };
    part.rank = number("RANK");
    part.world_size = number("WORLD_SIZE");
  }
  if (part.rank < 0 || part.rank > INT32_MAX) part.rank = -1;
  if (part.world_size < 1 || part.world_size > INT32_MAX) part.world_size = -1;
  for (const char* key : {"hostname", "host_name", "host.name"})
    if (const auto host = facts.find(key); host != facts.end()) part.host = host->second;
}

// Readings of a sampler, which sees all GPUs of the machine.
template <class Table>
constexpr bool is_of_machine = std::is_same_v<Table, NvmlSamples> || std::is_same_v<Table, GpuSamples>;

// Ordinals of devices that anything but their description and readings names.
std::vector<int32_t> used_devices(const Trace& trace) {
  std::set<int32_t> used;
  trace.for_each_table([&]<class Table>(const Table& table) {
    if constexpr (std::is_same_v<Table, Devices> || is_of_machine<Table>) return;
    table.for_each_column([&]<class Column>(const FieldInfo& field, const Column& column) {
      if constexpr (std::is_same_v<typename Column::value_type, int32_t>) {
        if (field.role != ColumnRole::kDevice) return;
        int32_t last = -1;
        for (const int32_t device : column)
          if (device != last && (last = device) >= 0) used.insert(device);
      }
    });
  });
  return {used.begin(), used.end()};
}

// Ordinals of devices that run collectives.
std::set<int32_t> communicating_devices(const RankPart& part) {
  std::map<int32_t, uint32_t> all;
  for (const int32_t device : part.devices) all[device] = 0;
  std::vector<CollectiveCall> calls;
  add_collective_calls(part.trace, all, {0}, 0, calls);
  std::set<int32_t> out;
  for (const CollectiveCall& call : calls) out.insert(part.trace.device_of(call.op));
  return out;
}

// A recording of several ranks, as of a session around torchrun, or of a process that drives several GPUs.
Status check_that_it_is_of_one_rank(const RankPart& part) {
  const size_t gpus = communicating_devices(part).size();
  if (gpus > 1 || !part.trace.ranks.empty())
    return fail(fmt::format("expected recordings of one rank each, found one in which {} GPUs run collectives",
                            std::max(gpus, part.trace.ranks.size())),
                part.path, "analyze it alone: it holds several ranks already", ExitCode::kUsage);
  return {};
}

Status check_that_ranks_are_known(std::vector<RankPart>& parts) {
  const auto has_rank = [](const RankPart& part) { return part.rank >= 0; };
  const auto known = std::count_if(parts.begin(), parts.end(), has_rank);
  const auto size = static_cast<std::ptrdiff_t>(parts.size());
  if (known == 0) {
    const auto silent = std::find_if(parts.begin(), parts.end(),
                                     [](const RankPart& part) { return communicating_devices(part).empty(); });
    if (silent != parts.end())
      return fail(fmt::format("expected one recording, or those of several ranks of one job; found {}, and nothing "
                              "shows that they are of one job (no distributedInfo, no collectives)",
                              parts.size()),
                  (silent == parts.begin() ? parts[1] : *silent).path,
                  "analyze them one by one; of a job, name the traces that torch.profiler writes on each rank",
                  ExitCode::kUsage);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].rank = static_cast<int64_t>(i);
    return {};
  }
  if (known == size) return {};
  const auto lacking = std::find_if_not(parts.begin(), parts.end(), has_rank);
  return fail(fmt::format("expected the recordings of several ranks of one job, found no rank (distributedInfo) in "
                          "one of them; {} of {} have one",
                          known, size),
              lacking->path, "leave it out, or record it inside the job", ExitCode::kUsage);
}

// Puts them in the order of their ranks.
Status order_ranks(std::vector<RankPart>& parts) {
  LLMPROF_CHECK(check_that_ranks_are_known(parts));
  std::stable_sort(parts.begin(), parts.end(), [](const RankPart& a, const RankPart& b) { return a.rank < b.rank; });
  for (size_t i = 1; i < parts.size(); ++i)
    if (parts[i].rank == parts[i - 1].rank)
      return fail(fmt::format("expected each rank once, found rank {} twice", parts[i].rank),
                  parts[i - 1].path + " and " + parts[i].path, "name one of the two", ExitCode::kUsage);
  for (const RankPart& part : parts) {
    if (part.world_size != parts.front().world_size)
      return fail(
          fmt::format("expected ranks of one job, found that rank {} is of {} ranks ({}), rank {} of {}",
                      parts.front().rank, parts.front().world_size, parts.front().path, part.rank, part.world_size),
          part.path, "name the recordings of one job only", ExitCode::kUsage);
    if (part.world_size >= 0 && part.rank >= part.world_size)
      return fail(
          fmt::format("expected a rank below the number of ranks, found rank {} of {}", part.rank, part.world_size),
          part.path, "its distributedInfo is wrong: record it again", ExitCode::kUsage);
  }
  return {};
}

// ---- clocks --------------------------------------------------------------------------------------------------------

std::vector<CollectiveCall> calls_of(const std::vector<RankPart>& parts) {
  std::vector<int32_t> numbers;
  for (const RankPart& part : parts) numbers.push_back(static_cast<int32_t>(part.rank));
  std::vector<CollectiveCall> calls;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    std::map<int32_t, uint32_t> of_device;
    for (const int32_t device : parts[rank].devices) of_device[device] = static_cast<uint32_t>(rank);
    add_collective_calls(parts[rank].trace, of_device, numbers, parts[rank].epoch_shift_ns, calls);
  }
  return calls;
}

// Ranks of one host share its clock; a rank of an unknown host has its own.
std::vector<uint32_t> clocks_of(const std::vector<RankPart>& parts) {
  std::map<std::string, uint32_t> hosts;
  std::vector<uint32_t> out;
  uint32_t clocks = 0;
  for (const RankPart& part : parts) {
    if (part.host.empty()) {
      out.push_back(clocks++);
      continue;
    }
    const auto [at, fresh] = hosts.try_emplace(part.host, clocks);
    if (fresh) ++clocks;
    out.push_back(at->second);
  }
  return out;
}

std::string span_text(double ns) {
  const double s = std::abs(ns) / 1e9;
  return s >= 172800 ? fmt::format("{:.0f} days", s / 86400)
         : s >= 7200 ? fmt::format("{:.1f} hours", s / 3600)
         : s >= 1    ? fmt::format("{:.1f} s", s)
                     : fmt::format("{:.3f} ms", s * 1e3);
}

Status no_common_collective(const RankPart& part, size_t calls) {
  return fail(fmt::format("expected collectives that ranks of one job took part in together, found none of rank {} in "
                          "the other recordings ({} of its own)",
                          part.rank, calls),
              part.path, "name recordings of one job that were made at the same time, and of the same process groups",
              ExitCode::kUsage);
}

// When its GPUs worked, on the epoch of the first rank's recorder.
struct WorkSpan {
  int64_t from_ns = 0, to_ns = 0;
};
WorkSpan work_span(const RankPart& part, int64_t epoch_ns) {
  const GpuOps& ops = part.trace.gpu_ops;  // in order of time
  WorkSpan out;
  if (ops.empty()) return out;
  out.from_ns = out.to_ns = ops.start_ns.front() + epoch_ns;
  for (Row op = 0; op < ops.size(); ++op) out.to_ns = std::max(out.to_ns, part.trace.end_of(op) + epoch_ns);
  return out;
}

// Times of a damaged file may be anywhere within 73 years of its epoch, which is within 73 years of 1970.
Status check_span(const RankPart& first, const RankPart& part) {
  if (part.trace.gpu_ops.empty() || first.trace.gpu_ops.empty()) return {};
  const WorkSpan origin = work_span(first, first.trace.base_unix_ns), own = work_span(part, part.trace.base_unix_ns);
  const double most = std::max(std::abs(static_cast<double>(own.from_ns) - static_cast<double>(origin.from_ns)),
                               std::abs(static_cast<double>(own.to_ns) - static_cast<double>(origin.from_ns)));
  if (most <= static_cast<double>(kSpanMostNs)) return {};
  return fail(fmt::format("expected recordings of one time, found kernels of rank {} {} from those of rank {}",
                          part.rank, span_text(most), first.rank),
              part.path, "name the recordings of one run of one job, made at the same time", ExitCode::kUsage);
}

// Calls in the same order may be those of other steps, unless they are numbered.
Status check_that_times_meet(const RankPart& first, const RankPart& part) {
  const WorkSpan origin = work_span(first, 0), own = work_span(part, part.epoch_shift_ns);
  const double pause = static_cast<double>(std::max(own.from_ns - origin.to_ns, origin.from_ns - own.to_ns));
  if (pause <= kPauseMostNs) return {};
  return fail(
      fmt::format("expected recordings of the same steps, found {} between those of rank {} and rank {}, and no "
                  "numbers of collectives (Seq) that say which are the same",
                  span_text(pause), first.rank, part.rank),
      part.path, "record all ranks at the same time, on hosts whose clocks agree to a second", ExitCode::kUsage);
}

Status set_clocks(std::vector<RankPart>& parts) {
  for (RankPart& part : parts) {
    part.epoch_shift_ns = part.trace.base_unix_ns - parts.front().trace.base_unix_ns;  // each within 73 years
    LLMPROF_CHECK(check_span(parts.front(), part));
  }
  const std::vector<CollectiveCall> calls = calls_of(parts);
  const std::vector<JoinedCollective> joined = join_collectives(calls);
  std::vector<size_t> own(parts.size(), 0), common(parts.size(), 0), numbered(parts.size(), 0);
  for (const CollectiveCall& call : calls) ++own[call.rank];
  for (const JoinedCollective& one : joined)
    for (const uint32_t call : one.calls) {
      ++common[calls[call].rank];
      numbered[calls[call].rank] += calls[call].sequence >= 0;
    }
  for (size_t rank = 0; rank < parts.size(); ++rank)
    if (common[rank] == 0) return no_common_collective(parts[rank], own[rank]);
  const std::vector<RankClock> clocks = rank_clocks(calls, joined, clocks_of(parts));
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    RankClock& clock = parts[rank].clock = clocks[rank];
    if (numbered[rank] == 0) LLMPROF_CHECK(check_that_times_meet(parts.front(), parts[rank]));
    if (!clock.known) continue;
    const double apart = clock.low_ns > 0 ? clock.low_ns : clock.high_ns < 0 ? -clock.high_ns : 0;
    if (!clock.contradicts() && apart > kClocksApartMostNs)
      return fail(fmt::format("expected recordings of one run, found that rank {} was recorded {} from rank {}",
                              parts[rank].rank, span_text(apart), parts.front().rank),
                  parts[rank].path, "name the recordings of one run of one job, made at the same time",
                  ExitCode::kUsage);
    if (clock.low_ns - clock.high_ns > kContradictionMostNs)
      return fail(fmt::format("expected collectives that no rank leaves before the last one enters, found that those "
                              "of rank {} and rank {} miss each other by {} whatever their clocks are",
                              parts.front().rank, parts[rank].rank, span_text(clock.low_ns - clock.high_ns)),
                  parts[rank].path, "name the recordings of one run of one job, made at the same time",
                  ExitCode::kUsage);
  }
  return {};
}

// ---- keeping apart -------------------------------------------------------------------------------------------------

// Identifiers that rows of one recording refer to each other by, made different from those of recordings before.
class IdentifierSpaces {
 public:
  void keep_apart(Trace& part) {
    count_up(correlations_, part.api_calls.correlation, part.gpu_ops.correlation, part.sync_events.correlation,
             part.sync_events.event_call, part.graph_launches.correlation, part.launch_sites.correlation);
    count_up(external_ids_, part.ops.external_id, part.annotations.external_id, part.api_calls.external_id,
             part.gpu_ops.external_id);
    // Handles and addresses, which begin again in each process.
    for (std::vector<uint64_t>* column :
         {&part.api_calls.event, &part.gpu_ops.graph_node, &part.graph_nodes.node, &part.node_places.node,
          &part.graph_edges.node, &part.graph_edges.after, &part.graph_launches.graph, &part.recurring_calls.key,
          &part.memory_events.address, &part.library_calls.input, &part.library_calls.weights,
          &part.library_calls.output})
      for (uint64_t& id : *column)
        if (id != 0) id += handles_;
    handles_ += uint64_t{1} << 48;
    number_processes(part);
  }

 private:
  // Dense identifiers stay dense (IdIndex).
  template <class... Columns>
  static void count_up(uint64_t& used, Columns&... columns) {
    uint64_t most = used;
    const auto raise = [&](auto& column) {
      for (size_t row = 0; row < column.size(); ++row) {
        if (column[row] == 0) continue;
        column[row] += used;
        most = std::max(most, uint64_t{column[row]});
      }
    };
    (raise(columns), ...);
    used = most;
  }

  // Containers number their processes alike.
  void number_processes(Trace& part) {
    std::map<int64_t, int64_t> numbers;
    const auto number = [&](int64_t& process) {
      if (process < 0) return;
      const auto [at, fresh] = numbers.try_emplace(process, process);
      while (fresh && at->second < INT64_MAX - kProcesses && processes_.count(at->second) != 0)
        at->second += kProcesses;
      process = at->second;
    };
    for (int64_t& process : part.threads.process_id) number(process);
    for (int64_t& process : part.recorded.process_id) number(process);
    for (const auto& [recorded, now] : numbers) processes_.insert(now);
  }

  static constexpr int64_t kProcesses = 10'000'000;  // above every process id of Linux
  uint64_t correlations_ = 0, external_ids_ = 0, handles_ = 0;
  std::set<int64_t> processes_;
};

template <class Table>
void keep_rows_of(Table& table, const std::vector<int32_t>& used) {
  Table kept;
  for (size_t row = 0; row < table.size(); ++row)
    if (table.device[row] < 0 || std::find(used.begin(), used.end(), table.device[row]) != used.end())
      kept.append(table.row(row));
  table = std::move(kept);
}

// Devices that the rank does not use, and their readings, are those that other ranks have.
void keep_devices(Trace& part, const std::vector<int32_t>& used) {
  keep_rows_of(part.devices, used);
  keep_rows_of(part.nvml_samples, used);
  keep_rows_of(part.gpu_samples, used);
}

Trace joined_trace(std::vector<RankPart>& parts) {
  // An epoch before all of theirs: where times begin at 0 they are not negative.
  int64_t epoch_ns = 0;
  for (const RankPart& part : parts) epoch_ns = std::min(epoch_ns, part.epoch_shift_ns + part.shift_ns());
  Trace trace;
  trace.base_unix_ns = parts.front().trace.base_unix_ns + epoch_ns;
  trace.source.kind = parts.front().trace.source.kind;
  TraceBuilder builder(trace);
  IdentifierSpaces identifiers;
  Ranks ranks;
  int32_t next_device = 0;
  struct Names {
    std::string path, host;
  };
  std::vector<Names> names;
  for (RankPart& part : parts) {
    std::map<int32_t, int32_t> numbers;
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    for (const int32_t device : part.devices) {
      const bool bounded = part.clock.known && !part.clock.contradicts();
      const auto limit = [&](double ns) { return bounded && std::isfinite(ns) ? ns : unknown; };
      ranks.append({.rank = static_cast<int32_t>(part.rank),
                    .world_size = static_cast<int32_t>(part.world_size),
                    .device = next_device,
                    .recorded_device = device,
                    .file = StringId::kEmpty,
                    .host = StringId::kEmpty,
                    .shift_ns = part.shift_ns(),
                    .offset_ns = part.clock.known ? part.clock.offset_ns : unknown,
                    .offset_low_ns = limit(part.clock.low_ns),
                    .offset_high_ns = limit(part.clock.high_ns)});
      names.push_back({part.path, part.host});
      numbers[device] = next_device++;
    }
    keep_devices(part.trace, part.devices);
    identifiers.keep_apart(part.trace);
    trace.source.files.insert(trace.source.files.end(), part.trace.source.files.begin(), part.trace.source.files.end());
    trace.source.bytes += part.trace.source.bytes;
    trace.metadata.insert(part.trace.metadata.begin(), part.trace.metadata.end());
    builder.append(std::move(part.trace), {.share = false,
                                           .clock_offset_ns = part.epoch_shift_ns + part.shift_ns() - epoch_ns,
                                           .device = [&numbers](int32_t device) {
                                             const auto at = numbers.find(device);
                                             return at == numbers.end() ? -1 : at->second;
                                           }});
  }
  for (size_t row = 0; row < ranks.size(); ++row) {
    ranks.file[row] = trace.strings.intern(names[row].path);
    ranks.host[row] = trace.strings.intern(names[row].host);
  }
  trace.ranks = std::move(ranks);
  return trace;
}

}  // namespace

Result<Trace> import_ranks(const std::vector<std::string>& paths,
                           const std::function<Status(const std::string&, Trace&)>& import) {
  std::vector<RankPart> parts(paths.size());
  parallel_for(parts.size(), [&](size_t i) {
    RankPart& part = parts[i];
    part.path = paths[i];
    part.status = import(part.path, part.trace);
    if (!part.status) return;
    finish_import(part.trace);
    read_rank(part);
    part.devices = used_devices(part.trace);
  });
  for (const RankPart& part : parts) LLMPROF_CHECK(part.status);
  for (const RankPart& part : parts) LLMPROF_CHECK(check_that_it_is_of_one_rank(part));
  LLMPROF_CHECK(order_ranks(parts));
  LLMPROF_CHECK(set_clocks(parts));
  return joined_trace(parts);
}

void finish_joined(Trace& trace) {
  Diagnostics of_files = trace.diagnostics;
  finish_import(trace);
  trace.diagnostics = std::move(of_files);
}

}  // namespace llmprof
