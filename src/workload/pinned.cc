#include "workload/pinned.h"

#include <algorithm>
#include <cstring>

namespace llmprof::workload {
namespace {

constexpr size_t kBytesMin = size_t{1} << 20;
constexpr size_t kPinnedAlignment = 64;

}  // namespace

Pinned::~Pinned() {
  static_cast<void>(context_.synchronize());
  if (memory_ != nullptr) context_.api().host_free(memory_);
}

Result<char*> Pinned::room(size_t bytes) {
  if (used_ + bytes > bytes_) LLMPROF_CHECK(wait());
  if (bytes > bytes_) {
    if (memory_ != nullptr) context_.api().host_free(memory_);
    memory_ = nullptr;
    bytes_ = 0;
    const size_t wanted = std::max(bytes, kBytesMin);
    void* made = nullptr;
    LLMPROF_CHECK(context_.check(context_.api().host_alloc(&made, wanted, 0), "taking page-locked memory"));
    memory_ = static_cast<char*>(made);
    bytes_ = wanted;
  }
  char* const at = memory_ + used_;
  used_ += (bytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
  return at;
}

Status Pinned::upload(cuda_abi::DevicePtr to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  LLMPROF_ASSIGN(char* const staged, room(bytes));
  std::memcpy(staged, from, bytes);
  return context_.check(context_.api().copy_to_device(to, staged, bytes, context_.stream()), "copying to the GPU");
}

Status Pinned::download(void* to, cuda_abi::DevicePtr from, size_t bytes) {
  if (bytes == 0) return wait();
  LLMPROF_ASSIGN(char* const staged, room(bytes));
  LLMPROF_CHECK(
      context_.check(context_.api().copy_to_host(staged, from, bytes, context_.stream()), "copying from the GPU"));
  LLMPROF_CHECK(wait());
  std::memcpy(to, staged, bytes);
  return {};
}

Status Pinned::wait() {
  LLMPROF_CHECK(context_.synchronize());
  used_ = 0;
  return {};
}

}  // namespace llmprof::workload
