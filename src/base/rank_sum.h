// The statistic of Mann, Whitney and Wilcoxon: of m values and n others, in how many of the m * n pairs the first is
// the larger. Where nothing tells the two apart each choice of m ranks out of m + n is as likely as any other, whatever
// the values' distribution is.
#pragma once

#include <cstddef>
#include <vector>

namespace llmprof {

// How many of the choices of m ranks out of m + n give the statistic 0, 1, ..., m * n. Exact for m + n up to
// kRankSumExactMost: all are whole and below 2^53.
constexpr size_t kRankSumExactMost = 30;
std::vector<double> rank_sum_counts(size_t m, size_t n);

// The interval of the shift between the two by Hodges and Lehmann: with the m * n differences sorted, from the one at
// this place (from 0) to the one as far from the end. It holds the true shift with a probability of 1 - alpha at least.
// -1 where there are too few values for that. By the normal approximation for more than kRankSumExactMost values.
std::ptrdiff_t rank_interval_place(size_t m, size_t n, double alpha);

}  // namespace llmprof
