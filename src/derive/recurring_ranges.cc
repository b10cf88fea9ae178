#include "derive/recurring_ranges.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace llmprof {
namespace {

constexpr double kNearlyAll = 0.9;
constexpr size_t kRecursMin = 3;
constexpr size_t kBesideMin = 2;    // beside texts that are there three times: two prompts with the tokens of each
constexpr size_t kLaunchesMin = 4;  // of a step
constexpr size_t kLeadingMin = 8;   // launches of a pass that leads to a prompt, products of another model's

struct Occurrence {
  int64_t start_ns = 0, end_ns = 0;
  AnnotationId annotation = kNoRow;
  uint32_t text = 0;
};

// How many of the rising `times` lie in [from, to).
size_t count_in(std::span<const int64_t> times, int64_t from, int64_t to) {
  const auto first = std::lower_bound(times.begin(), times.end(), from);
  return static_cast<size_t>(std::lower_bound(first, times.end(), to) - first);
}

size_t median_count(std::vector<size_t> counts) {
  if (counts.empty()) return 0;
  std::sort(counts.begin(), counts.end());
  return counts[(counts.size() - 1) / 2];
}

// The ranges of one thread, judged by what it launched.
class ThreadRanges {
 public:
  ThreadRanges(const Trace& trace, ThreadId thread, const StageRanges& stages, const LaunchOrder& order,
               std::span<const int64_t> launches, const std::vector<StepDraft>& detected, const HostCalls& calls)
      : trace_(trace), thread_(thread), launches_(launches), calls_(calls) {
    for (const StageRange& range : stages.ranges) {
      if (range.thread != thread) continue;
      named_.push_back(range);
      names_steps_ |= stages.names[range.name].kind != StageKind::kVision;
    }
    for (const StepDraft& step : detected) {
      if (step.by_period || step.thread != thread) continue;
      steps_.push_back(middle_launch(launches, step.begin_ns, step.end_ns));
    }
    std::sort(steps_.begin(), steps_.end());
    collect();
    if (!all_.empty()) find_products(order);
  }

  // The ranges that are steps, by start.
  std::vector<StageRange> find(std::vector<StepName>& names) {
    std::vector<StageRange> out;
    if (steps_.empty() && names_steps_) return out;
    const std::vector<Occurrence> outer = outermost(all_);
    const std::map<uint32_t, size_t> texts = texts_of_steps(outer);
    if (!nearly_all_in(outer, texts, named_)) return out;
    std::map<uint32_t, uint32_t> name_of;
    const auto add = [&](const Occurrence& one, const Occurrence* around) {
      const auto [name, is_new] = name_of.emplace(one.text, static_cast<uint32_t>(names.size()));
      if (is_new) names.push_back(name_of_text(one.text));
      StageRange range{one.start_ns, one.end_ns, thread_, one.annotation, name->second, 0, 0};
      if (around != nullptr) range.outer_start_ns = around->start_ns, range.outer_end_ns = around->end_ns;
      out.push_back(range);
    };
    std::map<uint32_t, std::vector<Occurrence>> held;  // ranges of a text that holds several steps
    for (const Occurrence& one : outer) {
      const std::map<uint32_t, size_t>::const_iterator steps = texts.find(one.text);
      if (steps != texts.end() && steps->second >= 2) held[one.text].push_back(one);
    }
    std::map<uint32_t, std::vector<Occurrence>> inside;  // what takes their place
    for (const auto& [text, ranges] : held) inside[text] = steps_inside(ranges);
    for (const Occurrence& one : outer) {
      if (texts.count(one.text) == 0) continue;
      const std::vector<Occurrence>& parts = inside[one.text];
      if (parts.empty()) add(one, nullptr);
      const auto starts_before = [](const Occurrence& part, int64_t time) { return part.start_ns < time; };
      for (auto part = std::lower_bound(parts.begin(), parts.end(), one.start_ns, starts_before);
           part != parts.end() && part->start_ns < one.end_ns; ++part)
        add(*part, &one);
    }
    return out;
  }

 private:
  bool overlaps_named(int64_t start, int64_t end) const {
    const std::vector<StageRange>::const_iterator next = std::lower_bound(
        named_.begin(), named_.end(), end, [](const StageRange& r, int64_t time) { return r.start_ns < time; });
    return next != named_.begin() && (next - 1)->end_ns > start;
  }

  void find_products(const LaunchOrder& order) {
    for (size_t i = 0; i < order.size(); ++i) {
      const WorkId work = trace_.gpu_links.work.empty() ? kNoRow : trace_.gpu_links.work[order.gpu[i]];
      if (order.thread[i] != thread_ || !is_product(trace_.works, work)) continue;
      (gives_logits(trace_.works, work) ? outputs_ : products_).push_back(order.time_ns[i]);
    }
  }

  void collect() {
    std::map<std::string, uint32_t> text_of;
    std::vector<uint32_t> known(trace_.annotations.empty() ? 0 : trace_.strings.size(), kUnjudged);
    std::vector<bool> doubtful;  // of a text that a range overlaps whose words name a stage
    const Annotations& notes = trace_.annotations;
    for (Row row = 0; row < notes.size(); ++row) {
      if (notes.thread[row] != thread_ || notes.kind[row] == AnnotationKind::kGpuUser) continue;
      const StringId domain = notes.domain[row];
      if (domain != StringId::kEmpty && is_library_domain(trace_.text(domain))) continue;
      uint32_t& text = known[index(notes.name[row])];
      if (text == kUnjudged) {
        const std::string_view words = trace_.text(notes.name[row]);
        text = kNoStep;
        if (may_name_step(words))
          text = text_of.emplace(without_counters(words), static_cast<uint32_t>(text_of.size())).first->second;
        if (text != kNoStep && text == doubtful.size()) {
          doubtful.push_back(false);
          first_.push_back(row);
        }
      }
      if (text == kNoStep) continue;
      const int64_t start = notes.start_ns[row], end = start + notes.dur_ns[row];
      if (overlaps_named(start, end)) doubtful[text] = true;
      if (start < end) all_.push_back({start, end, row, text});
    }
    counts_.resize(doubtful.size());
    for (const Occurrence& one : all_) ++counts_[one.text];
    const auto stays = [&](const Occurrence& one) { return counts_[one.text] >= kBesideMin && !doubtful[one.text]; };
    all_.erase(std::remove_if(all_.begin(), all_.end(), [&](const Occurrence& one) { return !stays(one); }),
               all_.end());
    std::stable_sort(all_.begin(), all_.end(), [](const Occurrence& a, const Occurrence& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
    });
  }

  static std::vector<Occurrence> outermost(const std::vector<Occurrence>& ranges) {
    std::vector<Occurrence> out;
    for (const Occurrence& one : ranges) {
      if (out.empty() || one.start_ns >= out.back().end_ns) out.push_back(one);
    }
    return out;
  }

  // What the typical range of each text holds, of those in which anything was launched.
  struct Typical {
    size_t steps = 0;    // detected
    bool waits = false;  // after launches of a step
    bool other = false;  // a pass of a model without an output layer, waited for
    size_t ranges = 0;   // in which anything was launched
  };
  std::map<uint32_t, Typical> typical_of(const std::vector<Occurrence>& ranges) const {
    struct Counts {
      std::vector<size_t> steps, waits, others;
    };
    std::map<uint32_t, Counts> counts;
    for (const Occurrence& one : ranges) {
      const size_t launches = count_in(launches_, one.start_ns, one.end_ns);
      if (launches == 0) continue;
      const bool waits =
          launches >= kLaunchesMin && calls_.first_blocking(thread_, one.start_ns, one.end_ns) != nullptr;
      const bool other = waits && count_in(products_, one.start_ns, one.end_ns) >= kLeadingMin &&
                         count_in(outputs_, one.start_ns, one.end_ns) == 0;
      Counts& of_text = counts[one.text];
      of_text.steps.push_back(count_in(steps_, one.start_ns, one.end_ns));
      of_text.waits.push_back(waits ? 1 : 0);
      of_text.others.push_back(other ? 1 : 0);
    }
    std::map<uint32_t, Typical> out;
    for (auto& [text, of_text] : counts)
      out[text] = {median_count(of_text.steps), median_count(of_text.waits) > 0, median_count(of_text.others) > 0,
                   of_text.steps.size()};
    return out;
  }

  // The texts that are steps, with the detected steps that the typical range holds.
  std::map<uint32_t, size_t> texts_of_steps(const std::vector<Occurrence>& ranges) {
    std::map<uint32_t, size_t> texts;
    bool recurs = false;
    for (const auto& [text, typical] : typical_of(ranges)) {
      if (typical.steps == 0 && typical.other && 2 * typical.ranges < steps_.size()) others_.insert(text);
      if (steps_.empty() ? !typical.waits : typical.steps == 0) continue;
      texts[text] = typical.steps;
      recurs |= counts_[text] >= kRecursMin;
    }
    if (!recurs) texts.clear();
    add_leading(ranges, texts);
    for (const Occurrence& one : ranges)
      if (!texts.empty() && others_.count(one.text) > 0) texts.emplace(one.text, 0);
    return texts;
  }

  // Texts whose ranges stand directly before those of one step that is not the most frequent one, and it behind nothing
  // else: an encoder's pass before a prompt. Detection finds no choice of a token in it and takes it for a part of the
  // prompt.
  void add_leading(const std::vector<Occurrence>& ranges, std::map<uint32_t, size_t>& texts) {
    size_t most = 0;
    for (const auto& [text, steps] : texts) most = std::max(most, counts_[text]);
    struct FollowingRange {
      std::map<uint32_t, size_t> next;
      std::vector<size_t> launches;
    };
    std::map<uint32_t, FollowingRange> found;
    for (size_t i = 0; i + 1 < ranges.size(); ++i) {
      if (texts.count(ranges[i].text) > 0) continue;
      FollowingRange& following = found[ranges[i].text];
      ++following.next[ranges[i + 1].text];
      // Nothing is known of those in unrecorded time.
      if (const size_t launches = count_in(launches_, ranges[i].start_ns, ranges[i].end_ns); launches > 0)
        following.launches.push_back(launches);
    }
    const auto nearly = [](size_t part, size_t all) {
      return static_cast<double>(part) >= kNearlyAll * static_cast<double>(all);
    };
    for (auto& [text, following] : found) {
      const auto next = std::max_element(following.next.begin(), following.next.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      const bool leads = texts.count(next->first) > 0 && counts_[next->first] < most &&
                         nearly(next->second, counts_[text]) && nearly(next->second, counts_[next->first]);
      if (!leads || counts_[text] < kRecursMin || median_count(std::move(following.launches)) < kLeadingMin) continue;
      leading_.insert(text);
    }
    for (const uint32_t text : leading_) texts.emplace(text, 0);
  }

  // Whether nearly all that was launched between the first and the last of the ranges was launched in one of them or in
  // a range whose words name a stage, and nearly all detected steps in those of `texts`.
  bool nearly_all_in(const std::vector<Occurrence>& ranges, const std::map<uint32_t, size_t>& texts,
                     const std::vector<StageRange>& named) const {
    int64_t from = 0, to = 0;
    size_t launches = 0, steps = 0;
    bool any = false;
    for (const Occurrence& one : ranges) {
      const bool step = texts.count(one.text) > 0;
      if (step && !any) from = one.start_ns, any = true;
      if (step) to = one.end_ns;
    }
    for (const Occurrence& one : ranges) {
      if (!any || one.start_ns < from || one.end_ns > to) continue;
      launches += count_in(launches_, one.start_ns, one.end_ns);
      if (texts.count(one.text) > 0) steps += count_in(steps_, one.start_ns, one.end_ns);
    }
    for (const StageRange& range : named) {
      if (range.end_ns <= from || range.start_ns >= to) continue;
      const int64_t start = std::max(from, range.start_ns), end = std::min(to, range.end_ns);
      launches += count_in(launches_, start, end);
      steps += count_in(steps_, start, end);
    }
    const auto nearly = [](size_t part, size_t all) {
      return static_cast<double>(part) >= kNearlyAll * static_cast<double>(all);
    };
    return any && launches > 0 && nearly(launches, count_in(launches_, from, to)) &&
           nearly(steps, count_in(steps_, from, to));
  }

  // The ranges inside those of one text that are steps, if nearly all of its steps lie in them.
  std::vector<Occurrence> steps_inside(const std::vector<Occurrence>& ranges) {
    std::vector<Occurrence> inner;
    size_t next = 0, all = 0, held = 0;
    for (const Occurrence& one : ranges) {
      all += count_in(steps_, one.start_ns, one.end_ns);
      while (next < all_.size() && all_[next].start_ns < one.start_ns) ++next;
      for (; next < all_.size() && all_[next].start_ns < one.end_ns; ++next) {
        if (all_[next].text != one.text && all_[next].end_ns <= one.end_ns) inner.push_back(all_[next]);
      }
    }
    inner = outermost(inner);
    const std::map<uint32_t, size_t> texts = texts_of_steps(inner);
    inner.erase(std::remove_if(inner.begin(), inner.end(), [&](const Occurrence& o) { return !texts.count(o.text); }),
                inner.end());
    for (const Occurrence& one : inner) held += count_in(steps_, one.start_ns, one.end_ns);
    if (static_cast<double>(held) < kNearlyAll * static_cast<double>(all)) inner.clear();
    return inner;
  }

  StepName name_of_text(uint32_t text) const {
    StepName name;
    name.stage = stage_of_text(trace_.text(trace_.annotations.name[first_[text]]));
    name.recurs = true;
    name.holds_known_steps = !steps_.empty();
    if (leading_.count(text) > 0) name.kind = StageKind::kVision;
    return name;
  }

  static constexpr uint32_t kUnjudged = 0xFFFFFFFF, kNoStep = 0xFFFFFFFE;

  const Trace& trace_;
  ThreadId thread_;
  const std::span<const int64_t> launches_;
  const HostCalls& calls_;
  std::vector<StageRange> named_;
  bool names_steps_ = false;
  std::vector<int64_t> steps_;       // a launch of each step that detection knows by what it holds, rising
  std::vector<Occurrence> all_;      // by start, outer before inner
  std::vector<size_t> counts_;       // by text, ranges in unrecorded time included
  std::vector<AnnotationId> first_;  // by text
  std::set<uint32_t> leading_;       // texts of passes before prompts
  std::set<uint32_t> others_;        // texts of passes of another model that make no tokens
  // Launches of products with weights, rising: those of an output layer, all others.
  std::vector<int64_t> outputs_, products_;
};

}  // namespace

void add_recurring_ranges(const Trace& trace, const std::vector<LaunchOrder>& orders,
                          const std::vector<std::vector<StepDraft>>& detected, const HostCalls& calls,
                          StageRanges& stages) {
  std::set<Row> done;
  std::vector<StageRange> found;
  for (size_t i = 0; i < orders.size(); ++i) {
    const ThreadId thread = orders[i].main_thread;
    if (thread == kNoRow || !done.insert(thread).second) continue;
    const LaunchTimes times(orders[i]);
    ThreadRanges ranges(trace, thread, stages, orders[i], times.of(thread), detected[i], calls);
    const std::vector<StageRange> steps = ranges.find(stages.names);
    found.insert(found.end(), steps.begin(), steps.end());
  }
  if (found.empty()) return;
  stages.ranges.insert(stages.ranges.end(), found.begin(), found.end());
  std::stable_sort(stages.ranges.begin(), stages.ranges.end(), [](const StageRange& a, const StageRange& b) {
    return a.thread != b.thread ? a.thread < b.thread : a.start_ns < b.start_ns;
  });
}

}  // namespace llmprof
