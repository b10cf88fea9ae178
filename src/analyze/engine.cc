// Engines of TensorRT by what trtexec exports: times of queries, and layers by their times joined with what the engine
// inspector says of them. Rules: docs/formats/trtexec.md.
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

// The rows of a file, in its order.
struct EngineFile {
  StringId source = StringId::kEmpty;
  std::vector<Row> rows{};
  bool used = false;  // of layer information: belongs to a profile
};

// In the order of the files.
std::vector<EngineFile> files_of(const std::vector<StringId>& sources) {
  std::vector<EngineFile> out;
  std::map<StringId, size_t> known;
  for (Row row = 0; row < sources.size(); ++row) {
    const auto [found, added] = known.try_emplace(sources[row], out.size());
    if (added) out.push_back({sources[row]});
    out[found->second].rows.push_back(row);
  }
  return out;
}

double ms_of(int64_t ns) { return static_cast<double>(ns) / 1e6; }
OptDouble ms_or_none(int64_t ns) { return ns >= 0 ? OptDouble(ms_of(ns)) : OptDouble(); }
OptText text_or_absent(std::string_view text) { return text.empty() ? OptText() : OptText(std::string(text)); }

// ---- layers ----

// Pairs of rows of equal names: the first with the first, the second with the second.
std::map<Row, Row> matched_rows(const Trace& trace, const EngineFile& times, const EngineFile& layers) {
  std::map<StringId, std::pair<size_t, std::vector<Row>>> by_name;  // how many are taken
  for (const Row row : layers.rows) by_name[trace.inspected_layers.name[row]].second.push_back(row);
  std::map<Row, Row> out;
  for (const Row row : times.rows) {
    const auto found = by_name.find(trace.layer_times.name[row]);
    if (found == by_name.end()) continue;
    auto& [taken, rows] = found->second;
    if (taken < rows.size()) out.emplace(row, rows[taken++]);
  }
  return out;
}

class EngineLayerTables {
 public:
  EngineLayerTables(const Trace& trace, Report& report) : trace_(trace), report_(report) {}

  void fill() {
    std::vector<EngineFile> layers = files_of(trace_.inspected_layers.source);
    for (const EngineFile& times : files_of(trace_.layer_times.source)) add_profile(times, layers);
    for (const EngineFile& file : layers)
      if (!file.used) add_layers_alone(file);
  }

 private:
  void add_profile(const EngineFile& times, std::vector<EngineFile>& layers) {
    EngineFile* best = nullptr;
    std::map<Row, Row> matched;
    for (EngineFile& file : layers) {
      std::map<Row, Row> pairs = matched_rows(trace_, times, file);
      if (pairs.size() <= matched.size()) continue;
      matched = std::move(pairs);
      best = &file;
    }
    EngineProfileRecord profile;
    profile.source = std::string(trace_.text(times.source));
    profile.timed_layers = static_cast<int64_t>(times.rows.size());
    profile.matched = static_cast<int64_t>(matched.size());
    profile.times_only = profile.timed_layers - profile.matched;
    if (best != nullptr) {
      best->used = true;
      profile.layers_source = std::string(trace_.text(best->source));
      profile.described_layers = static_cast<int64_t>(best->rows.size());
      profile.layers_only = profile.described_layers - profile.matched;
    }
    const size_t first = report_.engine_layers.size();
    add_times(times, matched, profile);
    std::stable_sort(report_.engine_layers.begin() + static_cast<std::ptrdiff_t>(first), report_.engine_layers.end(),
                     [](const EngineLayerRecord& a, const EngineLayerRecord& b) { return *a.total_ms > *b.total_ms; });
    if (best != nullptr) add_untimed(*best, matched, profile);
    report_.engine_profiles.push_back(std::move(profile));
  }

  void add_times(const EngineFile& times, const std::map<Row, Row>& matched, EngineProfileRecord& profile) {
    const LayerTimes& table = trace_.layer_times;
    double sum_ns = 0, unmatched_ns = 0;
    for (const Row row : times.rows) {
      sum_ns += static_cast<double>(table.total_ns[row]);
      if (!matched.contains(row)) unmatched_ns += static_cast<double>(table.total_ns[row]);
    }
    const int64_t iterations = table.iterations[times.rows.front()];
    const bool counted = iterations > 0;
    if (counted) profile.iterations = iterations;
    if (counted) profile.iteration_ms = sum_ns / 1e6 / static_cast<double>(iterations);
    if (sum_ns > 0) profile.unmatched_frac = unmatched_ns / sum_ns;
    for (const Row row : times.rows) {
      EngineLayerRecord layer;
      layer.source = profile.source;
      layer.name = std::string(trace_.text(table.name[row]));
      layer.found_in = "times";
      layer.total_ms = ms_of(table.total_ns[row]);
      if (counted) layer.iteration_ms = *layer.total_ms / static_cast<double>(iterations);
      layer.mean_ms = ms_or_none(table.mean_ns[row]);
      layer.median_ms = ms_or_none(table.median_ns[row]);
      if (sum_ns > 0) layer.frac = static_cast<double>(table.total_ns[row]) / sum_ns;
      check_share(table.stated_frac[row], layer.frac, profile);
      if (const auto found = matched.find(row); found != matched.end()) {
        layer.found_in = "both";
        describe(found->second, layer);
      }
      report_.engine_layers.push_back(std::move(layer));
    }
  }

  // trtexec adds up in 32-bit floats, and writes six digits.
  static void check_share(double stated, const OptDouble& given, EngineProfileRecord& profile) {
    if (!std::isfinite(stated) || !given) return;
    ++profile.checked;
    profile.disagreeing += !(std::abs(stated - *given) <= 2e-3 * *given + 1e-7);
  }

  void describe(Row row, EngineLayerRecord& layer) const {
    const InspectedLayers& table = trace_.inspected_layers;
    layer.type = text_or_absent(trace_.text(table.type[row]));
    layer.tactic = text_or_absent(trace_.text(table.tactic[row]));
    layer.inputs = text_or_absent(trace_.text(table.inputs[row]));
    layer.outputs = text_or_absent(trace_.text(table.outputs[row]));
    layer.metadata = text_or_absent(trace_.text(table.metadata[row]));
    if (table.stream[row] >= 0) layer.stream = table.stream[row];
  }

  void add_described(Row row, const OptText& source) {
    EngineLayerRecord layer;
    layer.source = source;
    layer.name = std::string(trace_.text(trace_.inspected_layers.name[row]));
    layer.found_in = "layers";
    describe(row, layer);
    report_.engine_layers.push_back(std::move(layer));
  }

  void add_untimed(const EngineFile& layers, const std::map<Row, Row>& matched, const EngineProfileRecord& profile) {
    std::vector<Row> taken;
    for (const auto& [time, layer] : matched) taken.push_back(layer);
    std::sort(taken.begin(), taken.end());
    for (const Row row : layers.rows)
      if (!std::binary_search(taken.begin(), taken.end(), row)) add_described(row, profile.source);
  }

  void add_layers_alone(const EngineFile& layers) {
    EngineProfileRecord profile;
    profile.layers_source = std::string(trace_.text(layers.source));
    profile.described_layers = profile.layers_only = static_cast<int64_t>(layers.rows.size());
    for (const Row row : layers.rows) add_described(row, std::nullopt);
    report_.engine_profiles.push_back(std::move(profile));
  }

  const Trace& trace_;
  Report& report_;
};

// ---- queries ----

// Moments have six digits: after so many ms they are that many ms apart, and differences of them are no better.
double step_of_moments(double ms) { return ms > 0 ? std::pow(10.0, std::floor(std::log10(ms)) - 5) : 0; }

class EngineQueryTimes {
 public:
  EngineQueryTimes(const Trace& trace, Report& report) : table_(trace.engine_queries), trace_(trace), report_(report) {}

  void fill() {
    for (const EngineFile& file : files_of(table_.source)) add_file(file);
  }
  bool coarse_enqueue() const { return coarse_enqueue_; }

 private:
  void add_file(const EngineFile& file) {
    std::vector<double> latency;
    int64_t checked = 0, disagreeing = 0;
    for (const Row row : file.rows) {
      const int64_t h2d = table_.h2d_ns[row], d2h = table_.d2h_ns[row], stated = table_.latency_ns[row];
      const bool parts = h2d >= 0 && d2h >= 0;
      const double sum = ms_of(h2d) + ms_of(table_.compute_ns[row]) + ms_of(d2h);
      if (parts && stated >= 0) {
        ++checked;
        disagreeing += !(std::abs(ms_of(stated) - sum) <= 2e-5 * sum + 5e-6);
      }
      if (stated >= 0)
        latency.push_back(ms_of(stated));
      else if (parts)
        latency.push_back(sum);
    }
    const size_t first = report_.engine_latency.size();
    add_figure(file, "latency", std::move(latency));
    if (report_.engine_latency.size() > first) {
      report_.engine_latency.back().checked = checked;
      report_.engine_latency.back().disagreeing = disagreeing;
    }
    add_figure(file, "gpu-compute", known(file, table_.compute_ns));
    add_figure(file, "h2d", known(file, table_.h2d_ns));
    add_figure(file, "d2h", known(file, table_.d2h_ns));
    add_enqueue(file);
    add_figure(file, "end-to-end", known(file, table_.end_to_end_ns));
  }

  static std::vector<double> known(const EngineFile& file, const std::vector<int64_t>& column) {
    std::vector<double> out;
    for (const Row row : file.rows)
      if (column[row] >= 0) out.push_back(ms_of(column[row]));
    return out;
  }

  // The file has when enqueueing began and ended, not how long it took.
  void add_enqueue(const EngineFile& file) {
    std::vector<double> enqueue = known(file, table_.enqueue_ns);
    if (enqueue.empty()) return;
    double last_ms = 0;
    for (const Row row : file.rows) last_ms = std::max(last_ms, ms_of(table_.compute_start_ns[row]));
    if (step_of_moments(last_ms) > 0.05 * median_of(enqueue))
      coarse_enqueue_ = true;
    else
      add_figure(file, "enqueue", std::move(enqueue));
  }

  void add_figure(const EngineFile& file, const char* figure, std::vector<double> ms) {
    std::sort(ms.begin(), ms.end());
    const std::optional<SampleSummary> summary = summarize_samples(ms);
    if (!summary) return;
    EngineLatencyRecord row;
    row.source = std::string(trace_.text(file.source));
    row.figure = figure;
    row.queries = summary->n;
    row.mean_ms = summary->mean;
    row.median_ms = summary->median;
    row.p90_ms = summary->p90;
    row.p95_ms = quantile_of_sorted(ms, 0.95);
    row.p99_ms = summary->p99;
    row.least_ms = summary->min;
    row.most_ms = summary->max;
    report_.engine_latency.push_back(std::move(row));
  }

  const EngineQueries& table_;
  const Trace& trace_;
  Report& report_;
  bool coarse_enqueue_ = false;
};

// ---- what is not in the files ----

void say_what_layers_lack(const Report& report, std::vector<CannotTell>& cannot_tell) {
  const auto any_profile = [&](auto&& is) {
    return std::any_of(report.engine_profiles.begin(), report.engine_profiles.end(), is);
  };
  const bool timed = any_profile([](const EngineProfileRecord& row) { return row.source.has_value(); });
  const bool described = any_profile([](const EngineProfileRecord& row) { return row.layers_source.has_value(); });
  if (!timed)
    cannot_tell.push_back({"Which layers take the time?", "no profile of the layers was given",
                           "trtexec --loadEngine=FILE --exportProfile=profile.json --separateProfileRun"});
  if (!described)
    cannot_tell.push_back(
        {"Which type, shapes and tactic do layers have?", "no layer information was given",
         "trtexec --loadEngine=FILE --profilingVerbosity=detailed --exportLayerInfo=layers.json; the engine must have "
         "been built with that verbosity too"});
  for (const EngineProfileRecord& row : report.engine_profiles) {
    if (!row.source || !described || row.times_only == 0) continue;
    const bool none = !row.layers_source;
    cannot_tell.push_back(
        {none ? "Which type, shapes and tactic do the layers of " + *row.source + " have?"
              : fmt::format("Which type, shapes and tactic {} {} of the {} of {} have?",
                            row.times_only == 1 ? "does" : "do", row.times_only,
                            row.timed_layers == 1 ? "one layer" : fmt::format("{} layers", row.timed_layers),
                            *row.source),
         none ? std::string("the layer information has none of their names: it is of another engine")
              : fmt::format("{} has no layers of their names, which take {:.1f} % of the time", *row.layers_source,
                            100 * row.unmatched_frac.value_or(0)),
         "export profile and layer information in one run of trtexec"});
  }
  const bool names_alone = described && std::none_of(report.engine_layers.begin(), report.engine_layers.end(),
                                                     [](const EngineLayerRecord& row) { return row.type.has_value(); });
  if (names_alone && any_profile([](const EngineProfileRecord& row) { return row.matched > 0 || !row.source; }))
    cannot_tell.push_back({"Which type, shapes and tactic do layers have?",
                           "the layer information has their names alone: the engine was built without details",
                           "build the engine with trtexec --profilingVerbosity=detailed"});
}

void say_what_queries_lack(const Report& report, bool coarse_enqueue, std::vector<CannotTell>& cannot_tell) {
  if (report.engine_latency.empty()) {
    cannot_tell.push_back({"How long does a query take?", "no times of queries were given",
                           "trtexec --loadEngine=FILE --exportTimes=times.json"});
    return;
  }
  if (coarse_enqueue)
    cannot_tell.push_back({"How long does the host take to enqueue a query?",
                           "the file has the moments with six digits, and the run is so long that they are too coarse",
                           "trtexec prints it (Enqueue Time), or give --duration=1"});
  if (std::any_of(report.engine_latency.begin(), report.engine_latency.end(),
                  [](const EngineLatencyRecord& row) { return row.figure == "end-to-end"; }))
    cannot_tell.push_back({"Which queries are warm-up?",
                           "trtexec of this age (it writes endToEndMs) exports queries of the warm-up too, unmarked",
                           "newer versions of trtexec leave them out"});
}

}  // namespace

void analyze_engine(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (!of_engine(trace)) return;
  EngineLayerTables(trace, report).fill();
  EngineQueryTimes queries(trace, report);
  queries.fill();
  say_what_layers_lack(report, cannot_tell);
  say_what_queries_lack(report, queries.coarse_enqueue(), cannot_tell);
  if (profiled_only(trace))
    cannot_tell.push_back({"Which kernels ran, how many queries per second, and how far are layers from the limits?",
                           "trtexec exports times of layers and queries, without kernels, batches or FLOPs",
                           "llmprof run -- trtexec --loadEngine=FILE"});
}

}  // namespace llmprof
