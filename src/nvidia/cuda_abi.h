// The binary interface of the CUDA driver (libcuda, 12.0 and later), as far as measuring needs it: handles, values and
// function signatures. Enumerations are int; a function that changed its ABI is named with the suffix of the one meant.
// tests/unit/nvidia_cuda_abi_test.cc holds it against the official header where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::cuda_abi {

using DevicePtr = unsigned long long;
using Device = int;
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Library = struct LibraryHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;
struct Uuid {
  unsigned char bytes[16];
};

// CUresult
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kEccUncorrectable = 214,
  kUnsupportedPtxVersion = 222,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kUnknown = 999,
};

// CUdevice_attribute
enum DeviceAttribute : int {
  kClockRateKhz = 13,
  kMultiprocessorCount = 16,
  kComputeMode = 20,
  kL2CacheBytes = 38,
  kThreadsPerMultiprocessor = 39,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kSharedBytesPerBlockOptin = 97,
};

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kWaitValueGeq = 0;
constexpr unsigned kHostAllocPortable = 1;
constexpr unsigned kHostAllocDeviceMap = 2;
constexpr int kCaptureRelaxed = 2;
constexpr int kFunctionMaxDynamicSharedBytes = 8;

// F(member, name without suffix, suffix, result, parameters). The name is a macro in the official header, which puts
// the same suffix; it must not be expanded here, so the suffix is joined as text (#name suffix).
#define LLMPROF_CUDA_FUNCTIONS(F)                                                                                  \
  F(init, cuInit, "", (unsigned flags))                                                                            \
  F(driver_version, cuDriverGetVersion, "", (int* version))                                                        \
  F(error_name, cuGetErrorName, "", (Result result, const char** name))                                            \
  F(device_count, cuDeviceGetCount, "", (int* count))                                                              \
  F(device_get, cuDeviceGet, "", (Device * device, int ordinal))                                                   \
  F(device_name, cuDeviceGetName, "", (char* name, int bytes, Device device))                                      \
  F(device_attribute, cuDeviceGetAttribute, "", (int* value, DeviceAttribute attribute, Device device))            \
  F(device_memory, cuDeviceTotalMem, "_v2", (size_t * bytes, Device device))                                       \
  F(device_uuid, cuDeviceGetUuid, "_v2", (Uuid * uuid, Device device))                                             \
  F(device_bus, cuDeviceGetPCIBusId, "", (char* text, int bytes, Device device))                                   \
  F(context_retain, cuDevicePrimaryCtxRetain, "", (Context * context, Device device))                              \
  F(context_release, cuDevicePrimaryCtxRelease, "_v2", (Device device))                                            \
  F(context_set_current, cuCtxSetCurrent, "", (Context context))                                                   \
  F(context_synchronize, cuCtxSynchronize, "", ())                                                                 \
  F(memory_info, cuMemGetInfo, "_v2", (size_t * free, size_t * total))                                             \
  F(memory_alloc, cuMemAlloc, "_v2", (DevicePtr * address, size_t bytes))                                          \
  F(memory_free, cuMemFree, "_v2", (DevicePtr address))                                                            \
  F(host_alloc, cuMemHostAlloc, "", (void** address, size_t bytes, unsigned flags))                                \
  F(host_free, cuMemFreeHost, "", (void* address))                                                                 \
  F(copy_to_device, cuMemcpyHtoDAsync, "_v2", (DevicePtr to, const void* from, size_t bytes, Stream stream))       \
  F(copy_to_host, cuMemcpyDtoHAsync, "_v2", (void* to, DevicePtr from, size_t bytes, Stream stream))               \
  F(copy_on_device, cuMemcpyDtoDAsync, "_v2", (DevicePtr to, DevicePtr from, size_t bytes, Stream stream))         \
  F(set_d8, cuMemsetD8Async, "", (DevicePtr to, unsigned char value, size_t count, Stream stream))                 \
  F(set_d32, cuMemsetD32Async, "", (DevicePtr to, unsigned value, size_t count, Stream stream))                    \
  F(stream_create, cuStreamCreate, "", (Stream * stream, unsigned flags))                                          \
  F(stream_destroy, cuStreamDestroy, "_v2", (Stream stream))                                                       \
  F(stream_synchronize, cuStreamSynchronize, "", (Stream stream))                                                  \
  F(stream_wait_value, cuStreamWaitValue32, "_v2", (Stream stream, DevicePtr at, uint32_t value, unsigned flags))  \
  F(capture_begin, cuStreamBeginCapture, "_v2", (Stream stream, int mode))                                         \
  F(capture_end, cuStreamEndCapture, "", (Stream stream, Graph * graph))                                           \
  F(graph_instantiate, cuGraphInstantiate, "WithFlags", (GraphExec * exec, Graph graph, unsigned long long flags)) \
  F(graph_upload, cuGraphUpload, "", (GraphExec exec, Stream stream))                                              \
  F(graph_launch, cuGraphLaunch, "", (GraphExec exec, Stream stream))                                              \
  F(graph_exec_destroy, cuGraphExecDestroy, "", (GraphExec exec))                                                  \
  F(graph_destroy, cuGraphDestroy, "", (Graph graph))                                                              \
  F(event_create, cuEventCreate, "", (Event * event, unsigned flags))                                              \
  F(event_destroy, cuEventDestroy, "_v2", (Event event))                                                           \
  F(event_record, cuEventRecord, "", (Event event, Stream stream))                                                 \
  F(event_synchronize, cuEventSynchronize, "", (Event event))                                                      \
  F(event_elapsed, cuEventElapsedTime, "", (float* milliseconds, Event start, Event end))                          \
  F(module_load, cuModuleLoadData, "", (Module * module, const void* image))                                       \
  F(module_unload, cuModuleUnload, "", (Module module))                                                            \
  F(module_function, cuModuleGetFunction, "", (Function * function, Module module, const char* name))              \
  F(function_set, cuFuncSetAttribute, "", (Function function, int attribute, int value))                           \
  F(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, "",                                                    \
    (int* blocks, Function function, int threads, size_t shared_bytes))                                            \
  F(launch, cuLaunchKernel, "",                                                                                    \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,     \
     unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, void** extra))

// Since CUDA 12.0: how its runtime loads the kernels of a program. `kernel` is launched as a function is. The first
// one, which is the older, gives the uuid of the whole GPU where its successor ("_v2") gives that of a part of it
// (MIG).
#define LLMPROF_CUDA_OPTIONAL_FUNCTIONS(F)                                                                    \
  F(gpu_uuid, cuDeviceGetUuid, "", (Uuid * uuid, Device device))                                              \
  F(library_load, cuLibraryLoadData, "",                                                                      \
    (Library * library, const void* image, int* options, void** values, unsigned count, int* library_options, \
     void** library_values, unsigned library_count))                                                          \
  F(library_unload, cuLibraryUnload, "", (Library library))                                                   \
  F(library_kernel, cuLibraryGetKernel, "", (Function * kernel, Library library, const char* name))

// All of libcuda that is used; once it is open every member is set, but for those that older drivers do not have.
struct Api {
#define LLMPROF_CUDA_MEMBER(member, name, suffix, parameters) Result(*member) parameters = nullptr;
  LLMPROF_CUDA_FUNCTIONS(LLMPROF_CUDA_MEMBER)
  LLMPROF_CUDA_OPTIONAL_FUNCTIONS(LLMPROF_CUDA_MEMBER)
#undef LLMPROF_CUDA_MEMBER
};

}  // namespace llmprof::cuda_abi
