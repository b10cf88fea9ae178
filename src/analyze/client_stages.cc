// What the GPU did while requests of a client waited, summed over the requests of each run. The split of each request:
// derive/client_splits.cc; how clocks are compared: derive/client_clocks.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/without_program.h"
#include "base/statistics.h"
#include "derive/client_clocks.h"

namespace llmprof {
namespace {

struct ClientPartColumn {
  const char* part;
  std::vector<int64_t> ClientSplits::*column;
};
constexpr ClientPartColumn kWaitParts[] = {{"all", &ClientSplits::wait_ns},
                                           {"queue", &ClientSplits::wait_queue_ns},
                                           {"prefill", &ClientSplits::wait_prefill_ns},
                                           {"mixed", &ClientSplits::wait_mixed_ns},
                                           {"decode", &ClientSplits::wait_decode_ns},
                                           {"other", &ClientSplits::wait_other_ns},
                                           {"host", &ClientSplits::wait_host_ns},
                                           {"gap", &ClientSplits::wait_gap_ns}};
constexpr ClientPartColumn kOutputParts[] = {
    {"all", &ClientSplits::out_ns},         {"prefill", &ClientSplits::out_prefill_ns},
    {"mixed", &ClientSplits::out_mixed_ns}, {"decode", &ClientSplits::out_decode_ns},
    {"other", &ClientSplits::out_other_ns}, {"host", &ClientSplits::out_host_ns},
    {"gap", &ClientSplits::out_gap_ns}};

using RowsOfRun = std::map<StringId, std::vector<Row>>;

// A row for each part; times are divided by what `per` says of a request, which is at least 1.
template <class Per>
void add_parts(const Trace& trace, const ClientPartColumn* first, const ClientPartColumn* last,
               const std::string& source, const char* figure, const std::vector<Row>& rows, Per&& per, Report& report) {
  double all_ms = 0;
  for (const ClientPartColumn* part = first; part != last; ++part) {
    std::vector<double> values;
    for (const Row row : rows)
      values.push_back(static_cast<double>((trace.client_splits.*part->column)[row]) / 1e6 /
                       static_cast<double>(per(row)));
    const std::optional<SampleSummary> found = summarize_samples(std::move(values));
    if (!found) return;
    if (part == first) all_ms = found->mean;
    report.client_stages.push_back({source, figure, part->part, found->n, found->mean, found->median, found->p90,
                                    all_ms > 0 ? OptDouble(found->mean / all_ms) : OptDouble()});
  }
}

void add_stages(const Trace& trace, const std::string& source, const std::vector<Row>& rows, Report& report) {
  const ClientSplits& splits = trace.client_splits;
  const auto tokens = [&](Row row) { return trace.client_requests.output_tokens[splits.request[row]]; };
  std::vector<Row> waits, outputs;
  for (const Row row : rows) {
    if (splits.wait_ns[row] >= 0) waits.push_back(row);
    if (splits.out_ns[row] >= 0 && tokens(row) > 1) outputs.push_back(row);
  }
  add_parts(
      trace, std::begin(kWaitParts), std::end(kWaitParts), source, "ttft", waits, [](Row) { return 1; }, report);
  add_parts(
      trace, std::begin(kOutputParts), std::end(kOutputParts), source, "tpot", outputs,
      [&](Row row) { return tokens(row) - 1; }, report);
}

void count_rows(const Trace& trace, const std::vector<Row>& rows, ClientClockRecord& record) {
  const ClientSplits& splits = trace.client_splits;
  for (const Row row : rows) {
    record.waits += splits.wait_ns[row] >= 0;
    record.outputs += splits.out_ns[row] >= 0;
    record.alone += splits.wait_ns[row] >= 0 && splits.others[row] == 0;
    const std::string_view why = trace.text(splits.why[row]);
    record.outside += why == "outside";
    record.not_recorded += why == "not-recorded";
    record.failed += why == "failed" || why == "no-times";
  }
}

OptDouble ms_of(const std::optional<int64_t>& ns) {
  return ns ? OptDouble(static_cast<double>(*ns) / 1e6) : OptDouble();
}

// What stays open of a run, one row each.
void say_what_stays_open(const ClientClockRecord& row, std::vector<CannotTell>& cannot_tell) {
  const std::string question = fmt::format("What did the GPU do while requests of {} waited?", row.source);
  if (row.apart_ms)
    cannot_tell.push_back({question,
                           fmt::format("the clocks of client and recorder differ by at least {:.6g} ms: taken as one, "
                                       "requests would have their first output before any step that began since they "
                                       "were sent had ended",
                                       *row.apart_ms),
                           "run the client on the host of the server, or keep both clocks by NTP or PTP"});
  else if (row.timed == 0)
    cannot_tell.push_back({question, *row.why,
                           "AIPerf's profile_export.jsonl and GuideLLM's file have it; vllm bench serve and "
                           "bench_serving keep lengths, and times of a clock that starts anywhere"});
  else if (row.why)
    cannot_tell.push_back({question, *row.why, "record one GPU with the time it was made, in steps"});
  else if (row.waits == 0)
    cannot_tell.push_back({question, "none of them waited wholly in recorded time",
                           "record for longer than a request takes, while the client runs"});
  else if (!row.ahead_least_ms || !row.ahead_most_ms)
    cannot_tell.push_back({fmt::format("How far are the clocks of {} and the recorder apart?", row.source),
                           "the steps do not bound it to both sides: busy without a pause, they fit requests at any "
                           "difference; the clocks are taken as one",
                           "run the client on the host of the server, or record steps that the program names"});
}

}  // namespace

void analyze_client_stages(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (trace.client_requests.empty() || profiled_only(trace)) return;
  std::map<StringId, int64_t> requests;
  for (const StringId source : trace.client_requests.source) ++requests[source];
  RowsOfRun rows;
  for (Row row = 0; row < trace.client_splits.size(); ++row)
    rows[trace.client_requests.source[trace.client_splits.request[row]]].push_back(row);
  for (const ClientClock& clock : client_clocks(trace)) {
    ClientClockRecord record;
    record.source = trace.text(clock.source);
    record.requests = requests[clock.source];
    record.timed = clock.timed;
    record.ahead_least_ms = ms_of(clock.least_ns);
    record.ahead_most_ms = ms_of(clock.most_ns);
    if (clock.apart_ns > 0) record.apart_ms = static_cast<double>(clock.apart_ns) / 1e6;
    if (!clock.why.empty()) record.why = clock.why;
    count_rows(trace, rows[clock.source], record);
    add_stages(trace, record.source, rows[clock.source], report);
    say_what_stays_open(record, cannot_tell);
    report.client_clocks.push_back(std::move(record));
  }
}

}  // namespace llmprof
