// Any bytes as a result of a server benchmark, through the whole program: read, import, derive, analyze, render.
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "derive/derive.h"
#include "import/serving.h"
#include "one_format.h"
#include "trace/trace_builder.h"

namespace llmprof::fuzz {

static void check_rows(const Trace& trace) {
  const ClientRequests& requests = trace.client_requests;
  for (size_t row = 0; row < requests.size(); ++row) {
    if (requests.start_ns[row] < 0) broken("reading", "a request before the first");
    if (requests.latency_ns[row] < -1 || requests.ttft_ns[row] < -1) broken("reading", "a negative time");
    if (requests.error[row] != StringId::kEmpty && requests.latency_ns[row] >= 0)
      broken("reading", "a failed request with a latency");
  }
  for (const int64_t length : trace.client_intervals.length_ns)
    if (length < 0) broken("reading", "a negative time between pieces");
  for (const double value : trace.client_figures.value)
    if (std::isnan(value) || value < 0) broken("reading", "a figure that is none");
}

// Ten steps on one GPU, the first begun so long after the first request was sent as each takes; a pause of two in the
// middle was not recorded.
constexpr int64_t kStep = 100'000'000;
static Trace recording_beside(const Trace& client) {
  Trace out;
  out.base_unix_ns = client.client_moments.sent_unix_ns[0];
  for (int64_t step = 0; step < 10; ++step) {
    const int64_t start = ((step < 5 ? 1 : 3) + step) * kStep;
    out.steps.append({.kind = static_cast<StageKind>(step % 6),
                      .device = 0,
                      .start_ns = start,
                      .end_ns = start + kStep,
                      .gpu_start_ns = start + 100,
                      .gpu_end_ns = start + kStep / 10 * 9});
    out.busy_intervals.append({.device = 0, .start_ns = start + 100, .end_ns = start + kStep / 10 * 9});
  }
  out.recorded.append({.start_ns = 0, .dur_ns = 6 * kStep, .level = RecordingLevel::kDefault});
  out.recorded.append({.start_ns = 6 * kStep, .dur_ns = 2 * kStep, .level = RecordingLevel::kOff});
  out.recorded.append({.start_ns = 8 * kStep, .dur_ns = 6 * kStep, .level = RecordingLevel::kDefault});
  out.windows.push_back({0, 0, 14 * kStep});
  return out;
}

static void check_beside(Trace client) {
  const ClientMoments& moments = client.client_moments;
  for (Row row = 0; row < moments.size(); ++row) {
    const int64_t sent = moments.sent_unix_ns[row], first = moments.first_unix_ns[row], end = moments.end_unix_ns[row];
    if (sent < 0 || (first >= 0 && first < sent) || (end >= 0 && end < sent))
      broken("reading", "an end before sending");
  }
  if (moments.empty()) return;
  Trace both = recording_beside(client);
  TraceBuilder(both).append(std::move(client));
  split_client_times(both);
  const ClientSplits& rows = both.client_splits;
  for (Row row = 0; row < rows.size(); ++row) {
    int64_t wait = 0, output = 0;
    for (const auto* part : {&rows.wait_queue_ns, &rows.wait_prefill_ns, &rows.wait_mixed_ns, &rows.wait_decode_ns,
                             &rows.wait_other_ns, &rows.wait_host_ns, &rows.wait_gap_ns}) {
      wait += (*part)[row];
      if ((*part)[row] < 0 && rows.wait_ns[row] >= 0) broken("splitting", "a negative part");
    }
    for (const auto* part : {&rows.out_prefill_ns, &rows.out_mixed_ns, &rows.out_decode_ns, &rows.out_other_ns,
                             &rows.out_host_ns, &rows.out_gap_ns}) {
      output += (*part)[row];
      if ((*part)[row] < 0 && rows.out_ns[row] >= 0) broken("splitting", "a negative part");
    }
    if (rows.wait_ns[row] >= 0 && wait != rows.wait_ns[row]) broken("splitting", "parts of a wait are not the whole");
    if (rows.out_ns[row] >= 0 && output != rows.out_ns[row])
      broken("splitting", "parts of an output are not the whole");
    const int64_t start = rows.start_ns[row];
    if (rows.wait_ns[row] >= 0 && (start < 0 || start + rows.wait_ns[row] > 14 * kStep))
      broken("splitting", "unrecorded time");
    if (rows.wait_ns[row] > 0 && start < 8 * kStep && start + rows.wait_ns[row] > 6 * kStep)
      broken("splitting", "unrecorded time");
  }
}

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.jsonl", serving::sniff, serving::import, trace)) return;
  // A value takes at least a digit and a comma; compressed bytes stand for more.
  const size_t rows = trace.client_requests.size() + trace.client_intervals.size() + trace.client_figures.size();
  if (more_than_text(bytes, rows, 1)) broken("reading", "more rows than text");
  check_rows(trace);
  Trace again;
  if (imported(bytes, "fuzz.jsonl", serving::sniff, serving::import, again)) check_beside(std::move(again));
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
