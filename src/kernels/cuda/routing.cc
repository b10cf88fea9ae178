// Tokens to experts, by own kernels.
#include "kernels/reference/routing.h"

#include <fmt/format.h>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr unsigned kTopThreads = 256, kBlockThreads = 1024;
// Slots that one block puts in order by itself.
constexpr int64_t kFewSlots = 8192;

// ids, weights, offsets, order, logits
class RoutingOp : public CudaOp {
 public:
  using CudaOp::CudaOp;

  Status prepare() {
    tokens_ = params_.axis("tokens");
    experts_ = params_.axis("experts");
    k_ = params_.axis("k");
    const size_t slots = static_cast<size_t>(tokens_ * k_), experts = static_cast<size_t>(experts_);
    const size_t bytes = static_cast<size_t>(tokens_) * experts * static_cast<size_t>(dtype_bytes(params_.dtype));
    LLMPROF_CHECK(begin({{"ids", 4 * slots, Role::kOutput, {}},
                         {"weights", 4 * slots, Role::kOutput, {}},
                         {"offsets", 4 * (experts + 1), Role::kOutput, {}},
                         {"order", 4 * slots, Role::kOutput, {}},
                         {"logits", bytes, Role::kInput, {Fill::Kind::kUniform, params_.dtype, 1, 0}}}));
    LLMPROF_CHECK(make_counts(counts_));
    LLMPROF_CHECK(make_counts(cursors_));
    int each = 1;
    while (each * 32 < experts_) each *= 2;
    const char* const type = params_.dtype == DType::kFp32   ? "T=Fp32"
                             : params_.dtype == DType::kFp16 ? "T=Fp16"
                                                             : "T=Bf16";
    const device::cuda::KernelSource source{"routing.cu", {type, fmt::format("LANES_EACH={}", each)}};
    const uint32_t of = static_cast<uint32_t>(experts_), k = static_cast<uint32_t>(k_),
                   rows = static_cast<uint32_t>(tokens_), all = static_cast<uint32_t>(tokens_ * k_);
    LLMPROF_ASSIGN(const device::cuda::Kernel top, context_.kernel(source, "route_top"));
    LLMPROF_ASSIGN(const device::cuda::Kernel offsets, context_.kernel(source, "route_offsets"));
    LLMPROF_ASSIGN(const device::cuda::Kernel order, context_.kernel(source, "route_order"));
    const unsigned top_blocks = (rows + kTopThreads / 32 - 1) / (kTopThreads / 32),
                   order_blocks = (all + kBlockThreads - 1) / kBlockThreads;
    add("own, three kernels", [=, this](int set) -> Status {
      LLMPROF_CHECK(context_.launch(top, top_blocks, kTopThreads, at(set, 4), at(set, 0), at(set, 1),
                                    device::cuda::pointer_of(*counts_), rows, of, k));
      LLMPROF_CHECK(context_.launch(offsets, 1, kBlockThreads, device::cuda::pointer_of(*counts_), at(set, 2),
                                    device::cuda::pointer_of(*cursors_), of));
      return context_.launch(order, order_blocks, kBlockThreads, at(set, 0), device::cuda::pointer_of(*cursors_),
                             at(set, 3), all, of);
    });
    if (tokens_ * k_ > kFewSlots) return {};
    LLMPROF_ASSIGN(const device::cuda::Kernel few, context_.kernel(source, "route_few"));
    add("own, one block", [=, this](int set) {
      return context_.launch(few, 1, kBlockThreads, at(set, 4), at(set, 0), at(set, 1), at(set, 2), at(set, 3), rows,
                             of, k);
    });
    return {};
  }

 protected:
  Result<Check> compare(size_t) override {
    return check_routing(device_, {array(0, 4), array(0, 0), array(0, 1), array(0, 2), array(0, 3), params_.dtype,
                                   tokens_, experts_, k_});
  }

 private:
  Status make_counts(std::unique_ptr<Buffer>& made) {
    const std::vector<uint32_t> zeros(static_cast<size_t>(experts_), 0);
    LLMPROF_ASSIGN(made, device_.allocate(zeros.size() * 4));
    return device_.upload(*made, 0, zeros.data(), zeros.size() * 4);
  }

  int64_t tokens_ = 0, experts_ = 0, k_ = 0;
  std::unique_ptr<Buffer> counts_, cursors_;  // all sets share them: they run one after the other
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_moe_routing(Device& device, const OpParams& params) {
  return prepare_as<RoutingOp>(device, params);
}

}  // namespace llmprof::kernels::cuda
