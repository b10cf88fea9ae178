#include "derive/parallel_passes.h"

#include <algorithm>
#include <limits>
#include <map>

namespace llmprof {
namespace {

// The stream on which most of the products and attention of each step ran; kNoRow where it has none.
std::vector<StreamId> main_streams(const Trace& trace, size_t steps) {
  std::vector<std::map<StreamId, uint32_t>> heavy(steps);
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
    const StepId step = trace.gpu_links.step[gpu];
    const Category category = trace.gpu_links.category[gpu];
    if (step != kNoRow && (category == Category::kGemm || category == Category::kAttention))
      ++heavy[step][trace.gpu_ops.stream[gpu]];
  }
  std::vector<StreamId> streams(steps, StreamId(kNoRow));
  for (size_t s = 0; s < steps; ++s) {
    uint32_t most = 0;
    for (const auto& [stream, count] : heavy[s])
      if (count > most) most = count, streams[s] = stream;
  }
  return streams;
}

bool is_part(const StepDraft& step) {
  return step.kind == StageKind::kDecode && !step.unseen && !step.host_only && step.heavy > 0 && step.thread != kNoRow;
}

// Parts of a batch run the same model; their sizes may ask for other kernels of some products.
bool are_alike(const StepDraft& a, const StepDraft& b) {
  constexpr double kAlike = 1.25;
  const auto [least, most] = std::minmax(a.heavy, b.heavy);
  return static_cast<double>(most) <= kAlike * static_cast<double>(least);
}

bool is_beside(const HostCalls& calls, const StepDraft& before, const StepDraft& step) {
  return before.device == step.device && before.thread == step.thread && before.annotation == step.annotation &&
         is_part(step) && are_alike(before, step) && step.gpu_start_ns < before.gpu_end_ns &&
         calls.first_blocking(step.thread, before.last_launch_ns, step.begin_ns) == nullptr;
}

int64_t sum_of(int64_t a, int64_t b) { return a < 0 || b < 0 ? -1 : a + b; }

void add_part(StepDraft& part, StepDraft& step) {
  step.end_ns = std::max(step.end_ns, part.end_ns);
  step.launches += part.launches;
  step.graph_nodes += part.graph_nodes;
  step.whole_graph |= part.whole_graph;
  step.names_hash += part.names_hash;
  step.gpu_ns += part.gpu_ns;
  step.gpu_start_ns = std::min(step.gpu_start_ns, part.gpu_start_ns);
  step.gpu_end_ns = std::max(step.gpu_end_ns, part.gpu_end_ns);
  step.last_launch_ns = std::max(step.last_launch_ns, part.last_launch_ns);
  step.samples |= part.samples;
  step.decode_attentions += part.decode_attentions;
  step.vector_gemms += part.vector_gemms;
  step.heavy += part.heavy;
  step.new_tokens = sum_of(step.new_tokens, part.new_tokens);
  step.sequences = sum_of(step.sequences, part.sequences);
  step.output_tokens = sum_of(step.output_tokens, part.output_tokens);
  step.attended = sum_of(step.attended, part.attended);
  step.logit_rows = sum_of(step.logit_rows, part.logit_rows);
  step.chosen_rows = sum_of(step.chosen_rows, part.chosen_rows);
  step.context = std::max(step.context, part.context);
  part.launches = 0;
}

// The host waits for one part after the other, and a step was taken to end at its first wait: the copies of the other
// parts came to what follows. They are of `into`.
struct Following {
  Row step, into;
};

void take_copies(Trace& trace, const std::vector<LaunchOrder>& orders, const std::vector<Following>& all,
                 std::vector<StepDraft>& steps) {
  std::map<Row, Row> into;
  for (const Following& one : all) into[one.step] = one.into;
  std::vector<uint8_t> begun(steps.size());
  for (const LaunchOrder& order : orders)
    for (size_t i = 0; i < order.size(); ++i) {
      StepId& step = trace.gpu_links.step[order.gpu[i]];
      const std::map<Row, Row>::const_iterator at = step != kNoRow ? into.find(step) : into.end();
      if (at == into.end() || begun[step] != 0 || order.thread[i] != steps[step].thread) continue;
      StepDraft &next = steps[step], &own = steps[at->second];
      if (trace.gpu_links.category[order.gpu[i]] != Category::kCopy) {
        begun[step] = 1;
        own.end_ns = next.begin_ns = next.host_start_ns = order.time_ns[i];
        continue;
      }
      --next.launches;
      ++own.launches;
      next.gpu_ns -= trace.gpu_ops.dur_ns[order.gpu[i]];
      own.gpu_ns += trace.gpu_ops.dur_ns[order.gpu[i]];
      own.gpu_end_ns = std::max(own.gpu_end_ns, trace.end_of(order.gpu[i]));
      own.last_launch_ns = std::max(own.last_launch_ns, order.time_ns[i]);
      step = at->second;
    }
  for (const Following& one : all) steps[one.step].gpu_start_ns = std::numeric_limits<int64_t>::max();
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
    const StepId step = trace.gpu_links.step[gpu];
    if (step != kNoRow && into.count(step) > 0)
      steps[step].gpu_start_ns = std::min(steps[step].gpu_start_ns, trace.gpu_ops.start_ns[gpu]);
  }
}

}  // namespace

void join_parallel_passes(Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                          std::vector<StepDraft>& steps) {
  const std::vector<StreamId> streams = main_streams(trace, steps.size());
  struct Group {
    size_t first, last;  // of steps; exclusive
  };
  std::map<int32_t, std::vector<Group>> groups;
  std::map<int32_t, size_t> decode_steps, in_groups;
  for (size_t first = 0, last = 0; first < steps.size(); first = last) {
    last = first + 1;
    if (!is_part(steps[first])) continue;
    bool apart = true;
    for (; last < steps.size() && is_beside(calls, steps[last - 1], steps[last]); ++last)
      apart &=
          std::find(streams.begin() + static_cast<ptrdiff_t>(first), streams.begin() + static_cast<ptrdiff_t>(last),
                    streams[last]) == streams.begin() + static_cast<ptrdiff_t>(last);
    decode_steps[steps[first].device] += last - first;
    // On a stream again it is a later step, of a host that does not wait.
    if (last - first < 2 || !apart) continue;
    groups[steps[first].device].push_back({first, last});
    in_groups[steps[first].device] += last - first;
  }
  std::vector<Row> joined(steps.size());
  for (size_t s = 0; s < steps.size(); ++s) joined[s] = static_cast<Row>(s);
  std::vector<Following> following;
  bool any = false;
  for (const auto& [device, of_device] : groups) {
    if (in_groups[device] * 2 < decode_steps[device]) continue;
    any = true;
    for (const Group& group : of_device) {
      for (size_t s = group.first + 1; s < group.last; ++s) {
        add_part(steps[s], steps[group.first]);
        joined[s] = static_cast<Row>(group.first);
      }
      const bool followed = group.last < steps.size() && steps[group.last].device == device &&
                            steps[group.last].thread == steps[group.first].thread;
      if (followed) following.push_back({static_cast<Row>(group.last), static_cast<Row>(group.first)});
    }
  }
  if (!any) return;
  for (StepId& step : trace.gpu_links.step)
    if (step != kNoRow) step = joined[step];
  take_copies(trace, orders, following, steps);
}

}  // namespace llmprof
