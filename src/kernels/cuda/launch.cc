// Copies between host and GPU, and what launches and waits cost by themselves.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/memory.h"

namespace llmprof::kernels::cuda {
namespace {

// Memory of the host: pinned by the driver, or ordinary.
class HostMemory {
 public:
  explicit HostMemory(device::cuda::Context& context) : context_(context) {}
  ~HostMemory() {
    if (address_ == nullptr) return;
    if (pinned_)
      context_.api().host_free(address_);
    else
      std::free(address_);
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  Status allocate(size_t bytes, bool pinned) {
    pinned_ = pinned;
    if (pinned) {
      LLMPROF_CHECK(context_.check(context_.api().host_alloc(&address_, bytes, cuda_abi::kHostAllocPortable),
                                   fmt::format("pinning {} bytes of the host", bytes)));
    } else {
      address_ = std::malloc(bytes);
      if (address_ == nullptr)
        return fail(fmt::format("{} bytes of host memory were asked for, not so much is free", bytes));
    }
    std::memset(address_, 0xff, bytes);  // no page is touched for the first time in a timed copy
    return {};
  }
  void* address() const { return address_; }

 private:
  device::cuda::Context& context_;
  void* address_ = nullptr;
  bool pinned_ = false;
};

class MemcpyOp : public CudaOp {
 public:
  MemcpyOp(Device& device, const OpParams& params) : CudaOp(device, params), host_(context_) {}

  Status prepare() {
    bytes_ = static_cast<size_t>(params_.axis("bytes")) / 4 * 4;
    const std::string variant = params_.variant.empty() ? "h2d" : params_.variant;
    to_device_ = variant.rfind("h2d", 0) == 0;
    pageable_ = variant.find("pageable") != std::string::npos;
    LLMPROF_CHECK(host_.allocate(bytes_, !pageable_));
    const Fill numbers{Fill::Kind::kUniform, DType::kFp32, 1, 0};
    // "truth" is what the host holds, for the comparison.
    LLMPROF_CHECK(begin({{"a", bytes_, Role::kInput, numbers}, {"out", bytes_, Role::kOutput, {}}}));
    if (to_device_) LLMPROF_CHECK(device_.download(array(0, 0), 0, host_.address(), bytes_));
    add(pageable_ ? "cuMemcpyAsync, pageable" : "cuMemcpyAsync, pinned", [this](int set) {
      const cuda_abi::Api& api = context_.api();
      // The driver copies pageable memory in pieces, by the host.
      if (pageable_) device_.timer().mark_host_bound();
      if (to_device_)
        return context_.check(api.copy_to_device(at(set, 1), host_.address(), bytes_, context_.stream()),
                              "copying to the GPU");
      return context_.check(api.copy_to_host(host_.address(), at(set, 0), bytes_, context_.stream()),
                            "copying from the GPU");
    });
    return {};
  }

 protected:
  Result<Check> compare(size_t) override {
    if (!to_device_) LLMPROF_CHECK(device_.upload(array(0, 1), 0, host_.address(), bytes_));
    return check_copy(device_, array(0, 0), array(0, 1), static_cast<int64_t>(bytes_ / 4));
  }

 private:
  HostMemory host_;
  size_t bytes_ = 0;
  bool to_device_ = true, pageable_ = false;
};

enum class LaunchKind : uint8_t { kEager, kGraphNode, kStreamSync, kEventSync };
LaunchKind launch_kind(std::string_view variant) {
  if (variant == "graph_node") return LaunchKind::kGraphNode;
  if (variant == "stream_sync") return LaunchKind::kStreamSync;
  return variant == "event_sync" ? LaunchKind::kEventSync : LaunchKind::kEager;
}

class LaunchOp : public CudaOp {
 public:
  using CudaOp::CudaOp;
  ~LaunchOp() override {
    if (event_ != nullptr) context_.api().event_destroy(event_);
  }

  Status prepare() {
    const LaunchKind kind = launch_kind(params_.variant);
    LLMPROF_CHECK(begin({}));
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel({"timing.cu", {}}, "empty"));
    if (kind == LaunchKind::kGraphNode) {
      add("empty kernel in a graph", [this, kernel](int) { return context_.launch(kernel, 1, 32); });
      return {};
    }
    LLMPROF_CHECK(context_.check(context_.api().event_create(&event_, 0), "making an event"));
    add(kind == LaunchKind::kEager        ? "cuLaunchKernel"
        : kind == LaunchKind::kStreamSync ? "cuStreamSynchronize"
                                          : "cuEventSynchronize",
        [this, kernel, kind](int) -> Status {
          device_.timer().mark_host_bound();
          LLMPROF_CHECK(context_.launch(kernel, 1, 32));
          if (kind == LaunchKind::kEager) return {};
          if (kind == LaunchKind::kStreamSync) return context_.synchronize();
          LLMPROF_CHECK(context_.check(context_.api().event_record(event_, context_.stream()), "recording an event"));
          return context_.check(context_.api().event_synchronize(event_), "waiting for an event");
        });
    return {};
  }

 protected:
  // There is nothing to compare: it ran.
  Result<Check> compare(size_t) override {
    Check check;
    check.status = CheckStatus::kPassed;
    return check;
  }

 private:
  cuda_abi::Event event_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_memcpy(Device& device, const OpParams& params) {
  return prepare_as<MemcpyOp>(device, params);
}

Result<std::unique_ptr<PreparedOp>> prepare_launch(Device& device, const OpParams& params) {
  return prepare_as<LaunchOp>(device, params);
}

std::optional<std::string> own_kernel_unsupported(const DeviceIdentity& device, const OpParams&) {
  if (device.cc_major >= 8) return std::nullopt;
  return fmt::format("own kernels need compute capability 8.0 or later, {} has {}.{}", device.name, device.cc_major,
                     device.cc_minor);
}

}  // namespace llmprof::kernels::cuda
