// A GPU that is not there: the stand-in of tests/fakes/fake_cuda.cc in place of NVIDIA's libraries.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "device/cuda/cuda_device.h"
#include "fakes/fake_cuda.h"

namespace llmprof::device::cuda {

class FakeGpu : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : {kEnvCuda, kEnvNvrtc, kEnvCublasLt, kEnvCudnn}) setenv(variable, LLMPROF_FAKE_CUDA, 1);
    setenv("LLMPROF_NVML", "/nowhere/libnvidia-ml.so", 1);
    cache_ = testing::TempDir() + "llmprof-fake-cache";
    std::filesystem::remove_all(cache_);
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    void* const library = dlopen(LLMPROF_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    reinterpret_cast<void (*)()>(dlsym(library, "fake_cuda_reset"))();
    script_ = reinterpret_cast<FakeCudaScript* (*)()>(dlsym(library, "fake_cuda_script"))();
  }
  void TearDown() override {
    device_.reset();
    for (const char* variable : {kEnvCuda, kEnvNvrtc, kEnvCublasLt, kEnvCudnn, "LLMPROF_NVML", "XDG_CACHE_HOME"})
      unsetenv(variable);
    std::filesystem::remove_all(cache_);
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
  std::string cache_;
};

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace llmprof::device::cuda
