// What operations on the CPU share: buffers of each set, rows shared out over the team, and the order of a check.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/cpu/buffer_sets.h"
#include "kernels/op.h"

namespace llmprof::kernels::cpu {

class OwnOp : public PreparedOp {
 public:
  OwnOp(device::cpu::CpuDevice& device, const OpParams& params, std::vector<BufferPlan> plan)
      : device_(device), params_(params), sets_(device, std::move(plan)) {}

  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override { return sets_.bytes_per_set(); }
  Status prepare_sets(int sets) override {
    for (int set = sets_.count(); set < sets; ++set) {
      LLMPROF_CHECK(sets_.grow(set + 1));
      LLMPROF_CHECK(set_made(set));
    }
    return {};
  }
  Result<Check> check(size_t candidate) override {
    LLMPROF_CHECK(sets_.poison(0));
    LLMPROF_CHECK(before_check());
    LLMPROF_CHECK(candidates_[candidate].enqueue(0));
    return compare();
  }

 protected:
  // Of a set whose buffers are filled as planned: what is no random numbers.
  virtual Status set_made(int) { return {}; }
  // What the work changes in place is made again.
  virtual Status before_check() { return {}; }
  virtual Result<Check> compare() = 0;

  void add(std::string_view name, std::function<void(int set)> run) {
    add_fallible(std::string(name), [run = std::move(run)](int set) {
      run(set);
      return Status();
    });
  }
  void add_fallible(std::string name, std::function<Status(int set)> run) {
    candidates_.push_back({std::move(name), std::move(run)});
  }
  template <class T>
  Status upload(int set, size_t buffer, const std::vector<T>& values) {
    return device_.upload(sets_.at(set, buffer), 0, values.data(), values.size() * sizeof(T));
  }
  // body(first, last) on each thread, for equal shares of `rows`.
  template <class Body>
  void share(int64_t rows, const Body& body) {
    const int threads = device_.team().threads();
    device_.team().run([&](int thread) {
      const auto [first, last] = device::cpu::share_of(static_cast<size_t>(rows), 1, thread, threads);
      if (first < last) body(static_cast<int64_t>(first), static_cast<int64_t>(last));
    });
  }

  device::cpu::CpuDevice& device_;
  OpParams params_;
  BufferSets sets_;

 private:
  std::vector<Candidate> candidates_;
};

template <class Op>
Result<std::unique_ptr<PreparedOp>> prepare_own(Device& device, const OpParams& params) {
  auto op = std::make_unique<Op>(static_cast<device::cpu::CpuDevice&>(device), params);
  LLMPROF_CHECK(op->prepare_sets(1));
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace llmprof::kernels::cpu
