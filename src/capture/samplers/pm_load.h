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
  PmLoad(int64_t now_ns, int64_t image_ns) : began_ns_(now_ns), late_ns_(std::min(image_ns / 2, kLateMaxNs)) {}

  void drained(int64_t begin_ns, int64_t end_ns) {
    took_ns_ = end_ns - begin_ns;
    longer_ = took_ns_ > begin_ns - began_ns_ ? longer_ + 1 : 0;
    began_ns_ = begin_ns;
  }
  // Restarting loses half a second and more, so a burst is ridden out: only when what has piled up fills half an image.
  bool behind() const { return longer_ >= kLonger && took_ns_ > late_ns_; }

 private:
  static constexpr int kLonger = 3;
  // Of intervals whose images hold more than the hardware buffer does.
  static constexpr int64_t kLateMaxNs = 100000000;

  int64_t began_ns_, late_ns_, took_ns_ = 0;
  int longer_ = 0;
};

}  // namespace llmprof::samplers
