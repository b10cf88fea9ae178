// `llmprof peaks`: the ceilings of a device, each measured by the protocol of `bench`.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/protocol.h"
#include "device/device.h"
#include "hardware/measured.h"
#include "results/peaks.h"

namespace llmprof::bench {

struct PeaksOptions {
  std::span<const kernels::Operation> operations;  // those with a ceiling are used
  bool quick = false;
  std::vector<DType> dtypes;  // empty: all that the device has
  double time_factor = 1;     // of every budget: tests shorten them
  std::function<void(const std::string& what)> begin = [](const std::string&) {};  // before each row
};

enum class PeakGroup : uint8_t { kFlops, kMemory, kCache, kLink, kLatency };

struct PeakRow {
  PeakGroup group = PeakGroup::kFlops;
  std::string name;                    // dtype or kind
  PeakPath path = PeakPath::kLibrary;  // of arithmetic
  CaseResult result;                   // sustained timing, best of the shapes
  double value = 0;                    // TFLOP/s, GB/s or us; 0 unless it was timed
  std::string shape;                   // "8192x8192x8192", or bytes
  // A registers row that stays under the library's: the instruction is not how the units reach their rate.
  bool below_library = false;
};

struct Peaks {
  device::DeviceIdentity device;
  std::vector<PeakRow> rows;
  RecorderCosts recorder_ns;         // what recording costs here; empty where that was not measured
  std::vector<std::string> remarks;  // what is missing, and why
  bool quick = false;
  bool interrupted = false;
  bool busy = false;  // other programs had the device, or some of its cores, when it began
};
// Whether it may be more: others had cores of a CPU, and what they took from this row could not be left out.
bool is_disturbed(const Peaks& peaks, const PeakRow& row);

// Of which there may be ceilings of arithmetic, on some device.
std::vector<DType> peak_dtypes(std::span<const kernels::Operation> operations);
// Why no operation of the peaks can do arithmetic of this type on the device; empty if one can.
std::optional<std::string> why_no_arithmetic(const device::Device& device,
                                             std::span<const kernels::Operation> operations, DType dtype);
// Rows in the order of the report; `done` after each.
Result<Peaks> measure_peaks(device::Device& device, const PeaksOptions& options, const std::atomic<bool>& stop,
                            const std::function<void(const PeakRow&)>& done);
// Rows that were timed, without registers rows under the library's. Those above what the data sheet allows at the clock
// they ran at are no records, and left out.
MeasuredCeilings ceilings_of(const Peaks& peaks);

}  // namespace llmprof::bench
