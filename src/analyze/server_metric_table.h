// Metrics of servers that llmprof has figures for, one row a metric, by the name under which a page has them.
// Everything else of a page is kept in scraped_values, and counted.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace llmprof::servers {

enum class Server : uint8_t { kVllm, kSglang, kTriton, kDcgm };

struct ServerInfo {
  std::string_view name;         // "vllm"
  std::string_view title;        // "vLLM"
  std::string_view model_label;  // of the model that it serves; of the GPU
};
inline constexpr std::array kServers = {
    ServerInfo{"vllm", "vLLM", "model_name"},
    ServerInfo{"sglang", "SGLang", "model_name"},
    ServerInfo{"triton", "Triton", "model"},
    ServerInfo{"dcgm", "DCGM", "modelName"},
};
constexpr const ServerInfo& info_of(Server server) { return kServers[static_cast<size_t>(server)]; }

enum class MetricKind : uint8_t { kCounter, kGauge, kHistogram };

struct KnownMetric {
  // Of its family. Counters may have _total behind it, histograms have _bucket, _sum and _count.
  std::string_view name;
  Server server;
  MetricKind kind;
  std::string_view figure;
  std::string_view unit;
  double scale = 1;            // a value of the page times this is in `unit`
  std::string_view over = {};  // label whose values are added up
};

// Of rows with the same figure the first that a page has counts: new names stand before old ones.
std::span<const KnownMetric> known_metrics();

// What two counters make of each other: the increase of one over that of the other.
struct KnownRatio {
  Server server;
  std::string_view figure;
  std::string_view numerator, denominator;  // figures
  std::string_view unit;
  double scale = 1;
  bool is_time = false;  // a mean time, as of a histogram without buckets
};
std::span<const KnownRatio> known_ratios();

}  // namespace llmprof::servers
