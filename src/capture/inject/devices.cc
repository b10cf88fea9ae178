#include "capture/inject/devices.h"

#include <dlfcn.h>

#include "nvidia/device_uuid.h"

namespace llmprof::inject {
namespace {

// CUdevice_attribute values.
constexpr int kThreadsPerSmMax = 39;
constexpr int kSharedBytesPerSm = 81;
constexpr int kRegistersPerSm = 82;
constexpr int kSmCount = 16;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;

struct Driver {
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*memory)(size_t*, int) = nullptr;
  nvidia::ReadUuid uuid = nullptr;      // of a part of a divided GPU (MIG) its own
  nvidia::ReadUuid gpu_uuid = nullptr;  // of the GPU that it is a part of; may be missing
  int (*bus)(char*, int, int) = nullptr;
};

template <class Function>
bool look_up(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

bool open_driver(Driver& driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  look_up(library, "cuDeviceGetUuid", driver.gpu_uuid);
  if (!look_up(library, "cuDeviceGetUuid_v2", driver.uuid)) driver.uuid = driver.gpu_uuid;
  return look_up(library, "cuDeviceGetCount", driver.count) && look_up(library, "cuDeviceGet", driver.get) &&
         look_up(library, "cuDeviceGetName", driver.name) &&
         look_up(library, "cuDeviceGetAttribute", driver.attribute) &&
         look_up(library, "cuDeviceTotalMem_v2", driver.memory) &&
         look_up(library, "cuDeviceGetPCIBusId", driver.bus) && driver.uuid != nullptr;
}

int32_t attribute(const Driver& driver, int which, int device) {
  int value = -1;
  return driver.attribute(&value, which, device) == 0 ? value : -1;
}

}  // namespace

bool write_devices(spool::Writer& writer) {
  Driver driver;
  int count = 0;
  if (!open_driver(driver) || driver.count(&count) != 0) return false;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    if (driver.get(&device, ordinal) != 0) continue;
    spool::DeviceDef def;
    def.device = ordinal;
    char text[256] = {};
    if (driver.name(text, sizeof text, device) == 0) def.name = writer.text(text);
    def.sm_count = attribute(driver, kSmCount, device);
    def.compute_major = attribute(driver, kComputeMajor, device);
    def.compute_minor = attribute(driver, kComputeMinor, device);
    def.threads_per_sm_max = attribute(driver, kThreadsPerSmMax, device);
    def.registers_per_sm = attribute(driver, kRegistersPerSm, device);
    def.shared_bytes_per_sm = attribute(driver, kSharedBytesPerSm, device);
    size_t bytes = 0;
    if (driver.memory(&bytes, device) == 0) def.memory_bytes = static_cast<int64_t>(bytes);
    nvidia::DeviceUuids uuids;
    if (nvidia::read_uuids(driver.uuid, driver.gpu_uuid, device, uuids) == cuda_abi::kSuccess) {
      def.uuid = writer.text(uuids.device);
      if (uuids.whole[0] != '\0') def.whole_uuid = writer.text(uuids.whole);
    }
    if (driver.bus(text, sizeof text, device) == 0) def.pci_bus = writer.text(text);
    writer.add(def);
  }
  return true;
}

}  // namespace llmprof::inject
