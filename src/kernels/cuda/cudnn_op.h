// What operations by graphs of cuDNN have in common: plans become candidates, sets of buffers become packs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/cudnn_graph.h"

namespace llmprof::kernels::cuda {

class CudnnOp : public CudaOp {
 public:
  using CudaOp::CudaOp;

 protected:
  // cuDNN, opened and noted among the device's libraries.
  Result<const device::cuda::Cudnn*> open_cudnn_of_device();
  // The graph's plans as candidates, at most `most`; what its tensors in memory are: (tensor, index of the array).
  // `graph` lives as long as this.
  Status add_plans(CudnnGraph& graph, std::vector<std::pair<CudnnGraph::Tensor, size_t>> memory, size_t most);

 private:
  Status execute(const CudnnDescriptor& plan, int set);
  Result<void*> pack_of(int set);

  const device::cuda::Cudnn* cudnn_ = nullptr;
  CudnnGraph* graph_ = nullptr;
  std::vector<std::pair<CudnnGraph::Tensor, size_t>> memory_;
  std::unique_ptr<Buffer> workspace_;
  std::vector<CudnnDescriptor> packs_;  // by set
};

}  // namespace llmprof::kernels::cuda
