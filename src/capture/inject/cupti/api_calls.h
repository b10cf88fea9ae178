// Runtime and driver calls, seen through CUPTI's callbacks rather than its activity records. Measured on an H200
// (docs/adr 10): records of calls that were not switched on before the first context cannot be switched on later;
// callbacks can at any time. They also run on the program's thread at the call, which is where a call stack can be
// taken and the place where CUPTI may be taken out of the process again.
//
// They are never switched off: when the last one of a domain goes while other threads are inside calls, CUPTI corrupts
// the heap. What must not be recorded is not written; that costs a launch about a tenth of a microsecond.
#pragma once

#include <cstdint>
#include <string_view>

#include "capture/inject/inject.h"
#include "nvidia/cupti_library.h"

namespace llmprof::inject {

// Picks the calls worth a record by name, among those that this version of CUPTI knows.
void choose_calls(const nvidia::CuptiLibrary& api, Level deepest);

// Their callbacks on, after each attaching.
void enable_calls(const nvidia::CuptiLibrary& api, cupti::Subscriber subscriber);
// On again after another client's change.
void enable_own_calls();
// Whether a callback is one of ours.
bool wants_call(uint32_t domain, uint32_t cbid);

// What a callback is the end of: of nothing, or of a call that was the thread's outermost one, which may have waited
// for all that the GPU was given, as far as calls tell. There CUPTI may be taken out of the process.
enum class CallEnd : uint8_t { kNone, kCall, kGpuIdle };
// A callback of the runtime's or the driver's domain.
CallEnd on_api_callback(uint32_t domain, uint32_t cbid, const cupti::CallbackData& data);

// CUPTI counts correlation ids from 1 again each time it is attached; what is written goes on counting. To be called at
// each attaching after the first, before any record of it is decoded.
void continue_correlations();
// A correlation id of CUPTI as it is written, 0 stays 0.
uint32_t written_correlation(uint32_t correlation);

// The name of a call without the suffix that tells its version: cudaLaunchKernel.
std::string_view plain_call_name(std::string_view name);

// After fork, in the child.
void abandon_calls();

}  // namespace llmprof::inject
