// Names of figures in the results of server benchmarks, and what they are in client_figures. What a program calls a
// figure is not what it is elsewhere: AIPerf's inter_token_latency is a TPOT, GuideLLM's time_per_output_token_ms holds
// the first token. Sources of the names: docs/formats/serving-benchmarks.md.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace llmprof::serving {

// A number at the top of a result of vLLM or SGLang.
struct FlatName {
  std::string_view key, name, unit;
};
inline constexpr std::array kFlatNames = {
    FlatName{"duration", "duration", "s"},
    FlatName{"completed", "completed", "requests"},
    FlatName{"failed", "failed", "requests"},
    FlatName{"num_prompts", "planned", "requests"},
    FlatName{"request_rate", "request-rate", "requests/s"},
    FlatName{"max_concurrency", "max-concurrency", "requests"},
    FlatName{"concurrency", "concurrency", "requests"},
    FlatName{"max_concurrent_requests", "peak-concurrency", "requests"},
    FlatName{"burstiness", "burstiness", ""},
    FlatName{"total_input_tokens", "input-tokens", "tokens"},
    FlatName{"total_output_tokens", "output-tokens", "tokens"},
    FlatName{"total_output_tokens_retokenized", "output-tokens-retokenized", "tokens"},
    FlatName{"request_throughput", "requests-per-s", "requests/s"},
    FlatName{"request_goodput", "goodput", "requests/s"},
    FlatName{"input_throughput", "input-tokens-per-s", "tokens/s"},
    FlatName{"output_throughput", "output-tokens-per-s", "tokens/s"},
    FlatName{"total_token_throughput", "total-tokens-per-s", "tokens/s"},
    FlatName{"total_throughput", "total-tokens-per-s", "tokens/s"},
    FlatName{"max_output_tokens_per_s", "peak-output-tokens-per-s", "tokens/s"},
    FlatName{"accept_length", "accepted-length", "tokens"},
    FlatName{"spec_decode_acceptance_length", "accepted-length", "tokens"},
};

// The middle of "median_ttft_ms".
struct DistributionName {
  std::string_view key, name;
};
inline constexpr std::array kDistributionNames = {
    DistributionName{"ttft", "ttft"},       DistributionName{"tpot", "tpot"},
    DistributionName{"itl", "itl"},         DistributionName{"e2el", "e2e"},
    DistributionName{"e2e_latency", "e2e"}, DistributionName{"client_queue_time", "client-queue"},
};

// A block of AIPerf or GenAI-Perf. `single`: one number, which stands under avg.
struct BlockName {
  std::string_view key, name, unit;
  bool single = false;
};
inline constexpr std::array kBlockNames = {
    BlockName{"request_latency", "e2e", "s"},
    BlockName{"time_to_first_token", "ttft", "s"},
    BlockName{"inter_token_latency", "tpot", "s"},
    BlockName{"inter_chunk_latency", "itl", "s"},
    BlockName{"input_sequence_length", "input-length", "tokens"},
    BlockName{"output_sequence_length", "output-length", "tokens"},
    BlockName{"request_throughput", "requests-per-s", "requests/s", true},
    BlockName{"output_token_throughput", "output-tokens-per-s", "tokens/s", true},
    BlockName{"total_token_throughput", "total-tokens-per-s", "tokens/s", true},
    BlockName{"request_count", "completed", "requests", true},
    BlockName{"error_request_count", "failed", "requests", true},
    BlockName{"benchmark_duration", "duration", "s", true},
    BlockName{"total_isl", "input-tokens", "tokens", true},
    BlockName{"total_osl", "output-tokens", "tokens", true},
    BlockName{"goodput", "goodput", "requests/s", true},
};

struct UnitName {
  std::string_view key, unit;
  double factor;
};
inline constexpr std::array kUnitNames = {
    UnitName{"ns", "s", 1e-9},
    UnitName{"us", "s", 1e-6},
    UnitName{"ms", "s", 1e-3},
    UnitName{"s", "s", 1},
    UnitName{"sec", "s", 1},
    UnitName{"tokens", "tokens", 1},
    UnitName{"requests", "requests", 1},
    UnitName{"count", "requests", 1},  // GenAI-Perf
    UnitName{"tokens/sec", "tokens/s", 1},
    UnitName{"requests/sec", "requests/s", 1},
};

// A distribution of GuideLLM, over successful requests.
struct GuideName {
  std::string_view key, name, unit;
  double factor = 1;
};
inline constexpr std::array kGuideNames = {
    GuideName{"request_latency", "e2e", "s"},
    GuideName{"time_to_first_token_ms", "ttft", "s", 1e-3},
    // Of a request's tokens together; each counts as often as the request has tokens.
    GuideName{"inter_token_latency_ms", "tpot-by-token", "s", 1e-3},
    GuideName{"time_per_output_token_ms", "latency-per-token", "s", 1e-3},
    GuideName{"requests_per_second", "requests-per-s", "requests/s"},
    GuideName{"output_tokens_per_second", "output-tokens-per-s", "tokens/s"},
    GuideName{"tokens_per_second", "total-tokens-per-s", "tokens/s"},
    GuideName{"request_concurrency", "concurrency", "requests"},
    GuideName{"prompt_token_count", "input-length", "tokens"},
    GuideName{"output_token_count", "output-length", "tokens"},
};

template <class Table>
constexpr auto* find_name(const Table& table, std::string_view key) {
  for (const auto& row : table)
    if (row.key == key) return &row;
  return static_cast<decltype(table.data())>(nullptr);
}
inline const FlatName* find_flat(std::string_view key) { return find_name(kFlatNames, key); }
inline const BlockName* find_block(std::string_view key) { return find_name(kBlockNames, key); }
inline const UnitName* find_unit(std::string_view key) { return find_name(kUnitNames, key); }
inline const GuideName* find_guide(std::string_view key) { return find_name(kGuideNames, key); }

// "p99" and "p99.9" as they are, "avg" as mean, "p50" as median, GuideLLM's "p999" as p99.9; empty for what is no
// statistic.
inline std::string known_statistic(std::string_view name) {
  struct Statistic {
    std::string_view key, name;
  };
  static constexpr std::array kStatistics = {
      Statistic{"mean", "mean"},   Statistic{"avg", "mean"},        Statistic{"median", "median"},
      Statistic{"p50", "median"},  Statistic{"std", "std"},         Statistic{"std_dev", "std"},
      Statistic{"min", "min"},     Statistic{"max", "max"},         Statistic{"sum", "total"},
      Statistic{"count", "count"}, Statistic{"total_sum", "total"}, Statistic{"p001", "p0.1"},
      Statistic{"p01", "p1"},      Statistic{"p05", "p5"},          Statistic{"p999", "p99.9"},
  };
  if (const Statistic* found = find_name(kStatistics, name)) return std::string(found->name);
  const bool percentile = name.size() >= 2 && name.size() <= 8 && name[0] == 'p' &&
                          name.substr(1).find_first_not_of("0123456789.") == std::string_view::npos;
  return percentile ? std::string(name) : std::string();
}

// "median_ttft_ms" into median and ttft; false for what is none.
inline bool split_distribution(std::string_view key, std::string& statistic, std::string_view& metric) {
  constexpr std::string_view kEnd = "_ms";
  const size_t first = key.find('_');
  if (!key.ends_with(kEnd) || first == std::string_view::npos || first + kEnd.size() >= key.size()) return false;
  statistic = known_statistic(key.substr(0, first));
  const std::string_view middle = key.substr(first + 1, key.size() - kEnd.size() - first - 1);
  const DistributionName* found = find_name(kDistributionNames, middle);
  if (statistic.empty() || found == nullptr) return false;
  metric = found->name;
  return true;
}

}  // namespace llmprof::serving
