// CUPTI's records as spool records.
#pragma once

#include "capture/inject/cupti.h"
#include "capture/spool/writer.h"

namespace llmprof::inject {

// Writes every record of a buffer that the current level wants. With the spool locked.
void decode(const Cupti& api, uint8_t* buffer, size_t valid_size, spool::Writer& writer);

// Writes a DeviceDef for each GPU that the driver shows this process. False if CUDA is not initialised yet.
bool write_devices(spool::Writer& writer);

}  // namespace llmprof::inject
