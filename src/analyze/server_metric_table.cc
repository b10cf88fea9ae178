#include "analyze/server_metric_table.h"

namespace llmprof::servers {
namespace {

constexpr Server kVllm = Server::kVllm, kSglang = Server::kSglang, kTriton = Server::kTriton, kDcgm = Server::kDcgm;
constexpr MetricKind kCounter = MetricKind::kCounter, kGauge = MetricKind::kGauge, kHistogram = MetricKind::kHistogram;
constexpr double kMilli = 1e-3, kPercent = 1e-2, kMsPerSecond = 1e3, kMib = 1024.0 * 1024.0;

constexpr KnownMetric kMetrics[] = {
    // vLLM: vllm/v1/metrics/loggers.py, and vllm/engine/metrics.py of V0.
    {"vllm:request_success", kVllm, kCounter, "requests", "requests", 1, "finished_reason"},
    {"vllm:prompt_tokens", kVllm, kCounter, "input-tokens", "tokens"},
    {"vllm:generation_tokens", kVllm, kCounter, "output-tokens", "tokens"},
    {"vllm:num_preemptions", kVllm, kCounter, "preemptions", "requests"},
    {"vllm:prefix_cache_queries", kVllm, kCounter, "prefix-cache-queries", "tokens"},
    {"vllm:gpu_prefix_cache_queries", kVllm, kCounter, "prefix-cache-queries", "tokens"},
    {"vllm:prefix_cache_hits", kVllm, kCounter, "prefix-cache-hits", "tokens"},
    {"vllm:gpu_prefix_cache_hits", kVllm, kCounter, "prefix-cache-hits", "tokens"},
    {"vllm:num_requests_running", kVllm, kGauge, "running", "requests"},
    {"vllm:num_requests_waiting", kVllm, kGauge, "waiting", "requests"},
    {"vllm:num_requests_swapped", kVllm, kGauge, "swapped", "requests"},
    {"vllm:kv_cache_usage_perc", kVllm, kGauge, "kv-cache", "frac"},
    {"vllm:gpu_cache_usage_perc", kVllm, kGauge, "kv-cache", "frac"},
    {"vllm:gpu_prefix_cache_hit_rate", kVllm, kGauge, "prefix-cache-hit-now", "frac"},
    {"vllm:time_to_first_token_seconds", kVllm, kHistogram, "ttft", "ms", kMsPerSecond},
    {"vllm:inter_token_latency_seconds", kVllm, kHistogram, "itl", "ms", kMsPerSecond},
    {"vllm:time_per_output_token_seconds", kVllm, kHistogram, "itl", "ms", kMsPerSecond},
    {"vllm:request_time_per_output_token_seconds", kVllm, kHistogram, "tpot", "ms", kMsPerSecond},
    {"vllm:e2e_request_latency_seconds", kVllm, kHistogram, "e2e", "ms", kMsPerSecond},
    {"vllm:request_queue_time_seconds", kVllm, kHistogram, "queue", "ms", kMsPerSecond},
    {"vllm:request_prefill_time_seconds", kVllm, kHistogram, "prefill", "ms", kMsPerSecond},
    {"vllm:request_decode_time_seconds", kVllm, kHistogram, "decode", "ms", kMsPerSecond},
    {"vllm:request_inference_time_seconds", kVllm, kHistogram, "inference", "ms", kMsPerSecond},
    {"vllm:request_prompt_tokens", kVllm, kHistogram, "input-length", "tokens"},
    {"vllm:request_generation_tokens", kVllm, kHistogram, "output-length", "tokens"},
    {"vllm:iteration_tokens_total", kVllm, kHistogram, "tokens-per-step", "tokens"},
    // SGLang: python/sglang/srt/metrics/collector.py.
    {"sglang:num_requests", kSglang, kCounter, "requests", "requests"},
    {"sglang:prompt_tokens", kSglang, kCounter, "input-tokens", "tokens"},
    {"sglang:generation_tokens", kSglang, kCounter, "output-tokens", "tokens"},
    {"sglang:num_aborted_requests", kSglang, kCounter, "aborted", "requests"},
    {"sglang:cached_tokens", kSglang, kCounter, "prefix-cache-hits", "tokens", 1, "cache_source"},
    {"sglang:num_running_reqs", kSglang, kGauge, "running", "requests"},
    {"sglang:num_queue_reqs", kSglang, kGauge, "waiting", "requests"},
    {"sglang:num_retracted_reqs", kSglang, kGauge, "retracted", "requests"},
    {"sglang:token_usage", kSglang, kGauge, "kv-cache", "frac"},
    {"sglang:cache_hit_rate", kSglang, kGauge, "prefix-cache-hit-now", "frac"},
    {"sglang:gen_throughput", kSglang, kGauge, "output-tokens-now", "tokens/s"},
    {"sglang:time_to_first_token_seconds", kSglang, kHistogram, "ttft", "ms", kMsPerSecond},
    {"sglang:inter_token_latency_seconds", kSglang, kHistogram, "itl", "ms", kMsPerSecond},
    {"sglang:time_per_output_token_seconds", kSglang, kHistogram, "itl", "ms", kMsPerSecond},
    {"sglang:e2e_request_latency_seconds", kSglang, kHistogram, "e2e", "ms", kMsPerSecond},
    {"sglang:queue_time_seconds", kSglang, kHistogram, "queue", "ms", kMsPerSecond},
    {"sglang:prompt_tokens_histogram", kSglang, kHistogram, "input-length", "tokens"},
    {"sglang:generation_tokens_histogram", kSglang, kHistogram, "output-length", "tokens"},
    // Triton: docs/user_guide/metrics.md of triton-inference-server/server.
    {"nv_inference_request_success", kTriton, kCounter, "requests", "requests", 1, "gpu_uuid"},
    {"nv_inference_request_failure", kTriton, kCounter, "failed", "requests", 1, "reason"},
    {"nv_inference_count", kTriton, kCounter, "inferences", "inferences", 1, "gpu_uuid"},
    {"nv_inference_exec_count", kTriton, kCounter, "executions", "executions", 1, "gpu_uuid"},
    {"nv_inference_request_duration_us", kTriton, kCounter, "request-time", "us", 1, "gpu_uuid"},
    {"nv_inference_queue_duration_us", kTriton, kCounter, "queue-time", "us", 1, "gpu_uuid"},
    {"nv_inference_compute_input_duration_us", kTriton, kCounter, "compute-input-time", "us", 1, "gpu_uuid"},
    {"nv_inference_compute_infer_duration_us", kTriton, kCounter, "compute-infer-time", "us", 1, "gpu_uuid"},
    {"nv_inference_compute_output_duration_us", kTriton, kCounter, "compute-output-time", "us", 1, "gpu_uuid"},
    {"nv_inference_pending_request_count", kTriton, kGauge, "waiting", "requests"},
    {"nv_inference_first_response_histogram_ms", kTriton, kHistogram, "ttft", "ms"},
    {"nv_gpu_utilization", kTriton, kGauge, "gpu-busy", "frac"},
    {"nv_gpu_power_usage", kTriton, kGauge, "power", "W"},
    {"nv_gpu_memory_used_bytes", kTriton, kGauge, "memory-used", "bytes"},
    {"nv_energy_consumption", kTriton, kCounter, "energy", "J"},
    // DCGM exporter: etc/default-counters.csv and dcgm_fields.h.
    {"DCGM_FI_DEV_POWER_USAGE", kDcgm, kGauge, "power", "W"},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", kDcgm, kCounter, "energy", "J", kMilli},
    {"DCGM_FI_DEV_SM_CLOCK", kDcgm, kGauge, "sm-clock", "MHz"},
    {"DCGM_FI_DEV_MEM_CLOCK", kDcgm, kGauge, "memory-clock", "MHz"},
    {"DCGM_FI_DEV_GPU_TEMP", kDcgm, kGauge, "temperature", "C"},
    {"DCGM_FI_DEV_MEMORY_TEMP", kDcgm, kGauge, "memory-temperature", "C"},
    {"DCGM_FI_DEV_GPU_UTIL", kDcgm, kGauge, "gpu-busy", "frac", kPercent},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", kDcgm, kGauge, "memory-busy", "frac", kPercent},
    {"DCGM_FI_DEV_FB_USED", kDcgm, kGauge, "memory-used", "bytes", kMib},
    {"DCGM_FI_DEV_FB_FREE", kDcgm, kGauge, "memory-free", "bytes", kMib},
    {"DCGM_FI_DEV_XID_ERRORS", kDcgm, kGauge, "last-xid", ""},
    {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", kDcgm, kGauge, "engine-active", "frac"},
    {"DCGM_FI_PROF_SM_ACTIVE", kDcgm, kGauge, "sm-active", "frac"},
    {"DCGM_FI_PROF_SM_OCCUPANCY", kDcgm, kGauge, "occupancy", "frac"},
    {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", kDcgm, kGauge, "tensor-active", "frac"},
    {"DCGM_FI_PROF_DRAM_ACTIVE", kDcgm, kGauge, "dram-active", "frac"},
    {"DCGM_FI_PROF_PIPE_FP64_ACTIVE", kDcgm, kGauge, "fp64-active", "frac"},
    {"DCGM_FI_PROF_PIPE_FP32_ACTIVE", kDcgm, kGauge, "fp32-active", "frac"},
    {"DCGM_FI_PROF_PIPE_FP16_ACTIVE", kDcgm, kGauge, "fp16-active", "frac"},
    // A counter by its type line, a rate by what it holds.
    {"DCGM_FI_PROF_PCIE_TX_BYTES", kDcgm, kGauge, "pcie-tx", "bytes/s"},
    {"DCGM_FI_PROF_PCIE_RX_BYTES", kDcgm, kGauge, "pcie-rx", "bytes/s"},
    {"DCGM_FI_PROF_NVLINK_TX_BYTES", kDcgm, kGauge, "nvlink-tx", "bytes/s"},
    {"DCGM_FI_PROF_NVLINK_RX_BYTES", kDcgm, kGauge, "nvlink-rx", "bytes/s"},
};

constexpr KnownRatio kRatios[] = {
    {kVllm, "prefix-cache-hit", "prefix-cache-hits", "prefix-cache-queries", "frac"},
    {kSglang, "prefix-cache-hit", "prefix-cache-hits", "input-tokens", "frac"},
    {kTriton, "batch", "inferences", "executions", ""},
    {kTriton, "request", "request-time", "requests", "us", 1, true},
    {kTriton, "queue", "queue-time", "requests", "us", 1, true},
    {kTriton, "compute-input", "compute-input-time", "requests", "us", 1, true},
    {kTriton, "compute-infer", "compute-infer-time", "requests", "us", 1, true},
    {kTriton, "compute-output", "compute-output-time", "requests", "us", 1, true},
};

}  // namespace

std::span<const KnownMetric> known_metrics() { return kMetrics; }
std::span<const KnownRatio> known_ratios() { return kRatios; }

}  // namespace llmprof::servers
