// What it costs to start work on all threads and wait for them: a region of the team with an empty body.
#include <fmt/format.h>

#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/cpu/ops.h"

namespace llmprof::kernels::cpu {
namespace {

class LaunchOp : public PreparedOp {
 public:
  explicit LaunchOp(device::cpu::CpuDevice& device)
      : device_(device), arrived_(16 * static_cast<size_t>(device.team().threads())) {
    candidates_.push_back({device.team().has_libgomp() ? "libgomp" : "threads started anew", [this](int) {
                             device_.team().run([this](int thread) { ++arrived_[16 * static_cast<size_t>(thread)]; });
                             return Status();
                           }});
  }
  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override { return 0; }
  Status prepare_sets(int) override { return {}; }

  // Each thread ran the body exactly once.
  Result<Check> check(size_t candidate) override {
    std::fill(arrived_.begin(), arrived_.end(), 0);
    LLMPROF_CHECK(candidates_[candidate].enqueue(0));
    Check check;
    check.status = CheckStatus::kPassed;
    for (size_t thread = 0; thread < arrived_.size() / 16; ++thread) {
      ++check.compared;
      if (arrived_[16 * thread] == 1) continue;
      check.status = CheckStatus::kFailed;
      check.note = fmt::format("thread {} ran {} times, expected once", thread, arrived_[16 * thread]);
    }
    return check;
  }

 private:
  device::cpu::CpuDevice& device_;
  std::vector<int> arrived_;  // a line of its own for each thread
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<std::string> launch_unsupported(const OpParams& params) {
  if (params.variant == "fork_join") return std::nullopt;
  return fmt::format("\"{}\" is a way of GPUs; a CPU has fork_join", params.variant);
}

Result<std::unique_ptr<PreparedOp>> prepare_launch(Device& device, const OpParams&) {
  return std::unique_ptr<PreparedOp>(std::make_unique<LaunchOp>(static_cast<device::cpu::CpuDevice&>(device)));
}

}  // namespace llmprof::kernels::cpu
