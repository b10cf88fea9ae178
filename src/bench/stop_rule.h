// When enough samples are taken: enough of them, for long enough, and either their relative deviation is small or it
// does not change any more. Many kernels never reach a small deviation; more samples of those tell nothing new.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/protocol.h"

namespace llmprof::bench {

class StopRule {
 public:
  StopRule(const Protocol& protocol, double min_s) : protocol_(protocol), min_s_(min_s) {}

  void add(double us);
  // `spent_s` since the first sample. True at the latest when the wall limit is over, or what `limited` asks for:
  // whether the device is at a limit of power or temperature.
  bool enough(double spent_s, bool limited) const { return spent_s >= least_s(limited) && done(spent_s, limited); }
  // Seconds that are taken in any case, as far as is known now.
  double least_s(bool limited) const;
  // The deviation is small, or does not change any more.
  bool converged() const { return n_ >= protocol_.samples_min && (quiet() || noise_is_stable()); }
  bool quiet() const { return rel_stdev() <= protocol_.rel_stdev_max; }

 private:
  bool done(double spent_s, bool limited) const;
  double rel_stdev() const;
  bool noise_is_stable() const;

  const Protocol& protocol_;
  double min_s_;
  int64_t n_ = 0;
  double mean_ = 0, squares_ = 0;   // Welford
  std::vector<double> rel_stdevs_;  // after each sample
};

}  // namespace llmprof::bench
