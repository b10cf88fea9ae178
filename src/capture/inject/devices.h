// The GPUs of this process as the driver describes them, without creating a context.
#pragma once

#include "capture/spool/writer.h"

namespace llmprof::inject {

// Writes a DeviceDef for each GPU that the driver shows this process. False if CUDA is not initialised yet.
bool write_devices(spool::Writer& writer);

}  // namespace llmprof::inject
