#include "derive/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include "derive/annotate.h"
#include "derive/cut_beginnings.h"
#include "derive/detect.h"
#include "derive/grid_kinds.h"
#include "derive/host_calls.h"
#include "derive/host_stages.h"
#include "derive/host_waits.h"
#include "derive/joint_passes.h"
#include "derive/launch_order.h"
#include "derive/other_models.h"
#include "derive/parallel_passes.h"
#include "derive/product_rows.h"
#include "derive/prompt_starts.h"
#include "derive/range_steps.h"
#include "derive/recorded_spans.h"
#include "derive/recurring_ranges.h"
#include "derive/recurring_steps.h"
#include "derive/single_texts.h"
#include "derive/step_composition.h"
#include "derive/step_kinds.h"
#include "derive/step_shapes.h"
#include "derive/unseen_steps.h"
#include "derive/whole_graphs.h"
#include "derive/windows.h"
#include "trace/empty_columns.h"

namespace llmprof {
namespace {

// A pause before it aside.
int64_t host_began_ns(const Steps& steps, Row s) { return std::max(steps.start_ns[s], steps.host_start_ns[s]); }

bool by_device_and_host(const StepDraft& a, const StepDraft& b) {
  return a.device != b.device ? a.device < b.device : a.begin_ns < b.begin_ns;
}

// Detected steps that no annotated one touches, or touches only at an edge.
void add_uncovered(const std::vector<StepDraft>& detected, const std::vector<StepDraft>& annotated,
                   std::vector<StepDraft>& out) {
  for (StepDraft step : detected) {
    const int64_t length = step.end_ns - step.begin_ns;
    int64_t covered = 0;
    std::vector<StepDraft>::const_iterator it =
        std::upper_bound(annotated.begin(), annotated.end(), step.begin_ns,
                         [](int64_t time, const StepDraft& other) { return time < other.begin_ns; });
    if (it != annotated.begin() && (it - 1)->end_ns > step.begin_ns) {
      covered += std::min((it - 1)->end_ns, step.end_ns) - step.begin_ns;
      step.begin_ns = step.host_start_ns = std::min((it - 1)->end_ns, step.end_ns);
    }
    const int64_t uncovered_end = it != annotated.end() ? std::min(step.end_ns, it->begin_ns) : step.end_ns;
    covered += std::max<int64_t>(0, step.end_ns - std::max(uncovered_end, step.begin_ns));
    step.end_ns = uncovered_end;
    if (step.begin_ns < step.end_ns && covered <= length / 4) out.push_back(step);
  }
}

// The steps of one device, by host time.
std::vector<StepDraft> draft_device(const Trace& trace, const StageRanges& stages, const LaunchOrder& order,
                                    const HostCalls& calls, const RecordedSpans& recorded,
                                    const std::vector<StepDraft>& detected) {
  std::vector<StepDraft> annotated = steps_of_ranges(trace, stages, order, calls, recorded, detected);
  std::sort(annotated.begin(), annotated.end(), by_device_and_host);
  std::vector<StepDraft> steps = annotated;
  add_uncovered(detected, annotated, steps);
  std::sort(steps.begin(), steps.end(), by_device_and_host);
  return steps;
}

// Steps of one device, gpu_links.step by launch time: within its thread's own steps, or, for a thread that has none,
// within whichever step was running on the host.
void assign_launches(Trace& trace, const LaunchOrder& order, const std::vector<StepDraft>& steps, Row first_row) {
  struct Lane {
    std::vector<Row> steps;  // indices into `steps`
    size_t at = 0;
  };
  std::unordered_map<Row, Lane> lanes;
  Lane everything;  // for threads without steps of their own
  for (Row i = 0; i < steps.size(); ++i) {
    if (steps[i].thread != kNoRow) lanes[steps[i].thread].steps.push_back(i);
    everything.steps.push_back(i);
  }
  Lane* lane = &everything;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || order.thread[i] != order.thread[i - 1]) {
      const std::unordered_map<Row, Lane>::iterator own = lanes.find(order.thread[i]);
      lane = own != lanes.end() ? &own->second : &everything;
    }
    while (lane->at < lane->steps.size() && steps[lane->steps[lane->at]].end_ns <= order.time_ns[i]) ++lane->at;
    const bool inside = lane->at < lane->steps.size() && steps[lane->steps[lane->at]].begin_ns <= order.time_ns[i];
    trace.gpu_links.step[order.gpu[i]] = inside ? first_row + lane->steps[lane->at] : kNoRow;
  }
}

// Keeps the steps with activity, in the order `before`; gpu_links.step follows.
template <class Before>
void reorder(Trace& trace, std::vector<StepDraft>& steps, Before&& before) {
  std::vector<Row> kept;
  for (Row i = 0; i < steps.size(); ++i) {
    if (steps[i].launches > 0 || steps[i].unseen || steps[i].host_only) kept.push_back(i);
  }
  std::stable_sort(kept.begin(), kept.end(), [&](Row a, Row b) { return before(steps[a], steps[b]); });
  std::vector<Row> new_row(steps.size(), kNoRow);
  std::vector<StepDraft> sorted;
  sorted.reserve(kept.size());
  for (const Row old : kept) {
    new_row[old] = static_cast<Row>(sorted.size());
    sorted.push_back(std::move(steps[old]));
  }
  for (StepId& step : trace.gpu_links.step) {
    if (step != kNoRow) step = new_row[step];
  }
  steps = std::move(sorted);
}

void set_device_windows(const Trace& trace, std::vector<StepDraft>& steps, const HostCalls& calls,
                        const RecordedSpans& recorded) {
  const RecurringTimes recurring(trace);
  for (size_t first = 0; first < steps.size();) {
    size_t last = first;
    while (last < steps.size() && steps[last].device == steps[first].device) ++last;
    std::vector<StepDraft> mine(steps.begin() + static_cast<ptrdiff_t>(first),
                                steps.begin() + static_cast<ptrdiff_t>(last));
    set_windows(mine, calls, recurring, recorded.unrecorded(mine.front().device));
    std::move(mine.begin(), mine.end(), steps.begin() + static_cast<ptrdiff_t>(first));
    first = last;
  }
}

// Pieces of one range may be of several kinds, and are stages of their own then: "answer prefill", "answer decode". Not
// where ranges of which nothing was recorded are steps of that stage: they have all of the pieces in them.
void name_pieces(std::vector<StepDraft>& steps) {
  std::map<std::string, std::set<StageKind>> kinds;
  std::set<std::string> whole;
  for (const StepDraft& step : steps) {
    if (step.split && !step.stage.empty()) kinds[step.stage].insert(step.kind);
    if (step.unseen) whole.insert(step.stage);
  }
  for (StepDraft& step : steps) {
    const std::map<std::string, std::set<StageKind>>::const_iterator of = kinds.find(step.stage);
    if (of == kinds.end() || of->second.size() < 2 || whole.count(step.stage) > 0) continue;
    if (stage_kind_of(step.stage) == step.kind) continue;
    step.range = step.stage;
    step.stage.append(" ").append(name_of(step.kind));
  }
}

// By CUPTI's coming or going.
bool is_held_up(const RecordedSpans& recorded, const StepDraft& draft) {
  return RecordedSpans::touches(recorded.switching(draft.device), draft.host_start_ns, draft.window_end_ns);
}

std::vector<MissingKernels> missing_kernels(const Trace& trace, const RecordedSpans& recorded,
                                            const std::vector<StepDraft>& drafts) {
  std::vector<MissingKernels> missing(drafts.size(), MissingKernels::kNone);
  if (const StringId whole = whole_graph_name(trace); whole != StringId::kEmpty) {
    for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
      if (trace.gpu_ops.name[gpu] == whole && trace.gpu_links.step[gpu] != kNoRow) {
        missing[trace.gpu_links.step[gpu]] = MissingKernels::kGraphNodes;
      }
    }
  }
  for (size_t i = 0; i < drafts.size(); ++i) {
    const StepDraft& draft = drafts[i];
    if (draft.host_only) continue;
    const std::vector<TimeSpan>& spans = recorded.unrecorded(draft.device);
    // What a range launches after its last recorded activity is not seen: the range itself says how long it goes on.
    int64_t host_end = std::max(draft.host_start_ns + 1, draft.last_launch_ns);
    if (draft.annotation != kNoRow) {
      const Annotations& notes = trace.annotations;
      const int64_t range_end = notes.start_ns[draft.annotation] + notes.dur_ns[draft.annotation];
      host_end = std::max(host_end, std::min(draft.end_ns, range_end));
    }
    // A detected step ends where the next begins, and its last launches may be among the cut ones.
    const int64_t cut_end = draft.annotation != kNoRow ? host_end : std::max(host_end, draft.end_ns);
    const bool touched = RecordedSpans::touches(spans, draft.window_start_ns, draft.window_end_ns) ||
                         RecordedSpans::touches(spans, draft.host_start_ns, host_end) ||
                         RecordedSpans::touches(recorded.cut_launches(draft.device), draft.host_start_ns, cut_end);
    // A step that was recorded whole may be held up all the same: its times are nobody's either.
    if (draft.unseen || touched || is_held_up(recorded, draft)) missing[i] = MissingKernels::kAll;
  }
  return missing;
}

// A detected step that touches time in which kernels were not recorded may be two steps, or half of one.
void drop_doubtful(Trace& trace, const RecordedSpans& recorded, std::vector<StepDraft>& drafts) {
  const std::vector<MissingKernels> missing = missing_kernels(trace, recorded, drafts);
  for (size_t i = 0; i < drafts.size(); ++i) {
    if (missing[i] == MissingKernels::kAll && drafts[i].source == StageSource::kDetected) drafts[i].launches = 0;
  }
}

bool repeats(StageKind kind) { return kind == StageKind::kDecode || kind == StageKind::kSpeculative; }

// What complete decode steps of a stage agree on holds for its other steps as well.
void inherit_tokens(const std::vector<MissingKernels>& missing, std::vector<StepDraft>& drafts) {
  struct Counts {
    int64_t tokens = -1, sequences = -1, output = -1;
    bool known = false, agreed = true;
  };
  std::map<std::string, Counts> stages;
  for (size_t i = 0; i < drafts.size(); ++i) {
    const StepDraft& draft = drafts[i];
    if (missing[i] != MissingKernels::kNone || !repeats(draft.kind)) continue;
    Counts& counts = stages[draft.stage];
    const bool same = counts.tokens == draft.new_tokens && counts.sequences == draft.sequences;
    if (counts.known && !same) counts.agreed = false;
    if (!counts.known) counts = {draft.new_tokens, draft.sequences, draft.output_tokens, true, true};
  }
  for (size_t i = 0; i < drafts.size(); ++i) {
    StepDraft& draft = drafts[i];
    const std::map<std::string, Counts>::const_iterator it = stages.find(draft.stage);
    if (missing[i] == MissingKernels::kNone || !repeats(draft.kind) || it == stages.end() || !it->second.agreed)
      continue;
    if (draft.new_tokens < 0) draft.new_tokens = it->second.tokens;
    if (draft.sequences < 0) draft.sequences = it->second.sequences;
    if (draft.output_tokens < 0) draft.output_tokens = it->second.output;
  }
}

// Extends the window of a device to the step; a device without activity gets its window from its steps.
void widen_window(Trace& trace, const StepDraft& draft) {
  const std::vector<Window>::iterator window =
      std::lower_bound(trace.windows.begin(), trace.windows.end(), draft.device,
                       [](const Window& w, int32_t device) { return w.device < device; });
  if (window == trace.windows.end() || window->device != draft.device) {
    trace.windows.insert(window, {draft.device, draft.window_start_ns, draft.window_end_ns});
    return;
  }
  window->start_ns = std::min(window->start_ns, draft.window_start_ns);
  window->end_ns = std::max(window->end_ns, draft.window_end_ns);
}

// A recording without activities and steps still has readings to report on, over the time in which it was made.
void add_recorded_window(Trace& trace) {
  const Recorded& table = trace.recorded;
  if (table.empty() || !trace.windows.empty()) return;
  int64_t start = table.start_ns[0], end = table.start_ns[0];
  for (Row row = 0; row < table.size(); ++row) {
    start = std::min(start, table.start_ns[row]);
    end = std::max(end, table.start_ns[row] + table.dur_ns[row]);
  }
  if (start < end) trace.windows.push_back({trace.devices.empty() ? 0 : trace.devices.device.front(), start, end});
}

void write_steps(Trace& trace, const RecordedSpans& recorded, const std::vector<MissingKernels>& missing,
                 const std::vector<StepDraft>& drafts) {
  std::set<std::string> complete;
  const auto name_of = [](const StepDraft& draft) {
    return draft.stage.empty() ? std::string(llmprof::name_of(draft.kind)) : draft.stage;
  };
  for (size_t i = 0; i < drafts.size(); ++i) {
    if (missing[i] == MissingKernels::kNone) complete.insert(name_of(drafts[i]));
  }
  Steps& table = trace.steps;
  std::map<uint32_t, Row> passes;
  table.clear();
  table.resize(drafts.size());
  for (size_t i = 0; i < drafts.size(); ++i) {
    const StepDraft& draft = drafts[i];
    const std::string name = name_of(draft);
    if (missing[i] != MissingKernels::kNone && complete.count(name) > 0) {
      const bool inside =
          !is_held_up(recorded, draft) &&
          RecordedSpans::holds(recorded.unrecorded(draft.device), draft.host_start_ns, draft.window_end_ns);
      table.state[i] = missing[i] == MissingKernels::kGraphNodes ? StepState::kWholeGraphs
                       : inside                                  ? StepState::kNotRecorded
                                                                 : StepState::kWindowEdge;
    }
    table.kind[i] = draft.kind;
    table.source[i] = draft.source;
    table.stage[i] = trace.strings.intern(name);
    table.device[i] = draft.device;
    table.start_ns[i] = draft.window_start_ns;
    table.end_ns[i] = draft.window_end_ns;
    table.host_start_ns[i] = draft.host_start_ns;
    table.gpu_start_ns[i] = draft.gpu_start_ns;
    table.gpu_end_ns[i] = draft.gpu_end_ns;
    table.sync_ns[i] = draft.sync_ns;
    if (draft.kind == StageKind::kPrefill)
      table.other_model_ns[i] = std::max<int64_t>(0, draft.other_model_end_ns - draft.window_start_ns);
    table.new_tokens[i] = draft.new_tokens;
    table.sequences[i] = draft.sequences;
    table.context[i] = draft.context;
    table.output_tokens[i] = draft.output_tokens;
    table.gemm_rows[i] = draft.gemm_rows;
    table.missing[i] = missing[i];
    table.annotation[i] = draft.annotation;
    if (draft.pass != 0) table.pass[i] = passes.try_emplace(draft.pass, static_cast<Row>(i)).first->second;
    widen_window(trace, draft);
  }
  const std::map<int32_t, int64_t> serving = serving_starts(table);
  for (Row i = 0; i < table.size(); ++i) {
    const std::map<int32_t, int64_t>::const_iterator from = serving.find(table.device[i]);
    if (from != serving.end() && table.source[i] == StageSource::kDetected && host_began_ns(table, i) < from->second)
      table.phase[i] = StepPhase::kWarmUp;
  }
}

void count_unattributed(Trace& trace) {
  uint64_t count = 0;
  int64_t outside_ns = 0, all_ns = 0;
  for (size_t i = 0; i < trace.gpu_ops.size(); ++i) {
    all_ns += trace.gpu_ops.dur_ns[i];
    if (trace.gpu_links.step[i] != kNoRow) continue;
    ++count;
    outside_ns += trace.gpu_ops.dur_ns[i];
  }
  if (count == 0) return;
  const double share = all_ns > 0 ? 100.0 * static_cast<double>(outside_ns) / static_cast<double>(all_ns) : 0.0;
  trace.diagnostics.add(DiagnosticId::kUnknownStage, fmt::format("{:.1f} % of the GPU time", share), count);
}

}  // namespace

std::string step_label(std::string_view name, StepState state, StepPhase phase) {
  static constexpr std::string_view kStates[] = {"", " [whole graphs]", " [not recorded]", " [window edge]"};
  std::string out(name);
  out += kStates[static_cast<size_t>(state)];
  if (phase == StepPhase::kWarmUp) out += " [warm-up]";
  return out;
}

namespace {

// Bit 1 for prompts, 2 for tokens made.
uint8_t token_kinds(StageKind kind) {
  if (kind == StageKind::kMixed) return 3;
  if (kind == StageKind::kPrefill) return 1;
  return kind == StageKind::kDecode || kind == StageKind::kSpeculative ? 2 : 0;
}

// The detected steps of a device that lead to its first named step: a prompt, with the vision encoders before it.
struct Lead {
  std::vector<Row> steps;
  void add(const Steps& table, Row s) {
    const StageKind kind = table.kind[s];
    const bool goes_on = !steps.empty() && table.kind[steps.back()] == StageKind::kVision;
    if (!goes_on || (kind != StageKind::kVision && kind != StageKind::kPrefill)) steps.clear();
    if (kind == StageKind::kVision || kind == StageKind::kPrefill) steps.push_back(s);
  }
  bool holds_prompt(const Steps& table) const {
    return !steps.empty() && table.kind[steps.back()] == StageKind::kPrefill;
  }
};

}  // namespace

std::map<int32_t, int64_t> serving_starts(const Steps& steps) {
  struct Walls {
    int64_t named_ns = 0, before_ns = 0, since_ns = 0;  // of named steps; of detected ones before and since the first
    int64_t first_ns = std::numeric_limits<int64_t>::max(), last_ns = std::numeric_limits<int64_t>::min();
    size_t named = 0, before = 0;
    uint8_t named_kinds = 0, before_kinds = 0;
    StageKind first_kind = StageKind::kOther;
    Lead lead;
    bool serves_by_time() const { return last_ns - first_ns > before_ns; }
    // The program says which its prompts and its tokens are, and has more of them.
    bool serves_by_kind() const { return named > before && (before_kinds & ~named_kinds) == 0; }
  };
  std::map<int32_t, Walls> devices;
  for (Row s = 0; s < steps.size(); ++s) {
    Walls& walls = devices[steps.device[s]];
    if (steps.source[s] == StageSource::kDetected) {
      if (walls.named == 0) walls.lead.add(steps, s);
      continue;
    }
    if (walls.named == 0) walls.first_kind = steps.kind[s];
    ++walls.named;
    walls.named_kinds |= token_kinds(steps.kind[s]);
    walls.named_ns += steps.end_ns[s] - steps.start_ns[s];
    walls.first_ns = std::min(walls.first_ns, host_began_ns(steps, s));
    walls.last_ns = std::max(walls.last_ns, steps.end_ns[s]);
  }
  // Whose prompts have no names began with the prompt of the first named tokens.
  for (auto& [device, walls] : devices) {
    if (token_kinds(walls.first_kind) != 2 || (walls.named_kinds & 1) != 0 || !walls.lead.holds_prompt(steps))
      walls.lead.steps.clear();
    for (const Row s : walls.lead.steps) walls.first_ns = std::min(walls.first_ns, host_began_ns(steps, s));
  }
  for (Row s = 0; s < steps.size(); ++s) {
    const std::map<int32_t, Walls>::iterator walls = devices.find(steps.device[s]);
    if (walls->second.named == 0 || steps.source[s] != StageSource::kDetected) continue;
    const std::vector<Row>& lead = walls->second.lead.steps;
    if (std::find(lead.begin(), lead.end(), s) != lead.end()) continue;
    const bool before = host_began_ns(steps, s) < walls->second.first_ns;
    (before ? walls->second.before_ns : walls->second.since_ns) += steps.end_ns[s] - steps.start_ns[s];
    if (!before) continue;
    ++walls->second.before;
    walls->second.before_kinds |= token_kinds(steps.kind[s]);
  }
  // The time in which ranges name the steps counts as a whole: in unrecorded time not every named step is known.
  std::map<int32_t, int64_t> starts;
  for (const auto& [device, walls] : devices)
    if (walls.named > 0 && walls.named_ns > walls.since_ns && (walls.serves_by_time() || walls.serves_by_kind()))
      starts[device] = walls.first_ns;
  return starts;
}

TrainingEvidence training_evidence(const Trace& trace) {
  TrainingEvidence evidence;
  std::vector<uint8_t> verdicts(trace.strings.size(), 2);  // 2: not judged yet
  const auto judge = [&](StringId id, uint64_t& counter, bool (*is_sign)(std::string_view)) {
    uint8_t& verdict = verdicts[index(id)];
    if (verdict == 2) {
      verdict = is_sign(trace.text(id)) ? 1 : 0;
      if (verdict == 1 && evidence.first_name.empty()) evidence.first_name = trace.text(id);
    }
    counter += verdict;
  };
  for (const StringId name : trace.ops.name) {
    judge(name, evidence.backward_ops, [](std::string_view text) {
      return text.find("autograd::engine::evaluate_function") != std::string_view::npos ||
             text.find("_backward") != std::string_view::npos;
    });
  }
  for (Row a = 0; a < trace.annotations.size(); ++a) {
    // The recorder shows a range a second time on the GPU; and zero_grad is no step.
    const std::string_view text = trace.text(trace.annotations.name[a]);
    if (trace.annotations.kind[a] == AnnotationKind::kGpuUser || !text.starts_with("Optimizer.")) continue;
    if (evidence.first_name.empty()) evidence.first_name = text;
    if (text.starts_with("Optimizer.step")) ++evidence.optimizer_steps;
  }
  return evidence;
}

bool looks_like_training(const Trace& trace) { return training_evidence(trace).found(); }

namespace {

// Rules of the user that made no stage.
void tell_idle_rules(Trace& trace, const DeriveOptions& options, const StageRanges& stages) {
  for (size_t i = 0; i < options.stage_rules.size(); ++i) {
    const StageRule& rule = options.stage_rules[i];
    const bool made = std::any_of(trace.steps.stage.begin(), trace.steps.stage.end(),
                                  [&](StringId name) { return trace.text(name).starts_with(rule.name); });
    if (made && stages.matched[i] > 0) continue;
    trace.diagnostics.add(
        DiagnosticId::kOptionDoubtful,
        "--stage " + rule.name + "=" + rule.regex + ": " +
            (stages.matched[i] == 0 ? "no range has such a text; " + range_texts(trace)
                                    : "the ranges that it names hold no steps: no GPU work was launched in them") +
            ".");
  }
}

}  // namespace

Status find_steps(Trace& trace, const DeriveOptions& options) {
  trace.steps.clear();
  LLMPROF_ASSIGN(StageRanges stages, find_stage_ranges(trace, options.stage_rules));
  // The passes before may not have run (a recording of copies only has nothing to classify).
  trace.gpu_links.resize(trace.gpu_ops.size());
  make_empty(trace.gpu_links.step, trace.gpu_ops.size());
  const RecordedSpans recorded(trace);
  if (trace.gpu_ops.empty() && (stages.ranges.empty() || trace.recorded.empty())) {
    add_recorded_window(trace);
    return {};
  }

  const bool detect = options.detect_stages && !looks_like_training(trace);
  const HostCalls calls(trace);
  const TokenEvents events = find_token_events(trace);
  const std::vector<LaunchOrder> orders = order_launches(trace);
  std::vector<std::vector<StepDraft>> detected(orders.size());
  for (size_t i = 0; detect && i < orders.size(); ++i) detected[i] = detect_steps(trace, orders[i], calls, events);
  if (detect) detect_joint_passes(trace, orders, calls, events, detected);
  if (detect) split_other_models(trace, orders, calls, detected);
  if (detect) drop_single_texts(trace, orders, detected, stages);
  if (detect) add_recurring_ranges(trace, orders, detected, calls, stages);
  std::vector<StepDraft> steps;
  for (size_t i = 0; i < orders.size(); ++i) {
    const std::vector<StepDraft> mine = draft_device(trace, stages, orders[i], calls, recorded, detected[i]);
    assign_launches(trace, orders[i], mine, static_cast<Row>(steps.size()));
    steps.insert(steps.end(), mine.begin(), mine.end());
  }
  add_unseen_steps(trace, stages, orders, recorded, calls, steps);
  measure_steps(trace, orders, steps);
  const auto by_window = [](const StepDraft& a, const StepDraft& b) {
    return a.window_start_ns != b.window_start_ns ? a.window_start_ns < b.window_start_ns : a.device < b.device;
  };
  reorder(trace, steps, by_device_and_host);
  count_tokens(trace, orders, events, steps);
  settle_kinds(calls, steps);
  settle_by_grids(trace, orders, calls, steps);
  settle_by_product_rows(trace, steps);
  settle_by_waits(trace, steps);
  settle_recurring(steps);
  divide_unseen_steps(trace, recorded, steps);
  reorder(trace, steps, by_device_and_host);
  join_parallel_passes(trace, orders, calls, steps);
  reorder(trace, steps, by_device_and_host);
  settle_sequences(trace, recorded, steps);
  settle_prompts(calls, steps);
  forget_unknown_compositions(trace, steps);
  add_host_stages(trace, stages, recorded, steps);
  reorder(trace, steps, by_device_and_host);
  share_passes(steps);
  set_device_windows(trace, steps, calls, recorded);
  if (!trace.recorded.empty()) {
    drop_doubtful(trace, recorded, steps);
    drop_cut_beginnings(trace, recorded, steps);
    reorder(trace, steps, by_window);
  }
  begin_prompts_behind_results(trace, orders, steps);
  join_windows(steps);
  name_pieces(steps);
  if (!trace.recorded.empty()) add_recurring_steps(trace, stages, recorded, steps);
  reorder(trace, steps, by_window);
  const std::vector<MissingKernels> missing = missing_kernels(trace, recorded, steps);
  inherit_tokens(missing, steps);
  write_steps(trace, recorded, missing, steps);
  tell_idle_rules(trace, options, stages);
  count_unattributed(trace);
  return {};
}

double step_coverage_frac(const Trace& trace, int32_t device) {
  int64_t inside = 0, all = 0;
  for (Row i = 0; i < trace.gpu_ops.size(); ++i) {
    if (trace.device_of(i) != device) continue;
    all += trace.gpu_ops.dur_ns[i];
    if (trace.gpu_links.step[i] != kNoRow) inside += trace.gpu_ops.dur_ns[i];
  }
  return all > 0 ? static_cast<double>(inside) / static_cast<double>(all) : std::nan("");
}

}  // namespace llmprof
