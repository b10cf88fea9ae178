// Totals that must add up. Every equality is exact: times are whole nanoseconds.
#include <map>

#include "analyze/analysis.h"

namespace llmprof {
namespace {

class Checks {
 public:
  void equal(std::string name, int64_t expected, int64_t actual, const char* unit = "ns") {
    checks_.push_back(
        {std::move(name), static_cast<double>(expected), static_cast<double>(actual), unit, expected == actual});
  }
  std::vector<ConservationCheck> take() { return std::move(checks_); }

 private:
  std::vector<ConservationCheck> checks_;
};

void check_devices(const Trace& trace, const Report& report, Checks& checks) {
  for (const Window& window : trace.windows) {
    int64_t wall = 0, busy = 0, idle = 0, unrecorded = 0, busy_rows = 0, gap_rows = 0, unrecorded_rows = 0;
    for (const StageTiming& stage : report.stages) {
      if (stage.device != window.device) continue;
      wall += stage.wall_ms.ns;
      busy += stage.gpu_busy_ms.ns;
      idle += stage.gpu_idle_ms.ns;
      unrecorded += stage.not_recorded_ms.ns;
    }
    for (Row b = 0; b < trace.busy_intervals.size(); ++b)
      if (trace.busy_intervals.device[b] == window.device)
        busy_rows += trace.busy_intervals.end_ns[b] - trace.busy_intervals.start_ns[b];
    for (Row g = 0; g < trace.gaps.size(); ++g)
      if (trace.gaps.device[g] == window.device)
        (trace.gaps.cause[g] == IdleCause::kNotRecorded ? unrecorded_rows : gap_rows) += trace.gaps.dur_ns[g];
    const std::string device = "device " + std::to_string(window.device) + ": ";
    const int64_t window_ns = window.end_ns - window.start_ns;
    checks.equal(device + "stage walls fill the window", window_ns, wall);
    checks.equal(device + "busy and idle intervals fill the window", window_ns, busy_rows + gap_rows + unrecorded_rows);
    checks.equal(device + "busy time of the stages is that of the device", busy_rows, busy);
    checks.equal(device + "idle time of the stages is that of the device", gap_rows, idle);
    if (unrecorded_rows > 0)
      checks.equal(device + "time without recording of the stages is that of the device", unrecorded_rows, unrecorded);
  }
}

// Parts of the waits of a client's requests, and of their times behind the first output.
void check_client_splits(const ClientSplits& rows, Checks& checks) {
  if (rows.empty()) return;
  int64_t split = 0, whole = 0;
  for (Row row = 0; row < rows.size(); ++row) {
    const ClientSplits::Values of = rows.row(row);
    const int64_t wait = of.wait_queue_ns + of.wait_prefill_ns + of.wait_mixed_ns + of.wait_decode_ns +
                         of.wait_other_ns + of.wait_host_ns + of.wait_gap_ns;
    const int64_t output =
        of.out_prefill_ns + of.out_mixed_ns + of.out_decode_ns + of.out_other_ns + of.out_host_ns + of.out_gap_ns;
    if (of.wait_ns >= 0) ++whole, split += wait == of.wait_ns;
    if (of.out_ns >= 0) ++whole, split += output == of.out_ns;
  }
  checks.equal("times of clients' requests whose parts are the whole", whole, split, "rows");
}

}  // namespace

std::vector<ConservationCheck> check_conservation(const Trace& trace, const Report& report) {
  Checks checks;
  check_devices(trace, report, checks);
  int64_t split = 0, total = 0;
  for (const StageTiming& stage : report.stages) {
    split += stage.gpu_busy_ms.ns + stage.gpu_idle_ms.ns + stage.not_recorded_ms.ns == stage.wall_ms.ns;
    total += 1;
  }
  checks.equal("stages whose busy + idle is wall", total, split, "rows");

  int64_t gpu_ns = 0;
  for (const int64_t dur_ns : trace.gpu_ops.dur_ns) gpu_ns += dur_ns;
  int64_t kernels = 0, category_ns = 0, category_kernels = 0, op_ns = 0, no_op_ns = 0, idle_ns = 0, gap_ns = 0;
  for (const StageTiming& stage : report.stages) kernels += stage.kernels;
  for (const CategoryRecord& row : report.categories) {
    category_ns += row.time_ms.ns;
    category_kernels += row.kernels;
  }
  checks.equal("GPU activities of the stages", static_cast<int64_t>(trace.gpu_ops.size()), kernels, "rows");
  checks.equal("GPU activities of the categories", static_cast<int64_t>(trace.gpu_ops.size()), category_kernels,
               "rows");
  checks.equal("category times are the sum of GPU durations", gpu_ns, category_ns);
  for (const OperatorRecord& row : report.operators) op_ns += row.gpu_self_ms.ns;
  for (Row g = 0; g < trace.gpu_ops.size(); ++g)
    if (trace.gpu_links.op[g] == kNoRow) no_op_ns += trace.gpu_ops.dur_ns[g];
  checks.equal("operators, and activities without one, are the sum of GPU durations", gpu_ns, op_ns + no_op_ns);
  for (const IdleRecord& row : report.idle) idle_ns += row.total_ms.ns;
  for (Row g = 0; g < trace.gaps.size(); ++g)
    if (trace.gaps.cause[g] != IdleCause::kNotRecorded) gap_ns += trace.gaps.dur_ns[g];
  checks.equal("idle causes are the sum of the gaps", gap_ns, idle_ns);
  check_client_splits(trace.client_splits, checks);
  return checks.take();
}

}  // namespace llmprof
