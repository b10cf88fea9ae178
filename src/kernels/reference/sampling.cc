#include "kernels/reference/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/reference/compare.h"

namespace llmprof::kernels {
namespace {

// Of sums of up to 1,024 terms and of exponentials, in single precision.
constexpr int64_t kCheckedRows = 16;
constexpr double kSlack = 1e-5;

}  // namespace

int64_t argmax(const Row& logits) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); }

std::optional<std::string> sampling_wrong(const Row& logits, const SamplingRule& rule, double draw, int64_t token,
                                          double probability) {
  const int64_t size = static_cast<int64_t>(logits.size());
  if (token < 0 || token >= size) return fmt::format("token {} of a vocabulary of {}", token, size);
  Row top = logits;
  const size_t k = static_cast<size_t>(std::min(rule.k, size));
  std::partial_sort(top.begin(), top.begin() + static_cast<int64_t>(k), top.end(), std::greater<>());
  const double value = logits[static_cast<size_t>(token)];
  if (value < top[k - 1]) return fmt::format("token {} is not among the {} most likely", token, k);

  // sums[i]: weight of the first i.
  Row sums(k + 1);
  for (size_t i = 0; i < k; ++i) sums[i + 1] = sums[i] + std::exp((top[i] - top[0]) / rule.temperature);
  const auto kept = [&](double share) {
    size_t count = 1;
    while (count < k && sums[count] < share * sums[k]) ++count;
    return count;
  };
  const size_t least = kept(rule.top_p - kSlack), most = kept(rule.top_p + kSlack);
  const size_t first = static_cast<size_t>(std::find(top.begin(), top.end(), value) - top.begin());
  size_t end = first;
  while (end < k && top[end] == value) ++end;
  if (first >= most) return fmt::format("token {} lies behind the share of {}", token, rule.top_p);
  const double slack = kSlack * sums[k];
  if (draw * sums[most] < sums[first] - slack || draw * sums[least] > sums[end] + slack)
    return fmt::format("token {} has [{:.6f}, {:.6f}) of the weight, {:.6f} was drawn", token, sums[first] / sums[most],
                       sums[end] / sums[least], draw);
  const double weight = sums[first + 1] - sums[first];
  const double low = weight / sums[most], high = weight / sums[least];
  if (!(probability >= low * (1 - kSlack) - 1e-9 && probability <= high * (1 + kSlack) + 1e-9))
    return fmt::format("token {} has probability {:.6f} to {:.6f}, found {:.6f}", token, low, high, probability);
  return std::nullopt;
}

Result<Check> check_drawn(Device& device, const Drawn& drawn, const SamplingRule* rule, uint64_t seed) {
  const RowReader logits = rows_of(device, drawn.logits, drawn.dtype, drawn.vocabulary);
  Check check;
  check.status = CheckStatus::kPassed;
  for (const int64_t row : sampled_indices(drawn.batch, kCheckedRows, seed)) {
    int32_t token = 0;
    float probability = 0, draw = 0;
    const size_t offset = 4 * static_cast<size_t>(row);
    LLMPROF_CHECK(device.download(drawn.token, offset, &token, 4));
    LLMPROF_CHECK(device.download(drawn.probability, offset, &probability, 4));
    LLMPROF_CHECK(device.download(drawn.draw, offset, &draw, 4));
    LLMPROF_ASSIGN(const Row values, logits(row));
    ++check.compared;
    std::optional<std::string> wrong;
    if (rule != nullptr)
      wrong =
          sampling_wrong(values, *rule, 0.5 * static_cast<double>(draw) + 0.5, token, static_cast<double>(probability));
    else if (const int64_t best = argmax(values); best != token)
      wrong = fmt::format("token {} is the most likely, found {}", best, token);
    if (!wrong) continue;
    check.status = CheckStatus::kFailed;
    check.worst_over_tolerance = 2;
    check.note = fmt::format("row {}: {}", row, *wrong);
    break;
  }
  return check;
}

}  // namespace llmprof::kernels
