#include "trace/rank_collectives.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>

namespace llmprof {
namespace {

// Clocks of the GPUs of one host agree to some microseconds.
constexpr int64_t kClocksAgreeNs = 10'000;
// Between clocks that nothing binds; what is added to it stays in range.
constexpr int64_t kUnbounded = INT64_MAX / 4;
// How far apart the first calls of two recordings of one group may be.
constexpr int64_t kMovedMost = 64;

using GroupKey = std::tuple<std::string_view, std::string_view, int32_t, int32_t, bool>;
using CallsByRank = std::map<uint32_t, std::vector<uint32_t>>;

bool is_communication_name(std::string_view kernel) {
  // A send and a receive are one kernel, which does not say to whom.
  if (kernel.find("SendRecv") != std::string_view::npos) return false;
  return kernel.starts_with("ncclDevKernel") || kernel.starts_with("ncclKernel") ||
         kernel.find("cross_device_reduce") != std::string_view::npos;
}

bool names_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return name.find(part) != name.npos; });
}

// Whether every rank gives the same numbers of elements; a root, or an uneven exchange, does not.
bool has_even_sizes(std::string_view name) {
  return names_any(name, {"allreduce", "allgather", "all_gather", "reduce_scatter"});
}

// What calls have in common that may be one collective.
using Likeness = std::tuple<bool, std::string_view, std::string_view, int64_t, int64_t>;
Likeness likeness_of(const CollectiveCall& call) {
  if (call.is_between_two()) return {true, {}, {}, 0, 0};
  const bool even = has_even_sizes(call.name);
  return {false, call.name, call.dtype, even ? call.in_elements : 0, even ? call.out_elements : 0};
}

// How one list of calls lies against another when it is moved by so many places.
struct Placed {
  int64_t places = 0;
  size_t unlike = 0;
  bool possible = false;  // with some difference of the clocks
  int64_t clocks_ns = 0;  // the least such difference
};

class Matcher {
 public:
  explicit Matcher(const std::vector<CollectiveCall>& calls) : calls_(calls) {
    std::map<Likeness, uint32_t> numbers;
    for (const CollectiveCall& call : calls)
      kinds_.push_back(numbers.try_emplace(likeness_of(call), static_cast<uint32_t>(numbers.size())).first->second);
  }

  std::vector<JoinedCollective> run() {
    std::map<GroupKey, CallsByRank> groups;
    for (uint32_t call = 0; call < calls_.size(); ++call) {
      const CollectiveCall& of = calls_[call];
      groups[{of.group, of.members, of.from_rank, of.to_rank, of.described}][of.rank].push_back(call);
    }
    // A kernel's name does not say of which group it is: with one group alone it needs not.
    const bool parted = has_smaller_groups(groups);
    for (auto& [key, ranks] : groups)
      if (std::get<bool>(key) || !parted) join_group(ranks);
    std::sort(out_.begin(), out_.end(), [&](const JoinedCollective& a, const JoinedCollective& b) {
      const int64_t first = first_start(a), second = first_start(b);
      return first != second ? first < second : a.calls < b.calls;
    });
    return std::move(out_);
  }

 private:
  bool has_smaller_groups(const std::map<GroupKey, CallsByRank>& groups) const {
    std::set<uint32_t> all;
    for (const auto& [key, ranks] : groups)
      for (const auto& [rank, list] : ranks) all.insert(rank);
    return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
      const int32_t size = calls_[group.second.begin()->second.front()].group_size;
      return size > 1 && static_cast<size_t>(size) < all.size();
    });
  }

  int64_t first_start(const JoinedCollective& of) const {
    int64_t first = INT64_MAX;
    for (const uint32_t call : of.calls) first = std::min(first, calls_[call].start_ns);
    return first;
  }

  void join_group(CallsByRank& ranks) {
    if (ranks.size() < 2) return;
    const CollectiveCall& some = calls_[ranks.begin()->second.front()];
    // Groups of one name that the recorder does not tell apart.
    const size_t most = some.is_between_two() ? 2
                        : some.group_size > 0 ? static_cast<size_t>(some.group_size)
                                              : SIZE_MAX;
    if (ranks.size() > most) return;
    bool numbered = !some.is_between_two();
    for (auto& [rank, list] : ranks) {
      std::stable_sort(list.begin(), list.end(),
                       [&](uint32_t a, uint32_t b) { return calls_[a].start_ns < calls_[b].start_ns; });
      for (const uint32_t call : list) numbered = numbered && calls_[call].sequence >= 0;
    }
    numbered ? join_by_number(ranks) : join_by_order(ranks);
  }

  void join_by_number(const CallsByRank& ranks) {
    // A number may have several kernels, which are in order.
    std::map<std::tuple<int64_t, std::string_view, std::string_view, uint32_t>, std::vector<uint32_t>> met;
    for (const auto& [rank, list] : ranks) {
      std::map<std::tuple<int64_t, std::string_view, std::string_view>, uint32_t> seen;
      for (const uint32_t call : list) {
        const CollectiveCall& of = calls_[call];
        met[{of.sequence, of.name, of.dtype, seen[{of.sequence, of.name, of.dtype}]++}].push_back(call);
      }
    }
    for (auto& [key, together] : met) add(std::move(together), ranks.size());
  }

  void join_by_order(const CallsByRank& ranks) {
    const std::vector<uint32_t>* longest = nullptr;
    for (const auto& [rank, list] : ranks)
      if (longest == nullptr || list.size() > longest->size()) longest = &list;
    std::map<int64_t, std::vector<uint32_t>> met;  // by place in the longest list
    for (const auto& [rank, list] : ranks) {
      const int64_t places = &list == longest ? 0 : best_place(*longest, list).places;
      for (size_t i = 0; i < list.size(); ++i) {
        std::vector<uint32_t>& together = met[static_cast<int64_t>(i) + places];
        if (together.empty() || kinds_[together.front()] == kinds_[list[i]]) together.push_back(list[i]);
      }
    }
    for (auto& [place, together] : met) add(std::move(together), ranks.size());
  }

  void add(std::vector<uint32_t> together, size_t ranks) {
    if (together.size() >= 2) out_.push_back({std::move(together), static_cast<uint32_t>(ranks)});
  }

  // Ends early where more are unlike than `unlike_most`.
  Placed place_at(const std::vector<uint32_t>& fixed, const std::vector<uint32_t>& moved, int64_t places,
                  size_t unlike_most) const {
    Placed out{.places = places};
    int64_t low = -kUnbounded, high = kUnbounded;  // of what is added to the clock of the moved one
    for (size_t i = 0; i < moved.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) + places;
      if (at < 0 || at >= static_cast<int64_t>(fixed.size())) continue;
      const CollectiveCall &a = calls_[fixed[static_cast<size_t>(at)]], &b = calls_[moved[i]];
      if (kinds_[fixed[static_cast<size_t>(at)]] != kinds_[moved[i]] && ++out.unlike > unlike_most) return out;
      if (b.needs(a)) low = std::max(low, a.start_ns - b.end_ns);
      if (a.needs(b)) high = std::min(high, a.end_ns - b.start_ns);
    }
    out.possible = low <= high + kClocksAgreeNs;
    out.clocks_ns = low > 0 ? low : high < 0 ? -high : 0;
    return out;
  }

  Placed best_place(const std::vector<uint32_t>& fixed, const std::vector<uint32_t>& moved) const {
    const int64_t of_fixed = static_cast<int64_t>(fixed.size()), of_moved = static_cast<int64_t>(moved.size());
    Placed best = place_at(fixed, moved, 0, SIZE_MAX);
    // Recordings that hold as many calls hold the same ones, unless that cannot be.
    if (of_fixed == of_moved && best.unlike == 0 && best.possible) return best;
    const auto key = [](const Placed& placed) {
      return std::make_tuple(placed.unlike, !placed.possible, placed.clocks_ns, std::abs(placed.places));
    };
    const int64_t overlap = std::max<int64_t>(1, (std::min(of_fixed, of_moved) + 1) / 2);
    for (int64_t places = -kMovedMost; places <= kMovedMost; ++places) {
      const int64_t common = std::min(of_fixed, of_moved + places) - std::max<int64_t>(0, places);
      if (common < overlap) continue;
      const Placed placed = place_at(fixed, moved, places, best.unlike);
      if (key(placed) < key(best)) best = placed;
    }
    return best;
  }

  const std::vector<CollectiveCall>& calls_;
  std::vector<uint32_t> kinds_;  // parallel to calls: equal where they may be one collective
  std::vector<JoinedCollective> out_;
};

// ---- clocks --------------------------------------------------------------------------------------------------------

// Of two clocks, the most that the first's offset may exceed the second's.
class ClockBounds {
 public:
  explicit ClockBounds(size_t clocks) : clocks_(clocks), most_(clocks * clocks, kUnbounded) {
    for (size_t c = 0; c < clocks; ++c) at(c, c) = 0;
  }
  int64_t& at(size_t a, size_t b) { return most_[a * clocks_ + b]; }
  void bound(size_t a, size_t b, int64_t most) { at(a, b) = std::min(at(a, b), most); }
  // What follows from chains of bounds (Floyd and Warshall).
  void close() {
    for (size_t k = 0; k < clocks_; ++k)
      for (size_t a = 0; a < clocks_; ++a)
        for (size_t b = 0; b < clocks_; ++b)
          if (at(a, k) < kUnbounded && at(k, b) < kUnbounded)
            at(a, b) = std::max(-kUnbounded, std::min(at(a, b), at(a, k) + at(k, b)));
  }

 private:
  size_t clocks_;
  std::vector<int64_t> most_;
};

}  // namespace

void add_collective_calls(const Trace& trace, const std::map<int32_t, uint32_t>& rank_of_device,
                          const std::vector<int32_t>& numbers, int64_t shift_ns, std::vector<CollectiveCall>& calls) {
  const auto rank_of = [&](Row op) {
    const auto at = rank_of_device.find(trace.device_of(op));
    return at == rank_of_device.end() ? int64_t{-1} : int64_t{at->second};
  };
  const auto call_of = [&](Row op, int64_t rank) {
    const int64_t start = trace.gpu_ops.start_ns[op] + shift_ns;
    CollectiveCall call;
    call.rank = static_cast<uint32_t>(rank);
    call.op = op;
    call.start_ns = start;
    call.end_ns = start + trace.gpu_ops.dur_ns[op];
    return call;
  };
  std::vector<bool> described(trace.gpu_ops.size(), false);
  const Collectives& rows = trace.collectives;
  for (Row row = 0; row < rows.size(); ++row) {
    const Row op = rows.gpu_op[row];
    if (op >= trace.gpu_ops.size() || described[op]) continue;
    described[op] = true;
    const int64_t rank = rank_of(op);
    if (rank < 0) continue;
    CollectiveCall call = call_of(op, rank);
    call.group = trace.text(rows.group[row]);
    call.members = trace.text(rows.members[row]);
    call.name = trace.text(rows.name[row]);
    call.dtype = trace.text(rows.dtype[row]);
    call.in_elements = rows.in_elements[row];
    call.out_elements = rows.out_elements[row];
    call.sequence = rows.sequence[row];
    call.group_size = rows.group_size[row];
    // Of the two, the recorder may leave out its own.
    const int32_t own = numbers[call.rank];
    if (call.name == "send" && rows.to_rank[row] >= 0) {
      call.from_rank = own;
      call.to_rank = rows.to_rank[row];
    } else if (call.name == "recv" && rows.from_rank[row] >= 0) {
      call.from_rank = rows.from_rank[row];
      call.to_rank = own;
    }
    calls.push_back(call);
  }
  std::map<StringId, bool> known;
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    if (described[op] || trace.gpu_ops.kind[op] != GpuOpKind::kKernel) continue;
    const auto [at, fresh] = known.try_emplace(trace.gpu_ops.name[op], false);
    if (fresh) at->second = is_communication_name(trace.text(trace.gpu_ops.name[op]));
    const int64_t rank = at->second ? rank_of(op) : -1;
    if (rank < 0) continue;
    CollectiveCall call = call_of(op, rank);
    call.name = trace.text(trace.gpu_ops.name[op]);
    call.described = false;
    calls.push_back(call);
  }
}

std::vector<JoinedCollective> join_collectives(const std::vector<CollectiveCall>& calls) {
  return Matcher(calls).run();
}

int64_t last_start_ns(const std::vector<CollectiveCall>& calls, const JoinedCollective& joined) {
  int64_t last = INT64_MIN;
  for (const uint32_t call : joined.calls) last = std::max(last, calls[call].start_ns);
  return last;
}

int64_t first_end_ns(const std::vector<CollectiveCall>& calls, const JoinedCollective& joined) {
  int64_t first = INT64_MAX;
  for (const uint32_t call : joined.calls) first = std::min(first, calls[call].end_ns);
  return first;
}

std::vector<RankClock> rank_clocks(const std::vector<CollectiveCall>& calls,
                                   const std::vector<JoinedCollective>& joined,
                                   const std::vector<uint32_t>& clock_of_rank) {
  if (clock_of_rank.empty()) return {};
  const size_t clocks = *std::max_element(clock_of_rank.begin(), clock_of_rank.end()) + size_t{1};
  ClockBounds bounds(clocks);
  std::map<std::pair<size_t, size_t>, std::vector<int64_t>> ends;  // of the first clock minus that of the second
  for (const JoinedCollective& one : joined)
    for (const uint32_t a : one.calls)
      for (const uint32_t b : one.calls) {
        const size_t first = clock_of_rank[calls[a].rank], second = clock_of_rank[calls[b].rank];
        if (first == second) continue;
        if (calls[b].needs(calls[a])) bounds.bound(first, second, calls[b].end_ns - calls[a].start_ns);
        if (a != one.calls.front() || !(calls[a].needs(calls[b]) || calls[b].needs(calls[a]))) continue;
        ends[{first, second}].push_back(calls[a].end_ns - calls[b].end_ns);
        ends[{second, first}].push_back(calls[b].end_ns - calls[a].end_ns);
      }
  bounds.close();
  // Offsets along the shortest ways from the first clock, in whole nanoseconds of medians.
  const size_t first = clock_of_rank.front();
  std::vector<RankClock> of_clock(clocks);
  of_clock[first].known = true;
  std::queue<size_t> next;
  next.push(first);
  for (; !next.empty(); next.pop()) {
    const size_t from = next.front();
    for (size_t to = 0; to < clocks; ++to) {
      const auto found = ends.find({from, to});
      if (of_clock[to].known || found == ends.end()) continue;
      std::vector<int64_t>& apart = found->second;
      std::sort(apart.begin(), apart.end());
      const double low = static_cast<double>(apart[(apart.size() - 1) / 2]),
                   high = static_cast<double>(apart[apart.size() / 2]);
      RankClock& clock = of_clock[to];
      clock.known = true;
      clock.offset_ns = of_clock[from].offset_ns + (low + high) / 2;
      next.push(to);
    }
  }
  for (size_t c = 0; c < clocks; ++c) {
    RankClock& clock = of_clock[c];
    if (!clock.known || c == first) continue;
    const auto limit = [&](size_t a, size_t b) {
      return bounds.at(a, b) < kUnbounded ? static_cast<double>(bounds.at(a, b))
                                          : std::numeric_limits<double>::infinity();
    };
    clock.high_ns = limit(c, first);
    clock.low_ns = -limit(first, c);
    if (!clock.contradicts()) clock.offset_ns = std::clamp(clock.offset_ns, clock.low_ns, clock.high_ns);
  }
  std::vector<RankClock> out;
  for (const uint32_t clock : clock_of_rank) out.push_back(of_clock[clock]);
  return out;
}

RankCollectives rank_collectives(const Trace& trace) {
  RankCollectives out;
  const Ranks& rows = trace.ranks;
  if (rows.empty()) return out;
  std::map<int32_t, uint32_t> places;  // by number
  for (const int32_t rank : rows.rank) places.try_emplace(rank, 0);
  for (auto& [number, place] : places) {
    place = static_cast<uint32_t>(out.numbers.size());
    out.numbers.push_back(number);
  }
  std::map<int32_t, uint32_t> rank_of_device;
  for (Row row = 0; row < rows.size(); ++row) rank_of_device.try_emplace(rows.device[row], places[rows.rank[row]]);
  add_collective_calls(trace, rank_of_device, out.numbers, 0, out.calls);
  out.joined = join_collectives(out.calls);
  return out;
}

bool CollectiveCall::keeps_all() const {
  // PyTorch's names and those of NCCL's kernels.
  if (names_any(name, {"allreduce", "all_reduce", "AllReduce", "allgather", "all_gather", "AllGather", "reduce_scatter",
                       "ReduceScatter", "cross_device_reduce"}))
    return true;
  return !names_any(name, {"broadcast", "Broadcast", "reduce", "Reduce", "gather", "Gather", "scatter", "Scatter"});
}

bool RankCollectives::met(const JoinedCollective& one) const {
  return overlapped(one) && calls[one.calls.front()].keeps_all();
}

bool RankCollectives::overlapped(const JoinedCollective& one) const {
  return one.whole() && last_start_ns(calls, one) <= first_end_ns(calls, one) + kClocksAgreeNs;
}

}  // namespace llmprof
