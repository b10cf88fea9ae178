#include "capture/samplers/pm_metrics.h"

#include <utility>

namespace llmprof::samplers {
namespace {

using namespace cupti_profiler;

constexpr double kPercent = 0.01;

std::string unknown_chip_advice() {
  return "use a newer CUPTI (the one of the CUDA toolkit that supports this GPU): --cupti PATH or LLMPROF_CUPTI";
}

}  // namespace

// Facts: which names exist and fit into one pass was asked of the host half of CUPTI 13.0 for GA100, GA102, AD102,
// GH100, GB100 and GB202. In none of them do lts__t_sector_hit_rate, sm__throughput or the plain
// sm__inst_executed_realtime fit.
const std::vector<PmCandidate>& pm_candidates() {
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
        "TPC.TriageCompute.sm__pipe_tensor_subpipe_hmma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"},
       kPercent},
      {"tensor_int_frac",
       {"TPC.TriageCompute.sm__pipe_tensor_op_imma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
        "TPC.TriageCompute.sm__pipe_tensor_subpipe_imma_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"},
       kPercent},
      {"copy_engine_frac", {"gpu__engine_cycles_active_any_syncce.avg.pct_of_peak_sustained_elapsed"}, kPercent},
      {"ctas_launched", {"gr__ctas_launched.sum"}, 1, true},
  };
  return candidates;
}

PmHost::PmHost(const CuptiProfilerLibrary& cupti, const std::string& chip, const uint8_t* availability)
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

Result<PmMetricSet> build_pm_metric_set(const CuptiProfilerLibrary& cupti, const std::string& chip,
                                        const uint8_t* availability, size_t metrics_max) {
  if (!cupti.has_host()) {
    return fail("expected a CUPTI that can schedule counters (CUDA 12.6 or later), found an older one", cupti.path(),
                unknown_chip_advice());
  }
  PmMetricSet set;
  for (const PmCandidate& candidate : pm_candidates()) {
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
