// A device whose times a test writes down, and operations on it. Its clock is moved by those times and by rests alone,
// so that nothing waits and every test does the same on a machine of any speed.
#pragma once

#include <cmath>
#include <limits>
#include <map>

#include "bench/protocol.h"
#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::bench {

class ScriptedDevice : public device::Device {
 public:
  struct Request {
    int sets, launches, samples;
    bool cold, flush;
  };
  device::DeviceIdentity who;
  int64_t free = int64_t{16} << 30, peak = 0;
  // Time of sample number i (counted over all calls) on the backend that runs.
  std::function<device::Sample(const std::string& backend, bool cold, int64_t i)> script;
  std::function<device::Telemetry()> readings = [] { return device::Telemetry{}; };
  std::function<void()> on_batch = [] {};  // after each timing call: raises the stop flag, for example
  std::vector<Request> requests;
  double busy_cold_s = 0;                // of isolated trials
  std::map<std::string, int64_t> timed;  // samples by backend
  std::map<int, int64_t> isolated;       // samples by set, of isolated trials
  std::string running;                   // set by the candidate's enqueue
  int running_set = 0;                   // as well
  bool broken = false;                   // timing and synchronising fail

  ScriptedDevice() {
    who.kind = device::DeviceKind::kCuda;
    who.key = "GPU-1";
    who.name = "Scripted";
    who.driver = "1.0";
    who.units = 8;
    who.cc_major = 9;
    who.memory_bytes = int64_t{20} << 30;
    who.cache_bytes = int64_t{8} << 20;
    script = [](const std::string&, bool, int64_t) { return device::Sample{100, 1500, 0}; };
  }
  const device::DeviceIdentity& identity() const override { return who; }
  Result<std::unique_ptr<device::Buffer>> allocate(size_t) override {
    return fail("the scripted device has no memory");
  }
  int64_t free_bytes() const override { return free; }
  int64_t peak_bytes() const override { return peak; }
  void reset_peak() override { peak = 0; }
  Status fill(const device::Buffer&, const device::Fill&) override { return {}; }
  Status upload(const device::Buffer&, size_t, const void*, size_t) override { return {}; }
  Status download(const device::Buffer&, size_t, void*, size_t) override { return {}; }
  Status synchronize() override { return broken ? Status(fail("the device is lost")) : Status(); }
  Result<std::unique_ptr<device::Repetitions>> trials(const device::TimingRequest& request) override {
    return std::unique_ptr<device::Repetitions>(std::make_unique<ScriptedRepetitions>(*this, request, true));
  }
  Result<std::unique_ptr<device::Repetitions>> loop(const device::TimingRequest& request) override {
    return std::unique_ptr<device::Repetitions>(std::make_unique<ScriptedRepetitions>(*this, request, false));
  }
  device::Telemetry telemetry(int64_t) override { return readings(); }
  // As of any clock, no two readings are the same.
  int64_t now_ns() const override { return ++now_ns_; }
  void restart() { now_ns_ = 0; }
  void pause(double seconds) const override { now_ns_ += static_cast<int64_t>(seconds * 1e9); }

 private:
  class ScriptedRepetitions : public device::Repetitions {
   public:
    ScriptedRepetitions(ScriptedDevice& device, device::TimingRequest request, bool cold)
        : device_(device), request_(std::move(request)), cold_(cold) {}
    Result<std::vector<device::Sample>> time(int samples) override {
      request_.samples = samples;
      return device_.time(request_, cold_, launched_);
    }

   private:
    ScriptedDevice& device_;
    device::TimingRequest request_;
    bool cold_;
    int64_t launched_ = 0;
  };
  Result<std::vector<device::Sample>> time(const device::TimingRequest& request, bool cold, int64_t& launched) {
    if (broken) return fail("an illegal address was accessed");
    requests.push_back({request.sets, request.launches, request.samples, cold, request.flush_cache});
    std::vector<device::Sample> out;
    LLMPROF_CHECK(request.enqueue(0));
    const int64_t begin_ns = now_ns_;
    for (int i = 0; i < request.samples; ++i) {
      if (cold) LLMPROF_CHECK(request.enqueue(static_cast<int>(launched % request.sets)));
      launched += request.launches;
      out.push_back(script(running, cold, count_++));
      if (cold) ++isolated[running_set];
      now_ns_ += static_cast<int64_t>(out.back().us * 1e3 * request.launches);
    }
    if (cold) busy_cold_s += static_cast<double>(now_ns_ - begin_ns) * 1e-9;
    timed[running] += request.samples;
    on_batch();
    return out;
  }
  int64_t count_ = 0;
  mutable int64_t now_ns_ = 1'000'000'000;  // resting changes nothing but the time
};

// What the operation below is made of; one test at a time.
struct ScriptedOp {
  struct Way {
    std::string backend;
    kernels::CheckStatus check = kernels::CheckStatus::kPassed;
    bool check_errors = false;
    bool refused = false;  // when it runs
  };
  std::vector<Way> ways = {{"only"}};
  size_t worth_checking = kernels::PreparedOp::kEveryCandidate;
  std::vector<size_t> checked;  // in order
  std::string unsupported, prepare_error;
  size_t set_bytes = size_t{1} << 20;
  int64_t prepared_sets = 0;
  double flops = 2e9, bytes = 1e6;
  bool matrix = true;
};
inline ScriptedOp g_op;

class ScriptedPrepared : public kernels::PreparedOp {
 public:
  explicit ScriptedPrepared(ScriptedDevice& device) {
    for (const ScriptedOp::Way& way : g_op.ways)
      candidates_.push_back({way.backend, [&device, way](int set) -> Status {
                               if (way.refused) return fail("the algorithm is not supported");
                               device.running = way.backend;
                               device.running_set = set;
                               return {};
                             }});
  }
  std::vector<kernels::Candidate>& candidates() override { return candidates_; }
  size_t worth_checking() const override { return g_op.worth_checking; }
  size_t bytes_per_set() const override { return g_op.set_bytes; }
  Status prepare_sets(int sets) override {
    g_op.prepared_sets = sets;
    return {};
  }
  Result<kernels::Check> check(size_t candidate) override {
    const ScriptedOp::Way& way = g_op.ways[candidate];
    g_op.checked.push_back(candidate);
    if (way.check_errors) return fail("it cannot be launched");
    return kernels::Check{way.check, way.check == kernels::CheckStatus::kFailed ? 40.0 : 0.5, 1e-4, 100, ""};
  }

 private:
  std::vector<kernels::Candidate> candidates_;
};

inline Result<std::unique_ptr<kernels::PreparedOp>> prepare_scripted(device::Device& device, const kernels::OpParams&) {
  if (!g_op.prepare_error.empty()) return fail(g_op.prepare_error);
  return std::make_unique<ScriptedPrepared>(dynamic_cast<ScriptedDevice&>(device));
}

inline const kernels::Operation& scripted_gemm() {
  static constexpr kernels::Axis kAxes[] = {{"m", 1024, "rows"}, {"n", 1024, "columns"}, {"k", 1024, "inner"}};
  static constexpr DType kDtypes[] = {DType::kFp32, DType::kBf16};
  static constexpr std::string_view kVariants[] = {"plain", "bias"};
  static const kernels::Operation kOperation = {
      "gemm",
      "matrix product",
      kAxes,
      kDtypes,
      kVariants,
      [](const kernels::OpParams&) {
        return kernels::Cost{g_op.flops, g_op.bytes / 2, g_op.bytes / 2, g_op.matrix};
      },
      [](const kernels::OpParams& p) {
        return 4 * (p.axis("m") * p.axis("k") + p.axis("n") * p.axis("k") + p.axis("m") * p.axis("n"));
      },
      [](const device::DeviceIdentity&, const kernels::OpParams&) -> std::optional<std::string> {
        if (g_op.unsupported.empty()) return std::nullopt;
        return g_op.unsupported;
      },
      nullptr,
      prepare_scripted,
      kernels::Ceiling::kProducts};
  return kOperation;
}

}  // namespace llmprof::bench
