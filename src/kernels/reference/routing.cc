#include "kernels/reference/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/compare.h"
#include "kernels/reference/rows.h"

namespace llmprof::kernels {
namespace {

constexpr int64_t kWeighed = 4096;
// exp2 of fewer bits, and a division.
constexpr double kWeightError = 2e-6;

Result<std::vector<int32_t>> integers_of(Device& device, const Buffer& buffer, int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  LLMPROF_CHECK(device.download(buffer, 0, values.data(), values.size() * sizeof(int32_t)));
  return values;
}

Check failed(std::string note) {
  Check check;
  check.status = CheckStatus::kFailed;
  check.worst_over_tolerance = 2;
  check.note = std::move(note);
  return check;
}

std::vector<int32_t> top_of(const Row& logits, int64_t k) {
  std::vector<int32_t> experts(logits.size());
  std::iota(experts.begin(), experts.end(), 0);
  std::stable_sort(experts.begin(), experts.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  experts.resize(static_cast<size_t>(k));
  return experts;
}

// Where the rows of each expert begin, and whether every slot has one place among those of its expert: why not.
std::string order_wrong(const Routing& of, const std::vector<int32_t>& ids, const std::vector<int32_t>& offsets,
                        const std::vector<int32_t>& order) {
  std::vector<int32_t> rows(static_cast<size_t>(of.experts), 0);
  for (const int32_t id : ids) ++rows[static_cast<size_t>(id)];
  std::vector<bool> seen(ids.size(), false);
  int64_t first = 0;
  for (int64_t expert = 0; expert <= of.experts; ++expert) {
    if (offsets[static_cast<size_t>(expert)] != first)
      return fmt::format("rows of expert {} begin at {}, found {}", expert, first,
                         offsets[static_cast<size_t>(expert)]);
    if (expert == of.experts) break;
    for (int64_t i = first; i < first + rows[static_cast<size_t>(expert)]; ++i) {
      const int32_t slot = order[static_cast<size_t>(i)];
      if (slot < 0 || slot >= static_cast<int64_t>(ids.size()) || seen[static_cast<size_t>(slot)] ||
          ids[static_cast<size_t>(slot)] != expert)
        return fmt::format("place {} is of expert {}, found slot {} there", i, expert, slot);
      seen[static_cast<size_t>(slot)] = true;
    }
    first += rows[static_cast<size_t>(expert)];
  }
  return {};
}

}  // namespace

Result<Check> check_routing(Device& device, const Routing& of) {
  LLMPROF_ASSIGN(const std::vector<int32_t> ids, integers_of(device, of.ids, of.tokens * of.k));
  LLMPROF_ASSIGN(const std::vector<int32_t> offsets, integers_of(device, of.offsets, of.experts + 1));
  LLMPROF_ASSIGN(const std::vector<int32_t> order, integers_of(device, of.order, of.tokens * of.k));
  const RowReader logits = rows_of(device, of.logits, of.dtype, of.experts);
  const RowReader weights = rows_of(device, of.weights, DType::kFp32, of.k);
  Comparison comparison(kWeightError);
  const std::vector<int64_t> weighed = sampled_indices(of.tokens, std::min(of.tokens, kWeighed), 1);
  size_t next = 0;
  for (int64_t token = 0; token < of.tokens; ++token) {
    LLMPROF_ASSIGN(const Row row, logits(token));
    const std::vector<int32_t> expected = top_of(row, of.k);
    for (size_t i = 0; i < expected.size(); ++i) {
      const int32_t found = ids[static_cast<size_t>(token * of.k) + i];
      if (found != expected[i])
        return failed(fmt::format("token {} goes to expert {} at place {}, found {}", token, expected[i], i, found));
    }
    if (next >= weighed.size() || weighed[next] != token) continue;
    ++next;
    LLMPROF_ASSIGN(const Row found, weights(token));
    double sum = 0;
    for (const int32_t expert : expected)
      sum += std::exp(row[static_cast<size_t>(expert)] - row[static_cast<size_t>(expected[0])]);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double weight =
          std::exp(row[static_cast<size_t>(expected[i])] - row[static_cast<size_t>(expected[0])]) / sum;
      comparison.add(found[i], weight, kWeightError * weight, token * of.k + static_cast<int64_t>(i));
    }
  }
  if (const std::string wrong = order_wrong(of, ids, offsets, order); !wrong.empty()) return failed(wrong);
  return comparison.finish();
}

std::optional<std::string> routing_unsupported(const OpParams& params) {
  const int64_t experts = params.axis("experts"), k = params.axis("k"), tokens = params.axis("tokens");
  if (experts > kRoutedExpertsMax)
    return fmt::format("tokens are routed to at most {} experts, found {}", kRoutedExpertsMax, experts);
  if (k > std::min(kRoutedMax, experts))
    return fmt::format("a token goes to at most {} of {} experts, k is {}", std::min(kRoutedMax, experts), experts, k);
  if (tokens > (int64_t{1} << 31) / kRoutedMax)
    return fmt::format("at most {} tokens, found {}", (int64_t{1} << 31) / kRoutedMax, tokens);
  return std::nullopt;
}

}  // namespace llmprof::kernels
