#include "bench/protocol.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text_table.h"
#include "bench/candidates.h"
#include "bench/fit.h"
#include "bench/timing.h"

namespace llmprof::bench {
namespace {

using device::Device;
using kernels::Operation;
using kernels::OpParams;
using kernels::PreparedOp;

constexpr int kSetsMin = 2;
constexpr int64_t kCachesRotated = 2;  // all sets together are so many times the cache
// ... and on a GPU at least so much, as the weights of a model: one matrix of 235 MB is read up to 1.5 % faster or
// slower than the mean of many, by where its pages happen to lie.
constexpr int64_t kPagesRotatedBytes = int64_t{4} << 30;

// Slower by so much than the choice had seen the same candidate a moment before, and something disturbed it: it is
// taken once more, and where it is much slower up to four times. Another program that starts or ends on a neighbouring
// GPU slows some of the libraries' kernels by up to 8 % for a while.
constexpr double kDisturbed = 0.01, kMuchDisturbed = 0.05;
constexpr int kRetakes = 1, kRetakesMuch = 4;
constexpr double kRetakenUsMin = 5;  // shorter ones: a first time is not so exact

using Prepare = Result<std::unique_ptr<PreparedOp>> (*)(Device&, const OpParams&);

Prepare prepare_of(const Device& device, const Operation& operation) {
  return device.identity().kind == device::DeviceKind::kCpu ? operation.prepare_cpu : operation.prepare_cuda;
}

std::string_view kind_name(const Device& device) {
  return device.identity().kind == device::DeviceKind::kCpu ? "a CPU" : "CUDA";
}

std::string sentence_of(const Error& error) {
  std::string text = error.what;
  if (!error.where.empty()) text += fmt::format(" ({})", error.where);
  if (!error.advice.empty()) text += "; " + error.advice;
  return text;
}

// How many sets of buffers to rotate over: more than the cache holds, many pages, no more than half of what is free.
int sets_for(const Device& device, const PreparedOp& op, int sets_max) {
  const int64_t bytes = std::max<int64_t>(static_cast<int64_t>(op.bytes_per_set()), 1);
  const bool gpu = device.identity().kind == device::DeviceKind::kCuda;
  const int64_t all = std::max(kCachesRotated * device.identity().cache_bytes, gpu ? kPagesRotatedBytes : 0);
  const int64_t wanted = (all + bytes - 1) / bytes;
  const int64_t affordable = 1 + device.free_bytes() / 2 / bytes;  // the first exists already
  return static_cast<int>(
      std::clamp<int64_t>(std::min<int64_t>(std::max<int64_t>(wanted, kSetsMin), affordable), 1, sets_max));
}

// Adds the time of its life.
class Watch {
 public:
  Watch(const Device& device, double& seconds) : watch_(device), seconds_(seconds) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { seconds_ += watch_.seconds(); }

 private:
  Stopwatch watch_;
  double& seconds_;
};

CaseResult& end_as(CaseResult& result, CaseStatus status, std::string note) {
  result.status = status;
  result.timings.clear();
  if (!note.empty()) result.note = std::move(note);
  return result;
}

// Warm: clock and power hold still, and the candidate is the one that is fastest then.
Result<bool> settle_choice(Device& device, PreparedOp& op, const RightCandidates& right, int sets,
                           const Protocol& protocol, const PowerControl& control, const std::atomic<bool>& stop,
                           Choice& choice) {
  const int64_t start_ns = device.now_ns();
  const Work work{op.candidates()[right.index[choice.position]].enqueue, sets, choice.us};
  LLMPROF_ASSIGN(const bool settled, settle(device, work, protocol, control, stop));
  // As it is in the end: the beginning may have been before the control acted.
  const int64_t since_ns = std::max(start_ns, device.now_ns() - kLookBackNs);
  if (!stop && mostly_held_down(device.telemetry(since_ns))) {
    if (right.index.size() > 1) LLMPROF_CHECK(keep_busy(device, work, control.acted_ns(), stop));
    LLMPROF_ASSIGN(choice, choose_again(device, op, right.index, sets, choice, protocol, control, stop));
  }
  return settled;
}

// Both regimes of one case. The sustained one first: the device is warm from settling, and rests are part of the other.
// The status stays as the check left it.
Status time_regimes(Device& device, PreparedOp& op, const RightCandidates& right, int sets, const Choice& warm,
                    bool settled, const Protocol& protocol, const PowerControl& control, const std::atomic<bool>& stop,
                    CaseResult& result) {
  const auto timer = [&](const Choice& choice, Regime regime) {
    return RegimeTimer(device, {op.candidates()[right.index[choice.position]].enqueue, sets, choice.us}, regime,
                       protocol, control, stop);
  };
  // The fastest of its stretches; the slowest is told.
  struct Taken {
    std::optional<RegimeTimer> timer;
    double slowest_us = 0;
  };
  const auto take = [&](Taken& taken, const Choice& choice, Regime regime) -> Status {
    taken.timer.emplace(timer(choice, regime));
    LLMPROF_CHECK(taken.timer->take());
    taken.slowest_us = taken.timer->median_us();
    const bool gpu = device.identity().kind == device::DeviceKind::kCuda;
    if (!gpu || choice.finalists.size() < 2 || choice.us < kRetakenUsMin) return {};
    const int retakes = taken.slowest_us > (1 + kMuchDisturbed) * choice.us ? kRetakesMuch : kRetakes;
    for (int i = 0; i < retakes && !stop; ++i) {
      if (!taken.timer->comparable() || taken.timer->median_us() <= (1 + kDisturbed) * choice.us) break;
      RegimeTimer again = timer(choice, regime);
      LLMPROF_CHECK(again.take());
      taken.slowest_us = std::max(taken.slowest_us, again.median_us());
      if (again.comparable() && again.median_us() < taken.timer->median_us()) taken.timer.emplace(std::move(again));
    }
    return {};
  };
  const auto finish = [&](Taken& taken, const Choice& choice) {
    Timing timing = taken.timer->finish();
    if (taken.slowest_us > (1 + kDisturbed) * timing.summary.median) timing.disturbed_us = taken.slowest_us;
    timing.settled = settled;
    timing.backend = op.candidates()[right.index[choice.position]].backend;
    timing.gap_to_first_frac = choice.gap_frac;
    timing.choice_disturbed = choice.disturbed;
    for (const Finalist& finalist : choice.finalists)
      if (finalist.compared)
        timing.compared.emplace_back(op.candidates()[right.index[finalist.position]].backend, finalist.us);
    timing.check = right.checks[choice.position];
    result.timings.push_back(std::move(timing));
  };
  Taken loop, alone;
  Choice isolated = warm;
  if (protocol.sustained && !stop) {
    const Watch watch(device, result.phases.timing_s);
    LLMPROF_CHECK(take(loop, warm, Regime::kSustained));
  }
  if (protocol.cold && !stop) {
    const Watch watch(device, result.phases.choose_s);
    LLMPROF_ASSIGN(isolated, choose_cold(device, op, right.index, sets, warm, protocol, stop));
  }
  if (protocol.cold && !stop) {
    const Watch watch(device, result.phases.timing_s);
    LLMPROF_CHECK(take(alone, isolated, Regime::kCold));
  }
  if (stop) return {};
  if (alone.timer) finish(alone, isolated);
  if (loop.timer) finish(loop, warm);
  return {};
}

void measure_prepared(Device& device, PreparedOp& op, const Protocol& protocol, const std::atomic<bool>& stop,
                      CaseResult& result) {
  const RightCandidates right = [&] {
    const Watch watch(device, result.phases.check_s);
    return check_candidates(device, op, stop);
  }();
  result.note = right.note;
  result.status = right.status;
  if (stop) return;
  if (right.index.empty()) {
    if (right.note.empty()) result.note = "there is no way to do it on this device";
    return;
  }
  const int sets = sets_for(device, op, protocol.sets_max);
  const Status prepared = [&] {
    const Watch watch(device, result.phases.prepare_s);
    return op.prepare_sets(sets);
  }();
  if (!prepared) {
    end_as(result, CaseStatus::kOutOfMemory, sentence_of(prepared.error()));
    return;
  }
  const bool quick = protocol.held_down_s < protocol.period_s;
  const PowerControl control = quick ? PowerControl() : PowerControl(device.now_ns());
  Result<Choice> choice = [&] {
    const Watch watch(device, result.phases.choose_s);
    return choose_candidate(device, op, right.index, sets, protocol.choose_s, stop);
  }();
  if (!choice) {
    end_as(result, CaseStatus::kError, sentence_of(choice.error()));
    return;
  }
  if (stop) return;
  const Result<bool> settled = [&] {
    const Watch watch(device, result.phases.settle_s);
    return settle_choice(device, op, right, sets, protocol, control, stop, *choice);
  }();
  if (!settled) {
    end_as(result, CaseStatus::kError, sentence_of(settled.error()));
    return;
  }
  result.backend = op.candidates()[right.index[choice->position]].backend;
  result.check = right.checks[choice->position];
  result.gap_to_first_frac = choice->gap_frac;
  const Status timed = time_regimes(device, op, right, sets, *choice, *settled, protocol, control, stop, result);
  if (!timed) end_as(result, CaseStatus::kError, sentence_of(timed.error()));
}

}  // namespace

Protocol suite_protocol() {
  Protocol protocol;
  protocol.choose_s = 0.25;
  protocol.cold_min_s = 0.15;
  protocol.sustained_min_s = 0.3;
  protocol.settle_max_s = 0.2;
  protocol.wall_max_s = 0.7;
  return protocol;
}

CaseResult measure(Device& device, const Operation& operation, const OpParams& params, const Protocol& protocol,
                   const std::atomic<bool>& stop) {
  CaseResult result;
  result.operation = operation.name;
  result.ceiling = operation.ceiling;
  result.params = params;
  result.cost = operation.cost(params);
  if (stop) return end_as(result, CaseStatus::kInterrupted, {});
  if (operation.unsupported != nullptr) {
    if (const std::optional<std::string> why = operation.unsupported(device.identity(), params))
      return end_as(result, CaseStatus::kUnsupported, *why);
  }
  const Prepare prepare = prepare_of(device, operation);
  if (prepare == nullptr)
    return end_as(result, CaseStatus::kUnsupported,
                  fmt::format("{} is not measured on {}", operation.name, kind_name(device)));
  if (const std::optional<std::string> why = does_not_fit(device, operation, params))
    return end_as(result, CaseStatus::kOutOfMemory, *why);
  device.reset_peak();
  Result<std::unique_ptr<PreparedOp>> op = [&] {
    const Watch watch(device, result.phases.prepare_s);
    return prepare(device, params);
  }();
  if (!op) {
    // Memory that others took in the meantime looks like any other error.
    const bool memory = operation.footprint_bytes(params) > device.free_bytes();
    return end_as(result, memory ? CaseStatus::kOutOfMemory : CaseStatus::kError, sentence_of(op.error()));
  }
  result.memory_bytes = static_cast<int64_t>((*op)->bytes_per_set());
  measure_prepared(device, **op, protocol, stop, result);
  result.peak_memory_bytes = device.peak_bytes();
  if (stop) return end_as(result, CaseStatus::kInterrupted, {});
  return result;
}

}  // namespace llmprof::bench
