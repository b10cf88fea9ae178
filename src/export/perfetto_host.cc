#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "export/perfetto_tracks.h"
#include "export/value_names.h"

namespace llmprof::exporting {
namespace {

// In the order in which they enclose each other where their times are the same.
enum class HostKind : uint8_t { kRange, kPython, kPlace, kOperator, kLibrary, kCall, kOverhead };

struct HostSlice {
  int64_t start_ns, end_ns;
  Row thread;  // kNoRow: of none
  Row row;
  HostKind kind;
};

bool is_before(const HostSlice& a, const HostSlice& b) {
  if (a.thread != b.thread) return a.thread < b.thread;
  if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
  if (a.end_ns != b.end_ns) return a.end_ns > b.end_ns;
  if (a.kind != b.kind) return a.kind < b.kind;
  return a.row < b.row;
}

std::vector<HostSlice> host_slices(const Trace& trace) {
  std::vector<HostSlice> out;
  out.reserve(trace.annotations.size() + trace.python_calls.size() + trace.ops.size() + trace.library_calls.size() +
              trace.api_calls.size() + trace.overheads.size() + trace.host_places.size());
  const auto take = [&](const auto& table, HostKind kind) {
    for (Row row = 0; row < table.size(); ++row)
      out.push_back({table.start_ns[row], table.start_ns[row] + table.dur_ns[row], table.thread[row], row, kind});
  };
  take(trace.annotations, HostKind::kRange);
  take(trace.python_calls, HostKind::kPython);
  take(trace.host_places, HostKind::kPlace);
  take(trace.ops, HostKind::kOperator);
  take(trace.library_calls, HostKind::kLibrary);
  take(trace.api_calls, HostKind::kCall);
  take(trace.overheads, HostKind::kOverhead);
  std::sort(out.begin(), out.end(), is_before);
  return out;
}

// The GPU activities of each call, one list behind the other.
struct LaunchedBy {
  std::vector<uint32_t> first;  // by call, and one more
  std::vector<Row> gpu_ops;

  explicit LaunchedBy(const Trace& trace) : first(trace.api_calls.size() + 1) {
    for (const ApiCallId api : trace.gpu_links.api)
      if (api != kNoRow) ++first[api + 1];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    gpu_ops.resize(first.back());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (Row row = 0; row < trace.gpu_links.size(); ++row)
      if (const ApiCallId api = trace.gpu_links.api[row]; api != kNoRow) gpu_ops[next[api]++] = row;
  }
};

class HostTracks {
 public:
  HostTracks(const Trace& trace, PerfettoWriter& out) : trace_(trace), out_(out), launched_(trace) {
    for (Row thread = 0; thread < trace.threads.size(); ++thread) {
      const int64_t process_id = trace.threads.process_id[thread], thread_id = trace.threads.thread_id[thread];
      const std::string_view name = trace.text(trace.threads.name[thread]);
      threads_.push_back(out_.add({.name = name.empty() ? fmt::format("thread {}", thread_id) : std::string(name),
                                   .parent = process(process_id),
                                   .process_id = process_id,
                                   .thread_id = thread_id}));
    }
  }

  void write() {
    const std::vector<HostSlice> slices = host_slices(trace_);
    for (size_t from = 0; from < slices.size();) {
      size_t to = from;
      while (to < slices.size() && slices[to].thread == slices[from].thread) ++to;
      write_thread(slices, from, to);
      from = to;
    }
    write_levels();
  }

 private:
  TrackId process(int64_t process_id) {
    const auto [at, fresh] = processes_.try_emplace(process_id);
    if (fresh) at->second = out_.add({.name = fmt::format("process {}", process_id), .process_id = process_id});
    return at->second;
  }

  void write_thread(const std::vector<HostSlice>& slices, size_t from, size_t to) {
    const Row thread = slices[from].thread;
    const std::string name = thread == kNoRow ? "ranges and recorder, of no thread" : thread_name(thread);
    const TrackId first = thread == kNoRow ? out_.add({.name = name}) : threads_[thread];
    SliceLanes lanes(out_, true, first,
                     [&] { return out_.add({.name = name, .parent = thread == kNoRow ? TrackId::kNone : first}); });
    for (size_t i = from; i < to; ++i) {
      const HostSlice& slice = slices[i];
      write_slice(lanes.place(slice.start_ns, slice.end_ns), slice);
    }
    lanes.end_all();
  }

  std::string thread_name(Row thread) const {
    const std::string_view name = trace_.text(trace_.threads.name[thread]);
    return name.empty() ? fmt::format("thread {}", trace_.threads.thread_id[thread]) : std::string(name);
  }

  void write_slice(TrackId track, const HostSlice& slice) {
    const Row row = slice.row;
    switch (slice.kind) {
      case HostKind::kRange:
        return range(track, row);
      case HostKind::kPython:
        out_.begin(track, slice.start_ns, "python", out_.name(trace_.python_calls.name[row]));
        return out_.finish();
      case HostKind::kPlace:
        out_.begin(track, slice.start_ns, "place", out_.name(word_of(trace_.host_places.kind[row])));
        out_.arg("stack", trace_.host_places.stack[row]);
        return out_.finish();
      case HostKind::kOperator:
        return op(track, row);
      case HostKind::kLibrary:
        return library_call(track, row);
      case HostKind::kCall:
        return api_call(track, row);
      case HostKind::kOverhead:
        out_.begin(track, slice.start_ns, "recorder", out_.name(trace_.overheads.name[row]));
        return out_.finish();
    }
  }

  void range(TrackId track, Row row) {
    const Annotations& ranges = trace_.annotations;
    out_.begin(track, ranges.start_ns[row], "range", out_.name(ranges.name[row]));
    out_.arg("kind", word_of(ranges.kind[row]));
    out_.arg("domain", ranges.domain[row]);
    out_.arg("payload", ranges.payload[row]);
    out_.finish();
  }

  void op(TrackId track, Row row) {
    const Ops& ops = trace_.ops;
    out_.begin(track, ops.start_ns[row], "operator", out_.name(ops.name[row]));
    if (ops.signature[row] != kNoRow) out_.arg("shapes", trace_.signatures.dims[ops.signature[row]]);
    out_.arg("recorded_flops", ops.recorded_flops[row]);
    if (ops.external_id[row] != 0) out_.arg("external_id", ops.external_id[row]);
    out_.finish();
  }

  void library_call(TrackId track, Row row) {
    const LibraryCalls& calls = trace_.library_calls;
    out_.begin(track, calls.start_ns[row], "library", out_.name(calls.name[row]));
    out_.arg("kind", word_of(calls.kind[row]));
    out_.arg("dtype", word_of(calls.dtype[row]));
    out_.arg("batch", calls.batch[row]);
    out_.arg("m", calls.m[row]);
    out_.arg("n", calls.n[row]);
    out_.arg("k", calls.k[row]);
    out_.arg("epilogue", calls.epilogue[row]);
    out_.arg("detail", calls.detail[row]);
    out_.finish();
  }

  void api_call(TrackId track, Row row) {
    const ApiCalls& calls = trace_.api_calls;
    out_.begin(track, calls.start_ns[row], "cuda", out_.name(calls.name[row]));
    out_.arg("layer", word_of(calls.layer[row]));
    if (calls.correlation[row] != 0) out_.arg("correlation", calls.correlation[row]);
    for (uint32_t i = launched_.first[row]; i < launched_.first[row + 1]; ++i) out_.flow(flow_of(launched_.gpu_ops[i]));
    out_.finish();
  }

  // How much was recorded when. Rows of one process do not overlap.
  void write_levels() {
    const Recorded& recorded = trace_.recorded;
    std::map<int64_t, TrackId> tracks;
    for (Row row = 0; row < recorded.size(); ++row) {
      const auto [at, fresh] = tracks.try_emplace(recorded.process_id[row]);
      if (fresh) at->second = out_.add({.name = "recording level", .parent = process(recorded.process_id[row])});
      out_.begin(at->second, recorded.start_ns[row], "recorder", out_.name(word_of(recorded.level[row])));
      out_.arg("reason", recorded.reason[row]);
      out_.finish();
      out_.end(at->second, recorded.start_ns[row] + recorded.dur_ns[row]);
    }
  }

  const Trace& trace_;
  PerfettoWriter& out_;
  LaunchedBy launched_;
  std::map<int64_t, TrackId> processes_;
  std::vector<TrackId> threads_;
};

}  // namespace

void write_host_tracks(const Trace& trace, PerfettoWriter& out) { HostTracks(trace, out).write(); }

}  // namespace llmprof::exporting
