// Buffers of a case, so many times over: a rotation through them does not stay in the cache.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::kernels::cpu {

// One buffer of each set. Outputs are poisoned, inputs uniform random.
struct BufferPlan {
  size_t bytes = 0;
  DType dtype = DType::kFp32;
  bool output = false;
  uint64_t seed = 1;
};

class BufferSets {
 public:
  BufferSets(Device& device, std::vector<BufferPlan> plan) : device_(device), plan_(std::move(plan)) {}
  // Adds sets until there are so many.
  Status grow(int sets) {
    while (static_cast<int>(sets_.size()) < sets) {
      std::vector<std::unique_ptr<Buffer>> made;
      for (const BufferPlan& one : plan_) {
        LLMPROF_ASSIGN(std::unique_ptr<Buffer> buffer, device_.allocate(one.bytes));
        Fill fill;
        fill.kind = one.output ? Fill::Kind::kPoison : Fill::Kind::kUniform;
        fill.dtype = one.dtype;
        fill.seed = one.seed + sets_.size() * 0x10001;
        LLMPROF_CHECK(device_.fill(*buffer, fill));
        made.push_back(std::move(buffer));
      }
      sets_.push_back(std::move(made));
    }
    return {};
  }
  Status poison(int set) {
    for (size_t i = 0; i < plan_.size(); ++i) {
      if (!plan_[i].output) continue;
      Fill fill;
      fill.kind = Fill::Kind::kPoison;
      fill.dtype = plan_[i].dtype;
      LLMPROF_CHECK(device_.fill(at(set, i), fill));
    }
    return {};
  }
  int count() const { return static_cast<int>(sets_.size()); }
  const Buffer& at(int set, size_t buffer) const { return *sets_[static_cast<size_t>(set)][buffer]; }
  template <class T>
  T* data(int set, size_t buffer) const {
    return static_cast<T*>(at(set, buffer).address());
  }
  size_t bytes_per_set() const {
    size_t bytes = 0;
    for (const BufferPlan& one : plan_) bytes += one.bytes;
    return bytes;
  }

 private:
  Device& device_;
  std::vector<BufferPlan> plan_;
  std::vector<std::vector<std::unique_ptr<Buffer>>> sets_;
};

}  // namespace llmprof::kernels::cpu
