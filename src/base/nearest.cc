#include "base/nearest.h"

#include <algorithm>

namespace llmprof {
namespace {

constexpr size_t kMaxCompared = 128;

// How far `wanted` is from `name`: the optimal string alignment distance (a letter changed, left out, added, or swapped
// with its neighbour) to the best beginning of the name, and how many letters the name goes on with. People leave
// endings out ("h100" for "h100sxm580gb"); they seldom leave out beginnings.
struct Distance {
  size_t slips = 0, rest = 0;
};
Distance distance(std::string_view wanted, std::string_view name) {
  std::vector<size_t> before(name.size() + 1), above(name.size() + 1), row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= wanted.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= name.size(); ++j) {
      row[j] = std::min(
          {above[j] + 1, row[j - 1] + 1, above[j - 1] + (wanted[i - 1] == name[j - 1] ? size_t{0} : size_t{1})});
      if (i > 1 && j > 1 && wanted[i - 1] == name[j - 2] && wanted[i - 2] == name[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  Distance best{row[0], name.size()};
  for (size_t j = 1; j <= name.size(); ++j)
    if (row[j] <= best.slips) best = {row[j], name.size() - j};
  return best;
}

// Slips that a word of so many letters may have and still be recognised; with more, the words are different ones.
size_t slips_forgiven(size_t letters) { return letters < 3 ? 0 : std::max<size_t>(1, letters / 3); }

constexpr size_t kSayingPart = 3;  // a name that is part of what was typed must have so many letters

}  // namespace

std::string fold_name(std::string_view name) {
  std::string folded;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z')
      folded += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      folded += c;
  }
  return folded;
}

std::vector<std::string> nearest_names(std::string_view wanted, const std::vector<std::string>& names, size_t count) {
  struct Candidate {
    bool contains;
    Distance far;
    size_t index;
  };
  const std::string folded = fold_name(wanted.substr(0, kMaxCompared));
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < names.size() && !folded.empty(); ++i) {
    const std::string other = fold_name(std::string_view(names[i]).substr(0, kMaxCompared));
    const bool contains = other.find(folded) != std::string::npos && (folded.size() > 1 || other.starts_with(folded));
    const bool goes_on =
        other.size() >= kSayingPart && (folded.starts_with(other) || std::string_view(folded).ends_with(other));
    const Distance far = distance(folded, other);
    if (contains || goes_on || far.slips <= slips_forgiven(folded.size())) candidates.push_back({contains, far, i});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.contains != b.contains) return a.contains;
    return a.far.slips != b.far.slips ? a.far.slips < b.far.slips : a.far.rest < b.far.rest;
  });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < candidates.size() && i < count; ++i) nearest.push_back(names[candidates[i].index]);
  return nearest;
}

std::string nearest_or_all(std::string_view wanted, const std::vector<std::string>& names) {
  const std::vector<std::string> near = nearest_names(wanted, names, 1);
  return near.empty() ? join_or(names) : near.front();
}

std::string did_you_mean(const std::vector<std::string>& names) {
  return names.empty() ? std::string() : "did you mean " + join_or(names) + "? ";
}

std::string join_or(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i != 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace llmprof
