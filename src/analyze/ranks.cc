// Ranks of one job whose recordings were joined: where each one's time goes in collectives, and who is late.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/rank_names.h"
#include "base/statistics.h"
#include "trace/rank_collectives.h"

namespace llmprof {

Row rank_row(const Trace& trace, int64_t device) {
  const std::vector<int32_t>& devices = trace.ranks.device;
  const auto at = std::find(devices.begin(), devices.end(), device);
  return at == devices.end() ? Row{kNoRow} : static_cast<Row>(at - devices.begin());
}

std::string rank_name(const Trace& trace, int64_t device) {
  const Row row = rank_row(trace, device);
  if (row == kNoRow) return fmt::format("GPU {}", device);
  const std::string_view path = trace.text(trace.ranks.file[row]);
  return fmt::format("rank {} ({}, GPU {})", trace.ranks.rank[row], path.substr(path.rfind('/') + 1),
                     trace.ranks.recorded_device[row]);
}

namespace {

// Bytes of an element, by the names of PyTorch; 0 where it is not known.
double bytes_of_type(std::string_view type) {
  static constexpr std::pair<std::string_view, double> kTypes[] = {
      {"Double", 8}, {"Long", 8},   {"ComplexFloat", 8}, {"Float", 4},  {"Int", 4},  {"Half", 2}, {"BFloat16", 2},
      {"Short", 2},  {"UInt16", 2}, {"UInt32", 4},       {"UInt64", 8}, {"Byte", 1}, {"Char", 1}, {"Bool", 1}};
  for (const auto& [name, bytes] : kTypes)
    if (type == name) return bytes;
  return type.starts_with("Float8") ? 1 : 0;
}

// What nccl-tests makes of sizes and times (docs/formulas.md): bytes of a call, and the part that a link carries.
struct WireFormula {
  enum class Size : uint8_t { kIn, kOut, kLarger } size = Size::kIn;
  bool twice = false;      // once to reduce, once to hand out
  bool own_stays = false;  // of n parts one does not leave its rank
};

std::optional<WireFormula> wire_formula(std::string_view name) {
  using Size = WireFormula::Size;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("allreduce") || has("all_reduce")) return WireFormula{.size = Size::kIn, .twice = true, .own_stays = true};
  if (has("allgather") || has("all_gather")) return WireFormula{.size = Size::kOut, .own_stays = true};
  if (has("reduce_scatter")) return WireFormula{.size = Size::kIn, .own_stays = true};
  if (has("all_to_all") || has("alltoall")) return WireFormula{.size = Size::kIn, .own_stays = true};
  if (has("broadcast") || has("reduce") || has("send") || has("recv")) return WireFormula{.size = Size::kLarger};
  if (has("gather") || has("scatter")) return WireFormula{.size = Size::kLarger, .own_stays = true};
  return {};
}

std::optional<double> bytes_of(const CollectiveCall& call) {
  const std::optional<WireFormula> formula = wire_formula(call.name);
  const double element = bytes_of_type(call.dtype);
  if (!call.described || !formula || element == 0) return {};
  const int64_t elements = formula->size == WireFormula::Size::kIn    ? call.in_elements
                           : formula->size == WireFormula::Size::kOut ? call.out_elements
                                                                      : std::max(call.in_elements, call.out_elements);
  return elements > 0 ? std::optional(static_cast<double>(elements) * element) : std::nullopt;
}

// GB/s of a link.
std::optional<double> bus_rate(const CollectiveCall& call, size_t ranks, double wire_ns) {
  const std::optional<double> bytes = bytes_of(call);
  if (!bytes || wire_ns <= 0 || ranks < 2) return {};
  const WireFormula formula = *wire_formula(call.name);
  const double n = static_cast<double>(ranks);
  return *bytes * (formula.twice ? 2 : 1) * (formula.own_stays ? (n - 1) / n : 1) / wire_ns;
}

// A kernel's name without its parameters.
std::string_view short_name(const CollectiveCall& call) {
  if (call.is_between_two()) return "send";
  return call.described ? call.name : call.name.substr(0, call.name.find('('));
}

using KindKey = std::tuple<std::string_view, std::string_view, int32_t, int32_t, std::string_view, std::string_view,
                           std::optional<double>>;

struct CollectiveKind {
  CollectiveCall of{};
  size_t ranks_joined = 0;
  int64_t count = 0, calls = 0, matched = 0;
  double all_ns = 0;
  std::vector<double> wait_us{}, wire_us{}, bus_gbs{};
  std::map<uint32_t, std::vector<double>> late_us{};  // by rank that was last
};

class JoinedRanks {
 public:
  JoinedRanks(const Trace& trace, const RankCollectives& ranks) : trace_(trace), ranks_(ranks) {
    std::map<int32_t, int64_t> window, idle;
    for (const Window& one : trace.windows) window[one.device] = one.end_ns - one.start_ns;
    std::map<int32_t, int64_t> busy;
    for (Row row = 0; row < trace.busy_intervals.size(); ++row)
      busy[trace.busy_intervals.device[row]] += trace.busy_intervals.end_ns[row] - trace.busy_intervals.start_ns[row];
    for (Row row = 0; row < trace.gaps.size(); ++row)
      if (trace.gaps.cause[row] != IdleCause::kNotRecorded) idle[trace.gaps.device[row]] += trace.gaps.dur_ns[row];
    const Ranks& of = trace.ranks;
    const auto us = [](double ns) { return ns == ns ? OptDouble(ns / 1e3) : OptDouble(); };  // NaN: unknown
    for (Row row = 0; row < of.size(); ++row) {
      RankRecord& record = records_.emplace_back();
      record.rank = of.rank[row];
      if (of.world_size[row] >= 0) record.world_size = of.world_size[row];
      record.device = of.device[row];
      record.recorded_device = of.recorded_device[row];
      if (const std::string_view host = trace.text(of.host[row]); !host.empty()) record.host = std::string(host);
      record.file = trace.text(of.file[row]);
      record.shift_us = static_cast<double>(of.shift_ns[row]) / 1e3;
      record.offset_us = us(of.offset_ns[row]);
      record.offset_low_us = us(of.offset_low_ns[row]);
      record.offset_high_us = us(of.offset_high_ns[row]);
      record.window_ms.ns = window[of.device[row]];
      record.gpu_busy_ms.ns = busy[of.device[row]];
      record.gpu_idle_ms.ns = idle[of.device[row]];
      of_device_[of.device[row]] = row;
    }
  }

  void run() {
    for (const CollectiveCall& call : ranks_.calls) {
      RankRecord& record = record_of(call);
      ++record.collectives;
      record.collectives_ms.ns += call.end_ns - call.start_ns;
      CollectiveKind& kind = kind_of(call);
      ++kind.calls;
      kind.all_ns += static_cast<double>(call.end_ns - call.start_ns);
      in_group_[group_of(call)].insert(call.rank);
    }
    for (const JoinedCollective& one : ranks_.joined) {
      if (ranks_.met(one))
        add(one);
      else if (one.whole() && !ranks_.calls[one.calls.front()].keeps_all())
        add_rooted(one);
    }
  }

  void fill(Report& report) const {
    report.ranks = records_;
    std::vector<const CollectiveKind*> kinds;
    for (const auto& [key, kind] : kinds_) kinds.push_back(&kind);
    std::stable_sort(kinds.begin(), kinds.end(),
                     [](const CollectiveKind* a, const CollectiveKind* b) { return a->all_ns > b->all_ns; });
    for (const CollectiveKind* kind : kinds) report.joined_collectives.push_back(record_of(*kind));
  }

 private:
  using Group = std::tuple<std::string_view, std::string_view, int32_t, int32_t, bool>;
  static Group group_of(const CollectiveCall& call) {
    return {call.group, call.members, call.from_rank, call.to_rank, call.described};
  }
  RankRecord& record_of(const CollectiveCall& call) { return records_[of_device_.at(trace_.device_of(call.op))]; }
  CollectiveKind& kind_of(const CollectiveCall& call) {
    CollectiveKind& kind =
        kinds_[{call.group, call.members, call.from_rank, call.to_rank, short_name(call), call.dtype, bytes_of(call)}];
    if (kind.calls == 0) kind.of = call;
    return kind;
  }

  void add(const JoinedCollective& one) {
    const std::vector<CollectiveCall>& calls = ranks_.calls;
    const int64_t last = last_start_ns(calls, one);
    int64_t first = INT64_MAX, next = INT64_MIN, end = INT64_MIN;
    uint32_t late = one.calls.front();
    for (const uint32_t c : one.calls) {
      first = std::min(first, calls[c].start_ns);
      end = std::max(end, calls[c].end_ns);
      if (calls[c].start_ns > calls[late].start_ns) late = c;
    }
    for (const uint32_t c : one.calls)
      if (c != late) next = std::max(next, calls[c].start_ns);
    for (const uint32_t c : one.calls) {
      RankRecord& record = record_of(calls[c]);
      const int64_t dur = calls[c].end_ns - calls[c].start_ns;
      const int64_t waited = std::clamp<int64_t>(last - calls[c].start_ns, 0, dur);
      ++record.joined;
      record.waiting_ms.ns += waited;
      record.wire_ms.ns += dur - waited;
      ++kind_of(calls[c]).matched;
    }
    CollectiveKind& kind = kind_of(calls[one.calls.front()]);
    ++kind.count;
    kind.ranks_joined = one.calls.size();
    kind.wait_us.push_back(static_cast<double>(last - first) / 1e3);
    add_wire(kind, one.calls.size(), static_cast<double>(end - last));
    if (last == next) return;  // two at once: none is late
    kind.late_us[calls[late].rank].push_back(static_cast<double>(last - next) / 1e3);
    RankRecord& record = record_of(calls[late]);
    ++record.last;
    record.late_ms.ns += last - next;
  }

  // A rank may leave these before others come. The wire is seen where they were in it together.
  void add_rooted(const JoinedCollective& one) {
    CollectiveKind& kind = kind_of(ranks_.calls[one.calls.front()]);
    ++kind.count;
    kind.ranks_joined = one.calls.size();
    for (const uint32_t c : one.calls) ++kind_of(ranks_.calls[c]).matched;
    if (!ranks_.overlapped(one)) return;
    int64_t end = INT64_MIN;
    for (const uint32_t c : one.calls) end = std::max(end, ranks_.calls[c].end_ns);
    add_wire(kind, one.calls.size(), static_cast<double>(end - last_start_ns(ranks_.calls, one)));
  }

  // Its group may have ranks whose recordings are not here: each has the same share of the wire.
  static void add_wire(CollectiveKind& kind, size_t ranks_here, double wire_ns) {
    kind.wire_us.push_back(wire_ns / 1e3);
    const size_t size = kind.of.is_between_two() ? 2
                        : kind.of.group_size > 0 ? static_cast<size_t>(kind.of.group_size)
                                                 : ranks_here;
    if (const std::optional<double> rate = bus_rate(kind.of, size, wire_ns)) kind.bus_gbs.push_back(*rate);
  }

  JoinedCollectiveRecord record_of(const CollectiveKind& kind) const {
    JoinedCollectiveRecord out;
    const auto text = [](std::string_view of) { return of.empty() ? OptText() : OptText(std::string(of)); };
    const auto median = [](const std::vector<double>& of) { return of.empty() ? OptDouble() : median_of(of); };
    out.group = text(kind.of.group);
    out.members = kind.of.is_between_two() ? OptText(fmt::format("[{}, {}]", kind.of.from_rank, kind.of.to_rank))
                                           : text(kind.of.members);
    out.name = short_name(kind.of);
    out.dtype = text(kind.of.dtype);
    out.bytes = bytes_of(kind.of);
    if (kind.of.is_between_two())
      out.ranks = 2;
    else if (kind.of.group_size > 0)
      out.ranks = kind.of.group_size;
    out.ranks_joined = static_cast<int64_t>(in_group_.at(group_of(kind.of)).size());
    out.count = kind.count;
    out.wait_us = median(kind.wait_us);
    // Where some were left early, a part of the bytes of the others may have gone before the last rank began as well.
    const bool seen = 10 * static_cast<int64_t>(kind.wire_us.size()) >= 9 * kind.count;
    out.wire_us = seen ? median(kind.wire_us) : OptDouble();
    out.bus_gbs = seen ? median(kind.bus_gbs) : OptDouble();
    for (const auto& [rank, late] : kind.late_us) {
      if (static_cast<int64_t>(late.size()) <= out.last_count) continue;
      out.last_count = static_cast<int64_t>(late.size());
      out.last_rank = ranks_.numbers[rank];
      out.late_us = median_of(late);
    }
    out.calls = kind.calls;
    out.unmatched = kind.calls - kind.matched;
    return out;
  }

  const Trace& trace_;
  const RankCollectives& ranks_;
  std::vector<RankRecord> records_;
  std::map<int32_t, Row> of_device_;
  std::map<KindKey, CollectiveKind> kinds_;
  std::map<Group, std::set<uint32_t>> in_group_;
};

std::string numbers_text(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 12;
  std::string out;
  for (size_t i = 0; i < numbers.size() && i < kMost; ++i) out += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return numbers.size() > kMost ? out + ", ..." : out;
}

void say_what_is_missing(const Report& report, std::vector<CannotTell>& cannot_tell) {
  std::set<int64_t> here;
  for (const RankRecord& row : report.ranks) here.insert(row.rank);
  constexpr int64_t kCounted = 100'000;
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < std::min(report.ranks.front().world_size.value_or(0), kCounted); ++rank)
    if (here.count(rank) == 0) missing.push_back(rank);
  if (!missing.empty())
    cannot_tell.push_back(
        {fmt::format("What do {} more rank{} of the job do ({})?", missing.size(), missing.size() == 1 ? "" : "s",
                     numbers_text(missing)),
         fmt::format("{} of {} ranks are here; what looks like the wire may be waiting for one of the others",
                     here.size(), *report.ranks.front().world_size),
         "name their recordings as well"});
  int64_t calls = 0, unmatched = 0;
  for (const JoinedCollectiveRecord& row : report.joined_collectives) {
    calls += row.calls;
    unmatched += row.unmatched;
  }
  if (unmatched > 0)
    cannot_tell.push_back({"Who waited for whom in all collectives?",
                           fmt::format("{} of {} parts of collectives have no partner in the recording of every rank "
                                       "of their group",
                                       unmatched, calls),
                           "record all ranks over the same steps"});
  std::vector<int64_t> unknown;
  for (const RankRecord& row : report.ranks)
    if (!row.offset_low_us && !row.offset_high_us) unknown.push_back(row.rank);
  if (!unknown.empty())
    cannot_tell.push_back({fmt::format("Do the clocks of all ranks agree ({})?", numbers_text(unknown)),
                           "no common collectives connect these with the first rank, or these do not agree on one "
                           "difference, as where clocks drift",
                           "record all ranks of one process group over the same steps"});
}

}  // namespace

void analyze_ranks(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  if (context.trace.ranks.empty()) return;
  const RankCollectives ranks = rank_collectives(context.trace);
  JoinedRanks joined(context.trace, ranks);
  joined.run();
  joined.fill(report);
  say_what_is_missing(report, cannot_tell);
}

}  // namespace llmprof
