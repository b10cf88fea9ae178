// Whether decoding keeps up with the hardware, judged from when drains begin and end.
//
// A drain decodes what was collected since the one before began. One that takes longer than that leaves the next one
// more to do, and this goes on until an image is full and samples are lost. How long a drain takes says less: after the
// sampler was kept from running for a while, all of them are long, each a little shorter than the one before.
#pragma once

#include <algorithm>
#include <cstdint>

namespace llmprof::samplers {

class PmLoad {
 public:
  // Sampling begins; an image holds the samples of so long a time.
  PmLoad(int64_t now_ns, int64_t image_ns)
      : began_ns_(now_ns), image_ns_(image_ns), late_ns_(std::min(image_ns / 2, kLateMaxNs)) {}

  void drained(int64_t begin_ns, int64_t end_ns) {
    const int64_t decoded_ns = begin_ns - began_ns_;
    took_ns_ = end_ns - begin_ns;
    longer_ = took_ns_ > decoded_ns ? longer_ + 1 : 0;
    // At this pace.
    next_ns_ = decoded_ns > 0
                   ? static_cast<double>(took_ns_) / static_cast<double>(decoded_ns) * static_cast<double>(took_ns_)
                   : 0;
    began_ns_ = begin_ns;
  }
  // Restarting leaves a gap of a quarter of a second and more, so a burst is ridden out: only when what has piled up
  // fills half an image, and for a third time, unless an image would be full by then.
  bool behind() const {
    const bool too_late = next_ns_ > static_cast<double>(image_ns_);
    return took_ns_ > late_ns_ && longer_ >= (too_late ? kLonger - 1 : kLonger);
  }

 private:
  static constexpr int kLonger = 3;
  // Of intervals whose images hold more than the hardware buffer does.
  static constexpr int64_t kLateMaxNs = 100000000;

  int64_t began_ns_, image_ns_, late_ns_, took_ns_ = 0;
  double next_ns_ = 0;
  int longer_ = 0;
};

}  // namespace llmprof::samplers
