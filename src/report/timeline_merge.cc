#include <fmt/format.h>

#include <algorithm>

#include "report/timeline_slices.h"

namespace llmprof::timeline {
namespace {

constexpr uint32_t kNone = 0xFFFFFFFFU;

// Runs of short slices of one depth, each close to the one before.
class Merger {
 public:
  Merger(const std::vector<Stretch>& exact, int64_t below_ns) : exact_(exact), below_ns_(below_ns) {}

  // Slices of one track, in order of their start; `counts`: how many each of the result stands for.
  void run(const std::vector<Slice>& slices) {
    out.clear(), counts.clear(), moved.clear(), open_.clear();
    moved.reserve(slices.size());
    for (const Slice& slice : slices) {
      if (is_exact(slice)) {
        if (open_.size() > slice.depth) open_.resize(slice.depth);  // nothing reaches over it
        push(slice);
      } else {
        add_short(slice);
      }
    }
  }
  std::vector<Slice> out;
  std::vector<uint32_t> counts, moved;

 private:
  bool is_exact(const Slice& slice) const {
    if (slice.dur_ns >= below_ns_) return true;
    const auto after = std::upper_bound(exact_.begin(), exact_.end(), slice.start_ns,
                                        [](int64_t time, const Stretch& stretch) { return time < stretch.end_ns; });
    return after != exact_.end() && after->start_ns <= slice.end_ns();
  }
  void push(const Slice& slice) {
    moved.push_back(static_cast<uint32_t>(out.size()));
    out.push_back(slice);
    counts.push_back(1);
  }
  void add_short(const Slice& slice) {
    constexpr int64_t kSpanMost = 16;  // in units of what is short
    if (open_.size() <= slice.depth) open_.resize(slice.depth + size_t{1}, kNone);
    uint32_t& run = open_[slice.depth];
    if (run != kNone && slice.start_ns - out[run].end_ns() <= below_ns_ &&
        slice.end_ns() - out[run].start_ns <= kSpanMost * below_ns_) {
      out[run].dur_ns = std::max(out[run].end_ns(), slice.end_ns()) - out[run].start_ns;
      ++counts[run];
      moved.push_back(run);
      return;
    }
    run = static_cast<uint32_t>(out.size());
    push(slice);
  }

  const std::vector<Stretch>& exact_;
  const int64_t below_ns_;
  std::vector<uint32_t> open_;  // by depth: the run that may go on
};

size_t slices_of(const Timeline& timeline) {
  size_t sum = 0;
  for (const Track& track : timeline.tracks) sum += track.slices.size();
  return sum;
}

}  // namespace

void merge_short(Timeline& timeline, size_t most, const std::vector<Stretch>& exact) {
  const size_t before = slices_of(timeline);
  if (before <= most) return;
  constexpr int64_t kFirstNs = 1'000, kLastNs = int64_t{1} << 50;
  int64_t below_ns = kFirstNs;
  for (; below_ns < kLastNs; below_ns *= 2) {
    Merger merger(exact, below_ns);
    size_t left = 0;
    for (const Track& track : timeline.tracks) {
      merger.run(track.slices);
      left += merger.out.size();
      if (left > most) break;
    }
    if (left <= most) break;
  }
  Merger merger(exact, below_ns);
  timeline.merged_below_ns = below_ns;
  for (Track& track : timeline.tracks) {
    merger.run(track.slices);
    for (size_t i = 0; i < merger.out.size(); ++i) {
      if (merger.counts[i] == 1) continue;
      Slice& slice = merger.out[i];
      slice.name = index(timeline.texts.intern(fmt::format("[{} short slices]", merger.counts[i])));
      slice.detail = 0;
      slice.own = slice.target = {};
      slice.tint = static_cast<uint8_t>(Tint::kMerged);
      timeline.merged_slices += merger.counts[i];
    }
    for (size_t i = 0; i < track.slices.size(); ++i) {
      const uint32_t now = merger.moved[i];
      if (merger.counts[now] > 1 && track.slices[i].own.of != Of::kNothing)
        track.merged.emplace_back(track.slices[i].own, now);
    }
    track.slices = merger.out;
  }
}

}  // namespace llmprof::timeline
