// A recording written in code, for tests of the derive passes: rows are added in any order and brought into the order
// that importers establish (by start, ties longer first).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

class Recording {
 public:
  Recording() {
    thread(1, 1);
    trace.streams.device.push_back(0);
    trace.streams.context.push_back(1);
    trace.streams.stream.push_back(7);
  }

  Row thread(int64_t process, int64_t id) {
    trace.threads.process_id.push_back(process);
    trace.threads.thread_id.push_back(id);
    trace.threads.name.push_back(StringId::kEmpty);
    return static_cast<Row>(trace.threads.size() - 1);
  }
  Row signature(std::string_view dims, std::string_view types = {}, std::string_view concrete = {},
                std::string_view strides = {}) {
    Signatures& s = trace.signatures;
    s.dims.push_back(trace.strings.intern(dims));
    s.types.push_back(trace.strings.intern(types));
    s.strides.push_back(trace.strings.intern(strides));
    s.concrete.push_back(trace.strings.intern(concrete));
    return static_cast<Row>(s.size() - 1);
  }
  // Rows are in the order of the calls only if starts ascend.
  Row op(int64_t start, int64_t dur, std::string_view name, uint64_t id = 0, Row sig = kNoRow, Row on = 0) {
    Ops& o = trace.ops;
    o.start_ns.push_back(start);
    o.dur_ns.push_back(dur);
    o.thread.push_back(on);
    o.name.push_back(trace.strings.intern(name));
    o.signature.push_back(sig);
    o.external_id.push_back(id);
    o.sequence.push_back(-1);
    o.recorded_flops.push_back(std::numeric_limits<double>::quiet_NaN());
    return static_cast<Row>(o.size() - 1);
  }
  Row call(int64_t start, int64_t dur, std::string_view name, uint64_t correlation, uint64_t id = 0, Row on = 0) {
    ApiCalls& a = trace.api_calls;
    a.start_ns.push_back(start);
    a.dur_ns.push_back(dur);
    a.thread.push_back(on);
    a.name.push_back(trace.strings.intern(name));
    a.correlation.push_back(correlation);
    a.external_id.push_back(id);
    a.layer.push_back(name.substr(0, 4) == "cuda" ? ApiLayer::kRuntime : ApiLayer::kDriver);
    return static_cast<Row>(a.size() - 1);
  }
  Row gpu(int64_t start, int64_t dur, std::string_view name, uint64_t correlation, uint64_t id = 0,
          GpuOpKind kind = GpuOpKind::kKernel) {
    GpuOps& g = trace.gpu_ops;
    g.start_ns.push_back(start);
    g.dur_ns.push_back(dur);
    g.stream.push_back(0);
    g.name.push_back(trace.strings.intern(name));
    g.config.push_back(kNoRow);
    g.correlation.push_back(correlation);
    g.external_id.push_back(id);
    g.graph_node.push_back(0);
    g.bytes.push_back(kind == GpuOpKind::kKernel ? -1 : 4096);
    g.kind.push_back(kind);
    return static_cast<Row>(g.size() - 1);
  }
  // An operator that launches kernels one after another, each from a call of its own, after everything before it.
  // The kernels take 100, 200, ... ns in the order given unless `durations` says otherwise.
  Row launch(std::string_view op_name, Row sig, const std::vector<std::string_view>& kernels,
             const std::vector<int64_t>& durations = {}) {
    const Row row = op(now, 100 * static_cast<int64_t>(kernels.size()) + 50, op_name, 0, sig);
    for (size_t i = 0; i < kernels.size(); ++i) {
      ++next_correlation;
      const int64_t offset = 100 * static_cast<int64_t>(i) + 10;
      call(now + offset, 20, "cudaLaunchKernel", next_correlation);
      gpu(now + offset + 5, i < durations.size() ? durations[i] : 100 * static_cast<int64_t>(i + 1), kernels[i],
          next_correlation);
    }
    now += 100 * static_cast<int64_t>(kernels.size()) + 100;
    return row;
  }

  Trace trace;
  int64_t now = 0;
  uint64_t next_correlation = 0;
};

}  // namespace llmprof
