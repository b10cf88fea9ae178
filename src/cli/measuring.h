// What `peaks` and `bench` have in common: opening the device, lists of data types, progress, and files that must be
// writable before minutes are spent.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "cli/command.h"
#include "device/device.h"

namespace llmprof::cli {

struct DeviceOptions {
  std::string device;
  int threads = 0;
  bool busy_ok = false;
};
void add_device_options(const Command& command, DeviceOptions& options);
// Says on stderr where the CPU was taken because there is no GPU.
Result<std::unique_ptr<device::Device>> open_measured_device(const DeviceOptions& options, bool quiet);

// "bf16,fp32"; an error names the nearest of those that `sensible` holds: all that have a name if it is empty.
Result<std::vector<DType>> parse_dtypes(const std::vector<std::string>& names, std::span<const DType> sensible = {});

// What other processes do on the device that is to be measured, in words; empty if they do nothing to speak of, or if
// nothing tells. Takes 0.3 s of a CPU, 0.3 s of an idle GPU and 1.5 s of a busy one, on which nothing of ours may be
// running.
std::string busy_with_others(device::Device& device);
// Before anything is measured: a busy CPU is said on stderr; a busy GPU is an error unless `busy_ok`, then said too.
// The words, for the rows.
Result<std::string> refuse_if_busy(device::Device& device, bool busy_ok, bool quiet);

// Whether a file (or, for csv, a folder) could be written there; empty is standard output.
Status check_writable(const std::string& path);

// A line on stderr that is written over; only on a terminal, and not when quiet.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& text);
  void clear();

 private:
  bool shown_ = false, on_;
};

}  // namespace llmprof::cli
