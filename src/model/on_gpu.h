// A model held against a GPU of the table: whether it fits, and the least time that its stages take by the roofline
// (docs/formulas.md), on one of them or, where one does not hold it, on as many as do. A bound, not a prediction:
// nothing is assumed about how well anything runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/hardware.h"
#include "model/cost.h"
#include "results/model.h"

namespace llmprof {

struct StageBound {
  ModelStage stage = ModelStage::kPrefill;
  std::optional<double> compute_ms;  // `flops` at the data sheet's peaks of the formats they run in
  std::optional<double> memory_ms;   // `dram_bytes` at the data sheet's bandwidth
  double flops = 0;
  double dram_bytes = 0;             // what must cross the bus: weights and KV cache less what the L2 may hold of them
  std::vector<std::string> unknown;  // why a part is absent
  // The larger of the two that are known.
  std::optional<double> least_ms() const;
  StageLimit limit() const;
};

struct GpuFit {
  std::string gpu;                     // SKU
  std::string asked;                   // the name that it was asked for by
  std::vector<std::string> others;     // SKUs that this name may mean as well
  std::optional<double> memory_bytes;  // what programs see of it, else the label
  std::string memory_provenance;
  bool memory_as_driver_counts = false;  // else what the GPU is called
  int64_t gpus_at_least = 0;             // by memory alone; 0 if it is not known
  int64_t gpus = 1;                      // that the bounds are for: work, bytes and caches of all of them together
  double cache_bytes = 0;                // last-level cache of one; 0 if it is not known
  std::vector<StageBound> stages;
  std::string basis;    // the rates that the bounds rest on, in words
  std::string traffic;  // and which bytes
  std::vector<std::string> provenance;
};
GpuFit hold_against(const Gpu& gpu, const RequestShape& shape, const MemoryNeed& memory,
                    const std::vector<StageCost>& stages);
ModelOnGpu on_gpu_result(const GpuFit& fit);

}  // namespace llmprof
