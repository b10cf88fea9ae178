// Attention on a GPU: prompts and pictures by cuDNN where it has a plan for them, everything else by an own kernel,
// which reads positions from memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "kernels/cuda/cudnn_graph.h"
#include "workload/backend.h"

namespace llmprof::workload {

// Head sizes that the own kernel is compiled for.
constexpr int64_t kCudaHeadSizes[] = {16, 32, 64, 128};

// What a kernel takes as 32 bits; shapes were checked to fit.
inline uint32_t narrow(int64_t value) { return static_cast<uint32_t>(value); }

class CudaAttention {
 public:
  CudaAttention(device::cuda::CudaDevice& device, DType dtype) : device_(device), dtype_(dtype) {}

  // Compiles, chooses a plan and takes memory; once for each shape.
  Status prepare(const AttentionCall& call);
  Status run(const AttentionCall& call);
  // Why cuDNN is not used for what it could be; empty if it is, or was never wanted.
  const std::string& why_own() const { return why_own_; }

 private:
  struct Own {
    device::cuda::Kernel kernel;
    unsigned blocks = 0, threads = 0;
    uint32_t splits = 1;
  };
  struct Fused {
    std::unique_ptr<kernels::cuda::CudnnGraph> graph;
    kernels::cuda::CudnnDescriptor plan;
    std::vector<std::pair<kernels::cuda::CudnnGraph::Tensor, size_t>> tensors;
    std::map<std::vector<const void*>, kernels::cuda::CudnnDescriptor> packs;  // by the addresses of out, q, k, v
  };
  struct Shape {
    std::optional<Own> own;
    std::optional<Fused> fused;
  };
  Result<Shape*> shape_of(const AttentionCall& call);
  Result<Fused> fuse(const AttentionCall& call);
  Result<Own> make_own(const AttentionCall& call);
  Status run_fused(Fused& fused, const AttentionCall& call);
  Status run_own(const Own& own, const AttentionCall& call);
  Status grow(std::unique_ptr<device::Buffer>& buffer, size_t bytes);

  device::cuda::CudaDevice& device_;
  DType dtype_;
  const device::cuda::Cudnn* cudnn_ = nullptr;
  std::string why_own_;
  std::map<std::vector<int64_t>, Shape> shapes_;
  std::unique_ptr<device::Buffer> workspace_, parts_, counters_;
  std::vector<std::unique_ptr<device::Buffer>> outgrown_;  // recorded calls may still use them
};

}  // namespace llmprof::workload
