#include "replay/latencies.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "base/flat_index.h"
#include "base/statistics.h"
#include "base/zero_pages.h"
#include "replay/last_given.h"

namespace llmprof::replay {
namespace {

constexpr double kTickNs = 32;
constexpr double kSure = 0.95;  // quantile of the launch latency from which on an activity has waited for its stream

Latency median_latency(const std::vector<double>& values) {
  if (values.empty()) return {};
  return {median_of(values), static_cast<int64_t>(values.size())};
}

// Latencies behind one another add up over a step, so that their mean counts. Without outliers: now and then a GPU
// stands still for a hundred times as long before some kernel, and that is no latency of this one.
Latency mean_latency(std::vector<double> values) {
  constexpr double kFarOut = 3;  // interquartile ranges beyond the quartiles (Tukey's outer fences)
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double low = quantile_of_sorted(values, 0.25), high = quantile_of_sorted(values, 0.75);
  // Clocks of GPUs tick every 32 ns: equal values say nothing of how much others may differ.
  const double reach = std::max({kFarOut * (high - low), std::fabs(high), kTickNs});
  double sum = 0;
  size_t count = 0;
  for (const double value : values) {
    if (value < low - reach || value > high + reach) continue;
    sum += value;
    ++count;
  }
  return {sum / static_cast<double>(count), static_cast<int64_t>(values.size())};
}

// The median distance from the median: how much a latency varies.
double spread(std::vector<double> values) {
  const double middle = median_of(values);
  for (double& value : values) value = std::fabs(value - middle);
  return median_of(std::move(values));
}

// The last to end, as recorded, of what runs before `op` on its stream or engine or was joined to it; kNoRow if nothing
// does.
GpuOpId last_before(const Timeline& timeline, GpuOpId op) {
  GpuOpId last = timeline.on_stream[op];
  const auto take = [&](GpuOpId other) {
    if (last == kNoRow || timeline.trace.end_of(other) > timeline.trace.end_of(last)) last = other;
  };
  for (const GpuOpId joined : timeline.joined.of(op)) take(joined);
  if (const GpuOpId same_way = timeline.before_on_engine(op); same_way != kNoRow) take(same_way);
  return last;
}

// Whether the launch itself is a dependency: of a graph, only of its first nodes.
bool follows_launch(const Timeline& timeline, GpuOpId op) {
  return timeline.trace.gpu_links.api[op] != kNoRow && timeline.in_graph.of(op).empty();
}

class Fitter {
 public:
  Fitter(const Timeline& timeline, const std::function<bool(GpuOpId)>& used) : timeline_(timeline), used_(used) {}

  // Activities that found their stream idle when the launch was called.
  void launches(Latencies& out) const {
    struct Seen {
      std::vector<double> from_start, from_end;
    };
    std::vector<Seen> seen(kStartKinds);
    std::unordered_map<uint64_t, size_t> place_of_graph;
    out.of_graph.assign(timeline_.launched_begin.size() - 1, 0);
    for (ApiCallId call = 0; call < out.of_graph.size(); ++call) {
      if (timeline_.launched_begin[call + 1] - timeline_.launched_begin[call] < 2) continue;
      const GpuOpId first = timeline_.launched[timeline_.launched_begin[call]];
      if (!timeline_.is_graph_node(first)) continue;
      const auto [place, is_new] = place_of_graph.emplace(graph_key(first), seen.size());
      if (is_new) seen.emplace_back();
      out.of_graph[call] = static_cast<uint32_t>(place->second);
    }
    give_back_zero_pages(out.of_graph.data(), out.of_graph.size() * sizeof(uint32_t));
    for_each([&](GpuOpId op, size_t kind, ApiCallId call) {
      const GpuOpId before = last_before(timeline_, op);
      if (before != kNoRow && timeline_.trace.end_of(before) > timeline_.start_of(call)) return;
      const int64_t start = timeline_.trace.gpu_ops.start_ns[op];
      for (const size_t place : {kind, out.launch_place(timeline_, op)}) {
        seen[place].from_start.push_back(static_cast<double>(start - timeline_.start_of(call)));
        seen[place].from_end.push_back(static_cast<double>(start - timeline_.end_of(call)));
        if (place == out.launch_place(timeline_, op)) break;
      }
    });
    out.launches.resize(seen.size());
    for (size_t place = 0; place < seen.size(); ++place) {
      Seen& of = seen[place];
      // A graph that was not learned from starts as graphs do.
      if (of.from_start.empty() && place >= kStartKinds) out.launches[place] = out.of_kind(StartKind::kGraphNode);
      if (of.from_start.empty()) continue;
      out.launches[place] = launch_of(of.from_start, of.from_end, place);
      if (place >= kStartKinds) continue;
      std::sort(of.from_start.begin(), of.from_start.end());
      sure_ns_[place] = quantile_of_sorted(of.from_start, kSure);
    }
  }

  // Activities whose stream, or one that it waits for, was busy for longer after the launch was called than a launch
  // takes.
  void streams(Latencies& out) const {
    std::array<std::array<std::vector<double>, kStartKinds>, kStartKinds> found;
    std::vector<double> joined;
    for_each([&](GpuOpId op, size_t kind, ApiCallId call) {
      const GpuOpId last = last_before(timeline_, op);
      if (last == kNoRow) return;
      const int64_t free = timeline_.trace.end_of(last);
      if (static_cast<double>(free - timeline_.start_of(call)) < sure_ns_[kind]) return;
      const double ns = static_cast<double>(timeline_.trace.gpu_ops.start_ns[op] - free);
      if (last == timeline_.on_stream[op])
        found[static_cast<size_t>(timeline_.kinds[last])][kind].push_back(ns);
      else
        joined.push_back(ns);
    });
    out.joined = mean_latency(std::move(joined));
    for (size_t a = 0; a < kStartKinds; ++a)
      for (size_t b = 0; b < kStartKinds; ++b) out.behind[a][b] = mean_latency(std::move(found[a][b]));
  }

  void graphs(Latencies& out) const {
    std::unordered_map<uint64_t, std::vector<double>> found;
    std::vector<double> all;
    for (Row op = 0; op < timeline_.kinds.size(); ++op) {
      const GpuOpId before = node_before(op);
      if (before == kNoRow || !used_(op)) continue;
      const double ns = static_cast<double>(timeline_.trace.gpu_ops.start_ns[op] - timeline_.trace.end_of(before));
      found[edge_key(timeline_, before, op)].push_back(ns);
      all.push_back(ns);
    }
    for (std::pair<const uint64_t, std::vector<double>>& edge : found)
      out.edges[edge.first] = mean_latency(std::move(edge.second));
    follow_pace(out);
    out.any_edge = mean_latency(std::move(all));
    Latency& behind =
        out.behind[static_cast<size_t>(StartKind::kGraphNode)][static_cast<size_t>(StartKind::kGraphNode)];
    if (behind.samples == 0) behind.ns = out.any_edge.ns;
  }

 private:
  static Latencies::Launch launch_of(const std::vector<double>& from_start, const std::vector<double>& from_end,
                                     size_t place) {
    Latencies::Launch out{median_latency(from_start), 0};
    // A copy may hold its call up until it is done: then the end of the call follows it.
    if (place == static_cast<size_t>(StartKind::kCopy)) return out;
    double least = spread(from_start);
    const auto choose = [&](double at, const std::vector<double>& from) {
      if (spread(from) >= least) return;
      least = spread(from);
      out = {median_latency(from), at};
    };
    choose(1, from_end);
    if (place < static_cast<size_t>(StartKind::kGraphNode)) return out;
    std::vector<double> parts, from_part;
    for (size_t i = 0; i < from_start.size(); ++i)
      if (from_start[i] > from_end[i]) parts.push_back(from_start[i] / (from_start[i] - from_end[i]));
    const double part = parts.empty() ? 0 : median_of(std::move(parts));
    if (part <= 0 || part >= 1) return out;
    for (size_t i = 0; i < from_start.size(); ++i)
      from_part.push_back(from_start[i] - part * (from_start[i] - from_end[i]));
    choose(part, from_part);
    return out;
  }

  // The last to end of the nodes that this one follows; kNoRow.
  GpuOpId node_before(GpuOpId op) const {
    GpuOpId before = kNoRow;
    for (const GpuOpId one : timeline_.in_graph.of(op))
      if (before == kNoRow || timeline_.trace.end_of(one) > timeline_.trace.end_of(before)) before = one;
    return before;
  }

  // What a launch of a graph shows beside the means of its edges; nothing if it was not learned from.
  std::optional<double> pace_of(ApiCallId call, const Latencies& out) const {
    std::vector<double> off;
    for (uint32_t i = timeline_.launched_begin[call]; i < timeline_.launched_begin[call + 1]; ++i) {
      const GpuOpId op = timeline_.launched[i], before = node_before(op);
      if (before == kNoRow || !used_(op)) continue;
      const double ns = static_cast<double>(timeline_.trace.gpu_ops.start_ns[op] - timeline_.trace.end_of(before));
      off.push_back(ns - out.edges.at(edge_key(timeline_, before, op)).ns);
    }
    return off.empty() ? std::nullopt : std::optional(mean_latency(std::move(off)).ns);
  }

  void follow_pace(Latencies& out) const {
    const size_t calls = timeline_.launched_begin.size() - 1;
    // Of each graph the launch before that was learned from, in order of time; calls are by start.
    struct Learned {
      ApiCallId call;
      double ns;
    };
    std::unordered_map<uint64_t, std::vector<Learned>> learned;
    std::vector<std::pair<ApiCallId, uint64_t>> launches;
    for (ApiCallId call = 0; call < calls; ++call) {
      if (timeline_.launched_begin[call + 1] - timeline_.launched_begin[call] < 2) continue;
      const GpuOpId first = timeline_.launched[timeline_.launched_begin[call]];
      if (!timeline_.is_graph_node(first)) continue;
      const uint64_t graph = graph_key(first);
      launches.emplace_back(call, graph);
      if (const std::optional<double> ns = pace_of(call, out)) learned[graph].push_back({call, *ns});
    }
    if (launches.empty()) return;
    out.pace.assign(calls, 0);
    for (const auto& [call, graph] : launches) {
      const std::vector<Learned>& known = learned[graph];
      if (known.empty()) continue;
      // The three nearest: one may have stood still.
      const size_t next =
          static_cast<size_t>(std::lower_bound(known.begin(), known.end(), call,
                                               [](const Learned& one, ApiCallId at) { return one.call < at; }) -
                              known.begin());
      const auto distance = [&, at = call](const Learned& one) {
        return std::abs(timeline_.start_of(one.call) - timeline_.start_of(at));
      };
      std::vector<double> near;
      for (size_t below = next, above = next; near.size() < 3 && (below > 0 || above < known.size());) {
        const bool later = below == 0 || (above < known.size() && distance(known[above]) < distance(known[below - 1]));
        near.push_back(known[later ? above++ : --below].ns);
      }
      out.pace[call] = median_of(std::move(near));
    }
    // Of the launches of single kernels, which may be most calls, it is 0.
    give_back_zero_pages(out.pace.data(), out.pace.size() * sizeof(double));
  }

  // By its first node and how many it has.
  uint64_t graph_key(GpuOpId first) const {
    const GpuOps& ops = timeline_.trace.gpu_ops;
    const ApiCallId call = timeline_.trace.gpu_links.api[first];
    const uint64_t node = ops.graph_node[first] != 0 ? ops.graph_node[first] : index(ops.name[first]);
    return mix_bits(mix_bits(node) ^ (timeline_.launched_begin[call + 1] - timeline_.launched_begin[call]));
  }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (Row op = 0; op < timeline_.kinds.size(); ++op)
      if (follows_launch(timeline_, op) && used_(op))
        visit(op, static_cast<size_t>(timeline_.kinds[op]), timeline_.trace.gpu_links.api[op]);
  }
  const Timeline& timeline_;
  const std::function<bool(GpuOpId)>& used_;
  mutable std::array<double, kStartKinds> sure_ns_{};
};

}  // namespace

uint64_t edge_key(const Timeline& timeline, GpuOpId before, GpuOpId op) {
  const GpuOps& ops = timeline.trace.gpu_ops;
  if (ops.graph_node[op] != 0) return mix_bits(mix_bits(ops.graph_node[before]) ^ ops.graph_node[op]);
  // Without ids of nodes, by what they are and where in the launch.
  const uint64_t names = uint64_t{index(ops.name[before])} << 32 | index(ops.name[op]);
  return mix_bits(mix_bits(names) ^ timeline.place_in_launch(op));
}

double Latencies::behind_ns(const Timeline& timeline, GpuOpId before, GpuOpId op) const {
  return behind[static_cast<size_t>(timeline.kinds[before])][static_cast<size_t>(timeline.kinds[op])].ns;
}

double Latencies::edge_ns(const Timeline& timeline, GpuOpId before, GpuOpId op) const {
  const std::unordered_map<uint64_t, Latency>::const_iterator edge = edges.find(edge_key(timeline, before, op));
  const ApiCallId call = timeline.trace.gpu_links.api[op];
  const double off_ns = call < pace.size() ? pace[call] : 0;
  return off_ns + (edge != edges.end() ? edge->second.ns : any_edge.ns);
}

std::vector<GpuOpId> last_awaited(const Timeline& timeline) {
  const Trace& trace = timeline.trace;
  std::vector<GpuOpId> last(trace.api_calls.size(), kNoRow);
  LastGiven given(timeline);
  const auto later = [&](GpuOpId& of, GpuOpId op) {
    if (op != kNoRow && (of == kNoRow || trace.end_of(op) > trace.end_of(of))) of = op;
  };
  const auto end_of = [&](GpuOpId op) { return trace.end_of(op); };
  for (Row call = 0; call < trace.api_calls.size(); ++call) {
    for (uint32_t i = timeline.launched_begin[call]; i < timeline.launched_begin[call + 1]; ++i)
      if (timeline.awaited[call] == Awaited::kOwn) later(last[call], timeline.launched[i]);
    switch (timeline.awaited[call]) {
      case Awaited::kDevice:
      case Awaited::kFree:
      case Awaited::kThread:
        last[call] = given.last_for(call, end_of);
        break;
      case Awaited::kStream:
      case Awaited::kEvent:
        for (const GpuOpId op : timeline.awaits.of(call)) later(last[call], op);
        break;
      case Awaited::kNothing:
      case Awaited::kOwn:
        break;
    }
    given.take(call, end_of);
  }
  return last;
}

Latencies fit(const Timeline& timeline, const std::function<bool(GpuOpId)>& used,
              const std::function<bool(ApiCallId)>& waited) {
  Latencies out;
  const Fitter fitter(timeline, used);
  fitter.launches(out);
  fitter.streams(out);
  fitter.graphs(out);
  const std::vector<GpuOpId> last = last_awaited(timeline);
  std::array<std::vector<double>, kAwaitedCount> woken, unblocked;
  for (Row call = 0; call < last.size(); ++call) {
    const size_t kind = static_cast<size_t>(timeline.awaited[call]);
    if (timeline.awaited[call] == Awaited::kNothing || !waited(call)) continue;
    const int64_t returned = timeline.end_of(call);
    const int64_t end = last[call] == kNoRow ? kNever : timeline.trace.end_of(last[call]);
    if (end <= timeline.start_of(call))
      unblocked[kind].push_back(static_cast<double>(timeline.trace.api_calls.dur_ns[call]));
    else if (end <= returned)  // later ones are waited for by somebody else
      woken[kind].push_back(static_cast<double>(returned - end));
  }
  for (size_t kind = 0; kind < kAwaitedCount; ++kind) {
    out.woken[kind] = median_latency(woken[kind]);
    out.unblocked[kind] = median_latency(unblocked[kind]);
  }
  return out;
}

}  // namespace llmprof::replay
