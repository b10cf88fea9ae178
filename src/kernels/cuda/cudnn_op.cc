#include "kernels/cuda/cudnn_op.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmprof::kernels::cuda {
namespace {

// A plan that asks for more scratch memory than this is passed over.
constexpr int64_t kWorkspaceMax = int64_t{4} << 30;

}  // namespace

Result<const device::cuda::Cudnn*> CudnnOp::open_cudnn_of_device() {
  LLMPROF_ASSIGN(cudnn_, context_.cudnn());
  device_.note_library(cudnn_->library.about);
  return cudnn_;
}

Status CudnnOp::add_plans(CudnnGraph& graph, std::vector<std::pair<CudnnGraph::Tensor, size_t>> memory, size_t most) {
  graph_ = &graph;
  memory_ = std::move(memory);
  LLMPROF_ASSIGN(std::vector<CudnnPlan> plans, graph.plans(most));
  int64_t least = kWorkspaceMax, workspace = 256;
  for (const CudnnPlan& plan : plans) least = std::min(least, plan.workspace_bytes);
  const int64_t allowed = std::max(std::min(kWorkspaceMax, device_.free_bytes() / 4), least);
  for (const CudnnPlan& plan : plans)
    if (plan.workspace_bytes <= allowed) workspace = std::max(workspace, plan.workspace_bytes);
  LLMPROF_ASSIGN(workspace_, device_.allocate(static_cast<size_t>(workspace)));
  for (const CudnnPlan& plan : plans) {
    if (plan.workspace_bytes > allowed) continue;
    add("cuDNN " + plan.name, [this, made = plan.plan](int set) { return execute(made, set); });
  }
  return {};
}

Result<void*> CudnnOp::pack_of(int set) {
  const size_t index = static_cast<size_t>(set);
  if (packs_.size() <= index) packs_.resize(index + 1);
  if (!packs_[index]) {
    std::vector<CudnnGraph::Binding> bindings;
    for (const auto& [tensor, which] : memory_) bindings.push_back({tensor, array(set, which).address()});
    LLMPROF_ASSIGN(packs_[index], graph_->pack(bindings, workspace_->address()));
  }
  return packs_[index].get();
}

Status CudnnOp::execute(const CudnnDescriptor& plan, int set) {
  LLMPROF_ASSIGN(void* const pack, pack_of(set));
  const int status = cudnn_->library.api.execute(cudnn_->handle, plan.get(), pack);
  return status == cudnn::kSuccess ? Status{} : cudnn_check(cudnn_->library.api, status, "executing a plan");
}

}  // namespace llmprof::kernels::cuda
