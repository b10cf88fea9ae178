#include "derive/joint_passes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "derive/detect.h"

namespace llmprof {
namespace {

constexpr double kDrivenShareMin = 0.9;  // of a GPU's launches, by one thread

ThreadId driver_of(const LaunchOrder& order) {
  const auto mine = std::count(order.thread.begin(), order.thread.end(), order.main_thread);
  const bool drives = static_cast<double>(mine) >= kDrivenShareMin * static_cast<double>(order.size());
  return drives ? order.main_thread : ThreadId(kNoRow);
}

// The launches of several GPUs, in order of time.
LaunchOrder merged(const std::vector<LaunchOrder>& orders, const std::vector<size_t>& group) {
  LaunchOrder out;
  out.device = orders[group.front()].device;
  out.main_thread = orders[group.front()].main_thread;
  std::vector<std::pair<size_t, size_t>> rows;  // of which order, and where in it
  for (const size_t at : group)
    for (size_t i = 0; i < orders[at].size(); ++i) rows.emplace_back(at, i);
  std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
    return orders[a.first].time_ns[a.second] < orders[b.first].time_ns[b.second];
  });
  for (const auto& [at, i] : rows) {
    out.gpu.push_back(orders[at].gpu[i]);
    out.time_ns.push_back(orders[at].time_ns[i]);
    out.thread.push_back(orders[at].thread[i]);
  }
  return out;
}

bool launches_in(std::span<const int64_t> times, const StepDraft& step) {
  const auto first = std::lower_bound(times.begin(), times.end(), step.begin_ns);
  return first != times.end() && *first < step.end_ns;
}

}  // namespace

void detect_joint_passes(const Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                         const TokenEvents& events, std::vector<std::vector<StepDraft>>& detected) {
  std::map<ThreadId, std::vector<size_t>> groups;
  for (size_t i = 0; i < orders.size(); ++i)
    if (const ThreadId driver = driver_of(orders[i]); driver != kNoRow) groups[driver].push_back(i);
  uint32_t pass = 0;
  for (const auto& [driver, group] : groups) {
    if (group.size() < 2) continue;
    const std::vector<StepDraft> joint = detect_steps(trace, merged(orders, group), calls, events);
    size_t fewest = detected[group.front()].size();
    for (const size_t at : group) fewest = std::min(fewest, detected[at].size());
    const size_t most = fewest + std::max<size_t>(1, fewest / 8);  // passes at the edges of what was recorded
    if (joint.empty() || joint.front().by_period || joint.size() > most) continue;
    std::vector<std::vector<StepDraft>> divided(group.size());
    std::vector<LaunchTimes> times;
    for (const size_t at : group) times.emplace_back(orders[at]);
    size_t crossing = 0;
    for (const StepDraft& step : joint) {
      ++pass;
      size_t on = 0;
      for (size_t g = 0; g < group.size(); ++g) {
        if (!launches_in(times[g].of(driver), step)) continue;
        StepDraft& part = divided[g].emplace_back(step);
        part.device = orders[group[g]].device;
        part.pass = pass;
        ++on;
      }
      if (on > 1) ++crossing;
    }
    if (crossing * 2 <= joint.size()) continue;
    for (size_t g = 0; g < group.size(); ++g) detected[group[g]] = std::move(divided[g]);
  }
}

namespace {

// Calls take(steps of a pass) for each pass of several.
template <class Take>
void for_each_pass(std::vector<StepDraft>& steps, Take&& take) {
  std::map<uint32_t, std::vector<StepDraft*>> passes;
  for (StepDraft& step : steps)
    if (step.pass != 0) passes[step.pass].push_back(&step);
  for (auto& [pass, parts] : passes)
    if (parts.size() > 1) take(parts);
}

}  // namespace

void share_passes(std::vector<StepDraft>& steps) {
  for_each_pass(steps, [](std::vector<StepDraft*>& parts) {
    const StepDraft& end = **std::max_element(parts.begin(), parts.end(), [](const StepDraft* a, const StepDraft* b) {
      return std::pair(a->samples || a->logit_rows > 0, a->last_launch_ns) <
             std::pair(b->samples || b->logit_rows > 0, b->last_launch_ns);
    });
    for (StepDraft* part : parts) {
      part->kind = end.kind;
      part->kind_known = end.kind_known;
      part->new_tokens = end.new_tokens;
      part->sequences = end.sequences;
      part->context = end.context;
      part->output_tokens = end.output_tokens;
      part->attended = end.attended;
      part->tokens_sure = end.tokens_sure;
    }
  });
}

void join_windows(std::vector<StepDraft>& steps) {
  for_each_pass(steps, [](std::vector<StepDraft*>& parts) {
    int64_t start = parts.front()->window_start_ns, host_start = parts.front()->host_start_ns;
    const StepDraft* last = parts.front();
    for (const StepDraft* part : parts) {
      start = std::min(start, part->window_start_ns);
      host_start = std::min(host_start, part->host_start_ns);
      if (part->window_end_ns > last->window_end_ns) last = part;
    }
    const int64_t end = last->window_end_ns, sync = last->sync_ns;
    for (StepDraft* part : parts) {
      part->window_start_ns = start, part->window_end_ns = end;
      part->host_start_ns = host_start, part->sync_ns = sync;
    }
  });
  // Of one GPU they do not overlap: a host that runs ahead has a pass in each of them.
  std::vector<StepDraft*> order;
  for (StepDraft& step : steps) order.push_back(&step);
  std::stable_sort(order.begin(), order.end(),
                   [](const StepDraft* a, const StepDraft* b) { return a->window_end_ns < b->window_end_ns; });
  std::map<int32_t, int64_t> ended;
  for (StepDraft* step : order) {
    const auto [before, first] = ended.try_emplace(step->device, step->window_end_ns);
    if (first) continue;
    if (step->pass != 0) step->window_start_ns = std::max(step->window_start_ns, before->second);
    before->second = step->window_end_ns;
  }
}

}  // namespace llmprof
