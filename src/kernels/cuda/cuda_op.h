// What operations on a GPU have in common: sets of buffers, filled; the check that poisons, runs, looks at the guards
// and compares.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/cuda_device.h"
#include "kernels/op.h"

namespace llmprof::kernels::cuda {

// A part of a buffer as a buffer.
class View : public Buffer {
 public:
  View(const Buffer& of, size_t offset, size_t bytes)
      : address_(static_cast<char*>(of.address()) + offset), bytes_(bytes) {}
  void* address() const override { return address_; }
  size_t bytes() const override { return bytes_; }

 private:
  char* address_;
  size_t bytes_;
};

class CudaOp : public PreparedOp {
 public:
  CudaOp(Device& device, const OpParams& params)
      : device_(static_cast<device::cuda::CudaDevice&>(device)), context_(device_.context()), params_(params) {}

  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override;
  Status prepare_sets(int sets) override;
  Result<Check> check(size_t candidate) override;

 protected:
  // kOutput is poisoned before a check; kInOut is filled again, since the work changes it.
  enum class Role : uint8_t { kInput, kOutput, kInOut };
  struct Array {
    std::string name;
    size_t bytes = 0;
    Role role = Role::kInput;
    Fill fill;  // its seed is varied by set and array
  };
  // The arrays of a set, in the order of their indices. Then set 0 is made.
  Status begin(std::vector<Array> arrays);
  Buffer& array(int set, size_t index) const { return *sets_[static_cast<size_t>(set)][index]; }
  cuda_abi::DevicePtr at(int set, size_t index) const { return device::cuda::pointer_of(array(set, index)); }
  // What an input, or an array that the work changes, was filled with.
  Fill fill_of(int set, size_t index) const;
  // A set was made and filled: for what no fill can give.
  virtual Status set_made(int) { return {}; }
  // After the candidate ran once on set 0.
  virtual Result<Check> compare(size_t candidate) = 0;
  void add(std::string backend, std::function<Status(int set)> enqueue) {
    candidates_.push_back({std::move(backend), std::move(enqueue)});
  }

  device::cuda::CudaDevice& device_;
  device::cuda::Context& context_;
  OpParams params_;

 private:
  Status add_set();
  Status fill_array(size_t set, size_t index);

  std::vector<Candidate> candidates_;
  std::vector<Array> arrays_;
  std::vector<std::vector<std::unique_ptr<Buffer>>> sets_;
};

// A prepared operation, or why not.
template <class Op>
Result<std::unique_ptr<PreparedOp>> prepare_as(Device& device, const OpParams& params) {
  std::unique_ptr<Op> op = std::make_unique<Op>(device, params);
  LLMPROF_CHECK(op->prepare());
  return std::unique_ptr<PreparedOp>(std::move(op));
}

}  // namespace llmprof::kernels::cuda
