#include "analyze/several_gpus.h"

#include <algorithm>
#include <map>
#include <set>

#include "analyze/copies.h"
#include "replay/meetings.h"

namespace llmprof {
namespace {

int64_t overlap_ns(const Steps& steps, Row a, Row b) {
  return std::min(steps.end_ns[a], steps.end_ns[b]) - std::max(steps.start_ns[a], steps.start_ns[b]);
}

// The step of another device that shares most of the window; kNoRow if none shares half of the shorter one.
// `candidates` do not overlap and are in time order.
Row partner_of(const Steps& steps, StepId step, const std::vector<Row>& candidates) {
  using Candidate = std::vector<Row>::const_iterator;
  const Candidate first = std::partition_point(candidates.begin(), candidates.end(),
                                               [&](Row c) { return steps.end_ns[c] <= steps.start_ns[step]; });
  Row best = kNoRow;
  for (Candidate c = first; c != candidates.end() && steps.start_ns[*c] < steps.end_ns[step]; ++c)
    if (steps.kind[*c] == steps.kind[step] &&
        (best == kNoRow || overlap_ns(steps, step, *c) > overlap_ns(steps, step, best)))
      best = *c;
  if (best == kNoRow) return best;
  const int64_t shorter =
      std::min(steps.end_ns[step] - steps.start_ns[step], steps.end_ns[best] - steps.start_ns[best]);
  return overlap_ns(steps, step, best) * 2 >= shorter ? best : kNoRow;
}

// Steps that are partners of each other, by one of them: a step of the model as its devices ran it. `owner`, parallel
// to steps, is set to that one.
std::map<Row, std::vector<Row>> shared_steps(const Trace& trace, std::vector<Row>& owner) {
  const Steps& steps = trace.steps;
  std::map<int32_t, std::vector<Row>> of_device;
  for (Row s = 0; s < steps.size(); ++s) of_device[steps.device[s]].push_back(s);
  std::map<Row, std::vector<Row>> out;
  for (const auto& [device, mine] : of_device)
    for (const Row s : mine)
      for (const auto& [other, theirs] : of_device) {
        if (other <= device) continue;
        const Row partner = partner_of(steps, s, theirs);
        if (partner == kNoRow || owner[partner] != kNoRow || partner_of(steps, partner, mine) != s) continue;
        if (owner[s] == kNoRow) {
          owner[s] = s;
          out[s].push_back(s);
        }
        owner[partner] = owner[s];
        out[owner[s]].push_back(partner);
      }
  return out;
}

bool is_peer_copy(const Trace& trace, Row activity) {
  return trace.gpu_ops.kind[activity] == GpuOpKind::kMemcpy && trace.gpu_ops.path[activity] == CopyPath::kPeer;
}

// Whether the devices of the activities exchanged anything.
bool are_joined(const Trace& trace, const std::vector<Row>& activities) {
  std::set<int32_t> communicating;
  for (const Row a : activities) {
    if (is_peer_copy(trace, a)) return true;
    if (trace.gpu_links.category[a] == Category::kCommunication) communicating.insert(trace.device_of(a));
  }
  return communicating.size() > 1;
}

struct DeviceChain {
  int64_t busy_until_ns = INT64_MIN;  // as recorded
  int64_t done_ns = 0;                // on the chain
  // Copies to it: what starts after one needs what the chain had done by then.
  struct Arrival {
    int64_t recorded_ns, done_ns;
  };
  std::vector<Arrival> arrivals;
};

// Where a peer copy went: with two devices the other one, else that which begins to work first after it.
int32_t receiver_of(const Trace& trace, std::span<const Row> activities, size_t copy,
                    const std::map<int32_t, DeviceChain>& chains) {
  const int32_t from = trace.device_of(activities[copy]);
  const int64_t end = trace.gpu_ops.start_ns[activities[copy]] + trace.gpu_ops.dur_ns[activities[copy]];
  for (size_t i = copy + 1; i < activities.size(); ++i) {
    const int32_t device = trace.device_of(activities[i]);
    if (device == from || trace.gpu_ops.start_ns[activities[i]] < end) continue;
    const std::map<int32_t, DeviceChain>::const_iterator chain = chains.find(device);
    if (chain == chains.end() || chain->second.busy_until_ns <= end) return device;
  }
  return from;
}

}  // namespace

int64_t longest_chain_ns(const Trace& trace, std::span<const Row> activities, std::span<const int64_t> waited_ns) {
  std::map<int32_t, DeviceChain> chains;
  int64_t longest = 0;
  for (size_t i = 0; i < activities.size(); ++i) {
    const int64_t waited = waited_ns.empty() ? 0 : waited_ns[activities[i]];
    const int64_t start = trace.gpu_ops.start_ns[activities[i]] + waited, end = trace.end_of(activities[i]);
    DeviceChain& chain = chains[trace.device_of(activities[i])];
    std::erase_if(chain.arrivals, [&](const DeviceChain::Arrival& arrival) {
      if (arrival.recorded_ns > start) return false;
      chain.done_ns = std::max(chain.done_ns, arrival.done_ns);
      return true;
    });
    // Streams of a device that are busy at the same time count once.
    chain.done_ns += std::max<int64_t>(0, end - std::max(start, chain.busy_until_ns));
    chain.busy_until_ns = std::max(chain.busy_until_ns, end);
    longest = std::max(longest, chain.done_ns);
    if (!is_peer_copy(trace, activities[i])) continue;
    const int32_t to = receiver_of(trace, activities, i, chains);
    if (to != trace.device_of(activities[i])) chains[to].arrivals.push_back({end, chain.done_ns});
  }
  return longest;
}

namespace {

// By activity, what it waited in a collective for another GPU to begin; empty where none did.
std::vector<int64_t> waits_for_others(const Trace& trace) {
  std::vector<int64_t> out;
  for (const replay::Meeting& meeting : replay::find_meetings(trace)) {
    out.resize(trace.gpu_ops.size(), 0);
    for (const GpuOpId op : meeting) out[op] = replay::waited_ns(trace, meeting, op);
  }
  return out;
}

}  // namespace

void set_least_gpu_time(const Trace& trace, Groups& groups) {
  if (trace.windows.size() < 2) return;
  const std::vector<int64_t> waited = waits_for_others(trace);
  for (Row op = 0; op < waited.size(); ++op)
    if (const StepId step = trace.gpu_links.step[op]; step != kNoRow)
      groups.least_gpu_ns[step] = std::max<int64_t>(0, groups.least_gpu_ns[step] - waited[op]);
  std::vector<Row> owner(trace.steps.size(), kNoRow);
  const std::map<Row, std::vector<Row>> shared = shared_steps(trace, owner);
  if (shared.empty()) return;
  std::map<Row, std::vector<Row>> activities;
  for (Row g = 0; g < trace.gpu_ops.size(); ++g)
    if (const StepId step = trace.gpu_links.step[g]; step != kNoRow && owner[step] != kNoRow)
      activities[owner[step]].push_back(g);
  for (const auto& [first, together] : shared) {
    const std::map<Row, std::vector<Row>>::const_iterator found = activities.find(first);
    if (found == activities.end() || !are_joined(trace, found->second)) continue;
    const int64_t least = longest_chain_ns(trace, found->second, waited);
    for (const Row s : together) groups.least_gpu_ns[s] = std::max(groups.least_gpu_ns[s], least);
  }
}

}  // namespace llmprof
