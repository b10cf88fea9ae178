// From decoded counter images to values, on a thread of its own. On a GH100 with 17 metrics CUPTI takes 55 us of CPU
// time to decode one sample (120 us when the GPU is busy) and 45 us to evaluate it; at 100 us between samples one
// thread cannot do both, two threads lose nothing.
//
// Images go round: take() a clean one, decode into it, hand it over, and the thread evaluates it and cleans it. What it
// found is passed on by deliver(), on the caller's thread, in the order of the decodings.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "capture/samplers/pm_metrics.h"
#include "capture/samplers/pm_result.h"

namespace llmprof::samplers {

// How far into an image so many samples reach. An image must be clean before each decoding, and is large (56 KB a
// sample with 17 metrics): cleaning all of it every 20 ms takes most of a core. That the records of the samples stand
// one behind the other is a guess about CUPTI, believed only after it has held in some decodings.
class PmImageLayout {
 public:
  PmImageLayout(size_t image_bytes, size_t max_samples)
      : image_bytes_(image_bytes), sample_bytes_(image_bytes / std::max<size_t>(max_samples, 1) + 1) {}
  // After a decoding of so many samples into a clean image: everything from byte `end` on is as it was.
  void observe(size_t samples, size_t end);
  bool known() const { return !refuted_ && held_ >= kSure; }
  bool settled() const { return refuted_ || known(); }
  // With room for what is not a record, and for records that may have been begun. At most the whole image.
  size_t bytes_of(size_t samples) const {
    return std::min(image_bytes_, kHeadBytes + (samples + kBegun) * sample_bytes_);
  }

 private:
  static constexpr int kSure = 4;
  static constexpr size_t kHeadBytes = size_t{256} << 10U, kBegun = 8;

  size_t image_bytes_, sample_bytes_;
  int held_ = 0;
  bool refuted_ = false;
};

class PmEvaluator {
 public:
  // `host` and `object` belong to a session that outlives this; `pristine` is an initialised image.
  PmEvaluator(const nvidia::CuptiProfilerLibrary& cupti, const PmHost& host, cupti_profiler::PmSamplingObject* object,
              std::vector<const char*> names, std::vector<uint8_t> pristine, size_t max_samples);
  ~PmEvaluator();  // what was not evaluated yet is lost: wait() first
  PmEvaluator(const PmEvaluator&) = delete;
  PmEvaluator& operator=(const PmEvaluator&) = delete;

  struct Image {
    std::vector<uint8_t> bytes;
  };
  // A clean image, as soon as there is one. Must be handed over before the next is taken.
  Image& take();
  void hand_over(Image& image);
  // Early on: there will be a clean image, and there is none yet because it is still being made.
  bool making();
  // Returns when everything handed over has been evaluated.
  void wait();
  // Passes on what has been evaluated since the last time; the first failure comes after the values before it.
  PmResult<size_t> deliver(const PmSink& sink);

  struct Cost {
    int64_t clean_ns = 0, evaluate_ns = 0;
  };
  Cost cost();

 private:
  struct Row {
    int64_t start_ns, end_ns;
  };
  static constexpr size_t kImages = 3;

  // All but the first, which must be there when sampling starts: until then nothing is sampled, and an image is large.
  void make_images();
  void work();
  PmResult<size_t> evaluate(Image& image, size_t& populated);
  void clean(Image& image, size_t populated);
  void observe(const Image& image, size_t samples);

  const nvidia::CuptiProfilerLibrary& cupti_;
  const PmHost& host_;
  cupti_profiler::PmSamplingObject* object_;
  std::vector<const char*> names_;
  const std::vector<uint8_t> pristine_;
  PmImageLayout layout_;       // the thread's own
  std::vector<Row> new_rows_;  // likewise
  std::vector<double> new_values_;

  std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  std::vector<Image> images_;
  std::deque<Image*> clean_, decoded_;
  size_t made_ = 1, evaluating_ = 0;
  bool ending_ = false;
  std::vector<Row> rows_;
  std::vector<double> values_;  // as many a row as there are names
  PmFailure failure_;
  bool failed_ = false;
  Cost cost_;
  std::thread thread_;
};

}  // namespace llmprof::samplers
