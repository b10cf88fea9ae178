// Results held against a reference of higher precision, element by element.
//
// An element may be off by u_out |reference| + 8 u_acc A, where A is the sum of the absolute values of the terms that
// were added up: u_out is the rounding of the stored type, u_acc that of the sums. The worst case of K terms would be
// K u_acc A; errors of random data grow as sqrt(K), so 8 leaves room without hiding a term that is missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/op.h"

namespace llmprof::kernels {

struct Rounding {
  double out = 0;    // u_out: half a unit in the last place of the stored type, as a share of the value
  double sum = 0;    // u_acc
  double input = 0;  // tf32: inputs are rounded before they are multiplied; a share of the root of the sum of squares
};
// `compute`: the type of the inputs; sums are in fp32 below fp64, in effect fewer bits for fp8 on tensor cores.
// Integers are exact: all zero.
Rounding rounding_of(DType compute, DType out);
// Largest |out - reference| / |reference| over all elements; 0: exact.
double rel_l2_limit(DType compute);

// What one element may be off by: `terms` is A, `squares` the root of the sum of the squares of the terms.
double element_tolerance(const Rounding& rounding, double reference, double terms, double squares = 0);

// Collects elements. Not a number, or infinite where the reference is not, is a failure; a value that was never
// written too (add_unwritten). Mistrusted, if more than 90 % of at least ten references are zero or alike: then a wrong
// kernel could have got them right by luck.
class Comparison {
 public:
  explicit Comparison(double rel_l2_max) : rel_l2_max_(rel_l2_max) {}
  void add(double out, double reference, double tolerance, int64_t index);
  void add_unwritten(int64_t index);
  Check finish();

 private:
  double rel_l2_max_;
  std::vector<double> references_;
  double worst_ = 0, error_squares_ = 0, reference_squares_ = 0;
  int64_t wrong_ = 0, unwritten_ = 0, compared_ = 0;
  std::string first_wrong_, first_unwritten_;
};

// A part of an array.
struct Window {
  int64_t first = 0, count = 0;
};
// The whole of [0, size) if it has at most kWindowed elements; else 64 windows spread over it, both ends among them,
// whose places are no multiples of anything.
constexpr int64_t kWindowed = int64_t{1} << 20;
std::vector<Window> compared_windows(int64_t size);

// `count` numbers of [0, size), ascending and different, the first and the last among them; all of them if size is not
// larger. Reproducible from the seed.
std::vector<int64_t> sampled_indices(int64_t size, int64_t count, uint64_t seed);

}  // namespace llmprof::kernels
