// The device of a recording and its ceilings: from the recorded properties and the hardware table.
#pragma once

#include "analyze/analysis.h"
#include "base/diagnostics.h"
#include "hardware/hardware.h"

namespace llmprof {

// The device with most GPU time. options.gpu names another part of the hardware table; an unknown name is an error with
// the nearest ones. A device that the recording does not describe, or that the table does not know, has no peaks: that
// is noted under cannot_tell and counted, never guessed. Ceilings that were measured on it (options.measured) are put
// beside those of the data sheet, and in their place where there is none: for CPUs, and for GPUs not in the table.
Result<std::optional<DeviceReport>> describe_device(const Trace& trace, const AnalyzeOptions& options,
                                                    Diagnostics& diagnostics, std::vector<CannotTell>& cannot_tell);

// The data sheet's peak of products of that type; nothing where it has none.
OptDouble sheet_flops_per_s(const Gpu& gpu, DType dtype);

// In which element type most of the time of matrix products is spent, and its ridge point; nothing where none has half
// of it.
void name_arithmetic(const Trace& trace, const Groups& groups, DeviceReport& device);
// The same by the formula of the model, where shapes did not tell.
void take_arithmetic_of_stages(const std::vector<StageTiming>& stages, DeviceReport& device);

// Counts the data types whose compute-bound products ran faster than their measured ceiling, which then is none. Those
// of a CPU are dropped from `device`, which is the context's. Then every kernel whose share of a measured roof is over
// 100 %, by name: by more than runs differ by, or at all where the ceilings were measured while disturbed.
void check_ceilings(const Context& context, DeviceReport& device, Diagnostics& diagnostics);

}  // namespace llmprof
