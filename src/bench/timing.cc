#include "bench/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace llmprof::bench {
namespace {

constexpr size_t kSamplesKept = 512;
constexpr double kBatchUs = 100'000;  // how long `stop` may go unseen
constexpr double kWindowS = 0.25;     // of settling
constexpr double kHoldsStill = 0.01;  // change between two windows
constexpr double kShortUs = 20;       // below, one cold sample is several launches
constexpr double kShortSampleUs = 40;
constexpr int kShortLaunchesMin = 4, kShortLaunchesMax = 64;
constexpr int kColdBatchMax = 16;        // trials queued at once
constexpr double kColdBatchUs = 10'000;  // between two rests
constexpr double kRestMaxS = 0.25;
constexpr double kHeldDownFrac = 0.5;  // of the readings: the limit is reached now and then by isolated trials, too
// Of the power limit: the control reads it about once a second, and what draws so much will be held down before long.
constexpr double kNearLimitFrac = 0.93;
constexpr size_t kSpread = 8, kSpreadMin = 4;  // of one sample where the clock moves up and down
constexpr double kReplayUs = 5'000;            // one sustained sample
// The same of a CPU: less than the time slice of a program that another one waits for (3 ms and more), and enough that
// the reading of clocks around it does not matter.
constexpr double kCpuReplayUs = 1'000;
constexpr double kWaitedFrac = 0.01;       // of a sample: what waiting for a core may have added
constexpr double kRotationUsMax = 20'000;  // longer ones need not visit every set in every sample
constexpr int kReplayLaunchesMax = 4096;
constexpr double kSlowClockFrac = 0.75;  // of the median clock: below, a cold sample was throttled

int at_least_one(double count, int most) { return static_cast<int>(std::clamp(count, 1.0, static_cast<double>(most))); }

std::optional<double> median_clock(const std::vector<device::Sample>& samples) {
  std::vector<double> clocks;
  for (const device::Sample& sample : samples)
    if (std::isfinite(sample.clock_mhz) && sample.clock_mhz > 0) clocks.push_back(sample.clock_mhz);
  if (clocks.empty()) return std::nullopt;
  return median_of(std::move(clocks));
}

// What a window of settling looked like.
struct Window {
  std::optional<double> clock_mhz, power_w;
  double us = 0;

  bool same_as(const Window& before) const {
    const auto same = [](double a, double b) { return std::fabs(a - b) <= kHoldsStill * std::max(a, b); };
    bool known = false, still = true;
    if (clock_mhz && before.clock_mhz) known = true, still &= same(*clock_mhz, *before.clock_mhz);
    if (power_w && before.power_w) known = true, still &= same(*power_w, *before.power_w);
    return known ? still : same(us, before.us);
  }
};

// Sets apart what the clock or the host spoiled, as long as enough samples stay.
void keep_good_samples(std::vector<device::Sample>& samples, int samples_min, bool leave_out, Timing& timing) {
  const std::optional<double> clock = median_clock(samples);
  int64_t slow = 0;
  for (device::Sample& sample : samples) {
    if (clock && sample.clock_mhz < kSlowClockFrac * *clock) sample.flags |= device::kThrottled;
    slow += (sample.flags & device::kThrottled) != 0;
  }
  if (slow > 0)
    timing.throttle_fracs.emplace_back("clock held down in a sample",
                                       static_cast<double>(slow) / static_cast<double>(samples.size()));
  const auto spoiled = [](const device::Sample& sample) { return sample.flags != 0; };
  const int64_t good = static_cast<int64_t>(samples.size()) - std::count_if(samples.begin(), samples.end(), spoiled);
  if (!leave_out || good < samples_min) return;
  timing.throttled = slow;
  samples.erase(std::remove_if(samples.begin(), samples.end(), spoiled), samples.end());
}

bool held_down_more_than(const device::Telemetry& telemetry, double frac) {
  return std::any_of(telemetry.throttle_fracs.begin(), telemetry.throttle_fracs.end(),
                     [&](const auto& reason) { return reason.second > frac; });
}

// Held down, or so near the limit of power that it will be before long.
bool at_limit(const device::Telemetry& telemetry) {
  if (mostly_held_down(telemetry)) return true;
  return telemetry.power_w && telemetry.power_limit_w &&
         *telemetry.power_w >= kNearLimitFrac * *telemetry.power_limit_w;
}

// Sets apart those whose threads waited for a core, as long as enough samples stay, and says what waiting is left.
void keep_unwaited_samples(std::vector<device::Sample>& samples, int samples_min, Timing& timing) {
  double us = 0, waited_us = 0;
  for (const device::Sample& sample : samples) {
    if (std::isnan(sample.waited_us)) return;
    us += sample.us;
    waited_us += sample.waited_us;
  }
  if (us <= 0) return;
  timing.wait_ratio = waited_us / us;
  const int64_t waited = std::count_if(samples.begin(), samples.end(), waited_too_long);
  if (static_cast<int64_t>(samples.size()) - waited >= samples_min) {
    timing.waited = waited;
    std::erase_if(samples, waited_too_long);
  }
  std::vector<double> least;
  for (const device::Sample& sample : samples) least.push_back(std::max(0.0, sample.us - sample.waited_us));
  timing.unwaited_us = median_of(std::move(least));
}

// Each sample becomes the mean of replays spread evenly over the regime. The median of the single ones lies in one or
// the other half of a period, by chance.
void spread_over_periods(std::vector<device::Sample>& samples, int samples_min, Timing& timing) {
  const size_t count = std::min(kSpread, samples.size() / static_cast<size_t>(std::max(samples_min, 1)));
  if (count < kSpreadMin) return;
  std::vector<double> us;
  for (const device::Sample& sample : samples) us.push_back(sample.us);
  std::sort(us.begin(), us.end());
  timing.spread_frac = (quantile_of_sorted(us, 0.95) - quantile_of_sorted(us, 0.05)) / quantile_of_sorted(us, 0.5);
  std::vector<device::Sample> spread(samples.size() / count);
  for (size_t i = 0; i < spread.size(); ++i) {
    double time = 0, clock = 0;
    for (size_t part = 0; part < count; ++part) {
      const device::Sample& sample = samples[i + part * spread.size()];
      time += sample.us / static_cast<double>(count);
      clock += static_cast<double>(sample.clock_mhz) / static_cast<double>(count);
    }
    spread[i] = {time, static_cast<float>(clock), 0};
  }
  timing.launches_per_sample *= static_cast<int>(count);
  samples = std::move(spread);
}

void describe(device::Telemetry telemetry, const std::vector<device::Sample>& samples, Timing& timing) {
  const std::optional<double> clock = median_clock(samples);
  timing.clock_mhz = clock ? clock : telemetry.clock_mhz;
  timing.power_w = telemetry.power_w;
  timing.temperature_c = telemetry.temperature_c;
  for (std::pair<std::string, double>& reason : telemetry.throttle_fracs)
    timing.throttle_fracs.push_back(std::move(reason));
  std::vector<double> us;
  us.reserve(samples.size());
  for (const device::Sample& sample : samples) us.push_back(sample.us);
  timing.samples_us = thin(us, kSamplesKept);
  timing.noise_frac = noise_between_stretches(us);
  timing.summary = *summarize_samples(std::move(us));
}

}  // namespace

std::vector<double> thin(const std::vector<double>& values, size_t count) {
  if (values.size() <= count) return values;
  std::vector<double> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.push_back(values[i * values.size() / count]);
  return out;
}

int loop_launches(const Work& work, double sample_us) {
  const int wanted = at_least_one(sample_us / std::max(work.us, 0.01), kReplayLaunchesMax);
  if (work.us * work.sets > kRotationUsMax) {
    // A loop keeps as many graphs as it takes to visit every set: few where the two have a factor in common.
    int best = wanted;
    for (int launches = wanted; 2 * launches >= wanted; --launches)
      if (std::gcd(launches, work.sets) > std::gcd(best, work.sets)) best = launches;
    return best;
  }
  return (wanted + work.sets - 1) / work.sets * work.sets;
}

int sustained_launches(const device::Device& device, const Work& work) {
  if (device.identity().kind == device::DeviceKind::kCpu)
    return at_least_one(kCpuReplayUs / std::max(work.us, 0.01), kReplayLaunchesMax);
  return loop_launches(work, kReplayUs);
}

bool waited_too_long(const device::Sample& sample) { return sample.waited_us > kWaitedFrac * sample.us; }

int cold_launches(const Work& work) {
  if (work.us >= kShortUs) return 1;
  return static_cast<int>(std::clamp(kShortSampleUs / std::max(work.us, 0.01), static_cast<double>(kShortLaunchesMin),
                                     static_cast<double>(kShortLaunchesMax)));
}

void rest(const device::Device& device, double busy_s, double duty_max) {
  if (device.identity().kind == device::DeviceKind::kCpu || duty_max <= 0 || duty_max >= 1) return;
  device.pause(std::min(busy_s * (1 / duty_max - 1), kRestMaxS));
}

bool held_down(const device::Telemetry& telemetry) { return held_down_more_than(telemetry, 0); }
bool mostly_held_down(const device::Telemetry& telemetry) { return held_down_more_than(telemetry, kHeldDownFrac); }

Status keep_busy(device::Device& device, const Work& work, int64_t until_ns, const std::atomic<bool>& stop) {
  const int launches = loop_launches(work, kReplayUs);
  const int count = at_least_one(kBatchUs / 2 / std::max(work.us * launches, 0.01), kReplayLaunchesMax);
  LLMPROF_ASSIGN(const std::unique_ptr<device::Repetitions> loop,
                 device.loop({work.enqueue, work.sets, launches, 1, false}));
  while (!stop && device.now_ns() < until_ns) LLMPROF_CHECK(loop->time(count));
  return {};
}

Result<bool> settle(device::Device& device, const Work& work, const Protocol& protocol, const PowerControl& control,
                    const std::atomic<bool>& stop) {
  if (protocol.settle_max_s <= 0) return false;
  const int launches = loop_launches(work, kReplayUs);
  double sample_us = std::max(work.us * launches, 0.01);
  int count = 0;
  const double window_s = std::min(kWindowS, protocol.settle_max_s / 2);
  std::optional<Window> last;
  LLMPROF_ASSIGN(const std::unique_ptr<device::Repetitions> loop,
                 device.loop({work.enqueue, work.sets, launches, 1, false}));
  const Stopwatch all(device);
  while (!stop) {
    const Stopwatch window(device);
    std::vector<device::Sample> samples;
    do {
      count = std::min(at_least_one(kBatchUs / sample_us, kReplayLaunchesMax), std::max(1, 2 * count));
      const Stopwatch each(device);
      LLMPROF_ASSIGN(const std::vector<device::Sample> batch, loop->time(count));
      if (batch.empty()) return fail("the device gave no times");
      sample_us = std::max(each.seconds() * 1e6 / static_cast<double>(batch.size()), 0.01);
      samples.insert(samples.end(), batch.begin(), batch.end());
    } while (!stop && window.seconds() < window_s);
    const device::Telemetry telemetry = device.telemetry(window.start_ns());
    Window now{median_clock(samples), telemetry.power_w, 0};
    if (!now.clock_mhz) now.clock_mhz = telemetry.clock_mhz;
    std::vector<double> us;
    for (const device::Sample& sample : samples) us.push_back(sample.us);
    now.us = median_of(std::move(us));
    const bool about_to_fall =
        at_limit(telemetry) && !mostly_held_down(telemetry) && device.now_ns() < control.acted_ns();
    if (last && now.same_as(*last) && !about_to_fall) return true;
    if (last && all.seconds() >= protocol.settle_max_s) return false;
    last = now;
  }
  return false;
}

RegimeTimer::RegimeTimer(device::Device& device, Work work, Regime regime, const Protocol& protocol,
                         const PowerControl& control, const std::atomic<bool>& stop)
    : device_(device),
      work_(std::move(work)),
      protocol_(protocol),
      stop_(stop),
      control_(control),
      min_s_(regime == Regime::kCold ? protocol.cold_min_s : protocol.sustained_min_s) {
  rule_.emplace(protocol_, min_s_);
  timing_.regime = regime;
  timing_.sets = work_.sets;
  timing_.launches_per_sample = cold() ? cold_launches(work_) : sustained_launches(device, work_);
}

// At most so many samples, or about so many microseconds of them, are queued at once.
Status RegimeTimer::take() {
  const double batch_us = cold() ? kColdBatchUs : kBatchUs;
  const int batch_max = cold() ? kColdBatchMax : kReplayLaunchesMax;
  // From what ran before: settling and a whole regime.
  if (cold()) rest(device_, protocol_.cold_min_s / 4, protocol_.cold_duty_max);
  const device::TimingRequest request{work_.enqueue, work_.sets, timing_.launches_per_sample, 1, cold()};
  LLMPROF_ASSIGN(const std::unique_ptr<device::Repetitions> repetitions,
                 cold() ? device_.trials(request) : device_.loop(request));
  bool acted = cold() || device_.now_ns() >= control_.acted_ns();
  Stopwatch all(device_);
  double sample_us = work_.us * timing_.launches_per_sample, left_us = batch_us;
  int count = 0;
  int64_t unwaited = 0;  // samples
  bool more = true;
  while (more) {
    // Grows from one sample on: on a busy machine work takes many times what it took the first time.
    count = std::min(at_least_one(std::min(batch_us, left_us) / std::max(sample_us, 0.01), batch_max),
                     std::max(1, 2 * count));
    const Stopwatch each(device_);
    LLMPROF_ASSIGN(const std::vector<device::Sample> batch, repetitions->time(count));
    if (batch.empty()) return fail("the device gave no times");
    const double busy_s = each.seconds();
    // As the wall clock sees it: with what lies between.
    sample_us = std::max(busy_s * 1e6 / static_cast<double>(batch.size()), 0.01);
    for (const device::Sample& sample : batch) {
      rule_->add(sample.us);
      unwaited += waited_too_long(sample) ? 0 : 1;
    }
    samples_.insert(samples_.end(), batch.begin(), batch.end());
    if (stop_) return {};
    if (cold()) rest(device_, busy_s, protocol_.cold_duty_max);
    if (!acted && device_.now_ns() >= control_.acted_ns()) {
      acted = true;
      if (mostly_held_down(device_.telemetry(device_.now_ns() - kLookBackNs))) {
        samples_.clear();
        rule_.emplace(protocol_, min_s_);
        unwaited = 0;
        all = Stopwatch(device_);
        left_us = batch_us;
        continue;
      }
    }
    const double spent_s = all.seconds();
    telemetry_ = device_.telemetry(all.start_ns());
    limited_ = at_limit(telemetry_);
    const double least_s = rule_->least_s(limited_) - spent_s;
    left_us = least_s > 0 ? least_s * 1e6 : batch_us;
    // On a busy CPU it goes on until some samples are undisturbed, while there is time.
    more = !rule_->enough(spent_s, limited_) || (unwaited < protocol_.samples_min && spent_s < protocol_.wall_max_s);
  }
  return {};
}

double RegimeTimer::median_us() const {
  std::vector<double> us;
  for (const device::Sample& sample : samples_) us.push_back(sample.us);
  return us.empty() ? std::numeric_limits<double>::quiet_NaN() : median_of(std::move(us));
}

Timing RegimeTimer::finish() {
  timing_.drifting = !rule_->converged();
  const bool periodic = !cold() && limited_ && !rule_->quiet();
  keep_good_samples(samples_, protocol_.samples_min, cold(), timing_);
  keep_unwaited_samples(samples_, protocol_.samples_min, timing_);
  // Others have a core between two isolated samples, too, and leave it as they do within one.
  if (timing_.wait_ratio) timing_.wait_ratio = std::max(*timing_.wait_ratio, telemetry_.wait_ratio.value_or(0));
  if (timing_.waited > 0) {
    StopRule kept(protocol_, 0);
    for (const device::Sample& sample : samples_) kept.add(sample.us);
    timing_.drifting = !kept.converged();
  }
  if (periodic) spread_over_periods(samples_, protocol_.samples_min, timing_);
  describe(telemetry_, samples_, timing_);
  return timing_;
}

}  // namespace llmprof::bench
