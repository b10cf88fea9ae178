#include "replay/undisturbed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "base/statistics.h"

namespace llmprof::replay {
namespace {

const RecorderCost* find(const RecorderCosts& costs, const std::string& name) {
  const RecorderCosts::const_iterator found = costs.find(name);
  return found == costs.end() ? nullptr : &found->second;
}

double cost_ns(const RecorderCost* cost) {
  return cost == nullptr ? 0 : std::max(0.0, cost->recorded_ns - cost->plain_ns);
}

// What is seen of a call lies inside the time that the program takes it to be.
RecorderCostModel::Cost cost_of(const RecorderCost* cost, double factor) {
  if (cost == nullptr) return {};
  const double all = cost_ns(cost), inside = std::clamp(cost->seen_ns - cost->plain_ns, 0.0, all);
  return {factor * inside, factor * (all - inside)};
}

constexpr const char* kLaunchLevels[] = {"launch_0k", "launch_64k", "launch_512k", "launch_2048k"};
constexpr double kFewNodes = kCostNodes[0], kManyNodes = kCostNodes[1];

// A line through two points, as its value at 0 and its slope, neither below 0.
struct Line {
  double at_zero = 0, slope = 0;
  Line(double at_few, double at_many) {
    slope = std::max(0.0, (at_many - at_few) / (kManyNodes - kFewNodes));
    at_zero = std::max(0.0, at_few - slope * kFewNodes);
  }
};

double kernels_apart(const RecorderCost& kernel) {
  return kernel.seen_ns > 0 ? std::max(0.0, kernel.seen_ns - cost_ns(&kernel)) : 0;
}

// One kernel and a graph of so many lie on a stream by turns, so that both edges of the graph are in a turn, beside the
// distances that are known.
double graph_edge(const RecorderCost* turn, const RecorderCost& kernel, const RecorderCost& node) {
  if (turn == nullptr || kernel.seen_ns <= 0) return 0;
  const double between_nodes = node.seen_ns - cost_ns(&node);
  const double edges = turn->plain_ns - kernel.plain_ns - kGraphTurnNodes * node.plain_ns;
  return std::max(0.0, (edges + kernels_apart(kernel) + between_nodes) / 2);
}

// What recording such a turn costs beside its kernel and its nodes. All of it was seen before the first node: 3.7 us at
// least behind a kernel on an H200, where a kernel begins 1.1 us behind the last node, as without the recorder.
double graph_begins_later(const RecorderCost* turn, const RecorderCost& kernel, const RecorderCost& node) {
  return turn == nullptr ? 0 : std::max(0.0, cost_ns(turn) - cost_ns(&kernel) - kGraphTurnNodes * cost_ns(&node));
}

// Whether so much lay on its stream when a call began that it may have waited for room in the queue, which has some
// hundreds of places.
bool queue_may_be_full(const Timeline& timeline, ApiCallId call) {
  constexpr int kPlacesLeast = 64;
  const int64_t began_ns = timeline.start_of(call);
  GpuOpId op = timeline.launched[timeline.launched_begin[call]];
  for (int ahead = 0; ahead < kPlacesLeast; ++ahead) {
    op = timeline.on_stream[op];
    if (op == kNoRow || timeline.trace.gpu_ops.start_ns[op] + timeline.trace.gpu_ops.dur_ns[op] <= began_ns)
      return false;
  }
  return true;
}

constexpr double kSpreadLeastNs = 10;

struct MeasuredLevel {
  double seen_ns, inside_ns, beside_ns, spread_ns;
};

// Colder caches make a call longer and recording it dearer, so costs rise with the levels. Where measured ones fall,
// the processes differed.
void let_rise(std::vector<MeasuredLevel>& levels, double MeasuredLevel::*cost) {
  std::vector<double> costs, weights;
  for (const MeasuredLevel& level : levels) {
    costs.push_back(level.*cost);
    weights.push_back(1 / (level.spread_ns * level.spread_ns));
  }
  const std::vector<double> rising = isotonic_means(costs, weights);
  for (size_t i = 0; i < levels.size(); ++i) levels[i].*cost = rising[i];
}

}  // namespace

RecorderCostModel::RecorderCostModel(const RecorderCosts& costs, double calls_factor) {
  const RecorderCost* const few = find(costs, "graph_32");
  const RecorderCost* const many = find(costs, "graph_256");
  const RecorderCost* const kernel = find(costs, "gpu_kernel");
  const RecorderCost* const node = find(costs, "gpu_node");
  if (few == nullptr || many == nullptr || kernel == nullptr || node == nullptr) return;
  std::vector<MeasuredLevel> levels;
  for (const char* const name : kLaunchLevels) {
    const RecorderCost* const level = find(costs, name);
    if (level == nullptr || level->seen_ns <= 0) continue;
    const Cost cost = cost_of(level, calls_factor);
    levels.push_back({level->seen_ns, cost.inside, cost.beside, std::max(level->spread_ns, kSpreadLeastNs)});
  }
  const auto unsure = [](const RecorderCost* cost) {
    return cost_ns(cost) > 0 ? std::min(1.0, cost->spread_ns / cost_ns(cost) / 2) : 0;
  };
  unsure_frac_ = {unsure(find(costs, "launch_512k")), unsure(many)};
  std::sort(levels.begin(), levels.end(),
            [](const MeasuredLevel& a, const MeasuredLevel& b) { return a.seen_ns < b.seen_ns; });
  let_rise(levels, &MeasuredLevel::inside_ns);
  let_rise(levels, &MeasuredLevel::beside_ns);
  for (const MeasuredLevel& level : levels) launch_.push_back({level.seen_ns, level.inside_ns, level.beside_ns});
  const Line plain(few->plain_ns, many->plain_ns);
  const Line most(few->recorded_ns + few->spread_ns, many->recorded_ns + many->spread_ns);
  graph_plain_ns_ = plain.at_zero, node_plain_ns_ = plain.slope;
  graph_most_ns_ = most.at_zero, node_most_ns_ = most.slope;
  copy_ = cost_of(find(costs, "copy_in"), calls_factor);
  wait_ = cost_of(find(costs, "wait"), calls_factor);
  // What a launch and the wait for it, or a copy that waits for itself, cost beside their calls: the GPU writes down
  // when it ended, and the host goes through callbacks on its way out.
  const auto beside_calls = [&](const char* whole, std::initializer_list<const char*> calls) {
    const RecorderCost* const all = find(costs, whole);
    double left = cost_ns(all);
    for (const char* const call : calls) left -= cost_ns(find(costs, call));
    return all == nullptr ? 0 : calls_factor * std::max(0.0, left);
  };
  wait_wakes_ns_ = std::max(0.0, beside_calls("launch_wait", {"launch_0k"}) - wait_.beside);
  copy_wakes_ns_ = beside_calls("copy_out", {"copy_in", "wait"});
  kernel_gap_ns_ = cost_ns(kernel);
  node_gap_ns_ = cost_ns(node);
  kernels_apart_ns_ = kernels_apart(*kernel);
  nodes_sooner_ns_ = std::max(0.0, kernel->plain_ns - node->plain_ns);
  const RecorderCost* const turn = find(costs, "gpu_graph");
  graph_edge_ns_ = graph_edge(turn, *kernel, *node);
  graph_begins_later_ns_ = graph_begins_later(turn, *kernel, *node);
}

RecorderCostModel::Cost RecorderCostModel::of_launch(double seen_ns) const {
  if (launch_.empty()) return {};
  const Level& first = launch_.front();
  if (seen_ns <= first.seen_ns) return {first.inside_ns * seen_ns / first.seen_ns, first.beside_ns};
  const auto above =
      std::find_if(launch_.begin(), launch_.end(), [&](const Level& level) { return level.seen_ns >= seen_ns; });
  // One that took longer than any of those waited for room in the queue.
  if (above == launch_.end()) return {launch_.back().inside_ns, launch_.back().beside_ns};
  const Level& high = *above;
  const Level& low = *std::prev(above);
  const double part = (seen_ns - low.seen_ns) / (high.seen_ns - low.seen_ns);
  return {std::lerp(low.inside_ns, high.inside_ns, part), std::lerp(low.beside_ns, high.beside_ns, part)};
}

RecorderCostModel::Cost RecorderCostModel::of_graph_launch(double seen_ns, uint32_t nodes, bool may_wait) const {
  const double plain = graph_launch_ns(nodes), most = graph_most_ns_ + node_most_ns_ * nodes;
  return {std::max(0.0, (may_wait ? std::min(seen_ns, most) : seen_ns) - plain), 0};
}

void take_recorder_out(const Timeline& timeline, const RecorderCostModel& model, Durations& durations,
                       Latencies& latencies) {
  // By place in latencies.launches.
  std::vector<double> inside(latencies.launches.size(), 0), left = inside, launches = inside;
  for (Row call = 0; call < durations.call_ns.size(); ++call) {
    const uint32_t launched = timeline.launched_begin[call + 1] - timeline.launched_begin[call];
    const int64_t seen = durations.call_ns[call];
    RecorderCostModel::Cost cost;
    switch (timeline.calls.kind(call)) {
      case ApiKind::kGraphLaunch:
        cost = model.of_graph_launch(static_cast<double>(seen), launched,
                                     launched == 0 || queue_may_be_full(timeline, call));
        break;
      case ApiKind::kLaunch:
        cost = model.of_launch(static_cast<double>(seen));
        break;
      case ApiKind::kEnqueue:
      case ApiKind::kCopy:
        cost = model.of_copy();
        break;
      case ApiKind::kSync:
        cost = model.of_wait();
        break;
      default:
        break;
    }
    if (launched > 0) {
      const size_t place = latencies.launch_place(timeline, timeline.launched[timeline.launched_begin[call]]);
      inside[place] += cost.inside;
      // A launch that was held up by a full queue takes longer than it does where the GPU waits for it.
      const bool graph = timeline.calls.kind(call) == ApiKind::kGraphLaunch;
      const double without = std::max(0.0, static_cast<double>(seen) - cost.inside);
      left[place] += graph ? std::min(without, model.graph_launch_ns(launched)) : without;
      launches[place] += 1;
    }
    durations.call_ns[call] = std::max<int64_t>(0, seen - std::llround(cost.inside));
    durations.before_ns[call] = std::max<int64_t>(0, durations.before_ns[call] - std::llround(cost.beside));
  }
  // A latency that was counted from the start of the call holds the call.
  for (size_t at = 0; at < launches.size(); ++at) {
    Latencies::Launch& launch = latencies.launches[at];
    if (launch.at == 0 && launches[at] > 0) launch.latency.ns -= inside[at] / launches[at];
  }
  // CUPTI may go on in the launch of a graph when the GPU has begun with it; without it the GPU cannot begin before.
  const auto mean_call = [&](size_t at) { return launches[at] > 0 ? left[at] / launches[at] : 0; };
  const auto from_end = [&](size_t at) {
    const Latencies::Launch& launch = latencies.launches[at];
    return launch.latency.ns - (1 - launch.at) * mean_call(at);
  };
  const size_t kernels = static_cast<size_t>(StartKind::kKernel);
  const double least = launches[kernels] > 0 ? std::max(0.0, from_end(kernels)) : 0;
  for (size_t at = static_cast<size_t>(StartKind::kGraphNode); at < launches.size(); ++at)
    if (launches[at] > 0) latencies.launches[at].latency.ns += std::max(0.0, least - from_end(at));
  const auto later = [](StartKind kind) { return kind != StartKind::kGraphNode; };
  for (size_t before = 0; before < kStartKinds; ++before)
    for (size_t kind = 0; kind < kStartKinds; ++kind)
      if (later(static_cast<StartKind>(before)) && later(static_cast<StartKind>(kind)))
        latencies.behind[before][kind].ns -= model.kernel_gap_ns();
  for (auto& [edge, latency] : latencies.edges) latency.ns -= model.node_gap_ns();
  latencies.any_edge.ns -= model.node_gap_ns();
  for (const Awaited awaited : {Awaited::kOwn, Awaited::kStream, Awaited::kEvent, Awaited::kDevice, Awaited::kThread}) {
    const size_t at = static_cast<size_t>(awaited);
    const RecorderCostModel::Cost call = awaited == Awaited::kOwn ? model.of_copy() : model.of_wait();
    latencies.woken[at].ns = std::max(0.0, latencies.woken[at].ns - model.wakes_later_ns(awaited));
    latencies.unblocked[at].ns = std::max(0.0, latencies.unblocked[at].ns - call.inside);
  }
  // Where launching takes so much longer recorded that the GPU always waited for it, the edges of graphs were not seen.
  for (size_t before = 0; before < kStartKinds; ++before)
    for (size_t kind = 0; kind < kStartKinds; ++kind) {
      const bool edge = !later(static_cast<StartKind>(before)) || !later(static_cast<StartKind>(kind));
      Latency& latency = latencies.behind[before][kind];
      if (!edge) continue;
      if (latency.samples != 0 && !later(static_cast<StartKind>(kind)))
        latency.ns = std::max(std::min(latency.ns, model.graph_edge_ns()), latency.ns - model.graph_begins_later_ns());
      if (latency.samples != 0) continue;
      const bool nodes = before == kind;
      latency.ns = std::max(nodes ? latencies.any_edge.ns : latency.ns, model.graph_edge_ns());
    }
}

}  // namespace llmprof::replay
