#include "drive/hot_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/nearest.h"
#include "derive/kernel_function.h"
#include "derive/recorded_spans.h"
#include "trace/whole_graph_name.h"

namespace llmprof::drive {
namespace {

// A kernel's launch, as far as filters are concerned.
struct Launched {
  int32_t function = 0;
  StringId name = StringId::kEmpty;
  int64_t process = -1;  // -1: no call is known to have launched it
  int32_t device = 0;
  int64_t start_ns = 0, dur_ns = 0;
  bool steady = false;
};

bool is_steady(const Steps& steps, StepId step) {
  return step < steps.size() && steps.phase[step] == StepPhase::kServing && steps.state[step] == StepState::kUsual &&
         steps.missing[step] == MissingKernels::kNone;
}

// Where NVTX ranges of one text are open, by thread.
using OpenRanges = std::map<ThreadId, std::vector<TimeSpan>>;
OpenRanges ranges_named(const Trace& trace, std::string_view text) {
  OpenRanges out;
  const Annotations& ranges = trace.annotations;
  for (Row row = 0; row < ranges.size(); ++row)
    if (ranges.kind[row] == AnnotationKind::kNvtx && trace.text(ranges.name[row]) == text)
      out[ranges.thread[row]].push_back({ranges.start_ns[row], ranges.start_ns[row] + ranges.dur_ns[row]});
  for (auto& [thread, spans] : out) {  // sorted by start; what lies in another adds nothing
    std::vector<TimeSpan> outer;
    for (const TimeSpan& span : spans)
      if (outer.empty() || span.start_ns >= outer.back().end_ns) outer.push_back(span);
    spans = std::move(outer);
  }
  return out;
}

class Finder {
 public:
  Finder(const Trace& trace, const HotOptions& options) : trace_(trace), options_(options) {}

  Result<HotKernels> find() {
    LLMPROF_CHECK(choose_range());
    collect();
    if (launches_.empty())
      return fail(
          "expected a recording with kernels by name, found none" +
              std::string(in_range_ ? " that were launched inside ranges called \"" + options_.range + "\"" : ""),
          trace_.source.files.empty() ? "" : trace_.source.files.front(),
          "record the program with kernels: llmprof run -- COMMAND (mode default or deep)");
    keep_main_process();
    if (on_cpu_)
      return fail("expected a recording of kernels on a GPU, found one of a program that ran its model on the CPU",
                  trace_.source.files.empty() ? "" : trace_.source.files.front(), "record the program on a GPU");
    rank();
    plan();
    return std::move(out_);
  }

 private:
  Status choose_range() {
    if (options_.range.empty()) return {};
    open_ = ranges_named(trace_, options_.range);
    in_range_ = !open_.empty();
    if (in_range_) return {};
    std::set<std::string> names;
    for (Row row = 0; row < trace_.annotations.size(); ++row)
      if (trace_.annotations.kind[row] == AnnotationKind::kNvtx)
        names.emplace(trace_.text(trace_.annotations.name[row]));
    if (names.empty()) {
      remark("the recording holds no NVTX ranges: kernels and launches were chosen from all of it");
      return {};
    }
    return fail("expected an NVTX range of the recording, found none called \"" + options_.range + "\"", "--range",
                "did you mean " + nearest_or_all(options_.range, {names.begin(), names.end()}) + "?", ExitCode::kUsage);
  }

  bool is_in_range(ApiCallId api) const {
    if (!in_range_) return true;
    if (api >= trace_.api_calls.size()) return false;
    const auto at = open_.find(trace_.api_calls.thread[api]);
    const int64_t start_ns = trace_.api_calls.start_ns[api];
    return at != open_.end() && RecordedSpans::touches(at->second, start_ns, start_ns + 1);
  }

  void collect() {
    const GpuOps& ops = trace_.gpu_ops;
    const GpuLinks& links = trace_.gpu_links;
    std::unordered_map<uint32_t, int32_t> by_name;
    std::map<std::string, int32_t> by_function;
    for (GpuOpId op = 0; op < ops.size(); ++op) {
      if (ops.kind[op] != GpuOpKind::kKernel) continue;
      const std::string_view name = trace_.text(ops.name[op]);
      const ApiCallId api = op < links.size() ? links.api[op] : ApiCallId();
      if (name == kWholeGraphName || kernel_function(name).empty() || !is_in_range(api)) continue;
      const auto [known, added] = by_name.try_emplace(index(ops.name[op]), 0);
      if (added) {
        const auto next = static_cast<int32_t>(functions_.size());
        const auto [function, fresh] = by_function.try_emplace(kernel_function(name), next);
        if (fresh) functions_.push_back(function->first);
        known->second = function->second;
      }
      Launched one{known->second, ops.name[op], -1, trace_.device_of(op), ops.start_ns[op], ops.dur_ns[op]};
      one.steady = op < links.size() && is_steady(trace_.steps, links.step[op]);
      if (api < trace_.api_calls.size()) one.process = trace_.threads.process_id[trace_.api_calls.thread[api]];
      launches_.push_back(one);
    }
  }

  // Launches are counted in each process by itself: of several, that which keeps a GPU busy longest.
  void keep_main_process() {
    std::map<std::pair<int64_t, int32_t>, int64_t> busy;
    for (const Launched& one : launches_) busy[{one.process, one.device}] += one.dur_ns;
    const auto most =
        std::max_element(busy.begin(), busy.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const int64_t process = most->first.first;
    const int32_t device = most->first.second;
    std::set<int64_t> processes;
    for (const auto& [key, ns] : busy) processes.insert(key.first);
    if (processes.size() > 1)
      remark(fmt::format("{} processes launched kernels: launches are counted in process {}, which has most GPU time",
                         processes.size(), process));
    std::erase_if(launches_, [&](const Launched& one) { return one.process != process; });
    out_.device = device;
    process_ = process;
    const Devices& devices = trace_.devices;
    for (Row row = 0; row < devices.size(); ++row) {
      if (devices.device[row] != device) continue;
      out_.compute_major = devices.compute_major[row];
      out_.compute_minor = devices.compute_minor[row];
      on_cpu_ = devices.kind[row] == ProcessorKind::kCpu;
    }
  }

  void rank() {
    const bool any_steady = std::any_of(launches_.begin(), launches_.end(), [](const auto& one) { return one.steady; });
    if (!any_steady)
      remark("no steady steps were found in the recording: its kernels count from the first one on, warm-up included");
    std::vector<HotKernel> all(functions_.size());
    std::vector<std::set<StringId>> names(functions_.size());
    int64_t total_ns = 0;
    for (const Launched& one : launches_) {
      if (any_steady && !one.steady) continue;
      HotKernel& kernel = all[static_cast<size_t>(one.function)];
      ++kernel.calls;
      kernel.total_ns += one.dur_ns;
      total_ns += one.dur_ns;
      names[static_cast<size_t>(one.function)].insert(one.name);
    }
    std::vector<size_t> order(functions_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a].total_ns > all[b].total_ns; });
    place_.assign(functions_.size(), -1);
    for (const size_t at : order) {
      if (out_.kernels.size() >= options_.kernels || all[at].calls == 0) break;
      HotKernel kernel = all[at];
      kernel.function = functions_[at];
      kernel.kernels = static_cast<int64_t>(names[at].size());
      kernel.share = total_ns > 0 ? static_cast<double>(kernel.total_ns) / static_cast<double>(total_ns) : 0;
      place_[at] = static_cast<int32_t>(out_.kernels.size());
      out_.kernels.push_back(std::move(kernel));
    }
    from_first_ = !any_steady;
  }

  // Launches in the order in which they ran: streams of one program overlap too little for it to matter here. Profiled
  // are the fewest that follow each other, in steady steps, and show every kernel; if those are too many, as many as
  // may be, where they show most.
  void plan() {
    std::vector<size_t> places;  // of the launches that filters let pass
    size_t first = 0;            // of these, in steady steps
    bool begun = from_first_;
    for (const Launched& one : launches_) {
      if (!begun && !one.steady) first_steady_ns_ = one.start_ns;
      begun = begun || one.steady;
      const int32_t place = place_[static_cast<size_t>(one.function)];
      if (place < 0) continue;
      first += begun ? 0 : 1;
      places.push_back(static_cast<size_t>(place));
    }
    const Window window = shortest(places, first);
    out_.launch_skip = static_cast<int64_t>(window.from);
    out_.launch_count = static_cast<int64_t>(window.to - window.from);
    for (size_t i = window.from; i < window.to; ++i) ++out_.kernels[places[i]].caught;
    for (const HotKernel& kernel : out_.kernels)
      if (kernel.caught == 0)
        remark(fmt::format("{} is launched too far from the others to be profiled with them: --kernels 1, or --range",
                           kernel.function));
    say_what_skip_rests_on();
  }

  struct Window {
    size_t from = 0, to = 0;
  };
  // The shortest with kCaughtEach of each kernel, or as many as there are; of equal ones the first.
  Window shortest(const std::vector<size_t>& places, size_t first) const {
    const auto most = static_cast<size_t>(kLaunchesMost);
    std::vector<int64_t> lacking(out_.kernels.size(), 0);
    for (size_t i = first; i < places.size(); ++i) lacking[places[i]] = std::min(kCaughtEach, lacking[places[i]] + 1);
    const auto open_kernels = [&] {
      return std::count_if(lacking.begin(), lacking.end(), [](auto n) { return n > 0; });
    };
    std::ptrdiff_t open = open_kernels();
    Window best{first, places.size()};
    for (size_t from = first, to = first; to < places.size();) {
      open -= --lacking[places[to++]] == 0 ? 1 : 0;
      for (; open == 0; ++from) {
        if (to - from < best.to - best.from) best = {from, to};
        open += ++lacking[places[from]] == 1 ? 1 : 0;
      }
    }
    return best.to - best.from <= most ? best : fullest(places, first);
  }

  // Of kLaunchesMost launches, those that show kernels with most time.
  Window fullest(const std::vector<size_t>& places, size_t first) const {
    const auto most = static_cast<size_t>(kLaunchesMost);
    std::vector<int64_t> seen(out_.kernels.size(), 0);
    double shown = 0, best_shown = -1;
    Window best{first, first};
    const auto change = [&](size_t place, int64_t by) {
      const auto worth = [&] { return static_cast<double>(std::min(kCaughtEach, seen[place])); };
      const double before = worth();
      seen[place] += by;
      shown += (worth() - before) * out_.kernels[place].share;
    };
    for (size_t to = first; to < places.size(); ++to) {
      change(places[to], 1);
      const size_t from = to + 1 - std::min(to + 1 - first, most);
      if (from > first) change(places[from - 1], -1);
      if (shown <= best_shown + 1e-9) continue;
      best_shown = shown;
      best = {from, to + 1};
    }
    return best;
  }

  void say_what_skip_rests_on() {
    if (from_first_) return;
    if (!is_live_recording(trace_)) {
      remark("the recording may have begun after the program: more launches may come before its first steady step");
      return;
    }
    const int64_t first_ns = trace_.gpu_ops.start_ns[0];
    const RecordedSpans recorded(trace_);
    // What came before the first kernel counts too: a recording that was switched on late begins with such a span.
    for (const TimeSpan& span : recorded.unrecorded_process(process_))
      if (span.start_ns < std::max(first_ns, first_steady_ns_)) {
        remark("kernels were not recorded all the time before the first steady step: more launches may come before it");
        return;
      }
  }

  void remark(std::string text) { out_.remarks.push_back(std::move(text)); }

  const Trace& trace_;
  const HotOptions& options_;
  OpenRanges open_;
  bool in_range_ = false, from_first_ = false, on_cpu_ = false;
  std::vector<std::string> functions_;
  std::vector<Launched> launches_;  // in time order
  std::vector<int32_t> place_;      // of each function in out_.kernels, -1 for the others
  int64_t process_ = -1, first_steady_ns_ = 0;
  HotKernels out_;
};

}  // namespace

Result<HotKernels> find_hot_kernels(const Trace& trace, const HotOptions& options) {
  return Finder(trace, options).find();
}

}  // namespace llmprof::drive
