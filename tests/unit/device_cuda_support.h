// A GPU that is not there: the stand-in of tests/fakes/fake_cuda.cc in place of NVIDIA's libraries.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "fakes/fake_cuda.h"
#include "kernels/op.h"
#include "ops_params.h"
#include "temporary_folder.h"

namespace llmprof::device::cuda {

class FakeGpu : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable :
         {nvidia::kEnvCuda, nvidia::kEnvNvrtc, nvidia::kEnvCublasLt, nvidia::kEnvCublas, nvidia::kEnvCudnn})
      setenv(variable, LLMPROF_FAKE_CUDA, 1);
    setenv("LLMPROF_NVML", "/nowhere/libnvidia-ml.so", 1);
    setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    void* const library = dlopen(LLMPROF_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    reinterpret_cast<void (*)()>(dlsym(library, "fake_cuda_reset"))();
    script_ = reinterpret_cast<FakeCudaScript* (*)()>(dlsym(library, "fake_cuda_script"))();
  }
  void TearDown() override {
    device_.reset();
    for (const char* variable : {nvidia::kEnvCuda, nvidia::kEnvNvrtc, nvidia::kEnvCublasLt, nvidia::kEnvCublas,
                                 nvidia::kEnvCudnn, "LLMPROF_NVML", "XDG_CACHE_HOME"})
      unsetenv(variable);
  }
  CudaDevice& open() {
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
    EXPECT_TRUE(opened) << opened.error().text();
    device_ = std::move(*opened);
    return *device_;
  }
  // The words of why the GPU cannot be opened.
  std::string refusal(int ordinal = 0) {
    const Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(ordinal);
    return opened ? "it was opened" : opened.error().text();
  }

  FakeCudaScript* script_ = nullptr;
  std::unique_ptr<CudaDevice> device_;

 private:
  const TemporaryFolder cache_;
};

// Operations on it: each candidate is checked against the reference.
class FakeGpuOps : public FakeGpu {
 protected:
  using Prepare = Result<std::unique_ptr<kernels::PreparedOp>> (*)(Device&, const kernels::OpParams&);

  // Prepares, checks every candidate so many times, and returns how many there were.
  size_t all_pass(Prepare prepare, const kernels::OpParams& params, int times = 1) {
    Result<std::unique_ptr<kernels::PreparedOp>> op = prepare(*device_, params);
    EXPECT_TRUE(op) << op.error().text();
    if (!op) return 0;
    const std::vector<kernels::Candidate>& candidates = (*op)->candidates();
    for (size_t i = 0; i < candidates.size(); ++i) {
      for (int turn = 0; turn < times; ++turn) {
        const Result<kernels::Check> check = (*op)->check(i);
        EXPECT_TRUE(check) << check.error().text();
        if (!check) continue;
        EXPECT_EQ(check->status, kernels::CheckStatus::kPassed)
            << candidates[i].backend << ": " << check->note << ", " << check->worst_over_tolerance << " of tolerance";
      }
    }
    // The other sets are usable, and timing goes through.
    EXPECT_TRUE((*op)->prepare_sets(3));
    const Result<std::vector<Sample>> samples = device_->time_sustained({candidates[0].enqueue, 3, 3, 1, false});
    EXPECT_TRUE(samples) << samples.error().text();
    return candidates.size();
  }
  // Why it is not prepared.
  std::string refused(Prepare prepare, const kernels::OpParams& params) {
    const Result<std::unique_ptr<kernels::PreparedOp>> op = prepare(*device_, params);
    return op ? "it was prepared" : op.error().text();
  }
};

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace llmprof::device::cuda
