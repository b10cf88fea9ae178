#include "derive/recurring_steps.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/statistics.h"
#include "derive/annotate.h"
#include "derive/host_waits.h"
#include "derive/product_rows.h"
#include "derive/windows.h"

namespace llmprof {
namespace {

constexpr size_t kStepsMin = 3, kPromptsMin = 2;
constexpr double kMostSteps = 0.9;

struct HostEvent {
  int64_t time_ns;
  uint64_t key;
  bool waits = false;  // a wait for the GPU, by its start; the key is of its code
};
uint64_t key_of(StringId stack) { return ~uint64_t{index(stack)}; }

using Product = ProductRowsOf::Product;

using DraftIndex = size_t;

// The recorded calls of the threads. A call is noted when the program makes it, a little before the recorded one
// begins: what was noted since the host was back from the call before belongs to it, and to the step that begins with
// it.
class RecordedCalls {
 public:
  RecordedCalls(const Trace& trace, const std::vector<ThreadId>& threads, const std::vector<TimeSpan>& unrecorded)
      : unrecorded_(unrecorded) {
    const ApiCalls& calls = trace.api_calls;  // by start
    for (Row row = 0; row < calls.size(); ++row)
      if (std::binary_search(threads.begin(), threads.end(), calls.thread[row]))
        calls_.push_back({calls.start_ns[row], calls.start_ns[row] + calls.dur_ns[row]});
  }
  // Of a call that begins at that time: when the host was back from the one before, or recording began. Else the time.
  int64_t noted_from(int64_t time_ns) const {
    size_t calls = begun_before(calls_, time_ns);
    if (calls == calls_.size() || calls_[calls].start_ns != time_ns) return time_ns;
    int64_t begin_ns = time_ns;
    while (calls > 0 && calls_[calls - 1].end_ns > begin_ns) begin_ns = calls_[--calls].start_ns;  // it made the call
    const size_t pauses = begun_before(unrecorded_, begin_ns);
    const int64_t recorded_ns = pauses > 0 ? unrecorded_[pauses - 1].end_ns : kNever;
    const int64_t back_ns = std::max(calls > 0 ? calls_[calls - 1].end_ns : kNever, recorded_ns);
    return back_ns != kNever ? std::min(back_ns, begin_ns) : begin_ns;
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  static size_t begun_before(const std::vector<TimeSpan>& spans, int64_t time_ns) {
    const auto at = std::lower_bound(spans.begin(), spans.end(), time_ns,
                                     [](const TimeSpan& span, int64_t time) { return span.start_ns < time; });
    return static_cast<size_t>(at - spans.begin());
  }

  std::vector<TimeSpan> calls_;
  const std::vector<TimeSpan>& unrecorded_;
};

// What the host calls in each pass of the model, at every recording level.
struct HostEvents {
  std::vector<HostEvent> recurring;
  ProductRowsOf rows;
  HostWaits waits;
  RecordedCalls recorded;

  // When what belongs to a step begins to be noted, and when it ends.
  TimeSpan noted(const StepDraft& draft) const {
    return {recorded.noted_from(draft.begin_ns), recorded.noted_from(draft.end_ns)};
  }
};

// Ranges of one thread that do not overlap.
class Ranges {
 public:
  Ranges() = default;
  explicit Ranges(std::vector<TimeSpan> spans) : spans_(std::move(spans)) {
    std::sort(spans_.begin(), spans_.end(),
              [](const TimeSpan& a, const TimeSpan& b) { return a.start_ns < b.start_ns; });
  }
  // The last one that begins at that time or before; null: there is none.
  const TimeSpan* last_begun(int64_t time_ns) const {
    const auto next = std::upper_bound(spans_.begin(), spans_.end(), time_ns,
                                       [](int64_t time, const TimeSpan& span) { return time < span.start_ns; });
    return next != spans_.begin() ? &*std::prev(next) : nullptr;
  }
  // The one at that time; null: there is none.
  const TimeSpan* at(int64_t time_ns) const {
    const TimeSpan* const last = last_begun(time_ns);
    return last != nullptr && last->end_ns > time_ns ? last : nullptr;
  }

 private:
  std::vector<TimeSpan> spans_;
};

// The recorded steps of a stage on one device, of threads in turn.
struct StageEvents {
  std::vector<DraftIndex> steps;    // by window
  std::map<uint64_t, size_t> once;  // steps in which a key came once; of waits the one that ends steps alone
  std::set<uint64_t> once_in_first;
  std::set<uint64_t> keys;  // all that came
  uint64_t anchor = 0;
  bool any_own_key = false;        // instead of one anchor: any key that is not of another stage
  std::set<uint64_t> not_anchors;  // then: those of the others
  std::vector<StringId> ends;      // code whose wait ends the window, in order
  int64_t tail_ns = 0;             // where there is none: from the anchor to the end of the window
  int64_t lead_ns = 0;             // from the beginning of the window to the product that the pass begins with
  bool known = false;              // its steps are, by the anchor
  std::string range;               // whose occurrences hold several of its steps each; empty: none
  Ranges ranges;                   // they

  bool ends_with(const HostEvent& event) const {
    if (!range.empty() && ranges.at(event.time_ns) == nullptr) return false;
    return any_own_key ? !event.waits && not_anchors.count(event.key) == 0 : common(event.key) == anchor;
  }
  bool is_end(uint64_t key) const {
    return std::any_of(ends.begin(), ends.end(), [key](StringId stack) { return key == key_of(stack); });
  }
  // Of several stacks of one code the first stands for all.
  uint64_t common(uint64_t key) const { return is_end(key) ? key_of(ends.front()) : key; }
  // The first may be a warm-up, which calls something else: it counts where it is like the others.
  bool most(size_t count, bool in_first, size_t least) const {
    const size_t of = steps.size() - (in_first ? 0 : 1);
    return of >= least && static_cast<double>(count) >= kMostSteps * static_cast<double>(of);
  }
};
using Stages = std::map<std::string, StageEvents>;

std::pair<size_t, size_t> within(const std::vector<HostEvent>& events, int64_t from_ns, int64_t to_ns) {
  const auto before = [](const HostEvent& event, int64_t time) { return event.time_ns < time; };
  const auto first = std::lower_bound(events.begin(), events.end(), from_ns, before);
  const auto last = std::lower_bound(first, events.end(), to_ns, before);
  return {static_cast<size_t>(first - events.begin()), static_cast<size_t>(last - events.begin())};
}

HostEvents events_of(const Trace& trace, const std::vector<ThreadId>& threads,
                     const std::vector<TimeSpan>& unrecorded) {
  HostEvents events{
      {}, ProductRowsOf(trace, threads), HostWaits(trace, threads), RecordedCalls(trace, threads, unrecorded)};
  const auto is_one = [&](ThreadId thread) { return std::binary_search(threads.begin(), threads.end(), thread); };
  const RecurringCalls& calls = trace.recurring_calls;
  for (Row row = 0; row < calls.size(); ++row)
    if (is_one(calls.thread[row])) events.recurring.push_back({calls.time_ns[row], calls.key[row]});
  const HostPlaces& places = trace.host_places;
  for (Row row = 0; row < places.size(); ++row)
    if (is_one(places.thread[row]) && places.kind[row] == PlaceKind::kWait && places.stack[row] != StringId::kEmpty)
      events.recurring.push_back({places.start_ns[row], key_of(places.stack[row]), true});
  std::stable_sort(events.recurring.begin(), events.recurring.end(),
                   [](const HostEvent& a, const HostEvent& b) { return a.time_ns < b.time_ns; });
  return events;
}

bool generates(StageKind kind) { return kind == StageKind::kDecode || kind == StageKind::kMixed; }

StageKind kind_of(const StageEvents& stage, const std::vector<StepDraft>& drafts) {
  return drafts[stage.steps.back()].kind;
}

// Whether the code that fetches results tells the steps of two stages apart.
bool told_by_waits(const StageEvents& a, const StageEvents& b) {
  const auto ends_b = [&b](StringId stack) { return std::binary_search(b.ends.begin(), b.ends.end(), stack); };
  return !a.ends.empty() && !b.ends.empty() && std::none_of(a.ends.begin(), a.ends.end(), ends_b);
}

void count_keys(const Trace& trace, const HostEvents& events, const std::vector<StepDraft>& drafts, StageEvents& stage,
                PromptsByRows& prompts) {
  std::vector<TimeSpan> windows;
  for (const DraftIndex i : stage.steps) windows.push_back({drafts[i].window_start_ns, drafts[i].window_end_ns});
  stage.ends = stacks_that_end(trace, events.waits, windows);
  for (const DraftIndex i : stage.steps) {
    const TimeSpan noted = events.noted(drafts[i]);
    const auto [first, last] = within(events.recurring, noted.start_ns, noted.end_ns);
    std::map<uint64_t, size_t> counts;
    for (size_t e = first; e < last; ++e)
      if (!events.recurring[e].waits || stage.is_end(events.recurring[e].key))
        ++counts[stage.common(events.recurring[e].key)];
    for (const auto& [key, count] : counts) {
      stage.keys.insert(key);
      if (count != 1) continue;
      ++stage.once[key];
      if (i == stage.steps.front()) stage.once_in_first.insert(key);
    }
    // Its launches end where the next known step begins, which may be unrecorded passes later.
    const int64_t last_ns = std::min(noted.end_ns - 1, drafts[i].window_end_ns);
    prompts.add(kind_of(stage, drafts), events.rows.within(noted.start_ns, last_ns).rows);
  }
}

// The key that comes once in most steps of the stage, and in more of them than in steps of any other that neither rows
// nor waits tell from it.
void choose_anchor(const Stages& stages, bool rows_tell, const std::vector<StepDraft>& drafts, StageEvents& stage) {
  size_t best = 0;
  bool best_in_first = false;
  const bool generating = generates(kind_of(stage, drafts));
  const auto told_apart = [&](const StageEvents& other) {
    return (!stage.range.empty() && !other.range.empty() && stage.range != other.range) ||
           (rows_tell && generates(kind_of(other, drafts)) != generating) || told_by_waits(stage, other);
  };
  for (const auto& [key, count] : stage.once) {
    const bool others = std::any_of(stages.begin(), stages.end(), [&, k = key, n = count](const auto& other) {
      if (&other.second == &stage || told_apart(other.second)) return false;
      const auto found = other.second.once.find(k);
      return found != other.second.once.end() && found->second >= n;
    });
    if (others || count <= best) continue;
    // Where a product or a graph will do (keys of waits come last), the wait only says when the step ends.
    if (stage.is_end(key) && stage.most(best, best_in_first, kPromptsMin)) continue;
    best = count;
    best_in_first = stage.once_in_first.count(key) > 0;
    stage.anchor = key;
  }
  const bool prompts = (rows_tell || !stage.ends.empty()) && kind_of(stage, drafts) == StageKind::kPrefill;
  stage.known = stage.most(best, best_in_first, prompts ? kPromptsMin : kStepsMin);
  if (stage.known || !prompts) return;
  // Logits of every token of a prompt: a product of another shape for each length.
  for (const auto& [name, other] : stages)
    if (&other != &stage) stage.not_anchors.insert(other.keys.begin(), other.keys.end());
  size_t own = 0;
  for (const auto& [key, count] : stage.once)
    own += stage.not_anchors.count(key) == 0 && !stage.is_end(key) ? count : 0;
  stage.any_own_key = stage.known = own <= stage.steps.size() && stage.most(own, true, kPromptsMin);
}

// How long steps go on behind the anchor, and how long they last before their first product: of the quicker half, which
// is not warm-up. A host that runs ahead of the GPU calls before the window of the step begins: its calls do not
// tell when a step ends.
void learn(const HostEvents& events, const std::vector<StepDraft>& drafts, StageEvents& stage) {
  struct Edges {
    int64_t window_ns, lead_ns, tail_ns;
  };
  std::vector<Edges> edges;
  size_t outside = 0;
  const int64_t slack_ns = stage.is_end(stage.anchor) ? HostWaits::kBehindNs : 0;
  for (const DraftIndex i : stage.steps) {
    const StepDraft& draft = drafts[i];
    const TimeSpan noted = events.noted(draft);
    const auto [first, last] = within(events.recurring, noted.start_ns, noted.end_ns);
    int64_t anchor_ns = -1;
    size_t count = 0;
    for (size_t e = first; e < last; ++e) {
      if (!stage.ends_with(events.recurring[e])) continue;
      anchor_ns = events.recurring[e].time_ns;
      ++count;
    }
    if (count != 1) continue;
    const Product product = events.rows.within(noted.start_ns, anchor_ns);
    edges.push_back({draft.window_end_ns - draft.window_start_ns,
                     product.rows >= 0 ? product.time_ns - draft.window_start_ns : 0, draft.window_end_ns - anchor_ns});
    if (anchor_ns < draft.window_start_ns || anchor_ns > draft.window_end_ns + slack_ns) ++outside;
  }
  stage.known = !edges.empty() && static_cast<double>(outside) <= (1 - kMostSteps) * static_cast<double>(edges.size());
  if (!stage.known) return;
  std::sort(edges.begin(), edges.end(), [](const Edges& a, const Edges& b) { return a.window_ns < b.window_ns; });
  std::vector<double> leads, tails;
  for (size_t i = 0; i < (edges.size() + 1) / 2; ++i) {
    leads.push_back(static_cast<double>(edges[i].lead_ns));
    tails.push_back(static_cast<double>(edges[i].tail_ns));
  }
  stage.lead_ns = static_cast<int64_t>(median_of(leads));
  stage.tail_ns = static_cast<int64_t>(median_of(tails));
}

// The last step of each stage stands for it: it is the steadiest.
StepDraft unseen_step(const StepDraft& like, int64_t start_ns, int64_t end_ns) {
  StepDraft draft;
  draft.device = like.device;
  draft.thread = like.thread;
  draft.source = like.source;
  draft.kind = like.kind;
  draft.kind_known = like.kind_known;
  draft.split = like.split;
  draft.stage = like.stage;
  draft.range = like.range;
  draft.unseen = true;
  draft.begin_ns = draft.host_start_ns = draft.window_start_ns = start_ns;
  draft.gpu_start_ns = draft.last_launch_ns = start_ns;
  draft.end_ns = draft.gpu_end_ns = draft.window_end_ns = end_ns;
  return draft;
}

// Threads of a process of which one begins when another has ended, as a server with a thread for each request makes
// them: steps of such a group follow each other, whichever of its threads were recorded.
class ThreadsInTurn {
 public:
  explicit ThreadsInTurn(const Trace& trace) : of_(trace.threads.size()) {
    std::vector<TimeSpan> spans(trace.threads.size(), {std::numeric_limits<int64_t>::max(), 0});
    const auto seen = [&](ThreadId thread, int64_t from_ns, int64_t to_ns) {
      if (thread >= spans.size()) return;
      spans[thread].start_ns = std::min(spans[thread].start_ns, from_ns);
      spans[thread].end_ns = std::max(spans[thread].end_ns, to_ns);
    };
    const auto all_seen = [&](const auto& table) {
      for (Row row = 0; row < table.size(); ++row) seen(table.thread[row], table.time_ns[row], table.time_ns[row]);
    };
    all_seen(trace.recurring_calls);
    all_seen(trace.product_rows);
    const HostPlaces& places = trace.host_places;
    for (Row row = 0; row < places.size(); ++row)
      seen(places.thread[row], places.start_ns[row], places.start_ns[row] + places.dur_ns[row]);
    std::vector<ThreadId> order(spans.size());
    std::iota(order.begin(), order.end(), ThreadId{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](ThreadId a, ThreadId b) { return spans[a].start_ns < spans[b].start_ns; });
    std::vector<int64_t> ended_ns;  // of each group, its latest thread
    for (const ThreadId thread : order) {
      size_t group = 0;
      while (group < ended_ns.size() &&
             (ended_ns[group] > spans[thread].start_ns ||
              trace.threads.process_id[threads_[group].front()] != trace.threads.process_id[thread]))
        ++group;
      if (group == ended_ns.size()) ended_ns.push_back(0), threads_.emplace_back();
      ended_ns[group] = std::max(spans[thread].start_ns, spans[thread].end_ns);
      threads_[group].push_back(thread);
      of_[thread] = group;
    }
    for (std::vector<ThreadId>& threads : threads_) std::sort(threads.begin(), threads.end());
  }
  size_t of(ThreadId thread) const { return of_[thread]; }
  const std::vector<ThreadId>& threads(size_t group) const { return threads_[group]; }

 private:
  std::vector<size_t> of_;
  std::vector<std::vector<ThreadId>> threads_;
};

// What is longer may be a prompt, which ends with the same product as a step: halfway from the steps to the shortest
// recorded prompt, where prompts take much longer.
int64_t longest_of(const Stages& stages, const std::vector<StepDraft>& drafts, const std::vector<int64_t>& lengths) {
  constexpr double kMuchLonger = 1.5;
  int64_t shortest_ns = std::numeric_limits<int64_t>::max();
  for (const auto& [name, stage] : stages)
    for (const DraftIndex i : stage.steps)
      if (drafts[i].kind == StageKind::kPrefill)
        shortest_ns = std::min(shortest_ns, drafts[i].window_end_ns - drafts[i].window_start_ns);
  const double usual_ns = median_of(std::vector<double>(lengths.begin(), lengths.end()));
  const bool tells =
      shortest_ns != std::numeric_limits<int64_t>::max() && static_cast<double>(shortest_ns) > kMuchLonger * usual_ns;
  return tells ? static_cast<int64_t>((usual_ns + static_cast<double>(shortest_ns)) / 2)
               : std::numeric_limits<int64_t>::max();
}

// The passes of threads in turn, one behind the other.
class Passes {
 public:
  // `apart`: of another model, say, whose events are not among these; a step behind one begins where it ends.
  Passes(const HostEvents& events, const Ranges& apart, const Stages& stages, const std::vector<StepDraft>& drafts,
         std::optional<int64_t> rows_of_tokens)
      : events_(events),
        apart_(apart),
        stages_(stages),
        drafts_(drafts),
        rows_of_tokens_(rows_of_tokens),
        prompts_told_(rows_of_tokens.has_value() || waits_tell_prompts()) {}

  // The steps that lie in unrecorded time.
  std::vector<StepDraft> unseen(const std::vector<TimeSpan>& unrecorded) {
    std::map<std::string, std::vector<StepDraft>> found;
    std::vector<size_t> ends;
    for (size_t e = 0; e < events_.recurring.size(); ++e)
      if (ends_pass(e)) ends.push_back(e);
    for (size_t i = 0; i < ends.size(); ++i) {
      const size_t e = ends[i];
      const int64_t from_ns = last_ == kNone ? std::numeric_limits<int64_t>::min() : time_ns(last_) + 1;
      const int64_t next_ns = i + 1 < ends.size() ? time_ns(ends[i + 1]) : std::numeric_limits<int64_t>::max();
      const Product product = events_.rows.within(from_ns, time_ns(e));
      const Stages::const_iterator stage = stage_of(e, next_ns, product);
      const std::optional<int64_t> end_ns = stage == stages_.end() ? std::nullopt : end_of(e, next_ns, stage->second);
      const std::optional<TimeSpan> span = end_ns ? span_of(e, *end_ns, product, stage->second) : std::nullopt;
      if (span && span->start_ns < span->end_ns && RecordedSpans::holds(unrecorded, span->start_ns, span->end_ns))
        found[stage->first].push_back(unseen_step(drafts_[stage->second.steps.back()], span->start_ns, span->end_ns));
      last_ = e;
      last_stage_ = stage;
      last_end_ns_ = end_ns;
    }
    std::vector<StepDraft> out;
    for (auto& [name, steps] : found) {
      const int64_t longest_ns = longest_step(steps);
      for (StepDraft& step : steps)
        if (step.window_end_ns - step.window_start_ns <= longest_ns) out.push_back(std::move(step));
    }
    return out;
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  int64_t time_ns(size_t e) const { return events_.recurring[e].time_ns; }
  bool ends_pass(size_t e) const {
    return std::any_of(stages_.begin(), stages_.end(), [&](const auto& stage) {
      return stage.second.known && stage.second.ends_with(events_.recurring[e]);
    });
  }
  bool waits_tell_prompts() const {
    bool prompts = false;
    for (const auto& [name, stage] : stages_) {
      if (!stage.known || kind_of(stage, drafts_) != StageKind::kPrefill) continue;
      prompts = true;
      for (const auto& [other_name, other] : stages_)
        if (other.known && generates(kind_of(other, drafts_)) && !told_by_waits(stage, other)) return false;
    }
    return prompts;
  }
  // When the pass with this event ended, if it is one of the stage and the next one's event comes at next_ns.
  std::optional<int64_t> end_of(size_t e, int64_t next_ns, const StageEvents& stage) const {
    if (stage.ends.empty()) return time_ns(e) + stage.tail_ns;
    const HostWaits::Wait* const wait = events_.waits.last_in(time_ns(e), next_ns - 1, stage.ends);
    return wait != nullptr ? std::optional(wait->end_ns) : std::nullopt;
  }
  Stages::const_iterator stage_of(size_t e, int64_t next_ns, const Product& product) const {
    return std::find_if(stages_.begin(), stages_.end(), [&](const auto& entry) {
      const StageEvents& stage = entry.second;
      if (!stage.known || !stage.ends_with(events_.recurring[e]) || !end_of(e, next_ns, stage)) return false;
      return !rows_of_tokens_ || generates(kind_of(stage, drafts_)) == (product.rows <= *rows_of_tokens_);
    });
  }
  // A step that generates begins where the one before it ended; a prompt does so only by its first product.
  std::optional<TimeSpan> span_of(size_t e, int64_t end_ns, const Product& product, const StageEvents& stage) const {
    const bool follows = last_ != kNone && last_end_ns_;
    const int64_t before_ns = follows ? *last_end_ns_ : 0;
    constexpr int64_t kAny = std::numeric_limits<int64_t>::min();
    const TimeSpan *const range = stage.ranges.at(time_ns(e)), *const behind = apart_.last_begun(time_ns(e));
    const int64_t range_ns =
        std::max(range != nullptr ? range->start_ns : kAny, behind != nullptr ? behind->end_ns : kAny);
    if (generates(kind_of(stage, drafts_))) {
      if (!follows || !all_known(last_ + 1, e, stage, &last_stage_->second)) return {};
      // A prompt may have come first, which no event tells.
      if (range != nullptr && time_ns(last_) < range->start_ns && shares_range_with_prompts(stage)) return {};
      return TimeSpan{std::max(before_ns, range_ns), end_ns};
    }
    if (!prompts_told_ || product.rows < 0) return {};
    const auto [first, last] = within(events_.recurring, product.time_ns, time_ns(e));
    if (!all_known(first, last, stage, nullptr)) return {};
    const int64_t start_ns = std::max(product.time_ns - stage.lead_ns, range_ns);
    return TimeSpan{follows ? std::max(start_ns, before_ns) : start_ns, end_ns};
  }
  bool all_known(size_t from, size_t to, const StageEvents& a, const StageEvents* b) const {
    for (size_t e = from; e < to; ++e) {
      const uint64_t key = events_.recurring[e].key;
      if (events_.recurring[e].waits) continue;
      if (a.keys.count(key) == 0 && (b == nullptr || b->keys.count(key) == 0)) return false;
    }
    return true;
  }
  bool shares_range_with_prompts(const StageEvents& stage) const {
    return std::any_of(stages_.begin(), stages_.end(), [&](const auto& entry) {
      return entry.second.range == stage.range && kind_of(entry.second, drafts_) == StageKind::kPrefill;
    });
  }
  // Longer is a pause, or, where nothing tells them, a prompt.
  int64_t longest_step(const std::vector<StepDraft>& steps) const {
    std::vector<int64_t> lengths;
    for (const StepDraft& step : steps) lengths.push_back(step.window_end_ns - step.window_start_ns);
    if (!generates(steps.front().kind)) return std::numeric_limits<int64_t>::max();
    return prompts_told_ ? pause_of(lengths) : std::min(pause_of(lengths), longest_of(stages_, drafts_, lengths));
  }

  const HostEvents& events_;
  const Ranges& apart_;
  const Stages& stages_;
  const std::vector<StepDraft>& drafts_;
  std::optional<int64_t> rows_of_tokens_;
  bool prompts_told_;
  size_t last_ = kNone;  // the event that ended the pass before
  Stages::const_iterator last_stage_;
  std::optional<int64_t> last_end_ns_;
};

Ranges ranges_of(const StageRanges& stages, std::string_view stage, const std::vector<ThreadId>& threads) {
  std::vector<TimeSpan> out;
  for (const StageRange& range : stages.ranges)
    if (stages.names[range.name].stage == stage && std::binary_search(threads.begin(), threads.end(), range.thread))
      out.push_back({range.start_ns, range.end_ns});
  return Ranges(std::move(out));
}

}  // namespace

void add_recurring_steps(const Trace& trace, const StageRanges& ranges, const RecordedSpans& recorded,
                         std::vector<StepDraft>& steps) {
  if (trace.recurring_calls.empty() && trace.host_places.empty()) return;
  const ThreadsInTurn in_turn(trace);
  std::map<std::pair<int32_t, size_t>, Stages> found;  // by device and group of threads
  std::set<size_t> named;
  std::map<size_t, std::vector<TimeSpan>> apart;
  for (DraftIndex i = 0; i < steps.size(); ++i) {
    const StepDraft& step = steps[i];
    if (step.thread == kNoRow) continue;
    const size_t group = in_turn.of(step.thread);
    const bool by_range = step.source != StageSource::kDetected && !step.split;
    if (by_range && (step.kind == StageKind::kOther || step.kind == StageKind::kVision)) {
      apart[group].push_back({step.begin_ns, step.end_ns});
      continue;
    }
    // Ranges that hold several steps each do not tell them apart: those were found as they are without ranges.
    if (by_range || step.unseen) named.insert(group);
    const std::string name = step.stage.empty() ? std::string(name_of(step.kind)) : step.stage;
    StageEvents& stage = found[{step.device, group}][name];
    stage.steps.push_back(i);
    if (!step.split || !stage.range.empty()) continue;
    stage.range = step.range.empty() ? step.stage : step.range;
    stage.ranges = ranges_of(ranges, stage.range, in_turn.threads(group));
  }
  for (auto& [place, stages] : found) {
    const std::vector<TimeSpan>& unrecorded = recorded.unrecorded(place.first);
    if (named.count(place.second) > 0 || unrecorded.empty()) continue;
    HostEvents events = events_of(trace, in_turn.threads(place.second), unrecorded);
    const Ranges others(apart[place.second]);
    std::erase_if(events.recurring, [&](const HostEvent& event) { return others.at(event.time_ns) != nullptr; });
    PromptsByRows prompts;
    for (auto& [name, stage] : stages) count_keys(trace, events, steps, stage, prompts);
    const std::optional<int64_t> tokens = prompts.most_of_tokens();
    for (auto& [name, stage] : stages) choose_anchor(stages, tokens.has_value(), steps, stage);
    for (auto& [name, stage] : stages)
      if (stage.known) learn(events, steps, stage);
    std::vector<StepDraft> unseen = Passes(events, others, stages, steps, tokens).unseen(unrecorded);
    std::move(unseen.begin(), unseen.end(), std::back_inserter(steps));
  }
}

}  // namespace llmprof
