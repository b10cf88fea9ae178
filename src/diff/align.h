// The CUDA calls of a step of one run beside those of a step of another, with the activities that they launched: what
// is the same call, what is one in the same role, and what one side alone has.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replay/what_if.h"

namespace llmprof::diff {

// Numbers for texts of both recordings, so that names can be compared.
class Names {
 public:
  uint32_t of(std::string_view text) {
    const auto [found, fresh] = numbers_.try_emplace(std::string(text), static_cast<uint32_t>(numbers_.size()));
    return found->second;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

// What an item is compared by: equal items are the same, items of equal role can stand for each other.
struct Item {
  uint64_t role = 0;
  uint32_t name = 0;
  friend bool operator==(const Item&, const Item&) = default;
};
// Pairs of places, rising in both: as many equal ones as can be, four items of equal role being worth less than one of
// them more. Sequences whose product exceeds kCellsMost are aligned at their beginnings and ends alone.
using PlacePairs = std::vector<std::pair<size_t, size_t>>;
constexpr size_t kCellsMost = size_t{48} << 20;
PlacePairs align_items(const std::vector<Item>& a, const std::vector<Item>& b);

struct CallPair {
  ApiCallId a = kNoRow, b = kNoRow;  // one may be empty
};
struct OpPair {
  GpuOpId a = kNoRow, b = kNoRow;
  bool same = false;  // the same kernel, or copy of the same kind
};
// Activities of both sides between two aligned ones, that have no partner: one or more in the place of others.
struct Replaced {
  std::vector<GpuOpId> a, b;
};
struct AlignedStep {
  std::vector<CallPair> calls;          // every call of both steps once
  std::vector<OpPair> ops;              // those with a partner
  std::vector<Replaced> replaced;       // both sides have some
  std::vector<GpuOpId> only_a, only_b;  // the rest
};

// Calls by step, in order of time: those of Recording::step_of, and those of its thread that lie before them in the
// step's window.
std::vector<std::vector<ApiCallId>> calls_by_step(const replay::Recording& recording);

AlignedStep align_steps(const replay::Recording& a, const std::vector<ApiCallId>& calls_a, const replay::Recording& b,
                        const std::vector<ApiCallId>& calls_b, Names& names);

}  // namespace llmprof::diff
