#include "kernels/reference/memory.h"

#include <algorithm>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/cpu/buffer_sets.h"
#include "kernels/cpu/memory_kernels.h"
#include "kernels/cpu/ops.h"

namespace llmprof::kernels::cpu {
namespace {

constexpr float kValue = 0.4375F;
// Elements of a share begin at multiples of a page's.
constexpr size_t kShareMultiple = 1024;

enum class Kind : uint8_t { kRead, kWrite, kCopy, kTriad };
// Buffers of a set: inputs first, the output last.
std::vector<BufferPlan> buffers_of(Kind kind, size_t bytes, uint64_t seed, int threads) {
  const int inputs = kind == Kind::kWrite ? 0 : kind == Kind::kTriad ? 2 : 1;
  std::vector<BufferPlan> plan;
  for (int i = 0; i < inputs; ++i) plan.push_back({bytes, DType::kFp32, false, seed + static_cast<uint64_t>(i)});
  // Of read: the sum, then one part of it per thread, 64 bytes apart.
  const size_t sums = 64 * (static_cast<size_t>(threads) + 1);
  plan.push_back({kind == Kind::kRead ? sums : bytes, DType::kFp32, true, seed});
  return plan;
}

class MemoryOp : public PreparedOp {
 public:
  MemoryOp(device::cpu::CpuDevice& device, Kind kind, const OpParams& params)
      : device_(device),
        kind_(kind),
        count_(static_cast<size_t>(params.axis("bytes")) / 4),
        sets_(device, buffers_of(kind, count_ * 4, params.seed, device.team().threads())) {
    for (const MemoryKernels& kernels : memory_kernels(device.instructions())) {
      const bool has = kind == Kind::kRead    ? kernels.read != nullptr
                       : kind == Kind::kWrite ? kernels.write != nullptr
                       : kind == Kind::kCopy  ? kernels.copy != nullptr
                                              : kernels.triad != nullptr;
      if (has)
        candidates_.push_back({std::string(kernels.name), [this, kernels](int set) { return run(kernels, set); }});
    }
  }
  Status prepare_sets(int sets) override { return sets_.grow(sets); }
  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override { return sets_.bytes_per_set(); }

  Result<Check> check(size_t candidate) override {
    LLMPROF_CHECK(sets_.poison(0));
    LLMPROF_CHECK(candidates_[candidate].enqueue(0));
    const auto count = static_cast<int64_t>(count_);
    switch (kind_) {
      case Kind::kRead:
        return check_read(device_, sets_.at(0, 0), sets_.at(0, 1), count);
      case Kind::kWrite:
        return check_write(device_, sets_.at(0, 0), kValue, count);
      case Kind::kCopy:
        return check_copy(device_, sets_.at(0, 0), sets_.at(0, 1), count);
      case Kind::kTriad:
        break;
    }
    return check_triad(device_, sets_.at(0, 0), sets_.at(0, 1), sets_.at(0, 2), kValue, count);
  }

 private:
  Status run(const MemoryKernels& kernels, int set) {
    const int threads = device_.team().threads();
    const auto share = [&](int thread) { return device::cpu::share_of(count_, kShareMultiple, thread, threads); };
    switch (kind_) {
      case Kind::kRead: {
        const float* a = sets_.data<float>(set, 0);
        auto* sums = sets_.data<uint32_t>(set, 1);
        device_.team().run([&](int thread) {
          const auto [first, last] = share(thread);
          sums[16 * (thread + 1)] = kernels.read(a + first, last - first);
        });
        uint32_t sum = 0;
        for (int thread = 0; thread < threads; ++thread) sum += sums[16 * (thread + 1)];
        sums[0] = sum;
        return {};
      }
      case Kind::kWrite: {
        auto* out = sets_.data<float>(set, 0);
        device_.team().run([&](int thread) {
          const auto [first, last] = share(thread);
          kernels.write(out + first, kValue, last - first);
        });
        return {};
      }
      case Kind::kCopy: {
        const float* a = sets_.data<float>(set, 0);
        auto* out = sets_.data<float>(set, 1);
        device_.team().run([&](int thread) {
          const auto [first, last] = share(thread);
          kernels.copy(out + first, a + first, last - first);
        });
        return {};
      }
      case Kind::kTriad:
        break;
    }
    const float* a = sets_.data<float>(set, 0);
    const float* b = sets_.data<float>(set, 1);
    auto* out = sets_.data<float>(set, 2);
    device_.team().run([&](int thread) {
      const auto [first, last] = share(thread);
      kernels.triad(out + first, a + first, b + first, kValue, last - first);
    });
    return {};
  }

  device::cpu::CpuDevice& device_;
  Kind kind_;
  size_t count_;
  BufferSets sets_;
  std::vector<Candidate> candidates_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_memory(Device& device, const OpParams& params) {
  const Kind kind = params.variant == "read"    ? Kind::kRead
                    : params.variant == "write" ? Kind::kWrite
                    : params.variant == "copy"  ? Kind::kCopy
                                                : Kind::kTriad;
  if (params.axis("bytes") < 4)
    return fail("expected arrays of at least 4 bytes, one element", {}, "--bytes 4 or more", ExitCode::kUsage);
  auto op = std::make_unique<MemoryOp>(static_cast<device::cpu::CpuDevice&>(device), kind, params);
  LLMPROF_CHECK(op->prepare_sets(1));
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace llmprof::kernels::cpu
