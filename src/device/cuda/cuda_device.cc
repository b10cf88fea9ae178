#include "device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "device/fill.h"

namespace llmprof::device::cuda {
namespace {

constexpr unsigned char kGuardPattern = 0xa5;
constexpr size_t kHostChunk = size_t{16} << 20;
constexpr unsigned kFillThreads = 256;

std::string gigabytes(int64_t bytes) { return fmt::format("{:.3g} GB", static_cast<double>(bytes) / 1e9); }

const char* fill_kernel_name(const Fill& fill) {
  if (fill.kind == Fill::Kind::kIndex) return "fill_index";
  switch (fill.dtype) {
    case DType::kFp64:
      return "fill_fp64";
    case DType::kBf16:
      return "fill_bf16";
    case DType::kFp16:
      return "fill_fp16";
    case DType::kFp8:
      return "fill_fp8";
    case DType::kInt8:
    case DType::kFp4:
      return "fill_int8";  // of fp4 a byte of two
    default:
      return "fill_fp32";
  }
}

}  // namespace

class CudaDevice::CudaBuffer : public Buffer {
 public:
  CudaBuffer(CudaDevice& device, cuda_abi::DevicePtr base, size_t bytes, size_t whole)
      : device_(device), base_(base), bytes_(bytes), whole_(whole) {}
  ~CudaBuffer() override {
    device_.context_->api().memory_free(base_);
    device_.held_ -= static_cast<int64_t>(whole_);
  }
  void* address() const override { return reinterpret_cast<void*>(base_ + kGuardBytes); }
  size_t bytes() const override { return bytes_; }

 private:
  CudaDevice& device_;
  cuda_abi::DevicePtr base_;
  size_t bytes_, whole_;
};

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  std::unique_ptr<CudaDevice> device(new CudaDevice);
  LLMPROF_ASSIGN(device->context_, Context::open(ordinal));
  Context& context = *device->context_;
  const cuda_abi::Api& api = context.api();
  DeviceIdentity& identity = device->identity_;
  identity.kind = DeviceKind::kCuda;
  identity.ordinal = ordinal;
  std::array<char, 256> name{};
  LLMPROF_CHECK(context.check(api.device_name(name.data(), static_cast<int>(name.size()), context.device()),
                              "reading the GPU's name"));
  identity.name = name.data();
  nvidia::DeviceUuids uuids;
  LLMPROF_CHECK(context.check(nvidia::read_uuids(api.device_uuid, api.gpu_uuid, context.device(), uuids),
                              "reading the GPU's uuid"));
  identity.uuid = uuids.device;
  identity.key = identity.uuid;
  identity.cc_major = context.attribute(cuda_abi::kCapabilityMajor);
  identity.cc_minor = context.attribute(cuda_abi::kCapabilityMinor);
  identity.units = context.sms();
  identity.cache_bytes = context.attribute(cuda_abi::kL2CacheBytes);
  size_t memory = 0;
  LLMPROF_CHECK(context.check(api.device_memory(&memory, context.device()), "reading the GPU's memory"));
  identity.memory_bytes = static_cast<int64_t>(memory);
  device->telemetry_ = std::make_unique<TelemetryThread>(uuids);
  identity.driver = device->telemetry_->driver_version();
  if (identity.driver.empty()) identity.driver = nvidia::cuda_version_text(context.driver().version);
  identity.clock_max_mhz = device->telemetry_->clock_max_mhz();
  if (identity.clock_max_mhz <= 0) identity.clock_max_mhz = context.attribute(cuda_abi::kClockRateKhz) / 1000.0;
  device->timer_ = std::make_unique<Timer>(context, identity.cache_bytes, identity.clock_max_mhz);
  identity.libraries.push_back(context.driver().about);
  // Not being there is no error yet: what needs it says so.
  const Result<const nvidia::NvrtcLibrary*> nvrtc = context.nvrtc();
  if (nvrtc) identity.libraries.push_back((*nvrtc)->about);
  return device;
}

CudaDevice::~CudaDevice() = default;

void CudaDevice::note_library(const LibraryVersion& library) {
  for (const LibraryVersion& known : identity_.libraries)
    if (known.name == library.name) return;
  identity_.libraries.push_back(library);
}

int64_t CudaDevice::free_bytes() const {
  size_t free = 0, total = 0;
  return context_->api().memory_info(&free, &total) == cuda_abi::kSuccess ? static_cast<int64_t>(free) : 0;
}

Result<std::unique_ptr<Buffer>> CudaDevice::allocate(size_t bytes) {
  const size_t whole = (bytes + 255) / 256 * 256 + 2 * kGuardBytes;
  cuda_abi::DevicePtr base = 0;
  const cuda_abi::Result result = context_->api().memory_alloc(&base, whole);
  if (result == cuda_abi::kOutOfMemory && !context_->lost())
    return fail(
        fmt::format("{} of GPU memory were asked for, {} of {} are free", gigabytes(static_cast<int64_t>(bytes)),
                    gigabytes(free_bytes()), gigabytes(identity_.memory_bytes)),
        fmt::format("cuda:{}", identity_.ordinal), "take a smaller shape, or end what else uses this GPU");
  LLMPROF_CHECK(context_->check(result, "allocating GPU memory"));
  held_ += static_cast<int64_t>(whole);
  peak_ = std::max(peak_, held_);
  std::unique_ptr<Buffer> buffer = std::make_unique<CudaBuffer>(*this, base, bytes, whole);
  const cuda_abi::Api& api = context_->api();
  const size_t after = whole - kGuardBytes - bytes;  // up to the end: also what rounding added
  LLMPROF_CHECK(context_->check(api.set_d8(base, kGuardPattern, kGuardBytes, context_->stream()), "setting a guard"));
  LLMPROF_CHECK(context_->check(api.set_d8(base + kGuardBytes + bytes, kGuardPattern, after, context_->stream()),
                                "setting a guard"));
  return buffer;
}

Status CudaDevice::check_guards(const Buffer& buffer) {
  const cuda_abi::DevicePtr start = pointer_of(buffer);
  for (const bool behind : {false, true}) {
    std::array<unsigned char, kGuardBytes> zone{};
    const cuda_abi::DevicePtr at = behind ? start + buffer.bytes() : start - kGuardBytes;
    LLMPROF_CHECK(context_->check(context_->api().copy_to_host(zone.data(), at, zone.size(), context_->stream()),
                                  "reading a guard"));
    LLMPROF_CHECK(synchronize());
    for (size_t i = 0; i < zone.size(); ++i) {
      if (zone[i] == kGuardPattern) continue;
      return fail(behind
                      ? fmt::format("byte {} behind the end of a buffer of {} bytes was overwritten", i, buffer.bytes())
                      : fmt::format("byte {} in front of a buffer was overwritten", kGuardBytes - i));
    }
  }
  return {};
}

Status CudaDevice::fill_by_host(const Buffer& buffer, const Fill& fill, size_t count) {
  const size_t element = fill_unit_bytes(fill.dtype);
  const size_t chunk = kHostChunk / element;
  std::vector<char> numbers(std::min(count, chunk) * element);
  for (size_t first = 0; first < count; first += chunk) {
    const size_t some = std::min(chunk, count - first);
    fill_elements(fill, first, some, numbers.data());
    LLMPROF_CHECK(upload(buffer, first * element, numbers.data(), some * element));
  }
  return {};
}

Status CudaDevice::fill(const Buffer& buffer, const Fill& fill) {
  LLMPROF_CHECK(check_fill(fill));
  if (fill.kind == Fill::Kind::kPoison)
    return context_->check(context_->api().set_d8(pointer_of(buffer), 0xff, buffer.bytes(), context_->stream()),
                           "poisoning a buffer");
  const size_t count = buffer.bytes() / fill_unit_bytes(fill.dtype);
  if (count == 0) return {};
  const Result<Kernel> kernel = context_->kernel({"fill.cu", {}}, fill_kernel_name(fill));
  if (!kernel) return context_->lost() ? tl::unexpected<Error>(kernel.error()) : fill_by_host(buffer, fill, count);
  const uint64_t wanted = (count + kFillThreads - 1) / kFillThreads;
  const uint64_t most = static_cast<uint64_t>(context_->sms()) * 32;
  const cuda_abi::DevicePtr out = pointer_of(buffer);
  const uint64_t elements = count, seed = fill_mix(fill.seed), below = static_cast<uint64_t>(fill.below);
  return context_->launch(*kernel, static_cast<unsigned>(std::min(wanted, most)), kFillThreads, out, elements, seed,
                          below);
}

Status CudaDevice::upload(const Buffer& buffer, size_t offset, const void* from, size_t bytes) {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset)
    return fail(fmt::format("{} bytes at {} do not lie in a buffer of {}", bytes, offset, buffer.bytes()));
  LLMPROF_CHECK(
      context_->check(context_->api().copy_to_device(pointer_of(buffer) + offset, from, bytes, context_->stream()),
                      "copying to the GPU"));
  return synchronize();
}

Status CudaDevice::download(const Buffer& buffer, size_t offset, void* to, size_t bytes) {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset)
    return fail(fmt::format("{} bytes at {} do not lie in a buffer of {}", bytes, offset, buffer.bytes()));
  LLMPROF_CHECK(
      context_->check(context_->api().copy_to_host(to, pointer_of(buffer) + offset, bytes, context_->stream()),
                      "copying from the GPU"));
  return synchronize();
}

Result<std::unique_ptr<Device>> open_cuda(int ordinal) {
  Result<std::unique_ptr<CudaDevice>> device = CudaDevice::open(ordinal);
  if (!device) return tl::unexpected<Error>(std::move(device.error()));
  return std::unique_ptr<Device>(std::move(*device));
}

}  // namespace llmprof::device::cuda
