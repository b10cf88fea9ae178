#include "capture/samplers/pm_metrics.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace llmprof::samplers {
namespace {

using namespace cupti_profiler;

constexpr double kPercent = 0.01;

std::string unknown_chip_advice() {
  return "use a newer CUPTI (the one of the CUDA toolkit that supports this GPU): --cupti PATH or LLMPROF_CUPTI";
}

// Facts: which names exist and fit into one pass was asked of the host half of CUPTI 13.0 for GA100, GA102, AD102,
// GH100, GB100 and GB202. In none of them do lts__t_sector_hit_rate, sm__throughput or the plain
// sm__inst_executed_realtime fit.
const std::vector<PmCandidate>& broad_candidates() {
  static const std::vector<PmCandidate> candidates = {
      {"dram_read_frac", {"dram__read_throughput.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"dram_write_frac", {"dram__write_throughput.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"sm_active_frac", {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"warps_active_frac", {"sm__warps_active.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"tensor_active_frac", {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"gr_active_frac", {"gr__compute_cycles_active.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"sm_clock_hz", {"gpc__cycles_elapsed.avg.per_second"}, 1},
      {"dram_read_bytes_per_s", {"dram__bytes_read.sum.per_second", "dram__bytes_op_read.sum.per_second"}, 1},
      {"dram_write_bytes_per_s", {"dram__bytes_write.sum.per_second", "dram__bytes_op_write.sum.per_second"}, 1},
      {"l2_hit_frac",
       {"LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct",
        "LTS.TriageAC.lts__average_t_sector_hit_rate_realtime.pct", "lts__average_t_sector_hit_rate_realtime.pct"},
       kPercent},
      {"pcie_read_bytes_per_s",
       {"pcie__read_bytes.sum.per_second", "PCI.TriageCompute.pcie__read_bytes.sum.per_second"},
       1},
      {"pcie_write_bytes_per_s",
       {"pcie__write_bytes.sum.per_second", "PCI.TriageCompute.pcie__write_bytes.sum.per_second"},
       1},
      {"nvlink_rx_bytes_per_s", {"nvlrx__bytes.sum.per_second"}, 1},
      {"nvlink_tx_bytes_per_s", {"nvltx__bytes.sum.per_second"}, 1},
      {"instructions_frac",
       {"TPC.TriageCompute.sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed"},
       kPercent},
      {"tensor_fp_frac",
       {"TPC.TriageCompute.sm__pipe_tensor_op_hmma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
        "TPC.TriageCompute.sm__pipe_tensor_subpipe_hmma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_subpipe_hmma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"},
       kPercent},
      {"tensor_int_frac",
       {"TPC.TriageCompute.sm__pipe_tensor_op_imma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
        "TPC.TriageCompute.sm__pipe_tensor_subpipe_imma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_subpipe_imma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"},
       kPercent},
      {"copy_engine_frac", {"gpu__engine_cycles_active_any_syncce.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"ctas_launched", {"gr__ctas_launched.sum"}, 1, true},
  };
  return candidates;
}

// Facts, asked of the same six chips. Counters of the FMA pipes, packed halves apart, fit beside the _realtime form of
// the tensor counter, and except on GH100 and GB100 only without warps_active_frac. GH100 and GA100 have one counter
// for all FMA pipes, the others one for each of the two; GA100 and GB202 cannot tell packed halves beside the rest;
// GB100 gives up the split of the tensor pipe.
std::vector<PmCandidate> operation_candidates() {
  const std::vector<PmCandidate> fma = {
      {"fma_instructions_per_s",
       {"TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime.sum.per_second",
        "sm__inst_executed_pipe_fma_realtime.sum.per_second"},
       1},
      {"fma_heavy_instructions_per_s",
       {"sm__inst_executed_pipe_fmaheavy_realtime.sum.per_second", "sm__inst_executed_pipe_fmaheavy.sum.per_second"},
       1,
       false,
       "fma_instructions_per_s"},
      {"fma_lite_instructions_per_s",
       {"TPC.TriageCompute.sm__inst_executed_pipe_fmalite_realtime.sum.per_second",
        "sm__inst_executed_pipe_fmalite_realtime.sum.per_second", "sm__inst_executed_pipe_fmalite.sum.per_second"},
       1,
       false,
       "fma_instructions_per_s"},
      {"fma_half_instructions_per_s", {"sm__inst_executed_pipe_fma_type_fp16.sum.per_second"}, 1},
  };
  std::vector<PmCandidate> candidates, last;
  for (const PmCandidate& candidate : broad_candidates()) {
    const std::string_view column = candidate.column;
    if (column == "warps_active_frac") {
      last.push_back(candidate);
      continue;
    }
    candidates.push_back(candidate);
    if (column == "tensor_active_frac") {
      std::vector<const char*>& names = candidates.back().metrics;
      names.insert(names.begin(), "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed");
    } else if (column == "dram_write_bytes_per_s") {
      candidates.insert(candidates.end(), fma.begin(), fma.end());
    }
  }
  candidates.insert(candidates.end(), last.begin(), last.end());
  return candidates;
}

}  // namespace

const std::vector<PmCandidate>& pm_candidates(PmFocus focus) {
  static const std::vector<PmCandidate> operations = operation_candidates();
  return focus == PmFocus::kOperations ? operations : broad_candidates();
}

size_t core_size(const PmMetricSet& set) {
  static constexpr std::string_view kCore[] = {"dram_read_frac",    "dram_write_frac",       "sm_active_frac",
                                               "warps_active_frac", "tensor_active_frac",    "gr_active_frac",
                                               "sm_clock_hz",       "dram_read_bytes_per_s", "dram_write_bytes_per_s"};
  const auto first_other = std::find_if(set.metrics.begin(), set.metrics.end(), [](const PmMetric& metric) {
    const std::string_view column = metric.column;
    return column.substr(0, 4) != "fma_" && std::find(std::begin(kCore), std::end(kCore), column) == std::end(kCore);
  });
  return std::max<size_t>(1, static_cast<size_t>(first_other - set.metrics.begin()));
}

PmHost::PmHost(const nvidia::CuptiProfilerLibrary& cupti, const std::string& chip, const uint8_t* availability)
    : api_(&cupti.api()) {
  HostInitializeParams params{kHostInitializeSize, nullptr,      kProfilerTypePmSampling,
                              chip.c_str(),        availability, nullptr};
  status_ = api_->host_initialize(&params);
  host_ = status_ == kSuccess ? params.host : nullptr;
}

PmHost::~PmHost() {
  if (host_ == nullptr) return;
  HostDeinitializeParams params{kHostDeinitializeSize, nullptr, host_};
  api_->host_deinitialize(&params);
}

size_t PmHost::passes(const std::vector<PmMetric>& metrics, std::vector<uint8_t>& config, cupti_profiler::Code& error) {
  std::vector<const char*> names;
  for (const PmMetric& metric : metrics) names.push_back(metric.metric);
  HostAddMetricsParams add{kHostAddMetricsSize, nullptr, host_, names.data(), names.size()};
  error = api_->host_add_metrics(&add);
  if (error != kSuccess) return 0;
  HostConfigSizeParams size{kHostConfigSizeSize, nullptr, host_, 0};
  error = api_->host_config_size(&size);
  if (error != kSuccess) return 0;
  config.assign(size.config_bytes, 0);
  HostConfigParams image{kHostConfigSize, nullptr, host_, config.size(), config.data()};
  error = api_->host_config(&image);
  if (error != kSuccess) return 0;
  HostPassesParams count{kHostPassesSize, nullptr, config.size(), config.data(), 0};
  error = api_->host_passes(&count);
  return error == kSuccess ? count.passes : 0;
}

Result<PmMetricSet> build_pm_metric_set(const nvidia::CuptiProfilerLibrary& cupti, const std::string& chip,
                                        const uint8_t* availability, size_t metrics_max, PmFocus focus) {
  if (!cupti.has_host()) {
    return fail("expected a CUPTI that can schedule counters (CUDA 12.6 or later), found an older one", cupti.path(),
                unknown_chip_advice());
  }
  PmMetricSet set;
  const auto has = [&set](std::string_view column) {
    return std::any_of(set.metrics.begin(), set.metrics.end(),
                       [&](const PmMetric& metric) { return column == metric.column; });
  };
  for (const PmCandidate& candidate : pm_candidates(focus)) {
    if (candidate.unless != nullptr && has(candidate.unless)) continue;
    if (metrics_max != 0 && set.metrics.size() == metrics_max) break;
    for (const char* metric : candidate.metrics) {
      PmHost host(cupti, chip, availability);
      if (host.get() == nullptr) {
        return fail("CUPTI has no counters for the chip " + chip + ": " + cupti.describe(host.status()), cupti.path(),
                    unknown_chip_advice());
      }
      std::vector<PmMetric> trial = set.metrics;
      trial.push_back({candidate.column, metric, candidate.scale, candidate.total});
      std::vector<uint8_t> config;
      cupti_profiler::Code error = kSuccess;
      if (host.passes(trial, config, error) != 1) continue;
      set.metrics = std::move(trial);
      set.config = std::move(config);
      break;
    }
  }
  if (set.metrics.empty()) {
    return fail("no counter of the chip " + chip + " can be sampled here", cupti.path(),
                "in a MIG slice or a virtual GPU, device-wide counters are hidden");
  }
  return set;
}

}  // namespace llmprof::samplers
