#include "derive/detect_period.h"

#include <algorithm>
#include <map>

namespace llmprof {
namespace {

constexpr size_t kNamesMin = 4;       // a step launches at least this many activities
constexpr double kCoverageMin = 0.5;  // share of the recording that the period must explain
constexpr double kUnevenMax = 0.1;    // distances within this share of the median are even
constexpr size_t kVotesMin = 2;       // names that must agree on the number of steps

// Occurrences of all names, grouped by name: positions[begins[k]..begins[k+1]) of the k-th distinct name.
struct Occurrences {
  std::vector<uint32_t> positions;
  std::vector<size_t> begins;
};

Occurrences group_by_name(const Trace& trace, std::span<const GpuOpId> gpu) {
  std::vector<uint32_t> dense(trace.strings.size(), kNoRow);
  std::vector<size_t> counts;
  for (const Row row : gpu) {
    uint32_t& slot = dense[index(trace.gpu_ops.name[row])];
    if (slot == kNoRow) {
      slot = static_cast<uint32_t>(counts.size());
      counts.push_back(0);
    }
    ++counts[slot];
  }
  Occurrences all;
  all.begins.resize(counts.size() + 1, 0);
  for (size_t k = 0; k < counts.size(); ++k) all.begins[k + 1] = all.begins[k] + counts[k];
  std::vector<size_t> next(all.begins.begin(), all.begins.end() - 1);
  all.positions.resize(gpu.size());
  for (size_t i = 0; i < gpu.size(); ++i) {
    all.positions[next[dense[index(trace.gpu_ops.name[gpu[i]])]]++] = static_cast<uint32_t>(i);
  }
  return all;
}

// Whether the occurrences are evenly spaced over most of the recording. One distance in fifty, and one in any case, may
// be odd: a prefill among decode steps.
bool evenly_spaced(const uint32_t* positions, size_t count, size_t total, std::vector<uint32_t>& distances) {
  distances.clear();
  for (size_t i = 1; i < count; ++i) distances.push_back(positions[i] - positions[i - 1]);
  const size_t middle = distances.size() / 2;
  std::nth_element(distances.begin(), distances.begin() + static_cast<ptrdiff_t>(middle), distances.end());
  const uint32_t median = distances[middle];
  if (median < kNamesMin) return false;
  const double covered = static_cast<double>(positions[count - 1] - positions[0] + median) / static_cast<double>(total);
  if (covered < kCoverageMin) return false;
  const uint32_t slack = std::max<uint32_t>(2, static_cast<uint32_t>(kUnevenMax * median));
  size_t odd = 0;
  for (const uint32_t distance : distances) {
    if (distance > median + slack || distance + slack < median) ++odd;
  }
  return odd <= std::max<size_t>(1, distances.size() / 50);
}

}  // namespace

std::vector<size_t> period_starts(const Trace& trace, std::span<const GpuOpId> gpu) {
  if (gpu.size() < 2 * kNamesMin) return {};
  const Occurrences all = group_by_name(trace, gpu);
  struct Vote {
    size_t names = 0;
    size_t earliest = 0;  // the name that comes first in the recording
  };
  std::map<size_t, Vote> votes;  // by number of occurrences
  std::vector<uint32_t> distances;
  for (size_t k = 0; k + 1 < all.begins.size(); ++k) {
    const uint32_t* positions = all.positions.data() + all.begins[k];
    const size_t count = all.begins[k + 1] - all.begins[k];
    if (count < 2 || !evenly_spaced(positions, count, gpu.size(), distances)) continue;
    Vote& vote = votes[count];
    if (vote.names == 0 || positions[0] < all.positions[all.begins[vote.earliest]]) vote.earliest = k;
    ++vote.names;
  }
  // Fewest occurrences first: a layer's names occur as often as steps x layers. Names that come only every few steps
  // stand alone and are passed over while others agree on a shorter period.
  for (const size_t wanted : {kVotesMin, size_t{1}}) {
    for (const std::pair<const size_t, Vote>& entry : votes) {
      if (entry.second.names < wanted) continue;
      const size_t k = entry.second.earliest;
      const uint32_t* first = all.positions.data() + all.begins[k];
      return std::vector<size_t>(first, first + entry.first);
    }
  }
  return {};
}

}  // namespace llmprof
