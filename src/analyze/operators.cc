// Framework operators by name and stage: calls, host time, GPU time launched inside, most frequent shapes.
#include <algorithm>

#include "analyze/analysis.h"
#include "analyze/copies.h"
#include "derive/recorded_spans.h"

namespace llmprof {
namespace {

struct CallKey {
  StringId name;
  SignatureId signature;
  uint32_t stage;
  friend bool operator==(const CallKey&, const CallKey&) = default;
  uint64_t hash() const { return mix_bits((uint64_t{index(name)} << 32 | signature) ^ mix_bits(stage)); }
};
struct NameKey {
  StringId name;
  uint32_t stage;
  friend bool operator==(const NameKey&, const NameKey&) = default;
  uint64_t hash() const { return mix_bits(uint64_t{index(name)} << 32 | stage); }
};

struct CallSums {
  int64_t calls = 0, top_level = 0, cpu_total = 0, cpu_self = 0, gpu_total = 0, gpu_self = 0;
  double flops = 0, bytes = 0;
  bool work = false;
  void add(const CallSums& other) {
    calls += other.calls;
    top_level += other.top_level;
    cpu_total += other.cpu_total;
    cpu_self += other.cpu_self;
    gpu_total += other.gpu_total;
    gpu_self += other.gpu_self;
    flops += other.flops;
    bytes += other.bytes;
    work |= other.work;
  }
};

// True if an enclosing operator has the same name: its total already holds this call's time.
bool inside_itself(const Ops& ops, const OpLinks& links, OpId op) {
  for (OpId parent = links.parent[op]; parent != kNoRow; parent = links.parent[parent])
    if (ops.name[parent] == ops.name[op]) return true;
  return false;
}

struct OpGpu {
  std::vector<int64_t> self_ns, total_ns;
  std::vector<uint8_t> work;  // some activity carries arithmetic
  std::vector<double> flops, bytes;
};

OpGpu gpu_time_of_ops(const Trace& trace) {
  OpGpu out;
  const size_t n = trace.ops.size();
  out.self_ns.resize(n);
  out.work.resize(n);
  out.flops.resize(n);
  out.bytes.resize(n);
  const GpuLinks& links = trace.gpu_links;
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    const OpId op = links.op[g];
    if (op == kNoRow) continue;
    out.self_ns[op] += trace.gpu_ops.dur_ns[g];
    if (links.work[g] == kNoRow) continue;
    out.work[op] = 1;
    out.flops[op] += trace.works.flops[links.work[g]];
    out.bytes[op] += activity_bytes(trace, g);
  }
  out.total_ns = out.self_ns;
  // An enclosing operator starts no later than what it encloses and stands before it, so one backward pass sums up.
  for (Row op = static_cast<Row>(n); op-- > 0;)
    if (const OpId parent = trace.op_links.parent[op]; parent != kNoRow) out.total_ns[parent] += out.total_ns[op];
  return out;
}

struct Calls {
  FlatIndex<CallKey> keys;
  std::vector<CallSums> sums;  // parallel to keys
};

Calls sum_calls(const Context& context) {
  const Trace& trace = context.trace;
  const Ops& ops = trace.ops;
  Calls out;
  const OpGpu gpu = gpu_time_of_ops(trace);
  HostCursor host(context.groups);
  for (OpId op = 0; op < ops.size(); ++op) {
    const uint32_t c = out.keys.add({ops.name[op], ops.signature[op], host.stage_at(ops.thread[op], ops.start_ns[op])});
    if (c == out.sums.size()) out.sums.emplace_back();
    CallSums& sums = out.sums[c];
    ++sums.calls;
    sums.cpu_self += trace.op_links.self_ns[op];
    sums.gpu_self += gpu.self_ns[op];
    const OpId parent = trace.op_links.parent[op];
    if (parent == kNoRow) ++sums.top_level;
    if (parent == kNoRow || !inside_itself(ops, trace.op_links, op)) {
      sums.cpu_total += ops.dur_ns[op];
      sums.gpu_total += gpu.total_ns[op];
    }
    if (gpu.work[op] != 0) {
      sums.work = true;
      sums.flops += gpu.flops[op];
      sums.bytes += gpu.bytes[op];
    }
  }
  return out;
}

}  // namespace

void analyze_operators(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (trace.ops.empty()) {
    cannot_tell.push_back(
        {"Which operators does the time belong to?", "the recording holds no operators of the host",
         is_live_recording(trace) ? "record with `llmprof run --torch`" : "record with ProfilerActivity.CPU as well"});
    return;
  }
  const Calls calls = sum_calls(context);
  const FlatIndex<CallKey>& call_index = calls.keys;
  const std::vector<CallSums>& call_sums = calls.sums;
  FlatIndex<NameKey> names;
  struct NameSums {
    CallSums sums;
    int64_t shapes = 0;
    uint32_t best = 0;  // most frequent call
  };
  std::vector<NameSums> totals;
  for (uint32_t c = 0; c < call_sums.size(); ++c) {
    const uint32_t n = names.add({call_index.key(c).name, call_index.key(c).stage});
    if (n == totals.size()) totals.push_back({{}, 0, c});
    totals[n].sums.add(call_sums[c]);
    if (call_index.key(c).signature != kNoRow) ++totals[n].shapes;
    if (call_sums[c].calls > call_sums[totals[n].best].calls) totals[n].best = c;
  }
  for (uint32_t n = 0; n < totals.size(); ++n) {
    const CallSums& sums = totals[n].sums;
    OperatorRecord row;
    row.name = trace.text(names.key(n).name);
    row.stage = stage_name(trace, context.groups, names.key(n).stage);
    row.calls = sums.calls;
    row.top_level_calls = sums.top_level;
    row.cpu_total_ms.ns = sums.cpu_total;
    row.cpu_self_ms.ns = sums.cpu_self;
    row.gpu_total_ms.ns = sums.gpu_total;
    row.gpu_self_ms.ns = sums.gpu_self;
    row.gpu_mean_ms = row.gpu_total_ms.ms() / static_cast<double>(sums.calls);
    row.shape_count = totals[n].shapes;
    const SignatureId signature = call_index.key(totals[n].best).signature;
    if (signature != kNoRow && trace.signatures.dims[signature] != StringId::kEmpty)
      row.shapes = std::string(trace.text(trace.signatures.dims[signature]));
    if (sums.work) {
      row.flops = sums.flops;
      row.memory_bytes = sums.bytes;
    }
    report.operators.push_back(std::move(row));
  }
  const SortKey sort = context.options.sort;
  std::stable_sort(report.operators.begin(), report.operators.end(),
                   [&](const OperatorRecord& a, const OperatorRecord& b) {
                     if (sort == SortKey::kName && a.name != b.name) return a.name < b.name;
                     if (sort == SortKey::kCalls && a.calls != b.calls) return a.calls > b.calls;
                     if (sort == SortKey::kMean && a.gpu_mean_ms != b.gpu_mean_ms) return a.gpu_mean_ms > b.gpu_mean_ms;
                     return a.gpu_total_ms.ns != b.gpu_total_ms.ns ? a.gpu_total_ms.ns > b.gpu_total_ms.ns
                                                                   : a.cpu_total_ms.ns > b.cpu_total_ms.ns;
                   });
}

}  // namespace llmprof
