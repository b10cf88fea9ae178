// Runs of benchmarks of a server, as their client saw them: what the file states, and what its requests give. Where a
// file has every answered request of a run, the figures are those of the requests, else those that it states.
// Rules: docs/formats/serving-benchmarks.md.
#include "trace/client_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/without_program.h"
#include "base/statistics.h"

namespace llmprof {
namespace {

// The single values of a run's requests, in seconds and tokens.
struct ClientSamples {
  std::vector<double> ttft{}, tpot{}, itl{}, e2e{};
  int64_t requests = 0, failed = 0, input_tokens = 0, output_tokens = 0;
  // Of every answered request; those of TPOT of those with more than one token.
  bool inputs_known = true, outputs_known = true, latencies_known = true, ttfts_known = true, tpots_known = true;
  int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
  bool starts_known = false;  // some are not 0
  int64_t completed() const { return requests - failed; }
};

struct ClientRun {
  std::string source;
  // (name, statistic) -> value; the first counts.
  std::map<std::pair<std::string, std::string>, double> figures{};
  ClientSamples samples{};
  OptDouble figure(const char* name, const char* statistic = "") const {
    const auto found = figures.find({name, statistic});
    return found == figures.end() ? std::nullopt : OptDouble(found->second);
  }
};

void add_request(ClientRun& run, const ClientRequests& rows, Row row) {
  ClientSamples& samples = run.samples;
  ++samples.requests;
  if (rows.error[row] != StringId::kEmpty) {
    ++samples.failed;
    return;
  }
  const int64_t latency = rows.latency_ns[row], ttft = rows.ttft_ns[row], tokens = rows.output_tokens[row];
  const auto add = [](int64_t value, int64_t& sum, bool& known) {
    known = known && value >= 0 && !__builtin_add_overflow(sum, value, &sum);
  };
  add(rows.input_tokens[row], samples.input_tokens, samples.inputs_known);
  add(tokens, samples.output_tokens, samples.outputs_known);
  if (ttft >= 0) samples.ttft.push_back(static_cast<double>(ttft) / 1e9);
  samples.latencies_known = samples.latencies_known && latency >= 0;
  samples.ttfts_known = samples.ttfts_known && ttft >= 0;
  samples.tpots_known = samples.tpots_known && tokens >= 0 && (tokens <= 1 || (ttft >= 0 && latency >= ttft));
  samples.starts_known = samples.starts_known || rows.start_ns[row] != 0;
  if (latency < 0) return;
  samples.e2e.push_back(static_cast<double>(latency) / 1e9);
  samples.first_ns = std::min(samples.first_ns, rows.start_ns[row]);
  int64_t end = 0;
  if (!__builtin_add_overflow(rows.start_ns[row], latency, &end)) samples.last_ns = std::max(samples.last_ns, end);
  if (ttft >= 0 && tokens > 1 && latency >= ttft)
    samples.tpot.push_back(static_cast<double>(latency - ttft) / 1e9 / static_cast<double>(tokens - 1));
}

// In the order of the file.
std::vector<ClientRun> runs_of(const Trace& trace) {
  std::vector<ClientRun> out;
  std::map<StringId, size_t> known;
  const auto run_of = [&](StringId source) -> ClientRun& {
    const auto [found, added] = known.try_emplace(source, out.size());
    if (added) out.push_back({std::string(trace.text(source))});
    return out[found->second];
  };
  const ClientFigures& figures = trace.client_figures;
  const ClientRequests& requests = trace.client_requests;
  const ClientIntervals& intervals = trace.client_intervals;
  for (Row row = 0; row < figures.size(); ++row)
    run_of(figures.source[row])
        .figures.try_emplace(
            {std::string(trace.text(figures.name[row])), std::string(trace.text(figures.statistic[row]))},
            figures.value[row]);
  for (Row row = 0; row < requests.size(); ++row) add_request(run_of(requests.source[row]), requests, row);
  for (Row row = 0; row < intervals.size(); ++row) {
    const ClientRequestId request = intervals.request[row];
    if (requests.error[request] == StringId::kEmpty)
      run_of(requests.source[request]).samples.itl.push_back(static_cast<double>(intervals.length_ns[row]) / 1e9);
  }
  return out;
}

// Compares what a file states with what its requests give, and chooses.
class Chosen {
 public:
  Chosen(const ClientRun& run, ClientRunRecord& record) : run_(run), record_(record) {
    const OptDouble stated = run.figure("completed");
    whole_ = run.samples.completed() > 0 && (!stated || *stated == static_cast<double>(run.samples.completed()));
  }
  // Whether every answered request is there one by one.
  bool whole() const { return whole_; }

  // `given`: by the requests. Times of files are rounded, counts are not.
  OptDouble operator()(const OptDouble& stated, const OptDouble& given, bool exact) const {
    if (!whole_ || !given) return finite(stated);
    if (stated) {
      ++record_.checked;
      const double most = exact ? 0 : 1e-3 * std::abs(*given) + 1e-5;
      if (!(std::abs(*stated - *given) <= most)) ++record_.disagreeing;
    }
    return given;
  }

  // `all`: none of the samples is missing.
  void distribution(const char* name, std::vector<double> samples, bool all, OptDouble& median_ms,
                    OptDouble& p99_ms) const {
    if (!all) samples.clear();
    const std::optional<SampleSummary> found = summarize_samples(std::move(samples));
    const auto choose = [&](const char* statistic, double SampleSummary::*member) {
      const OptDouble given = found ? OptDouble((*found).*member) : OptDouble();
      return (*this)(run_.figure(name, statistic), given, false);
    };
    choose("mean", &SampleSummary::mean);
    median_ms = in_ms(choose("median", &SampleSummary::median));
    p99_ms = in_ms(choose("p99", &SampleSummary::p99));
  }

  static OptDouble finite(const OptDouble& value) { return value && std::isfinite(*value) ? value : OptDouble(); }

 private:
  static OptDouble in_ms(const OptDouble& seconds) { return seconds ? OptDouble(*seconds * 1e3) : OptDouble(); }

  const ClientRun& run_;
  ClientRunRecord& record_;
  bool whole_ = false;
};

OptInt whole_number(const OptDouble& value) {
  return value && *value >= 0 && *value < 9e15 ? OptInt(std::llround(*value)) : OptInt();
}

OptDouble per_second(const OptDouble& count, const OptDouble& seconds) {
  return count && seconds && *seconds > 0 ? OptDouble(*count / *seconds) : OptDouble();
}

OptDouble first_of(const OptDouble& a, const OptDouble& b) { return a ? a : b; }

void fill_load(const ClientRun& run, ClientRunRecord& record) {
  const OptDouble rate = run.figure("request-rate");
  record.request_rate = Chosen::finite(rate);
  record.unlimited_rate = rate && std::isinf(*rate);
  record.max_concurrency = whole_number(run.figure("max-concurrency"));
}

void fill_counts(const ClientRun& run, const Chosen& chosen, ClientRunRecord& record) {
  const ClientSamples& samples = run.samples;
  const auto given = [](bool known, int64_t value) {
    return known ? OptDouble(static_cast<double>(value)) : OptDouble();
  };
  const bool any = samples.requests > 0;
  const OptDouble stated_completed = run.figure("completed");
  const OptDouble completed = first_of(stated_completed, given(any, samples.completed()));
  record.completed = whole_number(completed);
  record.failed =
      whole_number(first_of(run.figure("failed"), given(any && (chosen.whole() || !stated_completed), samples.failed)));
  const OptDouble inputs = chosen(first_of(run.figure("input-tokens"), run.figure("input-length", "total")),
                                  given(any && samples.inputs_known, samples.input_tokens), true);
  const OptDouble outputs = chosen(first_of(run.figure("output-tokens"), run.figure("output-length", "total")),
                                   given(any && samples.outputs_known, samples.output_tokens), true);
  record.input_tokens = whole_number(inputs);
  record.output_tokens = whole_number(outputs);
  // From the first request to the end of the last: what AIPerf calls its duration.
  OptDouble spanned;
  if (chosen.whole() && samples.starts_known && samples.latencies_known && samples.last_ns > samples.first_ns)
    spanned = static_cast<double>(samples.last_ns - samples.first_ns) / 1e9;
  record.duration_s = first_of(Chosen::finite(run.figure("duration")), spanned);
  const auto rate = [&](OptDouble stated, const OptDouble& count) {
    return first_of(Chosen::finite(stated), per_second(count, record.duration_s));
  };
  // GuideLLM has distributions of rates over time; their mean is the rate.
  const auto stated = [&](const char* name) { return first_of(run.figure(name), run.figure(name, "mean")); };
  record.requests_per_s = rate(stated("requests-per-s"), completed);
  record.output_tokens_per_s = rate(stated("output-tokens-per-s"), outputs);
  record.total_tokens_per_s =
      rate(stated("total-tokens-per-s"), inputs && outputs ? OptDouble(*inputs + *outputs) : OptDouble());
}

ClientRunRecord client_record(const Trace& trace, ClientRun& run) {
  ClientRunRecord record;
  const auto text = [&](const char* what) {
    const auto found = trace.metadata.find(client_text_key(what, run.source));
    return found == trace.metadata.end() ? OptText() : OptText(found->second);
  };
  record.source = run.source;
  record.format = text("format").value_or("bench");
  record.backend = text("backend");
  record.model = text("model");
  record.requests = run.samples.requests;
  const Chosen chosen(run, record);
  if (const OptDouble stated = run.figure("completed");
      stated && run.samples.requests > 0 && record.format != "guidellm") {
    ++record.checked;
    record.disagreeing += !chosen.whole() && *stated != static_cast<double>(run.samples.completed());
  }
  fill_load(run, record);
  fill_counts(run, chosen, record);
  chosen.distribution("ttft", std::move(run.samples.ttft), run.samples.ttfts_known, record.ttft_median_ms,
                      record.ttft_p99_ms);
  chosen.distribution("tpot", std::move(run.samples.tpot), run.samples.tpots_known, record.tpot_median_ms,
                      record.tpot_p99_ms);
  chosen.distribution("itl", std::move(run.samples.itl), true, record.itl_median_ms, record.itl_p99_ms);
  chosen.distribution("e2e", std::move(run.samples.e2e), run.samples.latencies_known, record.e2e_median_ms,
                      record.e2e_p99_ms);
  return record;
}

// One row for all figures that runs lack.
void say_what_runs_lack(const std::vector<ClientRunRecord>& runs, std::vector<CannotTell>& cannot_tell) {
  struct Part {
    const char* name;
    OptDouble ClientRunRecord::*value;
  };
  static constexpr Part kParts[] = {
      {"median TTFT", &ClientRunRecord::ttft_median_ms},   {"p99 TTFT", &ClientRunRecord::ttft_p99_ms},
      {"median TPOT", &ClientRunRecord::tpot_median_ms},   {"p99 TPOT", &ClientRunRecord::tpot_p99_ms},
      {"median ITL", &ClientRunRecord::itl_median_ms},     {"p99 ITL", &ClientRunRecord::itl_p99_ms},
      {"median latency", &ClientRunRecord::e2e_median_ms}, {"p99 latency", &ClientRunRecord::e2e_p99_ms}};
  std::string names;
  for (const Part& part : kParts)
    if (std::any_of(runs.begin(), runs.end(), [&](const ClientRunRecord& row) { return !(row.*part.value); }))
      names += (names.empty() ? "" : ", ") + std::string(part.name);
  if (names.empty()) return;
  cannot_tell.push_back({"What are these figures of every run: " + names + "?",
                         "a file states no such figure, and does not have every request of the run with what it needs",
                         "let the benchmark keep each request: vllm bench serve --save-result --save-detailed, "
                         "bench_serving --output-details, AIPerf's profile_export.jsonl"});
}

}  // namespace

void analyze_client_runs(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (trace.client_figures.empty() && trace.client_requests.empty()) return;
  std::vector<ClientRun> runs = runs_of(trace);
  for (ClientRun& run : runs) report.client_runs.push_back(client_record(trace, run));
  if (profiled_only(trace))
    cannot_tell.push_back({"What did the server and its GPU do meanwhile?", "a client sees answers, not the GPU",
                           "record the server while the benchmark runs, and give both: llmprof analyze trace.json "
                           "bench.json"});
  else
    cannot_tell.push_back({"Which steps of the recording answered which request?",
                           "a step serves several requests, and the recording does not name them",
                           "compare distributions: TTFT and ITL of the client hold queueing and the network as well"});
  say_what_runs_lack(report.client_runs, cannot_tell);
}

}  // namespace llmprof
