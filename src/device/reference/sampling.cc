#include "device/reference/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace llmprof::device {
namespace {

// Of sums of up to 1,024 terms and of exponentials, in single precision.
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

}  // namespace llmprof::device
