#include "replay/timeline.h"

#include <algorithm>

namespace llmprof::replay {
namespace {

constexpr uint32_t kBranchesMost = 8;  // of a graph at one time: so far back the node that one follows is looked for

StartKind start_kind(const Timeline& timeline, GpuOpId op) {
  const ApiCallId call = timeline.trace.gpu_links.api[op];
  if (call != kNoRow && timeline.calls.kind(call) == ApiKind::kGraphLaunch) return StartKind::kGraphNode;
  switch (timeline.trace.gpu_ops.kind[op]) {
    case GpuOpKind::kMemcpy:
      return StartKind::kCopy;
    case GpuOpKind::kMemset:
      return StartKind::kSet;
    case GpuOpKind::kKernel:
      break;
  }
  return StartKind::kKernel;
}

Awaited awaited_by(const Timeline& timeline, ApiCallId call) {
  if (timeline.calls.kind(call) == ApiKind::kCopy) return Awaited::kOwn;
  if (timeline.calls.kind(call) != ApiKind::kSync) return Awaited::kNothing;
  const std::string_view name = timeline.trace.text(timeline.trace.api_calls.name[call]);
  const bool device = name.find("Device") != std::string_view::npos || name.find("Ctx") != std::string_view::npos;
  // Which stream or event it waits for is not recorded; a thread waits for what it launched.
  return device ? Awaited::kDevice : Awaited::kThread;
}

}  // namespace

Timeline::Timeline(const Trace& recording) : trace(recording), calls(recording) {
  const size_t ops = trace.gpu_ops.size(), count = trace.api_calls.size();
  launched_begin.assign(count + 1, 0);
  for (Row op = 0; op < ops; ++op)
    if (const ApiCallId call = trace.gpu_links.api[op]; call != kNoRow) ++launched_begin[call + 1];
  for (size_t call = 0; call < count; ++call) launched_begin[call + 1] += launched_begin[call];
  std::vector<uint32_t> next(launched_begin.begin(), launched_begin.end() - 1);
  launched.resize(launched_begin.back());
  kinds.resize(ops);
  on_stream.assign(ops, kNoRow);
  in_graph.assign(ops, kNoRow);
  in_launch.assign(ops, 0);
  std::vector<GpuOpId> last_on_stream(trace.streams.size(), kNoRow);
  for (Row op = 0; op < ops; ++op) {
    kinds[op] = start_kind(*this, op);
    GpuOpId& last = last_on_stream[trace.gpu_ops.stream[op]];
    on_stream[op] = last;
    last = op;
    const ApiCallId call = trace.gpu_links.api[op];
    if (call == kNoRow) continue;
    in_launch[op] = next[call] - launched_begin[call];
    launched[next[call]++] = op;
  }
  for (Row call = 0; call < count; ++call) {
    for (uint32_t i = launched_begin[call]; i < launched_begin[call + 1]; ++i) {
      const GpuOpId op = launched[i];
      if (!is_graph_node(op)) break;
      // Branches of a graph overlap: a node follows the one that ended last before it began.
      GpuOpId last = kNoRow;
      for (uint32_t back = i; back-- > launched_begin[call] && i - back <= kBranchesMost;) {
        const GpuOpId earlier = launched[back];
        if (trace.end_of(earlier) > trace.gpu_ops.start_ns[op] &&
            trace.gpu_ops.stream[earlier] != trace.gpu_ops.stream[op])
          continue;
        if (last == kNoRow || trace.end_of(earlier) > trace.end_of(last)) last = earlier;
      }
      in_graph[op] = last;
    }
  }
  before.assign(count, kNoRow);
  nested.assign(count, 0);
  awaited.resize(count);
  std::vector<ApiCallId> last_on_thread(trace.threads.size(), kNoRow);
  for (Row call = 0; call < count; ++call) {
    awaited[call] = awaited_by(*this, call);
    ApiCallId& last = last_on_thread[trace.api_calls.thread[call]];
    before[call] = last;
    if (last != kNoRow && end_of(last) > start_of(call)) {
      nested[call] = 1;
      continue;  // the enclosing call goes on
    }
    last = call;
  }
}

}  // namespace llmprof::replay
