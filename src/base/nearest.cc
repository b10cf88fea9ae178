#include "base/nearest.h"

#include <algorithm>

namespace llmprof {
namespace {

constexpr size_t kMaxCompared = 128;

// How far `wanted` is from `name`: the Levenshtein distance to the best beginning of the name, then, far less, what the
// name goes on with. People leave endings out ("h100" for "h100sxm580gb"); they seldom leave out beginnings.
size_t distance(std::string_view wanted, std::string_view name) {
  std::vector<size_t> row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= wanted.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= name.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (wanted[i - 1] == name[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  size_t best = row[0] * kMaxCompared + name.size();
  for (size_t j = 1; j <= name.size(); ++j) best = std::min(best, row[j] * kMaxCompared + name.size() - j);
  return best;
}

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
    size_t far;
    size_t index;
  };
  const std::string folded = fold_name(wanted.substr(0, kMaxCompared));
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string other = fold_name(std::string_view(names[i]).substr(0, kMaxCompared));
    const bool contains = !folded.empty() && other.find(folded) != std::string::npos;
    candidates.push_back({contains, distance(folded, other), i});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.contains != b.contains ? a.contains : a.far < b.far;
  });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < candidates.size() && i < count; ++i) nearest.push_back(names[candidates[i].index]);
  return nearest;
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
