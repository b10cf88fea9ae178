#include "derive/steady.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/statistics.h"
#include "base/steady_series.h"
#include "derive/graph_calls.h"
#include "derive/host_calls.h"
#include "derive/host_pace.h"
#include "derive/recorded_spans.h"

namespace llmprof {
namespace {

constexpr size_t kShapeMin = 3;       // steps of one shape that are compared among themselves
constexpr double kNamedPart = 0.1;    // of the excess that a cause explains at least
constexpr double kHintPart = 0.01;    // of a step that allocation takes where it may have slowed it
constexpr double kRecordingMost = 2;  // what recording makes of a step at most (docs/accuracy.md: 1.45)
constexpr double kSlowerClass = 1.5;  // unrecorded steps before recorded ones
constexpr size_t kClassMin = 5;       // steady steps that others recorded otherwise are compared with
constexpr double kLargerFactor = 2;   // over a step that did more in less
constexpr size_t kSinglesMost = 256;

constexpr size_t kCauses = static_cast<size_t>(WarmUpCause::kCount);
// Innermost first: modules are loaded while a graph is captured.
constexpr std::array<WarmUpCause, 4> kTimed = {WarmUpCause::kCompilation, WarmUpCause::kModuleLoading,
                                               WarmUpCause::kAllocation, WarmUpCause::kGraphCapture};

bool holds_word(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

WarmUpCause cause_of_overhead(std::string_view name) {
  if (holds_word(name, "compiler")) return WarmUpCause::kCompilation;
  if (holds_word(name, "module loading") || holds_word(name, "function loading")) return WarmUpCause::kModuleLoading;
  return WarmUpCause::kNone;
}

WarmUpCause cause_of_call(std::string_view name) {
  for (const std::string_view part : {"ModuleLoad", "LibraryLoad"})
    if (name.find(part) != std::string_view::npos) return WarmUpCause::kModuleLoading;
  if (name.starts_with("cuLink")) return WarmUpCause::kCompilation;
  if (name.find("GraphInstantiate") != std::string_view::npos) return WarmUpCause::kGraphCapture;
  if (api_kind_of(name) == ApiKind::kAllocator) return WarmUpCause::kAllocation;
  return WarmUpCause::kNone;
}

WarmUpCause cause_of_python(std::string_view name) {
  for (const std::string_view part : {"torch/_dynamo/convert_frame", "torch/_inductor/compile_fx"})
    if (name.find(part) != std::string_view::npos) return WarmUpCause::kCompilation;
  // Other functions of that file run at every launch.
  const bool triton = name.find("triton/compiler/compiler.py") != std::string_view::npos && name.ends_with(": compile");
  return triton ? WarmUpCause::kCompilation : WarmUpCause::kNone;
}

struct CauseSpan {
  int64_t start_ns, end_ns;
  WarmUpCause cause;
};

// Adds the rows of a table whose names have a cause; each distinct name is judged once.
template <class Table, class Judge>
void add_spans(const Trace& trace, const Table& table, Judge&& judge, std::vector<CauseSpan>& out) {
  std::vector<uint8_t> verdicts(trace.strings.size(), 0xFF);
  for (Row row = 0; row < table.size(); ++row) {
    uint8_t& verdict = verdicts[index(table.name[row])];
    if (verdict == 0xFF) verdict = static_cast<uint8_t>(judge(trace.text(table.name[row])));
    if (verdict == static_cast<uint8_t>(WarmUpCause::kNone)) continue;
    out.push_back({table.start_ns[row], table.start_ns[row] + table.dur_ns[row], static_cast<WarmUpCause>(verdict)});
  }
}

// From each begin of a capture to the next end on its thread.
void add_captures(const Trace& trace, std::vector<CauseSpan>& out) {
  std::vector<std::optional<GraphCall>> verdicts(trace.strings.size());
  std::map<Row, int64_t> open;
  for (Row call = 0; call < trace.api_calls.size(); ++call) {
    std::optional<GraphCall>& verdict = verdicts[index(trace.api_calls.name[call])];
    if (!verdict) verdict = graph_call_of(trace.text(trace.api_calls.name[call]));
    if (*verdict != GraphCall::kBeginCapture && *verdict != GraphCall::kEndCapture) continue;
    const Row thread = trace.api_calls.thread[call];
    const int64_t start = trace.api_calls.start_ns[call];
    if (*verdict == GraphCall::kBeginCapture) {
      open.emplace(thread, start);
    } else if (const auto begin = open.find(thread); begin != open.end()) {
      out.push_back({begin->second, start + trace.api_calls.dur_ns[call], WarmUpCause::kGraphCapture});
      open.erase(begin);
    }
  }
}

struct Evidence {
  std::array<double, kCauses> ns{};  // disjoint
  uint32_t first_kernels = 0;        // that had not run in the process before
  double once_ns() const {
    return ns[static_cast<size_t>(WarmUpCause::kCompilation)] + ns[static_cast<size_t>(WarmUpCause::kModuleLoading)] +
           ns[static_cast<size_t>(WarmUpCause::kGraphCapture)];
  }
  double allocation_ns() const { return ns[static_cast<size_t>(WarmUpCause::kAllocation)]; }
};

// Time that any of the spans holds. Sorts them.
int64_t union_ns(std::vector<TimeSpan>& spans) {
  std::sort(spans.begin(), spans.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.start_ns < b.start_ns; });
  int64_t sum = 0, end = INT64_MIN;
  for (const TimeSpan& span : spans) {
    sum += std::max<int64_t>(0, span.end_ns - std::max(end, span.start_ns));
    end = std::max(end, span.end_ns);
  }
  return sum;
}

// The part of each step's window that each cause took, an inner one before an outer one.
void add_timed(const Trace& trace, std::vector<Evidence>& evidence) {
  std::vector<CauseSpan> spans;
  add_spans(trace, trace.overheads, cause_of_overhead, spans);
  add_spans(trace, trace.api_calls, cause_of_call, spans);
  add_spans(trace, trace.python_calls, cause_of_python, spans);
  add_captures(trace, spans);
  const Steps& steps = trace.steps;
  std::map<int32_t, std::vector<Row>> devices;
  for (Row s = 0; s < steps.size(); ++s) devices[steps.device[s]].push_back(s);
  std::map<Row, std::vector<CauseSpan>> of_steps;
  for (const CauseSpan& span : spans) {
    for (const auto& [device, rows] : devices) {
      auto at = std::upper_bound(rows.begin(), rows.end(), span.start_ns,
                                 [&](int64_t time, Row s) { return time < steps.end_ns[s]; });
      for (; at != rows.end() && steps.start_ns[*at] < span.end_ns; ++at)
        of_steps[*at].push_back(
            {std::max(span.start_ns, steps.start_ns[*at]), std::min(span.end_ns, steps.end_ns[*at]), span.cause});
    }
  }
  for (const auto& [step, mine] : of_steps) {
    std::vector<TimeSpan> inner;
    int64_t before_ns = 0;
    for (const WarmUpCause cause : kTimed) {
      for (const CauseSpan& span : mine)
        if (span.cause == cause) inner.push_back({span.start_ns, span.end_ns});
      const int64_t with_ns = union_ns(inner);
      evidence[step].ns[static_cast<size_t>(cause)] = static_cast<double>(with_ns - before_ns);
      before_ns = with_ns;
    }
  }
}

// Functions are loaded at their first launch. A recorder that came later, or paused, cannot know which launch that is.
void add_first_kernels(const Trace& trace, std::vector<Evidence>& evidence) {
  if (trace.recorded.empty()) return;
  const RecordedSpans recorded(trace);
  std::vector<uint8_t> seen(trace.strings.size(), 0);
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
    if (trace.gpu_ops.kind[gpu] != GpuOpKind::kKernel) continue;
    uint8_t& known = seen[index(trace.gpu_ops.name[gpu])];
    const StepId step = trace.gpu_links.step[gpu];
    if (known == 0 && step != kNoRow) {
      const std::vector<TimeSpan>& hidden = recorded.unrecorded(trace.steps.device[step]);
      if (hidden.empty() || hidden.front().start_ns >= trace.gpu_ops.start_ns[gpu]) ++evidence[step].first_kernels;
    }
    known = 1;
  }
}

// What one series of times is of. Shapes that few steps have are binned by powers of 2.
struct ShapeKey {
  int32_t device;
  StringId stage;
  StageKind kind;
  StageSource source;
  int64_t tokens, sequences;
  bool binned;
  auto tied() const { return std::tie(device, stage, kind, source, tokens, sequences, binned); }
  friend bool operator<(const ShapeKey& a, const ShapeKey& b) { return a.tied() < b.tied(); }
};
using SeriesKey = std::pair<ShapeKey, MissingKernels>;

int64_t octave(int64_t n) {
  int64_t out = 0;
  while (n > 1) n >>= 1, ++out;
  return n > 0 ? out : -1;
}

class Judge {
 public:
  explicit Judge(Trace& trace)
      : steps_(trace.steps), host_pace_(trace), evidence_(steps_.size()), kernels_ns_(steps_.size(), 0.0) {
    for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op)
      if (const StepId step = trace.gpu_links.step[op]; step != kNoRow && trace.gpu_ops.kind[op] == GpuOpKind::kKernel)
        kernels_ns_[step] += static_cast<double>(trace.gpu_ops.dur_ns[op]);
    add_timed(trace, evidence_);
    add_first_kernels(trace, evidence_);
  }

  void judge() {
    std::map<SeriesKey, std::vector<Row>> exact, all;
    for (Row s = 0; s < steps_.size(); ++s)
      if (steps_.phase[s] == StepPhase::kServing && steps_.state[s] != StepState::kWindowEdge)
        exact[{key_of(s), steps_.missing[s]}].push_back(s);
    for (auto& [key, rows] : exact) {
      SeriesKey to = key;
      if (rows.size() < kShapeMin && key.first.tokens > 0)
        to.first.tokens = octave(key.first.tokens), to.first.sequences = octave(key.first.sequences),
        to.first.binned = true;
      std::vector<Row>& bin = all[to];
      bin.insert(bin.end(), rows.begin(), rows.end());
    }
    for (auto& [key, rows] : all) {
      std::sort(rows.begin(), rows.end());
      judge_series(key.first, rows, levels_[key.first].emplace_back());
    }
    for (const auto& [shape, levels] : levels_) compare_recorded(levels);
    compare_larger(all);
  }

 private:
  struct Level {
    std::vector<Row> rows;
    MissingKernels missing = MissingKernels::kNone;
    double ns = 0;
    std::vector<Row> steady(const Steps& steps) const {
      std::vector<Row> out;
      for (const Row s : rows)
        if (steps.phase[s] == StepPhase::kServing) out.push_back(s);
      return out;
    }
  };

  int64_t tokens_of(Row s) const { return steps_.new_tokens[s] > 0 ? steps_.new_tokens[s] : steps_.gemm_rows[s]; }
  ShapeKey key_of(Row s) const {
    return {steps_.device[s],
            steps_.stage[s],
            steps_.kind[s],
            steps_.source[s],
            std::max<int64_t>(-1, tokens_of(s)),
            std::max<int64_t>(-1, steps_.sequences[s]),
            false};
  }
  double window_ns(Row s) const { return static_cast<double>(steps_.end_ns[s] - steps_.start_ns[s]); }

  std::optional<double> pace_of(Row s) const {
    return host_pace_.during(steps_.device[s], steps_.start_ns[s], steps_.end_ns[s]);
  }
  // Its window if its CPU had been at full pace, and nothing else had taken time.
  double at_full_pace_ns(Row s) const { return window_ns(s) * pace_of(s).value_or(1); }

  void judge_series(const ShapeKey& key, const std::vector<Row>& rows, Level& level) {
    // Prompts differ in length; a decode step of unknown shape is one token of each sequence.
    const StepSize size = key.binned                                         ? StepSize::kBinned
                          : key.tokens > 0 || key.kind == StageKind::kDecode ? StepSize::kAlike
                                                                             : StepSize::kUnknown;
    std::vector<SeriesStep> series;
    series.reserve(rows.size());
    for (const Row s : rows) {
      const Evidence& evidence = evidence_[s];
      const int64_t sized = key.binned ? tokens_of(s) : steps_.context[s];
      series.push_back({window_ns(s), static_cast<double>(sized), evidence.once_ns(),
                        evidence.first_kernels > 0 || evidence.allocation_ns() > kHintPart * window_ns(s),
                        pace_of(s).value_or(-1)});
    }
    const SteadySeries found = find_steady_series(series, size);
    for (size_t i = 0; i < rows.size(); ++i)
      if (found.warm_up[i] != 0) mark(rows[i], found.excess_ns[i]);
    level = {rows, steps_.missing[rows.front()], found.level_ns};
    if (size == StepSize::kUnknown && level.missing == MissingKernels::kNone) judge_hosts_part(rows, series);
  }

  // Prompts of lengths that nobody knows: what they take beyond their kernels' time hardly depends on the length, for
  // all make the same calls. Where a cause was seen, that much more of it than others have is warm-up.
  void judge_hosts_part(const std::vector<Row>& rows, std::vector<SeriesStep> series) {
    if (rows.size() < kShapeMin) return;
    std::vector<double> windows;
    for (size_t i = 1; i < rows.size(); ++i) windows.push_back(window_ns(rows[i]));
    const double usual_ns = median_of(windows);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (kernels_ns_[rows[i]] <= 0) return;
      series[i].ns = usual_ns + std::max(0.0, window_ns(rows[i]) - kernels_ns_[rows[i]]);
    }
    const SteadySeries found = find_steady_series(series, StepSize::kAlike);
    for (size_t i = 0; i < rows.size() && !found.falls; ++i)
      if (found.warm_up[i] != 0 && (series[i].hint || series[i].once_ns > 0) &&
          steps_.phase[rows[i]] != StepPhase::kWarmUp)
        mark(rows[i], found.excess_ns[i]);
  }

  void mark(Row s, double excess_ns) {
    steps_.phase[s] = StepPhase::kWarmUp;
    steps_.warm_up_ns[s] = std::llround(excess_ns);
    steps_.warm_up_cause[s] = cause_of(evidence_[s], excess_ns);
  }

  static WarmUpCause cause_of(const Evidence& evidence, double excess_ns) {
    const auto most = std::max_element(evidence.ns.begin(), evidence.ns.end());
    if (*most > 0 && *most >= kNamedPart * excess_ns) return static_cast<WarmUpCause>(most - evidence.ns.begin());
    // What is loaded was made before: a library that builds code for each new shape loads it in no time.
    for (const WarmUpCause cause : {WarmUpCause::kCompilation, WarmUpCause::kModuleLoading})
      if (evidence.ns[static_cast<size_t>(cause)] > 0) return cause;
    return evidence.first_kernels > 0 ? WarmUpCause::kFirstCalls : WarmUpCause::kUnknown;
  }

  // A beginning that was recorded, before steady steps that were not, or the other way round: its own later steps are
  // too few to tell.
  void compare_recorded(const std::vector<Level>& levels) {
    for (const Level& early : levels) {
      for (const Level& late : levels) {
        std::vector<Row> first = early.steady(steps_);
        const std::vector<Row> then = late.steady(steps_);
        if (then.size() < kClassMin || early.missing == late.missing) continue;
        first.erase(std::find_if(first.begin(), first.end(),
                                 [&](Row s) { return steps_.start_ns[s] > steps_.start_ns[then.front()]; }),
                    first.end());
        const double limit = late.ns * (early.missing < late.missing ? kRecordingMost : kSlowerClass);
        std::vector<uint8_t> slow;
        for (const Row s : first) slow.push_back(at_full_pace_ns(s) > limit ? 1 : 0);
        for (size_t i = 0, end = slow_beginning(slow); i < end; ++i)
          if (slow[i] != 0) mark(first[i], window_ns(first[i]) - late.ns);
      }
    }
  }

  // A step without its like took much longer than a later one that did at least as much, be that one warm-up itself.
  void compare_larger(const std::map<SeriesKey, std::vector<Row>>& all) {
    std::map<std::tuple<int32_t, StringId, StageKind, StageSource, MissingKernels>, std::vector<Row>> singles;
    for (const auto& [key, rows] : all) {
      if (!key.first.binned) continue;
      std::vector<Row>& mine =
          singles[{key.first.device, key.first.stage, key.first.kind, key.first.source, key.second}];
      mine.insert(mine.end(), rows.begin(), rows.end());
    }
    for (auto& [stage, rows] : singles) {
      if (rows.size() > kSinglesMost) continue;
      std::sort(rows.begin(), rows.end());
      for (size_t i = 0; i + 1 < rows.size(); ++i) {
        if (steps_.phase[rows[i]] == StepPhase::kWarmUp) continue;
        double least_ns = HUGE_VAL;
        for (size_t j = i + 1; j < rows.size(); ++j)
          if (tokens_of(rows[j]) >= tokens_of(rows[i]) && steps_.sequences[rows[j]] >= steps_.sequences[rows[i]] &&
              steps_.context[rows[j]] >= steps_.context[rows[i]])
            least_ns = std::min(least_ns, window_ns(rows[j]));
        if (window_ns(rows[i]) <= kLargerFactor * least_ns) break;  // the first ones only
        mark(rows[i], window_ns(rows[i]) - least_ns);
      }
    }
  }

  Steps& steps_;
  const HostPace host_pace_;
  std::vector<Evidence> evidence_;
  std::vector<double> kernels_ns_;  // by step
  std::map<ShapeKey, std::vector<Level>> levels_;
};

}  // namespace

void find_steady(Trace& trace) {
  Steps& steps = trace.steps;
  for (Row s = 0; s < steps.size(); ++s) {
    steps.warm_up_ns[s] = 0;
    if (steps.warm_up_cause[s] > WarmUpCause::kNamed) steps.phase[s] = StepPhase::kServing;  // found here before
    steps.warm_up_cause[s] = steps.phase[s] == StepPhase::kWarmUp ? WarmUpCause::kNamed : WarmUpCause::kNone;
  }
  if (!steps.empty()) Judge(trace).judge();
}

}  // namespace llmprof
