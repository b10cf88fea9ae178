#include "analyze/code_places.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "analyze/host_places.h"

namespace llmprof {
namespace {

constexpr std::string_view kFrameBetween = " < ";

struct SampledStack {
  StringId stack = StringId::kEmpty;
  std::string_view text;
  std::vector<uint32_t> begins;  // of its frames in the text, innermost first
  double ns = 0;                 // of the code that it stands for

  // A frame by its number from the outermost: function and path, without the line; empty where there is none.
  std::string_view function(size_t outer) const {
    if (outer >= begins.size()) return {};
    const size_t inner = begins.size() - 1 - outer;
    const size_t end = inner + 1 < begins.size() ? begins[inner + 1] - kFrameBetween.size() : text.size();
    const std::string_view frame = text.substr(begins[inner], end - begins[inner]);
    return frame.substr(0, frame.rfind(':'));
  }
  uint32_t from(size_t frames) const { return begins[begins.size() - frames]; }
};

SampledStack split(const Trace& trace, StringId stack) {
  SampledStack out{stack, without_hooks(trace.text(stack)), {0}, 0};
  for (size_t at = out.text.find(kFrameBetween); at != std::string_view::npos; at = out.text.find(kFrameBetween, at)) {
    at += kFrameBetween.size();
    out.begins.push_back(static_cast<uint32_t>(at));
  }
  return out;
}

template <class Key>
std::pair<Key, double> heaviest(const std::map<Key, double>& sums) {
  return *std::max_element(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
}

// From the outermost function inwards as long as one has more than half of all time; lines are those of most of it.
CodePlace shared_place(std::vector<SampledStack>& stacks) {
  double all_ns = 0;
  for (const SampledStack& one : stacks) all_ns += one.ns;
  size_t frames = 0;
  while (true) {
    std::map<std::string_view, double> next;
    for (const SampledStack& one : stacks)
      if (const std::string_view function = one.function(frames); !function.empty()) next[function] += one.ns;
    if (next.empty()) break;
    const auto [function, ns] = heaviest(next);
    if (2 * ns <= all_ns) break;
    std::erase_if(stacks, [&, most = function](const SampledStack& one) { return one.function(frames) != most; });
    ++frames;
  }
  std::map<std::string_view, double> texts;
  const auto text_of = [&](const SampledStack& one) { return one.text.substr(frames == 0 ? 0 : one.from(frames)); };
  for (const SampledStack& one : stacks) texts[text_of(one)] += one.ns;
  const std::string_view text = heaviest(texts).first;
  const auto first =
      std::find_if(stacks.begin(), stacks.end(), [&](const SampledStack& one) { return text_of(one) == text; });
  return {first->stack, static_cast<uint32_t>(first->text.size() - text.size()), true};
}

using RowsOfThread = std::map<ThreadId, std::vector<Row>>;  // in the order of time

// A sample stands for the time that is nearer to it than to another one.
std::vector<SampledStack> samples_within(const Trace& trace, const std::vector<Row>& samples, Row code) {
  const HostPlaces& places = trace.host_places;
  const int64_t start_ns = places.start_ns[code], end_ns = start_ns + places.dur_ns[code];
  std::map<StringId, double> sums;
  auto sample =
      std::partition_point(samples.begin(), samples.end(), [&](Row row) { return places.start_ns[row] < start_ns; });
  int64_t from_ns = start_ns;
  for (; sample != samples.end() && places.start_ns[*sample] <= end_ns; ++sample) {
    const auto next = std::next(sample);
    const bool last = next == samples.end() || places.start_ns[*next] > end_ns;
    const int64_t time_ns = places.start_ns[*sample];
    const int64_t until_ns = last ? end_ns : time_ns + (places.start_ns[*next] - time_ns) / 2;
    sums[places.stack[*sample]] += static_cast<double>(std::max<int64_t>(until_ns - from_ns, 1));
    from_ns = until_ns;
  }
  std::vector<SampledStack> out;
  for (const auto& [stack, ns] : sums) {
    out.push_back(split(trace, stack));
    out.back().ns = ns;
  }
  return out;
}

// The innermost function of a stack without its line, and its callers.
std::pair<std::string_view, std::string_view> function_of(std::string_view text) {
  const size_t end = std::min(text.find(kFrameBetween), text.size());
  return {text.substr(0, std::min(text.substr(0, end).rfind(':'), end)), text.substr(end)};
}

}  // namespace

CodePlaces::CodePlaces(const Trace& trace) : places_(trace.host_places) {
  RowsOfThread samples;
  for (Row row = 0; row < places_.size(); ++row)
    if (places_.kind[row] == PlaceKind::kCodeSample && places_.stack[row] != StringId::kEmpty)
      samples[places_.thread[row]].push_back(row);
  if (samples.empty()) return;
  std::vector<Row> without;
  // Which of its lines a function is in is chance: the one that most time is spent at stands for all.
  std::map<std::pair<std::string_view, std::string_view>, std::map<std::string_view, double>> lines;
  std::map<std::string_view, CodePlace> by_text;
  for (Row row = 0; row < places_.size(); ++row) {
    if (places_.kind[row] != PlaceKind::kHostCode) continue;
    const auto of_thread = samples.find(places_.thread[row]);
    if (of_thread == samples.end()) continue;
    std::vector<SampledStack> stacks = samples_within(trace, of_thread->second, row);
    if (stacks.empty()) {
      without.push_back(row);
      continue;
    }
    const CodePlace place = shared_place(stacks);
    by_text.try_emplace(place.text(trace), place);
    lines[function_of(place.text(trace))][place.text(trace)] += static_cast<double>(places_.dur_ns[row]);
    sampled_.emplace(row, place);
  }
  std::map<std::pair<ThreadId, StringId>, std::map<std::string_view, double>> before;  // by the call behind the code
  for (auto& [row, place] : sampled_) {
    place = by_text.at(heaviest(lines.at(function_of(place.text(trace)))).first);
    before[{places_.thread[row], places_.stack[row]}][place.text(trace)] += static_cast<double>(places_.dur_ns[row]);
  }
  for (const Row row : without)
    if (const auto same = before.find({places_.thread[row], places_.stack[row]}); same != before.end())
      sampled_.emplace(row, by_text.at(heaviest(same->second).first));
}

CodePlace CodePlaces::of(Row row) const {
  const auto found = sampled_.find(row);
  return found != sampled_.end() ? found->second : CodePlace{places_.stack[row], 0, false};
}

}  // namespace llmprof
