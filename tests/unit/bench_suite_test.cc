// The default suite and a model's cases on the operations that there are: every row names axes, types and variants that
// exist, fits the device it is meant for, and the whole stays within minutes.
#include <gtest/gtest.h>

#include <set>

#include "bench/fit.h"
#include "bench/presets.h"
#include "bench/runner.h"
#include "device/cpu/facts.h"
#include "model/catalogue.h"
#include "model/cost.h"

namespace llmprof::bench {
namespace {

device::DeviceIdentity h200() {
  device::DeviceIdentity identity;
  identity.kind = device::DeviceKind::kCuda;
  identity.name = "NVIDIA H200";
  identity.cc_major = 9;
  identity.units = 132;
  identity.memory_bytes = 150'000'000'000;
  identity.cache_bytes = 60 << 20;
  return identity;
}
device::DeviceIdentity cpu() {
  device::DeviceIdentity identity;
  identity.kind = device::DeviceKind::kCpu;
  identity.name = "a CPU";
  identity.units = 2;
  return identity;
}

std::set<std::string> names_of(const std::vector<CasePlan>& plans) {
  std::set<std::string> names;
  for (const CasePlan& plan : plans) names.emplace(plan.operation->name);
  return names;
}

TEST(BenchSuite, EveryRowExistsAndFits) {
  for (const bool quick : {false, true}) {
    for (const device::DeviceIdentity& device : {h200(), cpu()}) {
      const bool gpu = device.kind == device::DeviceKind::kCuda;
      const Result<std::vector<CasePlan>> plans = default_suite(kernels::operations(), device, quick, 1);
      ASSERT_TRUE(plans.has_value()) << plans.error().text();
      std::set<std::string> seen;
      for (const CasePlan& plan : *plans) {
        const std::string what =
            std::string(plan.operation->name) + " " + plan.params.variant + " " + shape_text(plan.params);
        EXPECT_TRUE(seen.insert(what + std::string(dtype_name(plan.params.dtype))).second) << what << " twice";
        EXPECT_TRUE(possible(*plan.operation, device, plan.params)) << what;
        EXPECT_LE(plan.operation->footprint_bytes(plan.params), gpu ? int64_t{16} << 30 : int64_t{1} << 30) << what;
        EXPECT_EQ(plan.chosen, "") << what << ": the suite names what the device has";
      }
      const double seconds = budget_s(suite_protocol(), device.kind) * static_cast<double>(plans->size());
      EXPECT_LT(seconds, quick ? 45 : gpu ? 240 : 150) << plans->size() << " cases";
    }
  }
}

TEST(BenchSuite, WhatIsMeasuredWhere) {
  const std::set<std::string> gpu = names_of(*default_suite(kernels::operations(), h200(), false, 1));
  for (const char* name : {"gemm", "gemm_batched", "gemm_w8a8", "gemm_grouped", "moe_routing", "memory", "rmsnorm",
                           "attention", "attention_decode", "conv2d", "lstm", "launch"})
    EXPECT_EQ(gpu.count(name), 1U) << name;
  EXPECT_EQ(gpu.count("registers"), 0U) << "peaks has it";
  const std::set<std::string> host = names_of(*default_suite(kernels::operations(), cpu(), false, 1));
  for (const char* name : {"gemm", "memory", "registers", "rmsnorm", "softmax", "swiglu", "launch"})
    EXPECT_EQ(host.count(name), 1U) << name;
  // The suite has it in bf16, which not every CPU multiplies.
  EXPECT_EQ(host.count("gemm_grouped"), device::cpu::cpu_instructions().bf16() ? 1U : 0U);
  for (const char* name :
       {"memcpy", "gemm_w8a8", "moe_routing", "quantise", "dequantise", "conv2d", "lstm", "sampling"}) {
    EXPECT_EQ(host.count(name), 0U) << name;
    const kernels::Operation* const operation = kernels::find_operation(name);
    const Result<CasePlan> plan = plan_case(*operation, cpu(), DType::kUnknown, "", {});
    const std::string why = operation->unsupported(cpu(), plan->params).value_or("");
    EXPECT_TRUE(why == "not measured on a CPU" || why == "copies between host and GPU need a GPU") << name << why;
  }
}

TEST(BenchSuite, EveryOperationHasADefaultOnItsDevices) {
  for (const kernels::Operation& operation : kernels::operations()) {
    for (const device::DeviceIdentity& device : {h200(), cpu()}) {
      const bool on_cpu = device.kind == device::DeviceKind::kCpu;
      const bool has = (on_cpu ? operation.prepare_cpu : operation.prepare_cuda) != nullptr;
      const Result<CasePlan> plan = plan_case(operation, device, DType::kUnknown, "", {});
      ASSERT_TRUE(plan.has_value()) << plan.error().text();
      EXPECT_EQ(possible(operation, device, plan->params), has) << operation.name << " on " << device.name;
    }
  }
}

TEST(BenchSuite, AModelIsMeasuredWhole) {
  const Result<ModelConfig> llama = load_model("llama-3.1-8b");
  const Result<Preset> preset = preset_of(kernels::operations(), h200(), *llama, {{1, 8, 32}, {512, 2048}, {}, 1});
  ASSERT_TRUE(preset.has_value()) << preset.error().text();
  EXPECT_TRUE(preset->remarks.empty()) << preset->remarks.front();
  EXPECT_EQ(preset->steps.size(), 12U);
  for (size_t step = 0; step < preset->steps.size(); ++step) {
    int64_t parts = 0;
    for (const Preset::Part& part : preset->parts) parts += part.step == step;
    EXPECT_EQ(parts, 13) << preset->steps[step];
  }
}

// The products of a step have the FLOPs that `llmprof model` counts, those of experts too.
TEST(BenchSuite, ExpertsAreMeasured) {
  for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b"}) {
    const Result<ModelConfig> model = load_model(name);
    ASSERT_TRUE(model.has_value()) << name;
    const Result<Preset> preset = preset_of(kernels::operations(), h200(), *model, {{4}, {256}, {}, 1});
    ASSERT_TRUE(preset.has_value()) << preset.error().text();
    RequestShape shape;
    shape.batch = 4;
    shape.prompt = shape.context = 256;
    for (const size_t step : {size_t{0}, size_t{1}}) {
      const StageCost cost = step == 0 ? prefill_cost(*model, shape) : decode_cost(*model, shape);
      double flops = 0;
      for (const Preset::Part& part : preset->parts) {
        const CasePlan& plan = preset->plans[part.plan];
        if (part.step != step || plan.operation->name.substr(0, 4) != "gemm") continue;
        flops += plan.operation->cost(plan.params).flops * static_cast<double>(part.calls);
      }
      EXPECT_EQ(flops, cost.flops.linear + cost.flops.lm_head) << name << " " << step;
    }
    // What is left to the caller to add.
    ASSERT_GE(preset->remarks.size(), 1U);
    EXPECT_NE(preset->remarks.back().find("weighted and added"), std::string::npos) << preset->remarks.back();
  }
}

// Prompts and decode steps: one row of activations is a shape of fp8 products like any other.
TEST(BenchSuite, WeightsInFp8AreMultipliedInFp8) {
  const Result<ModelConfig> model = load_model("deepseek-v3");
  ASSERT_TRUE(model.has_value());
  const Result<Preset> preset = preset_of(kernels::operations(), h200(), *model, {{1}, {256}, {}, 1});
  ASSERT_TRUE(preset.has_value()) << preset.error().text();
  std::set<std::string> in_fp8;
  for (const CasePlan& plan : preset->plans) {
    if (plan.params.dtype != DType::kFp8) continue;
    in_fp8.insert(std::string(plan.operation->name));
    EXPECT_EQ(plan.operation->unsupported(h200(), plan.params), std::nullopt) << shape_text(plan.params);
  }
  EXPECT_EQ(in_fp8, (std::set<std::string>{"gemm", "gemm_grouped"}));
}

}  // namespace
}  // namespace llmprof::bench
