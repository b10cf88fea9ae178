// A model held against one GPU of the table: whether it fits, and the least time that its stages take by the roofline
// (docs/formulas.md). A bound, not a prediction: nothing is assumed about how well anything runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "hardware/hardware.h"
#include "model/cost.h"

namespace llmprof {

struct StageBound {
  ModelStage stage = ModelStage::kPrefill;
  std::optional<double> compute_ms;  // arithmetic at the data sheet's peaks of the formats it runs in
  std::optional<double> memory_ms;   // what must come from memory, at the data sheet's bandwidth
  double dram_bytes = 0;             // that: weights and cache beyond what the last-level cache may hold
  std::vector<std::string> unknown;  // why a part is absent
  // The larger of the two that are known.
  std::optional<double> least_ms() const;
  std::string limit() const;  // "arithmetic", "memory"
};

struct GpuFit {
  std::string gpu;                     // SKU
  std::optional<double> memory_bytes;  // what programs see of it, else the label
  std::string memory_provenance;
  int64_t gpus_at_least = 0;  // by memory alone; 0 if it is not known
  std::vector<StageBound> stages;
  std::string basis;  // the peaks and the bandwidth, in words
  std::vector<std::string> provenance;
};
GpuFit hold_against(const Gpu& gpu, const Workload& workload, const MemoryNeed& memory,
                    const std::vector<StageCost>& stages);
void write_json(JsonWriter& json, const GpuFit& fit);  // an object

}  // namespace llmprof
