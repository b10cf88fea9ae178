// A stand-in for libcupti (PM sampling and the profiler's host half) and for libcuda, in one library. Samples are made
// of real time: from Start on, one every interval. It is strict about what CUPTI is strict about: sizes of structs, the
// order of calls, a config image that lives while the session does, host objects that a bad name poisons.
//   FAKE_PM_CHIP             chip name (GH100)
//   FAKE_PM_GPUS             how many GPUs cuInit finds (1)
//   FAKE_PM_AVAILABILITY     code of cuptiPmSamplingGetCounterAvailability (0)
//   FAKE_PM_ENABLE           code of cuptiPmSamplingEnable (0)
//   FAKE_PM_ENABLE_AGAIN     code of the second and later ones (0)
//   FAKE_PM_REJECT           names that hold this text do not exist on the chip
//   FAKE_PM_METRICS          more metrics than this take two passes (48)
//   FAKE_PM_OVERFLOW_AT      the decoding with this number finds the hardware buffer overflowed (1 is the first)
//   FAKE_PM_GAP              so many samples are missing after the hundredth of each session
//   FAKE_PM_SLOW_BELOW       at intervals below this many ns, decoding takes long and never comes to the end
//   FAKE_PM_SLOW_ABOVE       the same with more metrics than this
//   FAKE_PM_SAMPLE_US        each sample takes so long to decode (0)
//   FAKE_PM_VGPU             SupportLevel of vgpu (3)
//   FAKE_PM_CRASH            1: cuptiPmSamplingEnable crashes
// Values: metric i of a sample is i + 1; the third is not finite in every tenth sample; the first sample of a session
// has no start and no values.
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "nvidia/cuda_abi.h"
#include "nvidia/cupti_profiler_abi.h"

namespace cuda_abi = llmprof::cuda_abi;
namespace own = llmprof::cupti_profiler;
using own::Code;

namespace {

int64_t number(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

std::string chip() {
  const char* name = std::getenv("FAKE_PM_CHIP");
  return name != nullptr ? name : "GH100";
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

struct Sample {
  uint64_t start_ns, end_ns, number;
};
struct ImageHead {
  uint64_t magic, capacity, count;
};
constexpr uint64_t kMagic = 0x656B6166696D6770ULL;

struct Session {
  bool enabled = false, configured = false, running = false;
  const uint8_t* config = nullptr;
  std::vector<uint8_t> config_copy;
  int64_t interval_ns = 0, start_ns = 0, stop_ns = 0;
  uint64_t produced = 0;  // samples handed out
  size_t metrics = 0;
};
Session session;
int64_t enables = 0, decodes = 0;

own::PmSamplingObject* object() { return reinterpret_cast<own::PmSamplingObject*>(&session); }

struct Host {
  bool poisoned = false;
  size_t metrics = 0;
};
Host* host_of(own::HostObject* host) { return reinterpret_cast<Host*>(host); }

Code as_code(int64_t code) { return static_cast<Code>(code); }

template <class T>
void store(uint8_t* at, const T& value) {
  std::memcpy(at, &value, sizeof value);
}
template <class T>
T fetch(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
Sample sample_of(const uint8_t* image, size_t index) {
  return fetch<Sample>(image + sizeof(ImageHead) + index * sizeof(Sample));
}

}  // namespace

#define SIZED(expected) \
  if (params->struct_size != (expected)) return own::kInvalidParameter

extern "C" {

void fake_pm_forget() {
  session = Session();
  enables = decodes = 0;
}

cuda_abi::Result cuInit(unsigned) { return number("FAKE_PM_GPUS", 1) > 0 ? cuda_abi::kSuccess : cuda_abi::kNoDevice; }
cuda_abi::Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return cuda_abi::kSuccess;
}
cuda_abi::Result cuDeviceGetCount(int* count) {
  *count = static_cast<int>(number("FAKE_PM_GPUS", 1));
  return cuda_abi::kSuccess;
}
cuda_abi::Result cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return cuda_abi::kSuccess;
}
cuda_abi::Result cuDeviceGetUuid_v2(cuda_abi::Uuid* uuid, int device) {
  *uuid = {};
  uuid->bytes[15] = static_cast<unsigned char>(device);
  return cuda_abi::kSuccess;
}
cuda_abi::Result cuDeviceGetPCIBusId(char* out, int bytes, int device) {
  std::snprintf(out, static_cast<size_t>(bytes), "0000:%02x:00.0", 15U + static_cast<unsigned>(device));
  return cuda_abi::kSuccess;
}

Code cuptiGetVersion(uint32_t* version) {
  *version = 130001;
  return own::kSuccess;
}
Code cuptiGetResultString(Code code, const char** text) {
  *text = code == own::kInsufficientPrivileges ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_FAKE";
  return own::kSuccess;
}
Code cuptiProfilerInitialize(own::InitializeParams* params) {
  SIZED(own::kInitializeSize);
  return own::kSuccess;
}
Code cuptiProfilerDeInitialize(own::InitializeParams*) { return own::kSuccess; }
Code cuptiDeviceGetChipName(own::ChipNameParams* params) {
  SIZED(own::kChipNameSize);
  static std::string name;
  name = chip();
  params->chip_name = name.c_str();
  return own::kSuccess;
}
Code cuptiProfilerDeviceSupported(own::DeviceSupportedParams* params) {
  SIZED(own::kDeviceSupportedSize);
  if (params->api != own::kApiPmSampling) return own::kInvalidParameter;
  const own::SupportLevel vgpu = static_cast<own::SupportLevel>(number("FAKE_PM_VGPU", own::kSupported));
  params->architecture = params->sli = params->confidential_compute = params->cmp = params->wsl = own::kSupported;
  params->vgpu = vgpu;
  params->is_supported = vgpu == own::kSupported ? own::kSupported : own::kUnsupported;
  return own::kSuccess;
}

Code cuptiProfilerHostInitialize(own::HostInitializeParams* params) {
  SIZED(own::kHostInitializeSize);
  if (std::strlen(params->chip_name) != 5) return own::kInvalidChipName;
  params->host = reinterpret_cast<own::HostObject*>(new Host);
  return own::kSuccess;
}
Code cuptiProfilerHostDeinitialize(own::HostDeinitializeParams* params) {
  delete host_of(params->host);
  return own::kSuccess;
}
Code cuptiProfilerHostConfigAddMetrics(own::HostAddMetricsParams* params) {
  SIZED(own::kHostAddMetricsSize);
  Host* host = host_of(params->host);
  if (host->poisoned) return own::kUnknown;
  const char* reject = std::getenv("FAKE_PM_REJECT");
  for (size_t i = 0; i < params->count; ++i) {
    if (reject != nullptr && std::strstr(params->names[i], reject) != nullptr) {
      host->poisoned = true;
      return own::kInvalidParameter;
    }
  }
  host->metrics += params->count;
  return own::kSuccess;
}
Code cuptiProfilerHostGetConfigImageSize(own::HostConfigSizeParams* params) {
  params->config_bytes = 64 + host_of(params->host)->metrics;
  return own::kSuccess;
}
Code cuptiProfilerHostGetConfigImage(own::HostConfigParams* params) {
  SIZED(own::kHostConfigSize);
  for (size_t i = 0; i < params->config_bytes; ++i) params->config[i] = static_cast<uint8_t>(i * 7 + 1);
  return own::kSuccess;
}
Code cuptiProfilerHostGetNumOfPasses(own::HostPassesParams* params) {
  SIZED(own::kHostPassesSize);
  const size_t metrics = params->config_bytes - 64;
  params->passes = metrics > static_cast<size_t>(number("FAKE_PM_METRICS", 48)) ? 2 : 1;
  return own::kSuccess;
}
Code cuptiProfilerHostEvaluateToGpuValues(own::HostEvaluateParams* params) {
  SIZED(own::kHostEvaluateSize);
  const Sample sample = sample_of(params->image, params->range_index);
  for (size_t i = 0; i < params->count; ++i) {
    const bool hole = sample.number == 0 || (i == 2 && sample.number % 10 == 0);
    params->values[i] = hole ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(i + 1);
  }
  return own::kSuccess;
}

Code cuptiPmSamplingGetCounterAvailability(own::PmAvailabilityParams* params) {
  SIZED(own::kPmAvailabilitySize);
  const Code code = as_code(number("FAKE_PM_AVAILABILITY", 0));
  if (code == own::kSuccess && params->image == nullptr) params->image_bytes = 128;
  return code;
}
Code cuptiPmSamplingEnable(own::PmEnableParams* params) {
  SIZED(own::kPmEnableSize);
  if (number("FAKE_PM_CRASH", 0) != 0) std::raise(SIGSEGV);
  if (session.enabled) return own::kInvalidOperation;
  const Code code = as_code(number(++enables > 1 ? "FAKE_PM_ENABLE_AGAIN" : "FAKE_PM_ENABLE", 0));
  if (code != own::kSuccess) return code;
  session = Session();
  session.enabled = true;
  params->object = object();
  return own::kSuccess;
}
Code cuptiPmSamplingDisable(own::PmObjectParams* params) {
  SIZED(own::kPmObjectSize);
  if (!session.enabled || session.running) return own::kInvalidOperation;
  session = Session();
  return own::kSuccess;
}
Code cuptiPmSamplingSetConfig(own::PmSetConfigParams* params) {
  SIZED(own::kPmSetConfigSize);
  if (!session.enabled || params->interval == 0 || params->hardware_buffer_bytes == 0) return own::kInvalidParameter;
  if (params->trigger_mode != (chip() == "GA100" ? own::kTriggerSysclk : own::kTriggerTime)) return own::kNotSupported;
  session.config = params->config;
  session.config_copy.assign(params->config, params->config + params->config_bytes);
  session.interval_ns = static_cast<int64_t>(params->interval);
  session.configured = true;
  return own::kSuccess;
}
Code cuptiPmSamplingGetCounterDataSize(own::PmImageSizeParams* params) {
  SIZED(own::kPmImageSizeSize);
  session.metrics = params->count;
  params->image_bytes = sizeof(ImageHead) + params->max_samples * sizeof(Sample);
  return own::kSuccess;
}
Code cuptiPmSamplingCounterDataImageInitialize(own::PmImageInitializeParams* params) {
  SIZED(own::kPmImageInitializeSize);
  store(params->image, ImageHead{kMagic, (params->image_bytes - sizeof(ImageHead)) / sizeof(Sample), 0});
  return own::kSuccess;
}
Code cuptiPmSamplingStart(own::PmObjectParams* params) {
  SIZED(own::kPmObjectSize);
  if (!session.configured || session.running) return own::kInvalidOperation;
  session.running = true;
  session.start_ns = now_ns();
  return own::kSuccess;
}
Code cuptiPmSamplingStop(own::PmObjectParams* params) {
  SIZED(own::kPmObjectSize);
  if (!session.running) return own::kInvalidOperation;
  session.running = false;
  session.stop_ns = now_ns();
  return own::kSuccess;
}
Code cuptiPmSamplingDecodeData(own::PmDecodeParams* params) {
  SIZED(own::kPmDecodeSize);
  if (!session.enabled) return own::kInvalidOperation;
  // What CUPTI reads again must still be there.
  if (std::memcmp(session.config, session.config_copy.data(), session.config_copy.size()) != 0) return own::kUnknown;
  ImageHead head = fetch<ImageHead>(params->image);
  if (head.magic != kMagic || head.count != 0) return own::kInvalidParameter;
  const int64_t until_ns = session.running ? now_ns() : session.stop_ns;
  const uint64_t interval_ns = static_cast<uint64_t>(session.interval_ns);
  const uint64_t ready = static_cast<uint64_t>(until_ns - session.start_ns) / interval_ns;
  const bool slow =
      session.running && (session.interval_ns < number("FAKE_PM_SLOW_BELOW", 0) ||
                          static_cast<int64_t>(session.metrics) > number("FAKE_PM_SLOW_ABOVE", INT64_MAX));
  const uint64_t gap = static_cast<uint64_t>(number("FAKE_PM_GAP", 0));
  while (session.produced < ready && head.count < head.capacity) {
    if (gap != 0 && session.produced == 100) session.produced += gap;
    Sample sample{};
    sample.number = session.produced++;
    sample.end_ns = static_cast<uint64_t>(session.start_ns) + (sample.number + 1) * interval_ns;
    sample.start_ns = sample.number == 0 ? 0 : sample.end_ns - interval_ns;
    store(params->image + sizeof head + head.count * sizeof sample, sample);
    ++head.count;
  }
  store(params->image, head);
  params->stop_reason = slow || head.count == head.capacity ? own::kStopImageFull : own::kStopEndOfRecords;
  params->overflow = 0;
  if (slow) usleep(20000);
  usleep(static_cast<useconds_t>(static_cast<int64_t>(head.count) * number("FAKE_PM_SAMPLE_US", 0)));
  return ++decodes == number("FAKE_PM_OVERFLOW_AT", 0) ? own::kOutOfMemory : own::kSuccess;
}
Code cuptiPmSamplingGetCounterDataInfo(own::PmImageInfoParams* params) {
  SIZED(own::kPmImageInfoSize);
  const ImageHead head = fetch<ImageHead>(params->image);
  params->total = head.capacity;
  params->populated = params->completed = head.count;
  return own::kSuccess;
}
Code cuptiPmSamplingCounterDataGetSampleInfo(own::PmSampleInfoParams* params) {
  SIZED(own::kPmSampleInfoSize);
  const Sample sample = sample_of(params->image, params->sample_index);
  params->start_ns = sample.start_ns;
  params->end_ns = sample.end_ns;
  return own::kSuccess;
}

}  // extern "C"
