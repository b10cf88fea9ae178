#include "derive/detect.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "derive/detect_choices.h"
#include "derive/detect_period.h"
#include "derive/whole_graphs.h"

namespace llmprof {
namespace {

constexpr size_t kGraphNodesMin = 8;       // smaller graphs are pieces, not forward passes
constexpr size_t kGraphNodesSurely = 200;  // this many nodes are a forward pass even if no attention is recognised
constexpr double kLeadInFrac = 0.25;       // launches before the first embedding belong to it within this share of it

constexpr double kPauseFrac = 0.1;  // a pause of the host this long against the step separates it from before

struct Segment {
  size_t first = 0;
  size_t last = 0;  // exclusive
  bool vision = false;
  bool continues = false;  // the language model after its vision encoder
};

// Whether graphs that were recorded as a whole are forward passes: no GEMM or attention outside a graph runs between
// most of them (graphs of single layers alternate with attention).
bool whole_graphs_are_steps(const Sequence& seq, StringId whole) {
  size_t graphs = 0, alone = 0;
  bool eager = false;  // since the graph before
  for (size_t i = 0; i < seq.size(); ++i) {
    if (seq.trace.gpu_ops.name[seq.gpu[i]] != whole) {
      eager |= seq.heavy(i) && seq.trace.gpu_ops.graph_node[seq.gpu[i]] == 0;
      continue;
    }
    if (graphs > 0 && !eager) ++alone;
    eager = false;
    ++graphs;
  }
  return graphs > 0 && (graphs == 1 || alone * 2 >= graphs - 1);
}

// First launches of CUDA graphs that hold a whole forward pass.
std::vector<size_t> graph_starts(const Sequence& seq) {
  std::vector<size_t> starts;
  const StringId whole = whole_graph_name(seq.trace);
  const bool whole_steps = whole != StringId::kEmpty && whole_graphs_are_steps(seq, whole);
  for (size_t i = 0; i < seq.size();) {
    const ApiCallId api = seq.trace.gpu_links.api[seq.gpu[i]];
    size_t end = i + 1;
    size_t attention = seq.category(i) == Category::kAttention ? 1 : 0;
    while (api != kNoRow && end < seq.size() && seq.trace.gpu_links.api[seq.gpu[end]] == api) {
      attention += seq.category(end) == Category::kAttention ? 1 : 0;
      ++end;
    }
    const size_t nodes = end - i;
    if (whole_steps && seq.trace.gpu_ops.name[seq.gpu[i]] == whole) starts.push_back(i);
    if (nodes >= kGraphNodesSurely || (nodes >= kGraphNodesMin && attention >= 2)) starts.push_back(i);
    i = end;
  }
  return starts;
}

// Launches that start a run of the model. Two of them with no GEMM or attention between are one start (token and
// position tables; an embedding before a graph).
std::vector<size_t> start_anchors(const Sequence& seq, const std::vector<TokenEvent>& embeddings) {
  std::vector<size_t> all = graph_starts(seq);
  for (const TokenEvent& event : embeddings) {
    if (event.thread != seq.thread) continue;
    const size_t i = seq.at_or_after(event.start_ns);
    if (i < seq.size() && seq.time_ns[i] < event.end_ns) all.push_back(i);
  }
  std::sort(all.begin(), all.end());
  std::vector<size_t> anchors;
  for (const size_t i : all) {
    if (anchors.empty() || seq.heavy_in(anchors.back(), i) > 0) anchors.push_back(i);
  }
  return anchors;
}

// Where a step whose last known work is launch `done` ends, given that launch `next` is surely not part of it: at the
// first blocking call between the two, else at `next`. Returns the first launch that is not part of the step.
size_t cut_between(const Sequence& seq, size_t done, size_t next) {
  const int64_t to = next < seq.size() ? seq.time_ns[next] : std::numeric_limits<int64_t>::max();
  const BlockingCall* call = seq.calls.first_blocking(seq.thread, seq.time_ns[done], to);
  if (call == nullptr) return next;
  // A copy back to the host that waits is itself the last launch of the step.
  const size_t cut = static_cast<size_t>(std::upper_bound(seq.time_ns.begin(), seq.time_ns.end(), call->start_ns) -
                                         seq.time_ns.begin());
  return std::clamp(cut, done + 1, next);
}

// Last launch in [from, to) that chooses a token after any GEMM, else the last GEMM or attention, else `from`.
size_t last_work(const Sequence& seq, size_t from, size_t to) {
  for (size_t i = to; i-- > from;) {
    if (seq.samples[i] != 0 || seq.heavy(i)) return i;
  }
  return from;
}

bool has_samples(const Sequence& seq, size_t from, size_t to) {
  return std::find(seq.samples.begin() + static_cast<ptrdiff_t>(from), seq.samples.begin() + static_cast<ptrdiff_t>(to),
                   uint8_t{1}) != seq.samples.begin() + static_cast<ptrdiff_t>(to);
}

// First launch of the first step: back from launch `at` over work that prepares it, no further than the blocking call
// before it. Before an embedding that is copies of its input only (random numbers, for one, are the benchmark's own);
// before a GEMM it is everything light, the unseen embedding included.
size_t lead_in(const Sequence& seq, size_t at, int64_t step_host_ns, bool copies_only) {
  const int64_t reach = seq.time_ns[at] - static_cast<int64_t>(kLeadInFrac * static_cast<double>(step_host_ns));
  const BlockingCall* call = seq.calls.last_blocking_before(seq.thread, seq.time_ns[at]);
  const int64_t from = call != nullptr ? std::max(reach, call->end_ns) : reach;
  size_t first = at;
  while (first > 0 && seq.time_ns[first - 1] >= from && !seq.heavy(first - 1) &&
         (!copies_only || seq.category(first - 1) == Category::kCopy)) {
    --first;
  }
  return first;
}

// End of the last step, after which there may be anything.
size_t tail_end(const Sequence& seq, size_t first) {
  size_t done = first;
  bool sampled = false;
  for (size_t i = first; i < seq.size() && !(sampled && seq.heavy(i)); ++i) {
    if (seq.samples[i] != 0) sampled = true;
    if (seq.samples[i] != 0 || (!sampled && seq.heavy(i))) done = i;
  }
  size_t next = seq.size();
  if (sampled) {
    next = done + 1;
    while (next < seq.size() && next - done <= kTrailingMax && !seq.heavy(next)) ++next;
  }
  return cut_between(seq, done, next);
}

std::vector<Segment> segments_from_starts(const Sequence& seq, const std::vector<size_t>& anchors) {
  std::vector<Segment> segments(anchors.size());
  for (size_t i = 0; i < anchors.size(); ++i) {
    const bool final = i + 1 == anchors.size();
    segments[i].last = final ? tail_end(seq, anchors[i])
                             : cut_between(seq, last_work(seq, anchors[i], anchors[i + 1]), anchors[i + 1]);
    if (i + 1 < anchors.size()) segments[i + 1].first = segments[i].last;
  }
  const int64_t host_ns = seq.time_ns[segments[0].last - 1] - seq.time_ns[anchors[0]];
  segments[0].first = lead_in(seq, anchors[0], host_ns, true);
  return segments;
}

// Choices behind fewer products than one layer has, of a model that has many: a second output layer that the host asks
// for (of an earlier layer, of guesses for later tokens) belongs to the step before it. Where choices go on like that,
// the small passes are steps of their own.
std::vector<Segment> join_further_outputs(const Sequence& seq, const std::vector<Segment>& groups, size_t from) {
  constexpr uint32_t kLayerMin = 4;
  constexpr size_t kInARow = 8;
  std::vector<uint32_t> products;
  for (size_t g = 0; g < groups.size(); ++g)
    products.push_back(seq.heavy_in(g == 0 ? from : groups[g - 1].last, groups[g].first));
  const uint32_t most = products.empty() ? 0 : *std::max_element(products.begin(), products.end());
  std::vector<Segment> out;
  size_t in_a_row = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool further = g > 0 && products[g] < kLayerMin && products[g] * kLayerMin < most;
    in_a_row = further ? in_a_row + 1 : 0;
    if (in_a_row > kInARow) return groups;
    if (further)
      out.back().last = groups[g].last;
    else
      out.push_back(groups[g]);
  }
  return out;
}

// A run of token-choosing launches with at least one GEMM or attention before it.
std::vector<Segment> sampling_groups(const Sequence& seq, size_t from, size_t to) {
  std::vector<Segment> groups;
  size_t searched = from;
  for (size_t i = from; i < to; ++i) {
    if (seq.samples[i] == 0) continue;
    if (seq.heavy_in(searched, i) > 0) {
      groups.push_back({i, i + 1, false, false});
    } else if (!groups.empty()) {
      groups.back().last = i + 1;
    }
    searched = i;
  }
  return join_further_outputs(seq, groups, from);
}

// Steps that end with a choice of tokens, within [from, to).
std::vector<Segment> segments_from_ends(const Sequence& seq, size_t from, size_t to) {
  std::vector<Segment> segments;
  size_t first = from;
  for (const Segment& group : sampling_groups(seq, from, to)) {
    const size_t done = group.last - 1;
    size_t next = group.last;
    // Without a mark of the next step only copies still belong to this one.
    while (next < to && seq.category(next) == Category::kCopy) ++next;
    size_t limit = next;
    while (limit < to && !seq.heavy(limit)) ++limit;
    const size_t cut = cut_between(seq, done, limit);
    segments.push_back({first, cut < limit ? cut : next, false, false});
    first = segments.back().last;
  }
  if (!segments.empty() && from == 0) {
    // What came before the first step's own work is not known to be part of it.
    const int64_t host_ns = seq.time_ns[segments[0].last - 1] - seq.time_ns[segments[0].first];
    size_t heavy = segments[0].first;
    while (heavy < segments[0].last && !seq.heavy(heavy)) ++heavy;
    if (heavy < segments[0].last) segments[0].first = lead_in(seq, heavy, host_ns, false);
  }
  return segments;
}

// A start may be missing (decode replays its embedding inside something opaque): split at the token choices.
std::vector<Segment> split_at_samples(const Sequence& seq, const std::vector<Segment>& segments) {
  std::vector<Segment> out;
  for (const Segment& segment : segments) {
    const std::vector<Segment> parts = segments_from_ends(seq, segment.first, segment.last);
    uint32_t most = 0, least = std::numeric_limits<uint32_t>::max();
    for (const Segment& part : parts) {
      most = std::max(most, seq.heavy_in(part.first, part.last));
      least = std::min(least, seq.heavy_in(part.first, part.last));
    }
    if (parts.size() < 2 || least < 4 || least * 4 < most) {
      out.push_back(segment);
      continue;
    }
    const size_t at = out.size();
    out.insert(out.end(), parts.begin(), parts.end());
    out[at].first = segment.first;
    out.back().last = std::max(out.back().last, segment.last);
  }
  return out;
}

// The most rows of a product with weights in a segment; -1 if none is known.
int64_t most_rows(const Sequence& seq, const Segment& segment) {
  const Works& works = seq.trace.works;
  int64_t most = -1;
  for (size_t i = segment.first; i < segment.last; ++i) {
    const WorkId work = seq.trace.gpu_links.work[seq.gpu[i]];
    if (work != kNoRow && works.kind[work] == WorkKind::kGemm && works.batch[work] == 1)
      most = std::max(most, works.m[work]);
  }
  return most;
}

// A model within the step of another (codes of a frame of sound, each chosen by the one before): between two waits of
// the host lies one pass of one kind, then always as many passes of another kind, each of which chooses something on
// as many rows. What the host waits for is the step. Passes that are all alike are steps that the host queues ahead;
// passes on other rows than the first are drafts, and the first verifies them.
std::vector<Segment> join_inner_passes(const Sequence& seq, const std::vector<Segment>& segments) {
  constexpr size_t kGroupsMin = 3;
  constexpr double kNearlyAll = 0.8, kOther = 1.25;
  struct Group {
    size_t first, last;  // of segments
    uint32_t inner = 0;  // products of each inner pass; 0: they differ
  };
  std::vector<Group> groups;
  for (size_t i = 0, first = 0; i < segments.size(); ++i) {
    const bool final = i + 1 == segments.size();
    const int64_t to =
        final ? std::numeric_limits<int64_t>::max() : seq.time_ns[std::min(segments[i + 1].first, seq.size() - 1)];
    if (!final && seq.calls.first_blocking(seq.thread, seq.time_ns[segments[i].last - 1], to) == nullptr) continue;
    Group group{first, i + 1, 0};
    for (size_t s = first + 1; s <= i; ++s) {
      const uint32_t heavy = seq.heavy_in(segments[s].first, segments[s].last);
      group.inner = s == first + 1 || heavy == group.inner ? heavy : 0;
      if (group.inner == 0) break;
    }
    groups.push_back(group);
    first = i + 1;
  }
  std::map<std::pair<size_t, uint32_t>, size_t> counts;  // by inner passes and their products
  for (const Group& group : groups)
    if (group.inner > 0 && group.last - group.first >= 3) ++counts[{group.last - group.first, group.inner}];
  const auto usual =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (usual == counts.end() || usual->second < kGroupsMin ||
      static_cast<double>(usual->second) < kNearlyAll * static_cast<double>(groups.size()))
    return segments;
  const auto is_usual = [&](const Group& group) {
    return group.last - group.first == usual->first.first && group.inner == usual->first.second;
  };
  size_t different = 0, like_inner = 0;
  for (const Group& group : groups) {
    if (!is_usual(group)) continue;
    const Segment& outer = segments[group.first];
    const double ratio = static_cast<double>(seq.heavy_in(outer.first, outer.last)) / group.inner;
    different += ratio >= kOther || ratio <= 1 / kOther ? 1 : 0;
    like_inner += most_rows(seq, outer) == most_rows(seq, segments[group.first + 1]) ? 1 : 0;
  }
  if (like_inner * 2 <= usual->second ||
      static_cast<double>(different) < kNearlyAll * static_cast<double>(usual->second))
    return segments;
  std::vector<Segment> out;
  for (const Group& group : groups) {
    if (is_usual(group)) {
      out.push_back(segments[group.first]);
      out.back().last = segments[group.last - 1].last;
    } else {
      out.insert(out.end(), segments.begin() + static_cast<ptrdiff_t>(group.first),
                 segments.begin() + static_cast<ptrdiff_t>(group.last));
    }
  }
  return out;
}

// Steps by the period of the kernel names. Work before the first period counts as a step of its own (the prompt, which
// runs other kernels) if it holds at least half as many GEMMs and attentions as a period.
std::vector<Segment> segments_from_period(const Sequence& seq) {
  std::vector<Segment> segments;
  for (const size_t start : period_starts(seq.trace, seq.gpu)) {
    if (!segments.empty()) segments.back().last = start;
    segments.push_back({start, seq.size(), false, false});
  }
  if (segments.size() < 2) return {};
  // The last start opens a step that may be cut off; it counts only if it is as long as the one before.
  const Segment before = segments[segments.size() - 2];
  const size_t length = before.last - before.first;
  if (segments.back().last - segments.back().first < length) {
    segments.pop_back();
  } else {
    segments.back().last = segments.back().first + length;
  }
  const size_t first = segments[0].first;
  const uint32_t heavy = seq.heavy_in(0, first);
  if (heavy > 0 && heavy * 2 >= seq.heavy_in(before.first, before.last)) {
    size_t begin = 0;
    while (!seq.heavy(begin)) ++begin;
    const int64_t host_ns = seq.time_ns[first - 1] - seq.time_ns[begin];
    segments.insert(segments.begin(), {lead_in(seq, begin, host_ns, false), first, false, false});
  }
  return segments;
}

// Drops a last step that the recording cut off: no token choice where the others have one, and clearly shorter.
void drop_partial_end(const Sequence& seq, std::vector<Segment>& segments) {
  if (segments.size() < 2) return;
  const Segment last = segments.back();
  const Segment before = segments[segments.size() - 2];
  const StringId whole = whole_graph_name(seq.trace);
  for (size_t i = last.first; whole != StringId::kEmpty && i < last.last; ++i) {
    if (seq.trace.gpu_ops.name[seq.gpu[i]] == whole) return;  // what it chose is inside
  }
  if (has_samples(seq, last.first, last.last) || !has_samples(seq, before.first, before.last)) return;
  if (seq.heavy_in(last.first, last.last) * 10 < seq.heavy_in(before.first, before.last) * 9) segments.pop_back();
}

// First convolution of a vision encoder: all convolutions come before the first attention (state-space models run one
// in every layer). Returns `segment.last` if there is none.
size_t first_convolution(const Sequence& seq, const Segment& segment) {
  size_t convolution = segment.last, attention = segment.last;
  for (size_t i = segment.first; i < segment.last; ++i) {
    const Category category = seq.category(i);
    if (category == Category::kConvolution) {
      if (attention < segment.last) return segment.last;
      if (convolution == segment.last) convolution = i;
    }
    if (category == Category::kAttention && attention == segment.last) attention = i;
  }
  return convolution;
}

struct AttentionShape {
  int64_t heads = -1, head_size = -1;
  bool causal = false;
  bool known = false;
};

AttentionShape attention_shape(const Sequence& seq, size_t i) {
  const WorkId work = seq.trace.gpu_links.work[seq.gpu[i]];
  if (work == kNoRow || seq.trace.works.kind[work] != WorkKind::kAttention) return {};
  return {seq.trace.works.heads[work], seq.trace.works.k[work], seq.trace.works.mask[work] == AttentionMask::kCausal,
          true};
}

// Where the language model begins after a vision encoder: past the last GEMM that ran on the encoder's rows before the
// first attention of another shape. `segment.last` if all attention is alike.
size_t language_start(const Sequence& seq, const Segment& segment, size_t convolution) {
  AttentionShape vision;
  size_t last_vision = segment.last, first_language = segment.last;
  for (size_t i = convolution; i < segment.last && first_language == segment.last; ++i) {
    const AttentionShape shape = attention_shape(seq, i);
    if (!shape.known) continue;
    if (!vision.known) vision = shape;
    const bool same =
        shape.heads == vision.heads && shape.head_size == vision.head_size && shape.causal == vision.causal;
    (same ? last_vision : first_language) = i;
  }
  if (last_vision == segment.last || first_language == segment.last || vision.causal) return segment.last;
  int64_t language_rows = -1;
  size_t start = first_language;
  for (size_t i = first_language; i-- > last_vision + 1;) {
    const WorkId work = seq.trace.gpu_links.work[seq.gpu[i]];
    if (work == kNoRow || seq.trace.works.kind[work] != WorkKind::kGemm) continue;
    const int64_t rows = seq.trace.works.m[work];
    if (language_rows < 0) language_rows = rows;
    if (rows != language_rows) return start;
    start = i;
  }
  return start;
}

// Cuts the vision encoder off the segments that hold one, before or after the look-up of the text's embeddings.
std::vector<Segment> split_vision(const Sequence& seq, const std::vector<Segment>& segments) {
  std::vector<Segment> out;
  for (const Segment& segment : segments) {
    const size_t convolution = first_convolution(seq, segment);
    const size_t language = convolution < segment.last ? language_start(seq, segment, convolution) : segment.last;
    if (language < segment.last && language > convolution) {
      out.push_back({segment.first, language, true, false});
      out.push_back({language, segment.last, false, true});
    } else {
      out.push_back(segment);
    }
  }
  return out;
}

// A vision encoder that ran before the first step of the language model.
void add_vision_before(const Sequence& seq, std::vector<Segment>& segments) {
  if (segments.empty() || segments[0].first == 0) return;
  const Segment before{0, segments[0].first, true, false};
  const size_t convolution = first_convolution(seq, before);
  if (convolution >= before.last || seq.heavy_in(convolution, before.last) == 0) return;
  const BlockingCall* call = seq.calls.last_blocking_before(seq.thread, seq.time_ns[convolution]);
  size_t first = convolution;
  while (first > 0 && !seq.heavy(first - 1) && (call == nullptr || seq.time_ns[first - 1] >= call->end_ns)) --first;
  segments.insert(segments.begin(), {first, before.last, true, false});
  segments[1].continues = segments[1].first == before.last;
}

// Outermost operator around a launch; kNoRow if it came from none.
Row outermost_op(const Sequence& seq, size_t i) {
  OpId op = seq.trace.gpu_links.op[seq.gpu[i]];
  const std::vector<OpId>& parent = seq.trace.op_links.parent;
  while (op != kNoRow && op < parent.size() && parent[op] != kNoRow) op = parent[op];
  return op;
}

// When the host began with a step: at the first operator of the run of operators that leads to its first launch. The
// first ones may launch nothing (a look-up of compiled code). A run ends where the host paused for longer than
// kPauseFrac of the step, at the launch before, and at a blocking call.
int64_t host_start(const Sequence& seq, const Segment& segment) {
  const Ops& ops = seq.trace.ops;
  const int64_t launch = seq.time_ns[segment.first];
  const int64_t host_ns = seq.time_ns[segment.last - 1] - launch;
  const int64_t pause = static_cast<int64_t>(kPauseFrac * static_cast<double>(host_ns));
  int64_t after = launch - host_ns;
  // The operator of the first launch belongs to the step even if it began before that.
  const Row own = outermost_op(seq, segment.first);
  if (own != kNoRow) after = std::min(after, ops.start_ns[own]);
  if (segment.first > 0) {
    const Row before = outermost_op(seq, segment.first - 1);
    after = std::max(after, seq.time_ns[segment.first - 1]);
    if (before != kNoRow && before != own) after = std::max(after, ops.start_ns[before] + ops.dur_ns[before]);
  }
  if (const BlockingCall* call = seq.calls.last_blocking_before(seq.thread, launch)) {
    after = std::max(after, call->end_ns);
  }
  const std::vector<int64_t>& starts = ops.start_ns;
  int64_t run_start = launch, run_end = after;
  for (size_t i = static_cast<size_t>(std::lower_bound(starts.begin(), starts.end(), after) - starts.begin());
       i < starts.size() && starts[i] < launch; ++i) {
    if (ops.thread[i] != seq.thread) continue;
    if (run_start == launch || starts[i] - run_end > pause) run_start = starts[i];
    run_end = std::max(run_end, starts[i] + ops.dur_ns[i]);
  }
  return launch - run_end > pause ? launch : run_start;
}

// Passes by the host's waits, of kernels that no rule knows: they recur in each layer, so nothing but a wait tells a
// pass from a layer. The same launches lie between most waits; longer passes that end alike count too (a prompt token
// by token). Where a library's products are among them, a step may as well wait several times. Empty where no launches
// recur so; or, if they are to be most of all launches, where they are not.
std::vector<Segment> segments_from_waits(const Sequence& seq, bool most_of_all) {
  constexpr size_t kAlikeMin = 5, kLaunchesMin = 8;
  std::vector<Segment> pieces;
  for (size_t i = 0; i < seq.size(); ++i) {
    const bool waited = i == 0 || seq.calls.first_blocking(seq.thread, seq.time_ns[i - 1], seq.time_ns[i]) != nullptr;
    if (waited) pieces.push_back({i, i, false, false});
    pieces.back().last = i + 1;
  }
  const auto name = [&](size_t i) { return seq.trace.gpu_ops.name[seq.gpu[i]]; };
  std::map<std::vector<StringId>, size_t> alike;
  for (const Segment& piece : pieces) {
    if (piece.last - piece.first < kLaunchesMin) continue;
    std::vector<StringId> names;
    for (size_t i = piece.first; i < piece.last; ++i) names.push_back(name(i));
    ++alike[std::move(names)];
  }
  const auto most =
      std::max_element(alike.begin(), alike.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == alike.end() || most->second < kAlikeMin) return {};
  const std::vector<StringId>& usual = most->first;
  const auto unknown = [&](const Segment& piece) {
    size_t count = 0;
    for (size_t i = piece.first; i < piece.last; ++i) count += seq.category(i) == Category::kOther ? 1 : 0;
    return 2 * count > piece.last - piece.first;
  };
  std::vector<Segment> passes;
  size_t of_passes = 0;
  for (const Segment& piece : pieces) {
    const size_t launches = piece.last - piece.first;
    if (launches < usual.size() || seq.heavy_in(piece.first, piece.last) > 0 || !unknown(piece)) continue;
    if (!std::equal(usual.end() - kLaunchesMin, usual.end(),
                    seq.gpu.begin() + static_cast<ptrdiff_t>(piece.last - kLaunchesMin),
                    [&](StringId one, GpuOpId op) { return one == seq.trace.gpu_ops.name[op]; }))
      continue;
    passes.push_back(piece);
    of_passes += launches;
  }
  return !most_of_all || 2 * of_passes > seq.size() ? passes : std::vector<Segment>();
}

// Whether several periods between two waits are layers of `passes`: one of each pass holds what comes before and behind
// the layers. Passes of a host that runs ahead are all alike.
bool are_layers(const Sequence& seq, const std::vector<Segment>& periods, size_t passes) {
  if (periods.size() < 2 * passes) return false;
  std::map<std::vector<StringId>, size_t> alike;
  size_t most = 0;
  for (const Segment& period : periods) {
    std::vector<StringId> names;
    for (size_t i = period.first; i < period.last; ++i) names.push_back(seq.trace.gpu_ops.name[seq.gpu[i]]);
    most = std::max(most, ++alike[std::move(names)]);
  }
  return 2 * (periods.size() - most) >= passes;
}

// Prompts are known by a library's kernels and tokens are not: they run the program's own, and would belong to the step
// behind them. Returns those passes, and takes them off the segments; both are in order.
std::vector<Segment> cut_off(std::vector<Segment> passes, std::vector<Segment>& segments) {
  std::vector<Segment>::const_iterator pass = passes.begin();
  for (Segment& segment : segments) {
    while (pass != passes.end() && pass->first < segment.first) ++pass;
    for (; pass != passes.end() && pass->last < segment.last; ++pass) segment.first = pass->last;
  }
  return passes;
}

std::vector<StepDraft> drafts_of(const Sequence& seq, int32_t device, const std::vector<Segment>& segments) {
  std::vector<StepDraft> drafts;
  drafts.reserve(segments.size());
  for (const Segment& segment : segments) {
    if (segment.first >= segment.last) continue;
    StepDraft draft;
    draft.device = device;
    draft.thread = seq.thread;
    if (segment.vision) {
      draft.kind = StageKind::kVision;
      draft.kind_known = true;
    }
    draft.begin_ns = seq.time_ns[segment.first];
    draft.end_ns = segment.last < seq.size() ? seq.time_ns[segment.last] : seq.time_ns[segment.last - 1] + 1;
    draft.host_start_ns = host_start(seq, segment);
    draft.continues = segment.continues;
    drafts.push_back(draft);
  }
  return drafts;
}

// A thread for each request, or those of a pool by turns: their steps lie between those of the others. Where two
// threads work at once, the one that launches more has the steps.
void add_between(std::vector<StepDraft> more, std::vector<StepDraft>& steps) {
  const size_t known = steps.size();
  for (StepDraft& step : more) {
    const std::vector<StepDraft>::iterator end = steps.begin() + static_cast<ptrdiff_t>(known);
    const std::vector<StepDraft>::iterator next = std::lower_bound(
        steps.begin(), end, step.end_ns, [](const StepDraft& other, int64_t time) { return other.begin_ns < time; });
    if (next != steps.begin() && std::prev(next)->end_ns > step.begin_ns) continue;
    steps.push_back(std::move(step));
  }
  std::inplace_merge(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(known), steps.end(),
                     [](const StepDraft& a, const StepDraft& b) { return a.begin_ns < b.begin_ns; });
}

std::vector<StepDraft> detect_on_thread(const Sequence& seq, int32_t device, const TokenEvents& events) {
  std::vector<Segment> segments;
  const std::vector<size_t> anchors = start_anchors(seq, events.embeddings);
  if (!anchors.empty()) {
    segments = split_at_samples(seq, segments_from_starts(seq, anchors));
    drop_partial_end(seq, segments);
    // Eager steps before the first graph, with operators not recorded.
    if (events.embeddings.empty()) {
      const std::vector<Segment> before = segments_from_ends(seq, 0, segments[0].first);
      segments.insert(segments.begin(), before.begin(), before.end());
    }
  } else {
    segments = join_inner_passes(seq, segments_from_ends(seq, 0, seq.size()));
  }
  const bool none = segments.empty();
  if (none) segments = segments_from_period(seq);
  std::vector<Segment> passes = segments_from_waits(seq, none);
  if (!none) passes = cut_off(std::move(passes), segments);
  const bool by_waits = none && !passes.empty() && (segments.empty() || are_layers(seq, segments, passes.size()));
  if (by_waits) segments = std::move(passes);
  add_vision_before(seq, segments);
  std::vector<StepDraft> drafts = drafts_of(seq, device, split_vision(seq, segments));
  for (StepDraft& draft : drafts) draft.by_period = none && !by_waits, draft.by_waits = by_waits;
  if (!none) add_between(drafts_of(seq, device, passes), drafts);
  return drafts;
}

}  // namespace

std::vector<StepDraft> detect_steps(const Trace& trace, const LaunchOrder& order, const HostCalls& calls,
                                    const TokenEvents& events) {
  if (order.size() == 0) return {};
  const auto detected = [&](ThreadId thread, std::span<const GpuOpId> gpu, std::span<const int64_t> time_ns) {
    return detect_on_thread(make_sequence(trace, calls, thread, gpu, time_ns, events.samplings), order.device, events);
  };
  if (is_of_one_thread(order)) return detected(order.main_thread, order.gpu, order.time_ns);
  struct Launches {
    std::vector<GpuOpId> gpu;
    std::vector<int64_t> time_ns;
  };
  std::map<ThreadId, Launches> launches;
  // Nearly all of them.
  const auto of_main = static_cast<size_t>(std::count(order.thread.begin(), order.thread.end(), order.main_thread));
  launches[order.main_thread].gpu.reserve(of_main);
  launches[order.main_thread].time_ns.reserve(of_main);
  for (size_t i = 0; i < order.size(); ++i) {
    Launches& own = launches[order.thread[i]];
    own.gpu.push_back(order.gpu[i]);
    own.time_ns.push_back(order.time_ns[i]);
  }
  std::vector<ThreadId> threads;
  for (const auto& [thread, own] : launches)
    if (thread != order.main_thread) threads.push_back(thread);
  std::stable_sort(threads.begin(), threads.end(),
                   [&](ThreadId a, ThreadId b) { return launches[a].gpu.size() > launches[b].gpu.size(); });
  const auto detected_on = [&](ThreadId thread) {
    const Launches own = std::move(launches[thread]);
    return detected(thread, own.gpu, own.time_ns);
  };
  std::vector<StepDraft> steps = detected_on(order.main_thread);
  for (const ThreadId thread : threads) {
    std::vector<StepDraft> more = detected_on(thread);
    // Names that recur on a thread beside the main one are as likely something else.
    if (!more.empty() && !more.front().by_period && !more.front().by_waits) add_between(std::move(more), steps);
  }
  return steps;
}

}  // namespace llmprof
