// From raw PM samples to GpuSample records: scales values into the units of gpu_samples, drops what cannot be true,
// counts what was lost, and merges neighbours when the file must grow more slowly.
//
// A record's own start and end say what it covers; merging changes nothing else. Means and rates are weighted with
// time, counts are added. A merged record never spans a gap.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/samplers/pm_metrics.h"
#include "capture/spool/records.h"

namespace llmprof::samplers {

class SampleSeries {
 public:
  using Store = std::function<void(const spool::GpuSample&)>;
  // `set` is the spool's id of the metric set.
  SampleSeries(std::vector<PmMetric> metrics, spool::Id set, Store store);

  // What the time between two sessions is: a pause of the recording; a gap that was chosen, to sample otherwise from
  // then on, with everything decoded before it; or lost samples.
  enum class Break : uint8_t { kPause, kGap, kLoss };
  // A session begins: its first sample is dropped, because its start is stale.
  void begin_session(Break before);
  // Between two sessions: other metrics from here on, as records of the set `set`.
  void change_metrics(std::vector<PmMetric> metrics, spool::Id set);
  // Raw values in the order of the metrics. Values that are not finite become NaN, and so do shares far above 1: one
  // in a hundred values of the counters that are read in real time was seen to be up to 140 on a busy H200, the rest
  // of them right. A sample of nothing else is dropped.
  void add(int64_t start_ns, int64_t end_ns, const double* values);
  // Stores a half-merged record.
  void finish();

  // From now on so many samples become one record.
  void set_merge(uint32_t factor);
  uint32_t merge() const { return merge_; }

  // Samples missing between the ones seen since the last call, judged by the length of their neighbours.
  uint64_t take_lost();
  // The time of gaps between the samples seen since the last call.
  int64_t take_gap_ns();
  // Impossible values since the last call, by column.
  std::vector<std::pair<std::string_view, uint64_t>> take_impossible();
  uint64_t added() const { return added_; }
  int64_t last_duration_ns() const { return last_duration_ns_; }

 private:
  std::vector<PmMetric> metrics_;
  spool::Id set_;
  Store store_;
  bool drop_next_ = true;
  Break before_ = Break::kPause;  // the next sample that is stored
  int64_t last_end_ns_ = 0, last_duration_ns_ = 0, gap_ns_ = 0;
  uint64_t lost_ = 0, added_ = 0;
  std::vector<uint64_t> impossible_;  // parallel to metrics_
  uint32_t merge_ = 1;
  // The record being merged.
  uint32_t pending_ = 0;
  int64_t start_ns_ = 0, end_ns_ = 0;
  std::vector<double> sums_, weights_;
};

}  // namespace llmprof::samplers
