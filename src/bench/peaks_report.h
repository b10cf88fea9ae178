// `llmprof peaks` as text, JSON (schema llmprof.peaks/1) and CSV.
#pragma once

#include <string>
#include <vector>

#include "base/json_writer.h"
#include "base/page.h"
#include "bench/peaks.h"
#include "bench/rows.h"

namespace llmprof::bench {

// Rows of all tables; what is not known is absent.
struct PeakTables {
  std::vector<PeakFlopsRow> flops;
  std::vector<PeakBandwidthRow> bandwidth;
  std::vector<PeakLatencyRow> latency;
  std::vector<RidgeRow> ridge;
};
PeakTables tables_of(const Peaks& peaks);

// `kept` names the ceilings file, or says why there is none.
std::string peaks_text(const Peaks& peaks, const std::string& kept, const TextStyle& style);
std::string peaks_json(const Peaks& peaks, const std::string& tool_version);
// One table after the other under their names: "flops", "bandwidth", "latency", "ridge".
std::vector<std::pair<std::string, std::string>> peaks_csv(const Peaks& peaks);

// "NVIDIA H200 (GPU-5c.., driver 580.1), 132 SMs; cuBLASLt 13.1.0"
std::string device_line(const device::DeviceIdentity& device);
void write_device(JsonWriter& json, const device::DeviceIdentity& device);  // an object
std::string throttle_text(const Timing& timing);                            // "power cap 62 %"

}  // namespace llmprof::bench
