#include "derive/detect_choices.h"

#include <map>
#include <set>
#include <utility>

#include "base/statistics.h"
#include "derive/step_draft.h"
#include "derive/whole_graphs.h"

namespace llmprof {
namespace {

// A program whose kernels are all its own: no rule knows its products, but tokens are chosen by kernels that are known.
// What no rule knows stands for products then. Call when choices are marked.
void count_own_kernels(Sequence& seq) {
  constexpr size_t kPassMin = 8;  // fewer unknown kernels between two choices are part of choosing
  const auto own = [&](size_t i) {
    return seq.category(i) == Category::kOther && seq.trace.gpu_ops.kind[seq.gpu[i]] == GpuOpKind::kKernel;
  };
  size_t unknown = 0, known = 0, others = 0, heavy = 0;
  for (size_t i = 0; i < seq.size(); ++i) {
    others += own(i) ? 1 : 0;
    heavy += seq.heavy(i) ? 1 : 0;
    if (seq.samples[i] == 0) continue;
    known += heavy > 0 ? 1 : 0;
    unknown += heavy == 0 && others >= kPassMin ? 1 : 0;
    others = heavy = 0;
  }
  if (unknown <= known) return;
  std::vector<uint32_t> counted(seq.size() + 1, 0);
  for (size_t i = 0; i < seq.size(); ++i) counted[i + 1] = counted[i] + (seq.heavy(i) || own(i) ? 1 : 0);
  seq.heavy_before = std::move(counted);
}

// Whether the products `at` are one in every layer, as wide as the output layer: the choice of a token follows some of
// them, but not most, and between neighbours no kernel of attention runs twice, as one does where a model of several
// layers lies between.
bool of_every_layer(const Sequence& seq, const std::vector<size_t>& at) {
  size_t chosen = 0, single = 0, several = 0;
  std::map<StringId, size_t> attention;
  for (size_t next = 0; next < at.size(); ++next) {
    const size_t end = next + 1 < at.size() ? at[next + 1] : seq.size();
    attention.clear();
    size_t most = 0;
    bool choice = false, other = false;
    for (size_t i = at[next] + 1; i < end; ++i) {
      choice |= !other && seq.samples[i] != 0;
      other |= seq.heavy(i);
      if (seq.category(i) == Category::kAttention || seq.category(i) == Category::kSoftmax)
        most = std::max(most, ++attention[seq.trace.gpu_ops.name[seq.gpu[i]]]);
    }
    chosen += choice ? 1 : 0;
    single += most == 1 ? 1 : 0;
    several += most > 1 ? 1 : 0;
  }
  return chosen > 0 && chosen * 2 < at.size() && single > 0 && several * 10 <= single;
}

// By launch: 1 for what chooses by the same kernels, in the same order, as follow some output layer, with a pass of the
// model before it. A program may have its prompts' products from a library and those of its tokens not: both choose
// alike. What routes to experts does not, and what is drawn anew has no pass before it.
template <class WidthOf>
std::vector<uint8_t> chosen_alike(const Sequence& seq, const WidthOf& width_of, int64_t widest) {
  struct Choice {
    std::vector<size_t> at;
    bool after_output;
    uint32_t heavy = 0;  // products since the choice before
  };
  constexpr double kPassLeast = 0.25;  // of the products of passes that end with an output layer
  std::vector<Choice> choices;
  bool after = false, fresh = true;
  size_t others = 0;  // launches since the last one that chooses
  for (size_t i = 0; i < seq.size(); ++i) {
    if (seq.samples[i] != 0 && !seq.heavy(i)) {
      if (fresh || others > kTrailingMax) choices.push_back({{}, after && others <= kTrailingMax});
      choices.back().at.push_back(i);
      fresh = false;
      others = 0;
      continue;
    }
    ++others;
    if (!seq.heavy(i)) continue;
    after = width_of(i) == widest;
    fresh = true;
    others = 0;
  }
  const auto names_of = [&](const Choice& choice) {
    std::vector<StringId> names;
    for (const size_t i : choice.at) names.push_back(seq.trace.gpu_ops.name[seq.gpu[i]]);
    return names;
  };
  std::set<std::vector<StringId>> known;
  std::vector<double> passes;
  for (size_t c = 0; c < choices.size(); ++c) {
    choices[c].heavy = seq.heavy_in(c > 0 ? choices[c - 1].at.back() : 0, choices[c].at.front());
    if (!choices[c].after_output) continue;
    known.insert(names_of(choices[c]));
    passes.push_back(choices[c].heavy);
  }
  std::vector<uint8_t> out(seq.size(), 0);
  const double least = passes.empty() ? 0 : kPassLeast * median_of(passes);
  for (const Choice& choice : choices)
    if (choice.heavy >= least && known.count(names_of(choice)) > 0)
      for (const size_t i : choice.at) out[i] = 1;
  return out;
}

// Without a token choice that a rule recognises, the output layer ends a step, the widest where there are several.
void mark_output_layers(Sequence& seq) {
  const Works& works = seq.trace.works;
  const auto width_of = [&](size_t i) {
    const WorkId work = seq.trace.gpu_links.work[seq.gpu[i]];
    return gives_logits(works, work) ? works.n[work] : int64_t{-1};
  };
  int64_t widest = -1;
  for (size_t i = 0; i < seq.size(); ++i) widest = std::max(widest, width_of(i));
  if (widest < 0) return;
  std::vector<size_t> outputs;
  for (size_t i = 0; i < seq.size(); ++i)
    if (width_of(i) == widest) outputs.push_back(i);
  const bool layers = of_every_layer(seq, outputs);
  const std::vector<uint8_t> alike = chosen_alike(seq, width_of, widest);
  size_t unchosen = seq.size();  // output layer without a token choice after it so far
  bool after = false;
  for (size_t i = 0; i < seq.size(); ++i) {
    if (seq.heavy(i)) {
      if (unchosen < seq.size() && !layers) seq.samples[unchosen] = 1;
      after = width_of(i) == widest;
      unchosen = after ? i : seq.size();
      seq.samples[i] = 0;
    } else if (!after) {
      seq.samples[i] = alike[i];
    } else if (seq.samples[i] != 0) {
      unchosen = seq.size();
    }
  }
  if (unchosen < seq.size() && !layers) seq.samples[unchosen] = 1;
}

void mark_samples(Sequence& seq, const std::vector<TokenEvent>& samplings) {
  bool any = false;
  for (const TokenEvent& event : samplings) {
    if (event.thread != seq.thread) continue;
    for (size_t i = seq.at_or_after(event.start_ns); i < seq.size() && seq.time_ns[i] < event.end_ns; ++i) {
      seq.samples[i] = 1;
      any = true;
    }
  }
  if (any) return;
  for (size_t i = 0; i < seq.size(); ++i) seq.samples[i] = seq.category(i) == Category::kSampling ? 1 : 0;
  if (!seq.trace.library_calls.empty()) mark_output_layers(seq);
}

}  // namespace

Sequence make_sequence(const Trace& trace, const HostCalls& calls, ThreadId thread, std::span<const GpuOpId> gpu,
                       std::span<const int64_t> time_ns, const std::vector<TokenEvent>& samplings) {
  Sequence seq{trace, calls, thread, gpu, time_ns, {}, {}};
  const StringId whole = whole_graph_name(trace);
  seq.heavy_before.resize(seq.size() + 1, 0);
  for (size_t i = 0; i < seq.size(); ++i) {
    const Category category = seq.category(i);
    const bool heavy = category == Category::kGemm || category == Category::kAttention ||
                       (whole != StringId::kEmpty && trace.gpu_ops.name[seq.gpu[i]] == whole);
    seq.heavy_before[i + 1] = seq.heavy_before[i] + (heavy ? 1 : 0);
  }
  seq.samples.resize(seq.size(), 0);
  mark_samples(seq, samplings);
  count_own_kernels(seq);
  return seq;
}

}  // namespace llmprof
