// Every operation of a model at given batch sizes and lengths, as cases: the shapes that one layer, the embedding and
// the head run with, each once however many layers share it, and what they add up to per step.
//
// Steps are those of a serving engine that runs requests of one length together: one prefill of the whole batch per
// prompt length, one decode step per context. The operators are those of `llmprof model` (model/cost.h); projections
// that engines join are one product here (q, k, v; gate and up).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/plan.h"
#include "model/config.h"
#include "results/bench.h"

namespace llmprof::bench {

struct PresetOptions {
  std::vector<int64_t> batches = {1}, prompts = {2048};
  std::vector<int64_t> contexts;  // of decode steps; empty: as long as the prompts
  uint64_t seed = 1;
};

struct Preset {
  struct Part {
    size_t step = 0, plan = 0;
    std::string name;
    int64_t calls = 1;
  };
  std::string model;
  std::vector<std::string> steps;    // "prefill 8 x 512", "decode 8 x 2048"
  std::vector<CasePlan> plans;       // different ones, those of the first step first
  std::vector<Part> parts;           // step by step, in the order of execution
  std::vector<std::string> remarks;  // what of the model has no operation here
};

// Errors: lengths that are not positive, more than 10,000 cases, a data type that no operation has.
Result<Preset> preset_of(std::span<const kernels::Operation> operations, const device::DeviceIdentity& device,
                         const ModelConfig& model, const PresetOptions& options);

// The parts with the times of `records`; parts that were not timed have none, and their step has no sum then.
std::vector<ModelStepRow> model_steps(const Preset& preset, const std::vector<CaseRecord>& records);
}  // namespace llmprof::bench
