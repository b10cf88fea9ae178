// CUPTI's records as spool records.
#pragma once

#include <string_view>

#include "capture/inject/cupti.h"
#include "capture/spool/writer.h"

namespace llmprof::inject {

// "cudaLaunchKernel" of "cudaLaunchKernel_v7000" and "cudaLaunchKernel_ptsz_v7000".
std::string_view plain_call_name(std::string_view name);

// Writes every record of a buffer that the current level wants. With the spool locked.
void decode(const Cupti& api, uint8_t* buffer, size_t valid_size, spool::Writer& writer);

// Writes a DeviceDef for each GPU that the driver shows this process. False if CUDA is not initialised yet.
bool write_devices(spool::Writer& writer);

}  // namespace llmprof::inject
