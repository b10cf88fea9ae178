// What a server benchmark's file becomes: rows of its runs, their figures and requests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/trace_builder.h"

namespace llmprof::serving {

inline constexpr size_t kRequestsMax = 10'000'000;
inline constexpr size_t kIntervalsMax = 50'000'000;
inline constexpr std::string_view kUnsaid = "(the file does not say why)";

struct RunFigure {
  std::string name, statistic, unit, field;
  double value;
};

// A request as far as it was read; -1: absent.
struct ReadRequest {
  int64_t start_ns = -1, latency_ns = -1, ttft_ns = -1, input_tokens = -1, output_tokens = -1;
  std::string error{};
  bool wall_clock = false;  // start_ns is since 1970
};

// The arrays of vLLM and SGLang: one entry a request.
struct Columns {
  std::vector<int64_t> input_lens{}, output_lens{}, ttfts{}, latencies{}, starts{};
  std::vector<std::string> errors{};
  std::vector<int64_t> itls{};
  std::vector<uint32_t> itl_counts{};
  std::vector<uint8_t> itl_whole{};       // none of its pieces was left out
  std::map<std::string, size_t> sizes{};  // by the name of the array
};

struct ReadRun {
  std::map<std::string, std::string> texts{};
  std::vector<RunFigure> figures{};
  Columns columns{};
};

class RunRows {
 public:
  RunRows(Trace& trace, std::string file) : trace_(trace), builder_(trace), file_(std::move(file)) {}

  size_t requests() const { return trace_.client_requests.size(); }
  size_t intervals() const { return trace_.client_intervals.size(); }
  size_t runs() const { return runs_.size(); }

  // Of the next run; the first is the file itself until a second comes.
  StringId new_source(std::map<std::string, std::string> texts);
  // Of the latest run, for those that are known when it was read.
  void set_texts(const std::map<std::string, std::string>& texts) { runs_.back().second = texts; }
  void add_figures(const ReadRun& run, StringId source);
  // Arrays of one length.
  void add_columns(const Columns& columns, StringId source);
  void add_request(const ReadRequest& request, StringId source, const int64_t* lengths, size_t pieces);
  // Starts since the first of the requests from this one on: clients have clocks of their own.
  void set_starts(size_t from);
  // Names the runs, once all of them are there.
  void finish();

 private:
  Trace& trace_;
  TraceBuilder builder_;
  std::string file_;
  std::vector<std::pair<StringId, std::map<std::string, std::string>>> runs_{};
};

}  // namespace llmprof::serving
