#include "import/serving_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "trace/check_trace.h"
#include "trace/client_runs.h"

namespace llmprof::serving {
namespace {

// Before 2001 and after 2096 it is no wall clock, whatever a field is called.
bool is_wall_clock(int64_t unix_ns) {
  return unix_ns >= 1'000'000'000'000'000'000 && unix_ns <= 4'000'000'000'000'000'000;
}

}  // namespace

StringId RunRows::new_source(std::map<std::string, std::string> texts) {
  const std::string name = runs_.empty() ? file_ : fmt::format("{}:{}", file_, runs_.size() + 1);
  const StringId source = builder_.text(name);
  runs_.emplace_back(source, std::move(texts));
  return source;
}

void RunRows::add_figures(const ReadRun& run, StringId source) {
  for (const RunFigure& figure : run.figures)
    builder_.add<ClientFigures>({.source = source,
                                 .name = builder_.text(figure.name),
                                 .statistic = builder_.text(figure.statistic),
                                 .value = figure.value,
                                 .unit = builder_.text(figure.unit),
                                 .field = builder_.text(figure.field)});
}

void RunRows::add_columns(const Columns& columns, StringId source) {
  const auto at = [](const std::vector<int64_t>& values, size_t i) { return i < values.size() ? values[i] : -1; };
  const size_t requests = std::min(columns.sizes.begin()->second, kRequestsMax);
  size_t first = 0;
  for (size_t i = 0; i < requests; ++i) {
    ReadRequest request;
    request.start_ns = at(columns.starts, i);
    request.latency_ns = at(columns.latencies, i);
    request.ttft_ns = at(columns.ttfts, i);
    request.input_tokens = at(columns.input_lens, i);
    request.output_tokens = at(columns.output_lens, i);
    if (i < columns.errors.size()) request.error = columns.errors[i];
    // Both programs write 0 for the output of a request that failed.
    if (request.error.empty() && request.output_tokens == 0 && request.ttft_ns <= 0) request.error = kUnsaid;
    const size_t pieces = i < columns.itl_counts.size() ? columns.itl_counts[i] : 0;
    const int64_t* lengths = columns.itls.data() + first;
    first += pieces;
    if (!request.error.empty()) {
      // What a failed request has of times is 0, or of the part that came.
      request.latency_ns = request.ttft_ns = -1;
    } else if (columns.latencies.empty() && request.ttft_ns >= 0 && i < columns.itl_whole.size() &&
               columns.itl_whole[i] != 0) {
      request.latency_ns = request.ttft_ns;
      for (size_t k = 0; k < pieces; ++k) request.latency_ns += std::min(lengths[k], INT64_MAX - request.latency_ns);
    }
    add_request(request, source, lengths, request.error.empty() ? pieces : 0);
  }
}

void RunRows::add_request(const ReadRequest& request, StringId source, const int64_t* lengths, size_t pieces) {
  const ClientRequestId row = builder_.add<ClientRequests>({.start_ns = request.start_ns,
                                                            .latency_ns = request.latency_ns,
                                                            .ttft_ns = request.ttft_ns,
                                                            .input_tokens = request.input_tokens,
                                                            .output_tokens = request.output_tokens,
                                                            .source = source,
                                                            .error = builder_.text(request.error)});
  for (size_t k = 0; k < pieces; ++k) builder_.add<ClientIntervals>({.request = row, .length_ns = lengths[k]});
  if (!request.wall_clock || !is_wall_clock(request.start_ns)) return;
  const auto after = [&](int64_t length) { return length < 0 || length > kTimeNsMax ? -1 : request.start_ns + length; };
  builder_.add<ClientMoments>({.request = row,
                               .sent_unix_ns = request.start_ns,
                               .first_unix_ns = after(request.ttft_ns),
                               .end_unix_ns = after(request.latency_ns)});
}

void RunRows::set_starts(size_t from) {
  std::vector<int64_t>& starts = trace_.client_requests.start_ns;
  int64_t first = INT64_MAX;
  for (size_t row = from; row < starts.size(); ++row)
    if (starts[row] >= 0) first = std::min(first, starts[row]);
  for (size_t row = from; row < starts.size(); ++row) starts[row] = starts[row] < 0 ? 0 : starts[row] - first;
}

void RunRows::finish() {
  if (runs_.size() > 1) {
    const StringId before = runs_.front().first, after = builder_.text(file_ + ":1");
    for (std::vector<StringId>* column : {&trace_.client_requests.source, &trace_.client_figures.source})
      std::replace(column->begin(), column->end(), before, after);
    runs_.front().first = after;
  }
  for (const auto& [source, texts] : runs_)
    for (const auto& [what, text] : texts) trace_.metadata[client_text_key(what, trace_.text(source))] = text;
}

}  // namespace llmprof::serving
