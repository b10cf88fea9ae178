// Why each device was idle: the gaps between its busy intervals, cut at step windows and at every change in what the
// launching thread of the next activity was doing. One pass over the gaps of a device and, per thread, over its
// timeline. The pieces fill the window exactly: nothing is dropped, nothing is counted twice.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/parallel.h"
#include "derive/derive.h"
#include "derive/host_calls.h"
#include "derive/host_timeline.h"
#include "derive/no_input.h"
#include "derive/recorded_spans.h"

namespace llmprof {
namespace {

// Everything recorded on one thread. Priority where several are open: overhead, API call, operator.
struct ThreadTimeline {
  RangeCursor ops, apis, python, overhead;
  std::vector<Row> overhead_rows;
};

// Row of the operator that stands for each one: the outermost around it with an operator's name, that is, the one the
// model's code called (aten::linear, not the aten::as_strided inside it). Wrappers of whole regions ("Torch-Compiled
// Region: 0/0") stand only for what has no such operator around it.
std::vector<Row> called_operators(const Trace& trace) {
  constexpr uint8_t kUnjudged = 2;
  std::vector<uint8_t> proper(trace.strings.size(), kUnjudged);
  const size_t count = trace.ops.size();
  std::vector<Row> called(count);
  std::vector<uint8_t> inside(count, 0);
  const bool nested = trace.op_links.size() == count;
  for (Row i = 0; i < count; ++i) {
    called[i] = i;
    const OpId parent = nested ? trace.op_links.parent[i] : kNoRow;
    if (parent < i && inside[parent] != 0) {
      called[i] = called[parent];
      inside[i] = 1;
      continue;
    }
    uint8_t& verdict = proper[index(trace.ops.name[i])];
    if (verdict == kUnjudged) {
      const std::string_view name = trace.text(trace.ops.name[i]);
      verdict = name.find("::") != std::string_view::npos && name.find(' ') == std::string_view::npos ? 1 : 0;
    }
    inside[i] = verdict;
  }
  return called;
}

struct Timelines {
  explicit Timelines(const Trace& trace)
      : called(called_operators(trace)),
        ops(trace.ops.thread, trace.threads.size(), [this](Row row) { return called[row] == row; }),
        apis(trace.api_calls.thread, trace.threads.size()),
        python(trace.python_calls.thread, trace.threads.size()),
        overhead(trace.overheads.thread, trace.threads.size()) {}
  std::vector<Row> called;  // by row of ops
  RowsByThread ops, apis, python, overhead;
};

struct Piece : Gaps::Values {
  int64_t end_ns = -1;
};

// Appends pieces; neighbours that differ in nothing but time (and the Python frame) become one row.
class GapWriter {
 public:
  GapWriter(Gaps& gaps, int32_t device) : gaps_(gaps), device_(device) {}
  ~GapWriter() { flush(); }
  GapWriter(const GapWriter&) = delete;
  GapWriter& operator=(const GapWriter&) = delete;

  void add(const Piece& piece) {
    if (piece.end_ns <= piece.start_ns) return;
    const bool extends = pending_.end_ns == piece.start_ns && pending_.cause == piece.cause &&
                         pending_.step == piece.step && pending_.op == piece.op && pending_.api == piece.api &&
                         pending_.next_gpu_op == piece.next_gpu_op && pending_.start_ns < pending_.end_ns;
    if (extends) {
      pending_.end_ns = piece.end_ns;
      return;
    }
    flush();
    pending_ = piece;
  }

 private:
  void flush() {
    if (pending_.start_ns >= pending_.end_ns) return;
    pending_.device = device_;
    pending_.dur_ns = pending_.end_ns - pending_.start_ns;
    gaps_.append(pending_);
    pending_ = Piece{};
  }
  Gaps& gaps_;
  int32_t device_;
  Piece pending_;
};

IdleCause cause_of(ApiKind kind) {
  switch (kind) {
    case ApiKind::kLaunch:
    case ApiKind::kGraphLaunch:
    case ApiKind::kEnqueue:
      return IdleCause::kLaunchCall;
    case ApiKind::kSync:
      return IdleCause::kBlockingSync;
    case ApiKind::kCopy:
      return IdleCause::kCopy;
    case ApiKind::kAllocator:
      return IdleCause::kAllocator;
    case ApiKind::kOther:
      break;
  }
  return IdleCause::kOtherApi;
}

// The rows of one device, in time order.
struct DeviceRows {
  std::vector<GpuOpId> gpu;
  std::vector<Row> steps;
};

// A run of busy intervals of one device. Its part of the window lies between the end of the interval before it and the
// end of its last one; the first and the last part reach to the edges of the window.
struct Part {
  Window window;
  const DeviceRows* rows = nullptr;
  size_t first = 0;
  size_t last = 0;  // exclusive
  bool to_window_end = false;
};

// The idle time of one part, left to right.
class PartIdle {
 public:
  PartIdle(const Trace& trace, const HostCalls& calls, const NoInput& no_input, const Timelines& rows,
           const std::vector<TimeSpan>& unrecorded, const Part& part, Gaps& gaps)
      : trace_(trace),
        calls_(calls),
        no_input_(no_input),
        rows_(rows),
        unrecorded_(unrecorded),
        part_(part),
        device_(part.window.device),
        gpu_(part.rows->gpu),
        steps_(part.rows->steps),
        writer_(gaps, part.window.device) {}

  void run() {
    const BusyIntervals& busy = trace_.busy_intervals;
    const bool continues = part_.first > 0 && busy.device[part_.first - 1] == device_;
    int64_t idle_from = part_.window.start_ns;
    if (continues) {
      idle_from = busy.end_ns[part_.first - 1];
      // The activity that ended last before this part started within the busy interval before it.
      const std::vector<int64_t>& starts = trace_.gpu_ops.start_ns;
      next_gpu_ = static_cast<size_t>(std::lower_bound(gpu_.begin(), gpu_.end(), busy.start_ns[part_.first - 1],
                                                       [&](Row row, int64_t time) { return starts[row] < time; }) -
                                      gpu_.begin());
    }
    for (size_t i = part_.first; i < part_.last; ++i) {
      gap(idle_from, busy.start_ns[i]);
      idle_from = busy.end_ns[i];
    }
    if (part_.to_window_end) gap(idle_from, part_.window.end_ns);
  }

 private:
  // Finds the activity that ends a gap at `end`, and the one that ran last before it.
  void seek(int64_t end) {
    for (; next_gpu_ < gpu_.size() && trace_.gpu_ops.start_ns[gpu_[next_gpu_]] < end; ++next_gpu_) {
      const int64_t ended = trace_.end_of(gpu_[next_gpu_]);
      if (ended < last_end_ns_) continue;
      last_end_ns_ = ended;
      last_gpu_ = gpu_[next_gpu_];
    }
  }

  void gap(int64_t start, int64_t end) {
    if (start >= end) return;
    seek(end);
    const Row next = next_gpu_ < gpu_.size() ? gpu_[next_gpu_] : kNoRow;
    const Row launch = next != kNoRow ? trace_.gpu_links.api[next] : kNoRow;
    const Row last_launch = last_gpu_ != kNoRow ? trace_.gpu_links.api[last_gpu_] : kNoRow;
    const bool in_graph = launch != kNoRow && launch == last_launch;
    // After the last activity nothing is launched any more; its own thread is the one that waits.
    const Row judged = next != kNoRow ? launch : last_launch;
    int64_t time = start;
    while (time < end) {
      Piece piece;
      piece.start_ns = time;
      piece.end_ns = end;
      piece.next_gpu_op = next;
      find_step(piece);
      if (in_unrecorded(piece)) {
        piece.cause = IdleCause::kNotRecorded;
      } else if (piece.step == kNoRow && !steps_.empty()) {
        piece.cause = IdleCause::kNoWork;
      } else if (in_graph) {
        piece.cause = IdleCause::kGraphInternal;
        piece.api = launch;
      } else if (judged != kNoRow) {
        judge_host(piece, judged, next != kNoRow);
      }
      writer_.add(piece);
      time = piece.end_ns;
    }
  }

  // Whether kernels were not recorded at the start of the piece; shortens the piece to where that changes.
  bool in_unrecorded(Piece& piece) {
    while (at_span_ < unrecorded_.size() && unrecorded_[at_span_].end_ns <= piece.start_ns) ++at_span_;
    if (at_span_ == unrecorded_.size()) return false;
    const TimeSpan& span = unrecorded_[at_span_];
    const bool inside = span.start_ns <= piece.start_ns;
    piece.end_ns = std::min(piece.end_ns, inside ? span.end_ns : span.start_ns);
    return inside;
  }

  // The step whose window holds the start of the piece; shortens the piece to where that changes.
  void find_step(Piece& piece) {
    while (at_step_ < steps_.size() && trace_.steps.end_ns[steps_[at_step_]] <= piece.start_ns) ++at_step_;
    if (at_step_ == steps_.size()) return;
    const StepId step = steps_[at_step_];
    if (trace_.steps.start_ns[step] <= piece.start_ns) {
      piece.step = step;
      piece.end_ns = std::min(piece.end_ns, trace_.steps.end_ns[step]);
    } else {
      piece.end_ns = std::min(piece.end_ns, trace_.steps.start_ns[step]);
    }
  }

  // `awaited`: call `api` launched the activity that ends the gap.
  void judge_host(Piece& piece, ApiCallId api, bool awaited) {
    const ApiCalls& calls = trace_.api_calls;
    const int64_t returned = calls.start_ns[api] + calls.dur_ns[api];
    if (awaited && piece.start_ns >= returned) {
      piece.cause = IdleCause::kLaunchLatency;
      piece.api = api;
      const OpId op = trace_.gpu_links.op[piece.next_gpu_op];
      if (op != kNoRow) piece.op = rows_.called[op];
      return;
    }
    if (awaited) piece.end_ns = std::min(piece.end_ns, returned);
    const ThreadId thread = calls.thread[api];
    if (thread >= trace_.threads.size()) return;
    ThreadTimeline& line = timeline(thread);
    line.ops.advance(piece.start_ns);
    line.apis.advance(piece.start_ns);
    line.overhead.advance(piece.start_ns);
    piece.end_ns =
        std::min({piece.end_ns, line.ops.next_change(), line.apis.next_change(), line.overhead.next_change()});
    piece.op = line.ops.innermost();
    piece.api = line.apis.innermost();
    line.python.advance(piece.start_ns);
    piece.python = line.python.innermost_of_most(piece.start_ns, piece.end_ns);
    if (line.overhead.innermost() != kNoRow) {
      piece.cause = IdleCause::kProfiler;
    } else if (piece.api != kNoRow) {
      piece.cause = cause_of(calls_.kind(piece.api));
    } else {
      piece.cause = piece.op != kNoRow ? IdleCause::kOperatorDispatch : IdleCause::kHostWork;
      if (piece.cause == IdleCause::kHostWork && no_input_.holds(thread, piece.start_ns, piece.end_ns))
        piece.cause = IdleCause::kNoInput;
    }
  }

  ThreadTimeline& timeline(ThreadId thread) {
    if (thread == line_thread_) return *line_;
    line_thread_ = thread;
    std::unique_ptr<ThreadTimeline>& line = threads_[thread];
    const bool fresh = line == nullptr;
    if (fresh) line = std::make_unique<ThreadTimeline>();
    line_ = line.get();
    if (!fresh) return *line_;
    const Trace& t = trace_;
    line->ops = {t.ops.start_ns.data(), t.ops.dur_ns.data(), rows_.ops.begin(thread), rows_.ops.end(thread)};
    line->apis = {t.api_calls.start_ns.data(), t.api_calls.dur_ns.data(), rows_.apis.begin(thread),
                  rows_.apis.end(thread)};
    line->python = {t.python_calls.start_ns.data(), t.python_calls.dur_ns.data(), rows_.python.begin(thread),
                    rows_.python.end(thread)};
    // Recorders do not always say on which thread their own work ran; such overhead counts on every thread.
    std::vector<Row>& overhead = line->overhead_rows;
    overhead.assign(rows_.overhead.begin(thread), rows_.overhead.end(thread));
    const size_t own = overhead.size();
    overhead.insert(overhead.end(), rows_.overhead.everywhere().begin(), rows_.overhead.everywhere().end());
    std::inplace_merge(overhead.begin(), overhead.begin() + static_cast<ptrdiff_t>(own), overhead.end(),
                       [&](Row a, Row b) { return t.overheads.start_ns[a] < t.overheads.start_ns[b]; });
    line->overhead = {t.overheads.start_ns.data(), t.overheads.dur_ns.data(), overhead.data(),
                      overhead.data() + overhead.size()};
    return *line;
  }

  const Trace& trace_;
  const HostCalls& calls_;
  const NoInput& no_input_;
  const Timelines& rows_;
  const std::vector<TimeSpan>& unrecorded_;
  const Part part_;
  const int32_t device_;
  const std::vector<GpuOpId>& gpu_;
  const std::vector<Row>& steps_;
  std::unordered_map<Row, std::unique_ptr<ThreadTimeline>> threads_;
  Row line_thread_ = kNoRow;  // the timeline asked for last
  ThreadTimeline* line_ = nullptr;
  size_t at_step_ = 0;
  size_t at_span_ = 0;
  size_t next_gpu_ = 0;  // in gpu_
  Row last_gpu_ = kNoRow;
  int64_t last_end_ns_ = std::numeric_limits<int64_t>::min();
  GapWriter writer_;
};

constexpr size_t kPartsMax = 8;  // each part reads the timelines up to its own beginning once more
constexpr size_t kPartIntervalsMin = 4096;

// Rows per window.
std::vector<DeviceRows> rows_by_device(const Trace& trace) {
  std::vector<DeviceRows> rows(trace.windows.size());
  std::map<int32_t, size_t> slots;
  for (size_t w = 0; w < trace.windows.size(); ++w) slots[trace.windows[w].device] = w;
  std::vector<size_t> slot_of_stream(trace.streams.size(), 0);
  for (size_t s = 0; s < trace.streams.size(); ++s) {
    const std::map<int32_t, size_t>::const_iterator slot = slots.find(trace.streams.device[s]);
    if (slot != slots.end()) slot_of_stream[s] = slot->second;  // a stream without a window has no activity
  }
  if (rows.size() == 1) rows[0].gpu.reserve(trace.gpu_ops.size());
  for (Row i = 0; i < trace.gpu_ops.size(); ++i) rows[slot_of_stream[trace.gpu_ops.stream[i]]].gpu.push_back(i);
  for (Row i = 0; i < trace.steps.size(); ++i) {
    const std::map<int32_t, size_t>::const_iterator slot = slots.find(trace.steps.device[i]);
    if (slot != slots.end()) rows[slot->second].steps.push_back(i);
  }
  return rows;
}

// The window of each device in parts of about equal size, one per worker.
std::vector<Part> make_parts(const Trace& trace, const std::vector<DeviceRows>& rows) {
  const size_t workers = std::min<size_t>(worker_count(), kPartsMax);
  const size_t parts_max = std::max<size_t>(1, workers / trace.windows.size());
  const std::vector<int32_t>& device = trace.busy_intervals.device;
  std::vector<Part> parts;
  size_t first = 0;
  for (const Window& window : trace.windows) {
    while (first < device.size() && device[first] < window.device) ++first;
    size_t last = first;
    while (last < device.size() && device[last] == window.device) ++last;
    const size_t count = std::clamp<size_t>((last - first) / kPartIntervalsMin, 1, parts_max);
    const DeviceRows* mine = &rows[static_cast<size_t>(&window - trace.windows.data())];
    for (size_t p = 0; p < count; ++p) {
      parts.push_back(
          {window, mine, first + (last - first) * p / count, first + (last - first) * (p + 1) / count, p + 1 == count});
    }
    first = last;
  }
  return parts;
}

// Typically host work, the operator, the call, the operator again, and the latency after the launch.
constexpr size_t kPiecesPerGap = 5;

}  // namespace

void attribute_idle(Trace& trace) {
  trace.gaps.clear();
  if (trace.windows.empty()) return;
  const HostCalls calls(trace);
  const NoInput no_input(trace);
  const Timelines rows(trace);
  const std::vector<DeviceRows> device_rows = rows_by_device(trace);
  const std::vector<Part> parts = make_parts(trace, device_rows);
  const RecordedSpans recorded(trace);
  std::vector<Gaps> found(parts.size());
  parallel_for(parts.size(), [&](size_t i) {
    // The first part has room for all, so that the others are appended without moving it.
    found[i].reserve((i == 0 ? trace.busy_intervals.size() : parts[i].last - parts[i].first) * kPiecesPerGap);
    PartIdle(trace, calls, no_input, rows, recorded.unrecorded(parts[i].window.device), parts[i], found[i]).run();
  });
  trace.gaps = std::move(found[0]);
  for (size_t i = 1; i < found.size(); ++i) {
    trace.gaps.append_rows(found[i]);
    found[i] = Gaps();  // the largest table of a program that launches slowly: not twice in memory
  }
}

}  // namespace llmprof
