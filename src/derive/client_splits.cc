// What the GPU did while requests of a client waited for their first output, and from there to the last: each
// nanosecond is one part. Which requests a step served is not known; that one which began before a request was sent did
// not serve it is, as that one which decodes does not serve a request without output.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "derive/client_clocks.h"
#include "derive/derive.h"
#include "derive/steps.h"

namespace llmprof {
namespace {

enum ClientPart : size_t {
  kBeforePart,
  kPromptPart,
  kBothPart,
  kTokensPart,
  kRestPart,
  kHostPart,
  kNothingPart,
  kClientParts
};
using PartTimes = std::array<int64_t, kClientParts>;

ClientPart part_of(StageKind kind) {
  switch (kind) {
    case StageKind::kPrefill:
    case StageKind::kVision:
      return kPromptPart;
    case StageKind::kMixed:
      return kBothPart;
    case StageKind::kDecode:
    case StageKind::kSpeculative:
      return kTokensPart;
    case StageKind::kOther:
      break;
  }
  return kRestPart;
}

// Steps of one device in time order, and sums over them.
class StepParts {
 public:
  StepParts(const Trace& trace, int32_t device) : steps_(trace.steps), busy_(trace), device_(device) {
    for (Row row = 0; row < steps_.size(); ++row)
      if (steps_.device[row] == device && steps_.end_ns[row] > steps_.start_ns[row]) rows_.push_back(row);
    std::sort(rows_.begin(), rows_.end(), [&](Row a, Row b) { return steps_.start_ns[a] < steps_.start_ns[b]; });
    before_.push_back({});
    for (const Row row : rows_) {
      before_.push_back(before_.back());
      add_step(steps_.start_ns[row], steps_.end_ns[row], part_of(steps_.kind[row]), before_.back());
    }
  }

  // `queue`: what is busy in a step that began before `start_ns` stands apart.
  PartTimes of(int64_t start_ns, int64_t end_ns, bool queue) const {
    PartTimes out{};
    if (end_ns <= start_ns) return out;
    const auto by_end = [&](Row row, int64_t time) { return steps_.end_ns[row] <= time; };
    const auto by_start = [&](Row row, int64_t time) { return steps_.start_ns[row] < time; };
    const size_t first =
        static_cast<size_t>(std::lower_bound(rows_.begin(), rows_.end(), start_ns, by_end) - rows_.begin());
    const size_t last =
        static_cast<size_t>(std::lower_bound(rows_.begin(), rows_.end(), end_ns, by_start) - rows_.begin());
    int64_t in_steps = 0, busy = 0;
    for (size_t i = first; i < last; ++i) {
      if (i > first && i + 1 < last) {  // those between lie wholly inside
        for (size_t part = 0; part < kClientParts; ++part) out[part] += before_[last - 1][part] - before_[i][part];
        i = last - 2;
        continue;
      }
      const Row row = rows_[i];
      const bool earlier = queue && steps_.gpu_start_ns[row] < start_ns;
      add_step(std::max(start_ns, steps_.start_ns[row]), std::min(end_ns, steps_.end_ns[row]),
               earlier ? kBeforePart : part_of(steps_.kind[row]), out);
    }
    for (size_t part = 0; part < kHostPart; ++part) busy += out[part];
    in_steps = busy + out[kHostPart];
    const int64_t outside = busy_.busy_in(device_, start_ns, end_ns) - busy;
    out[kRestPart] += outside;
    out[kNothingPart] = end_ns - start_ns - in_steps - outside;
    return out;
  }

 private:
  void add_step(int64_t start_ns, int64_t end_ns, ClientPart part, PartTimes& to) const {
    const int64_t busy = busy_.busy_in(device_, start_ns, end_ns);
    to[part] += busy;
    to[kHostPart] += end_ns - start_ns - busy;
  }

  const Steps& steps_;
  BusyIndex busy_;
  int32_t device_;
  std::vector<Row> rows_{};
  std::vector<PartTimes> before_{};  // sums over the steps before
};

// How many requests of a file were in flight in an interval. One without an end may have been so until the last.
class InFlight {
 public:
  void add(int64_t sent_ns, int64_t end_ns) {
    sent_.push_back(sent_ns);
    if (end_ns >= 0) ended_.push_back(std::max(end_ns, sent_ns + 1));
  }
  void sort() {
    std::sort(sent_.begin(), sent_.end());
    std::sort(ended_.begin(), ended_.end());
  }
  // Others than the one whose interval it is. Half-open intervals.
  int64_t others(int64_t start_ns, int64_t end_ns) const {
    const auto sent = std::lower_bound(sent_.begin(), sent_.end(), std::max(end_ns, start_ns + 1)) - sent_.begin();
    const auto ended = std::upper_bound(ended_.begin(), ended_.end(), start_ns) - ended_.begin();
    return std::max<int64_t>(0, sent - ended - 1);
  }

 private:
  std::vector<int64_t> sent_{}, ended_{};
};

void set_wait(ClientSplits::Values& row, int64_t length_ns, const PartTimes& parts) {
  row.wait_ns = length_ns;
  row.wait_queue_ns = parts[kBeforePart];
  row.wait_prefill_ns = parts[kPromptPart];
  row.wait_mixed_ns = parts[kBothPart];
  row.wait_decode_ns = parts[kTokensPart];
  row.wait_other_ns = parts[kRestPart];
  row.wait_host_ns = parts[kHostPart];
  row.wait_gap_ns = parts[kNothingPart];
}

void set_output(ClientSplits::Values& row, int64_t length_ns, const PartTimes& parts) {
  row.out_ns = length_ns;
  row.out_prefill_ns = parts[kPromptPart];
  row.out_mixed_ns = parts[kBothPart];
  row.out_decode_ns = parts[kTokensPart];
  row.out_other_ns = parts[kRestPart];
  row.out_host_ns = parts[kHostPart];
  row.out_gap_ns = parts[kNothingPart];
}

// Splits the requests of all files whose clock may be the recorder's.
class ClientSplitter {
 public:
  ClientSplitter(Trace& trace, int32_t device)
      : trace_(trace),
        parts_(trace, device),
        recorded_(recorded_runs(trace, device)),
        outside_(trace.strings.intern("outside")),
        not_recorded_(trace.strings.intern("not-recorded")),
        no_times_(trace.strings.intern("no-times")),
        failed_(trace.strings.intern("failed")) {}

  ClientSplits::Values row_of(const ClientMoments::Values& moment, const InFlight& flight) const {
    ClientSplits::Values row;
    row.request = moment.request;
    row.start_ns = moment.sent_unix_ns - trace_.base_unix_ns;
    set_wait(row, -1, kAbsent);
    row.out_ns = row.out_prefill_ns = row.out_mixed_ns = row.out_decode_ns = row.out_other_ns = row.out_host_ns =
        row.out_gap_ns = -1;
    const bool waited = moment.first_unix_ns >= moment.sent_unix_ns;
    const bool answered = waited && moment.end_unix_ns >= moment.first_unix_ns;
    row.others = flight.others(moment.sent_unix_ns, waited ? moment.first_unix_ns : moment.sent_unix_ns);
    const int64_t first = moment.first_unix_ns - trace_.base_unix_ns, end = moment.end_unix_ns - trace_.base_unix_ns;
    if (waited && in_one_run(recorded_, row.start_ns, first))
      set_wait(row, first - row.start_ns, parts_.of(row.start_ns, first, true));
    if (answered && in_one_run(recorded_, first, end)) set_output(row, end - first, parts_.of(first, end, false));
    row.why = why_not(row, moment, waited && answered);
    return row;
  }

 private:
  static constexpr PartTimes kAbsent = {-1, -1, -1, -1, -1, -1, -1};

  StringId why_not(const ClientSplits::Values& row, const ClientMoments::Values& moment, bool known) const {
    if (trace_.client_requests.error[moment.request] != StringId::kEmpty) return failed_;
    if (!known) return no_times_;
    if (row.wait_ns >= 0 && row.out_ns >= 0) return StringId::kEmpty;
    const bool within = !recorded_.empty() && row.start_ns >= recorded_.front().start_ns &&
                        moment.end_unix_ns - trace_.base_unix_ns <= recorded_.back().end_ns;
    return within ? not_recorded_ : outside_;
  }

  const Trace& trace_;
  StepParts parts_;
  std::vector<TimeSpan> recorded_;
  StringId outside_, not_recorded_, no_times_, failed_;
};

}  // namespace

void split_client_times(Trace& trace) {
  trace.client_splits.clear();
  if (trace.client_moments.empty()) return;
  std::map<StringId, InFlight> placed;
  int32_t device = -1;
  for (const ClientClock& clock : client_clocks(trace)) {
    if (!clock.why.empty()) continue;
    placed.try_emplace(clock.source);
    device = clock.device;
  }
  if (placed.empty()) return;
  const ClientMoments& moments = trace.client_moments;
  const auto flight_of = [&](Row row) { return placed.find(trace.client_requests.source[moments.request[row]]); };
  for (Row row = 0; row < moments.size(); ++row)
    if (const auto flight = flight_of(row); flight != placed.end())
      flight->second.add(moments.sent_unix_ns[row], moments.end_unix_ns[row]);
  for (auto& [source, flight] : placed) flight.sort();
  const ClientSplitter splitter(trace, device);
  for (Row row = 0; row < moments.size(); ++row)
    if (const auto flight = flight_of(row); flight != placed.end())
      trace.client_splits.append(splitter.row_of(moments.row(row), flight->second));
}

}  // namespace llmprof
