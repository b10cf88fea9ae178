// The uuids of a device as NVML and nvidia-smi write them, and which of them are a part's of a divided GPU (MIG). In a
// header, without allocations, for the injection library.
#pragma once

#include <cstring>

#include "nvidia/cuda_abi.h"

namespace llmprof::nvidia {

constexpr size_t kUuidTextBytes = 4 + 36 + 1;  // "GPU-01234567-89ab-...", and a 0

struct DeviceUuids {
  char device[kUuidTextBytes] = "";  // "GPU-...", or "MIG-...", the part's own
  char whole[kUuidTextBytes] = "";  // of a part the GPU's, by which NVML's readings are found; empty: it is a whole GPU
};

// The prefix has four characters.
inline void write_uuid(const char* prefix, const cuda_abi::Uuid& uuid, char (&out)[kUuidTextBytes]) {
  static constexpr char kHex[] = "0123456789abcdef";
  char* at = out + 4;
  std::memcpy(out, prefix, 4);
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = kHex[uuid.bytes[i] >> 4U];
    *at++ = kHex[uuid.bytes[i] & 15U];
  }
  *at = '\0';
}

// cuDeviceGetUuid_v2 gives the uuid of what a process sees as its device, the older cuDeviceGetUuid that of the GPU:
// where they differ it is a part. `of_gpu` may be null. The result is that of the first.
using ReadUuid = cuda_abi::Result (*)(cuda_abi::Uuid*, cuda_abi::Device);
inline cuda_abi::Result read_uuids(ReadUuid own, ReadUuid of_gpu, cuda_abi::Device device, DeviceUuids& out) {
  cuda_abi::Uuid mine{}, gpu{};
  if (const cuda_abi::Result result = own(&mine, device); result != cuda_abi::kSuccess) return result;
  const bool both = of_gpu != nullptr && of_gpu(&gpu, device) == cuda_abi::kSuccess;
  const bool part = both && std::memcmp(&mine, &gpu, sizeof mine) != 0;
  write_uuid(part ? "MIG-" : "GPU-", mine, out.device);
  if (part) write_uuid("GPU-", gpu, out.whole);
  return cuda_abi::kSuccess;
}

}  // namespace llmprof::nvidia
