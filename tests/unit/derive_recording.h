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

#include "trace/copy_names.h"
#include "trace/trace_builder.h"

namespace llmprof {

class Recording {
 public:
  Recording() {
    thread(1, 1);
    rows().add<Streams>({.device = 0, .context = 1, .stream = 7});
  }

  ThreadId thread(int64_t process, int64_t id) { return rows().add<Threads>({.process_id = process, .thread_id = id}); }
  SignatureId signature(std::string_view dims, std::string_view types = {}, std::string_view concrete = {},
                        std::string_view strides = {}) {
    return rows().signature({dims, types, strides, concrete});
  }
  // Rows are in the order of the calls only if starts ascend.
  OpId op(int64_t start, int64_t dur, std::string_view name, uint64_t id = 0, SignatureId sig = kNoRow,
          ThreadId on = 0) {
    return rows().add<Ops>(
        {.start_ns = start, .dur_ns = dur, .thread = on, .name = text(name), .signature = sig, .external_id = id});
  }
  ApiCallId call(int64_t start, int64_t dur, std::string_view name, uint64_t correlation, uint64_t id = 0,
                 ThreadId on = 0) {
    return rows().add<ApiCalls>({.start_ns = start,
                                 .dur_ns = dur,
                                 .thread = on,
                                 .name = text(name),
                                 .correlation = correlation,
                                 .external_id = id,
                                 .layer = name.starts_with("cuda") ? ApiLayer::kRuntime : ApiLayer::kDriver});
  }
  GpuOpId gpu(int64_t start, int64_t dur, std::string_view name, uint64_t correlation, uint64_t id = 0,
              GpuOpKind kind = GpuOpKind::kKernel) {
    return rows().add<GpuOps>({.start_ns = start,
                               .dur_ns = dur,
                               .stream = 0,
                               .name = text(name),
                               .correlation = correlation,
                               .external_id = id,
                               .bytes = kind == GpuOpKind::kKernel ? -1 : 4096,
                               .kind = kind,
                               .path = copy_path_of_name(name),
                               .host_memory = host_memory_of_name(name)});
  }
  // An operator that launches kernels one after another, each from a call of its own, after everything before it.
  // The kernels take 100, 200, ... ns in the order given unless `durations` says otherwise.
  OpId launch(std::string_view op_name, SignatureId sig, const std::vector<std::string_view>& kernels,
              const std::vector<int64_t>& durations = {}) {
    const OpId row = op(now, 100 * static_cast<int64_t>(kernels.size()) + 50, op_name, 0, sig);
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

 private:
  TraceBuilder rows() { return TraceBuilder(trace); }
  StringId text(std::string_view text) { return trace.strings.intern(text); }
};

}  // namespace llmprof
