#include "capture/samplers/pm_evaluator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace llmprof::samplers {

using namespace cupti_profiler;

void PmImageLayout::observe(size_t samples, size_t end) {
  if (settled()) return;
  const size_t bytes = bytes_of(samples);
  if (end > bytes) {
    refuted_ = true;
  } else if (bytes < image_bytes_) {  // a full image would agree with any guess
    ++held_;
  }
}

PmEvaluator::PmEvaluator(const nvidia::CuptiProfilerLibrary& cupti, const PmHost& host, PmSamplingObject* object,
                         std::vector<const char*> names, std::vector<uint8_t> pristine, size_t max_samples)
    : cupti_(cupti),
      host_(host),
      object_(object),
      names_(std::move(names)),
      pristine_(std::move(pristine)),
      layout_(pristine_.size(), max_samples),
      images_(kImages) {
  images_.front().bytes = pristine_;
  clean_.push_back(&images_.front());
  thread_ = std::thread([this] { work(); });
}

PmEvaluator::~PmEvaluator() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

PmEvaluator::Image& PmEvaluator::take() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !clean_.empty(); });
  Image& image = *clean_.front();
  clean_.pop_front();
  return image;
}

void PmEvaluator::hand_over(Image& image) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    decoded_.push_back(&image);
  }
  changed_.notify_all();
}

bool PmEvaluator::making() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return clean_.empty() && made_ < kImages;
}

void PmEvaluator::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return decoded_.empty() && evaluating_ == 0; });
}

PmResult<size_t> PmEvaluator::deliver(const PmSink& sink) {
  std::vector<Row> rows;
  std::vector<double> values;
  PmFailure failure;
  bool failed = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rows.swap(rows_);
    values.swap(values_);
    failed = std::exchange(failed_, false);
    failure = failure_;
  }
  for (size_t i = 0; i < rows.size(); ++i) sink(rows[i].start_ns, rows[i].end_ns, values.data() + i * names_.size());
  if (failed) return tl::unexpected<PmFailure>(failure);
  return rows.size();
}

PmEvaluator::Cost PmEvaluator::cost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return cost_;
}

void PmEvaluator::make_images() {
  for (size_t i = 1; i < kImages; ++i) {
    images_[i].bytes = pristine_;
    const std::lock_guard<std::mutex> lock(mutex_);
    clean_.push_back(&images_[i]);
    ++made_;
    changed_.notify_all();
  }
}

void PmEvaluator::work() {
  make_images();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !decoded_.empty(); });
    if (ending_) return;
    Image& image = *decoded_.front();
    decoded_.pop_front();
    ++evaluating_;
    lock.unlock();
    const int64_t begin_ns = monotonic_ns();
    size_t populated = 0;
    const PmResult<size_t> samples = evaluate(image, populated);
    const int64_t evaluated_ns = monotonic_ns();
    clean(image, populated);
    const int64_t cleaned_ns = monotonic_ns();
    lock.lock();
    cost_.evaluate_ns += evaluated_ns - begin_ns;
    cost_.clean_ns += cleaned_ns - evaluated_ns;
    rows_.insert(rows_.end(), new_rows_.begin(), new_rows_.end());
    values_.insert(values_.end(), new_values_.begin(), new_values_.end());
    if (!samples && !failed_) {
      failed_ = true;
      failure_ = samples.error();
    }
    --evaluating_;
    clean_.push_back(&image);
    changed_.notify_all();
  }
}

PmResult<size_t> PmEvaluator::evaluate(Image& image, size_t& populated) {
  const nvidia::CuptiProfilerApi& api = cupti_.api();
  new_rows_.clear();
  new_values_.clear();
  PmImageInfoParams info{kPmImageInfoSize, nullptr, image.bytes.data(), image.bytes.size(), 0, 0, 0};
  Code code = api.pm_image_info(&info);
  if (code != kSuccess) return pm_failure(cupti_, code, "cuptiPmSamplingGetCounterDataInfo");
  // Also those that are not complete: what is left of them in the image would come back as samples of long ago.
  populated = std::max(info.populated, info.completed);
  observe(image, populated);
  for (size_t i = 0; i < info.completed; ++i) {
    PmSampleInfoParams sample{kPmSampleInfoSize, nullptr, object_, image.bytes.data(), image.bytes.size(), i, 0, 0};
    code = api.pm_sample_info(&sample);
    if (code != kSuccess) return pm_failure(cupti_, code, "cuptiPmSamplingCounterDataGetSampleInfo");
    new_values_.resize((i + 1) * names_.size());
    HostEvaluateParams evaluate{};
    evaluate.struct_size = kHostEvaluateSize;
    evaluate.host = host_.get();
    evaluate.image = image.bytes.data();
    evaluate.image_bytes = image.bytes.size();
    evaluate.range_index = i;
    evaluate.names = names_.data();
    evaluate.count = names_.size();
    evaluate.values = new_values_.data() + i * names_.size();
    code = api.host_evaluate(&evaluate);
    if (code != kSuccess) {
      new_values_.resize(i * names_.size());
      return pm_failure(cupti_, code, "cuptiProfilerHostEvaluateToGpuValues");
    }
    new_rows_.push_back({static_cast<int64_t>(sample.start_ns), static_cast<int64_t>(sample.end_ns)});
  }
  return info.completed;
}

void PmEvaluator::clean(Image& image, size_t populated) {
  const bool known = layout_.known() && populated != 0;  // 0 also where CUPTI did not say
  const size_t bytes = known ? layout_.bytes_of(populated) : pristine_.size();
  std::memcpy(image.bytes.data(), pristine_.data(), bytes);
}

void PmEvaluator::observe(const Image& image, size_t samples) {
  if (layout_.settled() || samples == 0) return;
  size_t end = image.bytes.size();
  while (end > 0 && image.bytes[end - 1] == pristine_[end - 1]) --end;
  layout_.observe(samples, end);
}

}  // namespace llmprof::samplers
