// Metrics pages of servers: what each server did between the first page and the last, or since it started where there
// is one page; and what it was like when they were read. Rules: docs/formats/prometheus.md.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/server_metric_table.h"
#include "analyze/without_program.h"
#include "base/flat_index.h"
#include "trace/nccl_samples.h"
#include "trace/sample_labels.h"

namespace llmprof::servers {
namespace {

constexpr double kNsPerS = 1e9;
// Files that were changed closer together were copied, not written by a server that was asked twice.
constexpr double kFileTimesApartLeast = 1;

// ---- pages
// -----------------------------------------------------------------------------------------------------------

// Rows of one reading of one server, as they stand in the table.
struct MetricsPage {
  Row begin = 0, end = 0;
  int64_t time_ns = 0;  // 0: not known
  int64_t known_samples = 0;
};

int64_t time_of_rows(const ScrapedValues& rows, Row begin, Row end) {
  int64_t latest = 0;
  for (Row row = begin; row < end; ++row) latest = std::max(latest, rows.time_ns[row]);
  return latest;
}

// A page has every sample once: where one comes again, or another file begins, the next page does. In order of time
// where all have one, else as they were given.
std::vector<MetricsPage> pages_of(const Trace& trace) {
  const ScrapedValues& rows = trace.scraped_values;
  std::vector<MetricsPage> pages;
  FlatMap page_of_sample;
  for (Row row = 0; row < rows.size(); ++row) {
    const std::string_view type = trace.text(rows.type[row]);
    if (type == nccl::kSampleType || type == nccl::kInspectorType) continue;  // of no page
    const uint64_t key = (uint64_t{index(rows.name[row])} << 32 | index(rows.labels[row])) + 1;
    const uint32_t current = static_cast<uint32_t>(pages.size());
    uint32_t& last = page_of_sample.find_or_insert(key == 0 ? 1 : key, 0);
    const bool next = pages.empty() || last == current || rows.source[row] != rows.source[row - 1];
    if (next) pages.push_back({row, row, 0, 0});
    last = static_cast<uint32_t>(pages.size());
    pages.back().end = row + 1;
  }
  bool all_timed = true;
  for (MetricsPage& page : pages) {
    page.time_ns = time_of_rows(rows, page.begin, page.end);
    all_timed = all_timed && page.time_ns > 0;
  }
  if (all_timed)
    std::stable_sort(pages.begin(), pages.end(),
                     [](const MetricsPage& a, const MetricsPage& b) { return a.time_ns < b.time_ns; });
  return pages;
}

// What says when a page was read: samples, comment or file; empty if nothing.
std::string clock_of(const Trace& trace, const MetricsPage& page) {
  const std::string_view source = trace.text(trace.scraped_values.source[page.begin]);
  const auto found = trace.metadata.find("metrics_page.clock." + std::string(source.substr(source.rfind('/') + 1)));
  return found == trace.metadata.end() ? std::string() : found->second;
}

// ---- samples of known metrics
// ----------------------------------------------------------------------------------------

enum class SamplePart : uint8_t { kValue, kBucket, kSum, kCount };

struct KnownSample {
  size_t metric = 0;
  SamplePart part = SamplePart::kValue;
};

const std::unordered_map<std::string, KnownSample>& known_samples() {
  static const std::unordered_map<std::string, KnownSample> kSamples = [] {
    std::unordered_map<std::string, KnownSample> out;
    const std::span<const KnownMetric> metrics = known_metrics();
    for (size_t i = 0; i < metrics.size(); ++i) {
      const std::string name(metrics[i].name);
      if (metrics[i].kind == MetricKind::kHistogram) {
        out[name + "_bucket"] = {i, SamplePart::kBucket};
        out[name + "_sum"] = {i, SamplePart::kSum};
        out[name + "_count"] = {i, SamplePart::kCount};
        continue;
      }
      out[name] = {i, SamplePart::kValue};
      if (metrics[i].kind == MetricKind::kCounter) out[name + "_total"] = {i, SamplePart::kValue};
    }
    return out;
  }();
  return kSamples;
}

// Labels that say which of several servers, engines or GPUs it is. SGLang writes the ranks of what is not parallel,
// and DCGM's exporter writes what is known of a GPU beside its number.
bool tells_apart(const KnownMetric& metric, const SampleLabel& label) {
  if (label.name == info_of(metric.server).model_label || label.name == metric.over || label.name == "le") return false;
  if (label.value.empty()) return false;
  if (metric.server == Server::kDcgm)
    return label.name == "gpu" || label.name == "GPU_I_ID" || label.name == "Hostname";
  if (metric.server == Server::kSglang)
    return label.name != "engine_type" && !(label.name.ends_with("_rank") && label.value == "0");
  return true;
}

struct ServerKey {
  Server server = Server::kVllm;
  std::string model{}, instance{};
  friend bool operator<(const ServerKey& a, const ServerKey& b) {
    return std::tie(a.server, a.model, a.instance) < std::tie(b.server, b.model, b.instance);
  }
};

ServerKey server_key(const KnownMetric& metric, const std::vector<SampleLabel>& labels) {
  ServerKey out{metric.server};
  for (const SampleLabel& label : labels) {
    if (label.name == info_of(metric.server).model_label) out.model = label.value;
    if (tells_apart(metric, label)) out.instance += (out.instance.empty() ? "" : ", ") + label.name + "=" + label.value;
  }
  return out;
}

// The upper bound of a bucket; NaN if it is none.
double bound_of(const std::vector<SampleLabel>& labels) {
  for (const SampleLabel& label : labels) {
    if (label.name != "le") continue;
    std::string_view text = label.value;
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
  }
  return std::nan("");
}

// ---- what pages say of one metric of one server
// ----------------------------------------------------------------------

// On one page.
struct PageValues {
  bool any = false;
  double value = 0;           // of a counter or gauge, in the unit of the figure
  double sum = 0, count = 0;  // of a histogram
  bool has_sum = false, has_count = false;
  std::map<double, double> buckets{};  // by upper bound: observations up to it
  uint64_t series = 0;                 // which label sets there are
  int64_t time_ns = 0;
};

// Whether a number that only grows is smaller than before.
bool fell(const PageValues& before, const PageValues& now, MetricKind kind) {
  if (kind == MetricKind::kGauge || before.series != now.series) return false;
  if (now.value < before.value || now.count < before.count) return true;
  for (const auto& [bound, count] : before.buckets) {
    const auto found = now.buckets.find(bound);
    if (found != now.buckets.end() && found->second < count) return true;
  }
  return false;
}

struct MetricOfServer {
  size_t metric = 0;
  PageValues now{}, first{}, last{};
  size_t first_page = 0, last_page = 0;
  int64_t pages = 0;
  double least = 0, most = 0;
  bool fell = false;

  // The end of a page that has it.
  void close_page(size_t page) {
    const PageValues values = std::exchange(now, PageValues());
    if (!values.any) return;
    const MetricKind kind = known_metrics()[metric].kind;
    if (pages == 0) {
      first = values;
      first_page = page;
      least = most = values.value;
    } else {
      fell = fell || servers::fell(last, values, kind);
    }
    least = std::min(least, values.value);
    most = std::max(most, values.value);
    last = values;
    last_page = page;
    ++pages;
  }
  bool same_series() const { return first.series == last.series; }
};

struct MetricsOfServer {
  ServerKey key;
  std::map<size_t, MetricOfServer> metrics{};  // by index in the table
  std::set<size_t> pages{};
  bool restarted = false;
};

// ---- reading pages
// ---------------------------------------------------------------------------------------------------

class ServerReader {
 public:
  explicit ServerReader(const Trace& trace) : trace_(trace), rows_(trace.scraped_values), pages_(pages_of(trace)) {
    start_times_.resize(pages_.size());
    for (size_t page = 0; page < pages_.size(); ++page) read_page(page);
    for (MetricsOfServer& server : servers_) server.restarted = was_restarted(server);
  }

  const std::vector<MetricsPage>& pages() const { return pages_; }
  const std::vector<MetricsOfServer>& servers() const { return servers_; }
  size_t unknown_metrics() const { return unknown_.size(); }

 private:
  // Where a sample of a known metric belongs; the same for every page.
  struct Place {
    size_t server = 0;
    double bound = 0;
  };

  void read_page(size_t page) {
    std::set<std::pair<size_t, size_t>> touched;
    for (Row row = pages_[page].begin; row < pages_[page].end; ++row) {
      const KnownSample* known = known_of(row);
      if (known == nullptr) {
        note_start(page, row);
        continue;
      }
      ++pages_[page].known_samples;
      const Place& place = place_of(*known, row);
      take(*known, place, row);
      servers_[place.server].pages.insert(page);
      touched.emplace(place.server, known->metric);
    }
    for (const auto& [server, metric] : touched) servers_[server].metrics[metric].close_page(page);
  }

  const KnownSample* known_of(Row row) {
    const auto [found, added] = known_.try_emplace(index(rows_.name[row]), nullptr);
    if (!added) return found->second;
    const auto sample = known_samples().find(std::string(trace_.text(rows_.name[row])));
    if (sample != known_samples().end())
      found->second = &sample->second;
    else
      unknown_.insert(index(rows_.name[row]));
    return found->second;
  }

  // When the process of the server started.
  void note_start(size_t page, Row row) {
    if (trace_.text(rows_.name[row]) == "process_start_time_seconds") start_times_[page] = rows_.value[row];
  }

  const Place& place_of(const KnownSample& known, Row row) {
    const uint64_t key = (uint64_t{index(rows_.labels[row])} << 32 | known.metric) + 1;
    const auto [found, added] = places_.try_emplace(key, Place());
    if (!added) return found->second;
    const std::vector<SampleLabel> labels = labels_of(trace_.text(rows_.labels[row]));
    const auto [server, fresh] =
        numbers_.try_emplace(server_key(known_metrics()[known.metric], labels), servers_.size());
    if (fresh) servers_.push_back({server->first});
    found->second = {server->second, bound_of(labels)};
    return found->second;
  }

  void take(const KnownSample& known, const Place& place, Row row) {
    const KnownMetric& metric = known_metrics()[known.metric];
    const double value = rows_.value[row] * metric.scale;
    const bool growing = metric.kind != MetricKind::kGauge;
    // Shares below 0 stand for "not used".
    if (!std::isfinite(value) || ((growing || metric.unit == "frac") && value < 0)) return;
    MetricOfServer& of = servers_[place.server].metrics[known.metric];
    of.metric = known.metric;
    PageValues& now = of.now;
    now.time_ns = std::max(now.time_ns, rows_.time_ns[row]);
    now.series ^= mix_hash(index(rows_.labels[row]), static_cast<uint64_t>(known.part) + 1);
    switch (known.part) {
      case SamplePart::kValue:
        // A GPU that several containers share is written for each of them.
        now.value = !now.any                                                  ? value
                    : metric.server == Server::kDcgm || metric.unit == "frac" ? std::max(now.value, value)
                                                                              : now.value + value;
        break;
      case SamplePart::kBucket:
        if (std::isnan(place.bound)) return;
        now.buckets[place.bound] += rows_.value[row];
        break;
      case SamplePart::kSum:
        now.sum += value;
        now.has_sum = true;
        break;
      case SamplePart::kCount:
        now.count += rows_.value[row];
        now.has_count = true;
        break;
    }
    now.any = true;
  }

  // The exporter of DCGM may be restarted; its counters are the GPU's.
  bool was_restarted(const MetricsOfServer& server) const {
    for (const auto& [metric, of] : server.metrics)
      if (of.fell) return true;
    if (server.key.server == Server::kDcgm || server.pages.empty()) return false;
    const OptDouble first = start_times_[*server.pages.begin()], last = start_times_[*server.pages.rbegin()];
    return first && last && *first != *last;
  }

  const Trace& trace_;
  const ScrapedValues& rows_;
  std::vector<MetricsPage> pages_;
  std::vector<OptDouble> start_times_;  // by page
  std::vector<MetricsOfServer> servers_;
  std::map<ServerKey, size_t> numbers_;
  std::unordered_map<uint32_t, const KnownSample*> known_;  // by name
  std::unordered_map<uint64_t, Place> places_;              // by labels and metric
  std::set<uint32_t> unknown_;
};

// ---- figures
// ---------------------------------------------------------------------------------------------------------

// What the figures of all servers lack, and why.
struct LackingFigures {
  bool one_page = false, no_times = false, file_times = false, copied_files = false;
  std::set<std::string> restarted{}, partly{};
};

std::string server_name(const ServerKey& key) {
  std::string out(info_of(key.server).title);
  if (!key.model.empty()) out += " " + key.model;
  if (!key.instance.empty()) out += " (" + key.instance + ")";
  return out;
}

// Observations and their sum over a span, with buckets that never fall.
struct Observed {
  double count = 0, sum = 0;
  bool has_sum = false;
  std::vector<std::pair<double, double>> buckets{};  // upper bound, observations up to it
};

Observed between(const PageValues* first, const PageValues& last) {
  Observed out;
  out.count = last.count - (first != nullptr ? first->count : 0);
  out.sum = last.sum - (first != nullptr ? first->sum : 0);
  out.has_sum = last.has_sum && (first == nullptr || first->has_sum);
  double before = 0;
  for (const auto& [bound, count] : last.buckets) {
    double increase = count;
    if (first != nullptr) {
      const auto found = first->buckets.find(bound);
      if (found == first->buckets.end()) continue;
      increase -= found->second;
    }
    before = std::max(before, increase);
    out.buckets.emplace_back(bound, before);
  }
  if (!last.has_count && !out.buckets.empty()) out.count = out.buckets.back().second;
  return out;
}

struct BoundedQuantile {
  OptDouble value{}, least{}, most{};
};

// By the bucket that holds it; in it observations are taken to be spread evenly. Above the last finite bound nothing is
// known but that bound.
BoundedQuantile quantile_of(const Observed& observed, double fraction, double scale) {
  BoundedQuantile out;
  if (observed.buckets.empty() || observed.buckets.back().second <= 0) return out;
  const double rank = fraction * observed.buckets.back().second;
  double below = 0, count_below = 0;
  for (const auto& [bound, count] : observed.buckets) {
    if (count < rank || count <= 0) {
      below = bound;
      count_below = count;
      continue;
    }
    const bool first = &bound == &observed.buckets.front().first;
    if (first && bound > 0) below = 0;
    if (first && bound <= 0) below = bound;
    out.least = below * scale;
    if (!std::isfinite(bound)) {
      if (first) return {};
      out.value = below * scale;
      return out;
    }
    out.most = bound * scale;
    const double share = count > count_below ? (rank - count_below) / (count - count_below) : 1;
    out.value = (below + (bound - below) * share) * scale;
    return out;
  }
  return out;
}

class FiguresOfServer {
 public:
  FiguresOfServer(const Trace& trace, const std::vector<MetricsPage>& pages, const MetricsOfServer& server,
                  Report& report, LackingFigures& lacks)
      : trace_(trace), pages_(pages), server_(server), report_(report), lacks_(lacks) {}

  void add() {
    if (server_.restarted) lacks_.restarted.insert(server_name(server_.key));
    std::set<std::string_view> done;
    for (const KnownMetric& metric : known_metrics()) {
      if (metric.server != server_.key.server || !done.insert(metric.figure).second) continue;
      const MetricOfServer* of = best_of(metric.figure);
      if (of == nullptr) continue;
      if (metric.kind == MetricKind::kHistogram)
        add_histogram(*of);
      else
        add_scalar(*of);
    }
    for (const KnownRatio& ratio : known_ratios())
      if (ratio.server == server_.key.server) add_ratio(ratio);
  }

 private:
  bool one_page() const { return server_.pages.size() == 1; }

  // Of several names of one figure the first that all pages have, else the first that any has.
  const MetricOfServer* best_of(std::string_view figure) const {
    const MetricOfServer* best = nullptr;
    for (const auto& [index, of] : server_.metrics) {
      const KnownMetric& metric = known_metrics()[index];
      if (metric.figure != figure || of.pages == 0) continue;
      if (best == nullptr || of.pages > best->pages) best = &of;
    }
    return best;
  }

  // Whether what it counted between two pages is known.
  bool spans(const MetricOfServer& of) const {
    if (server_.restarted) return false;
    const bool whole = of.first_page == *server_.pages.begin() && of.last_page == *server_.pages.rbegin() &&
                       of.pages > 1 && of.same_series();
    if (!whole) lacks_.partly.insert(std::string(known_metrics()[of.metric].name));
    return whole;
  }

  // Since the start of the server, or between pages.
  OptDouble counted(const MetricOfServer& of) const {
    if (one_page()) return of.last.value;
    if (!spans(of)) return {};
    return of.last.value - of.first.value;
  }

  OptDouble seconds_between(const MetricOfServer& of) const {
    if (of.pages < 2 || of.first.time_ns <= 0 || of.last.time_ns < of.first.time_ns) return {};
    const double seconds = static_cast<double>(of.last.time_ns - of.first.time_ns) / kNsPerS;
    const bool by_files = by_file_times(of);
    if (by_files && seconds < kFileTimesApartLeast) {
      lacks_.copied_files = true;
      return {};
    }
    lacks_.file_times = lacks_.file_times || by_files;
    return seconds > 0 ? OptDouble(seconds) : OptDouble();
  }

  // Whether the last change of a file stands for when one of its pages was read.
  bool by_file_times(const MetricOfServer& of) const {
    return clock_of(trace_, pages_[of.first_page]) == "file" || clock_of(trace_, pages_[of.last_page]) == "file";
  }

  OptText model() const { return server_.key.model.empty() ? OptText() : OptText(server_.key.model); }

  ServerFigureRecord figure_record(std::string_view figure, std::string_view unit) const {
    ServerFigureRecord out;
    out.server = info_of(server_.key.server).name;
    out.model = model();
    out.instance = server_.key.instance;
    out.figure = figure;
    out.unit = unit;
    return out;
  }

  void add_scalar(const MetricOfServer& of) {
    const KnownMetric& metric = known_metrics()[of.metric];
    ServerFigureRecord row = figure_record(metric.figure, metric.unit);
    row.kind = metric.kind == MetricKind::kGauge ? "gauge" : "counter";
    row.metric = metric.name;
    row.pages = of.pages;
    row.first = of.first.value;
    row.last = of.last.value;
    row.seconds = seconds_between(of);
    if (metric.kind == MetricKind::kGauge) {
      row.value = of.last.value;
      row.least = of.least;
      row.most = of.most;
    } else {
      row.value = counted(of);
      if (!one_page()) row.increase = row.value;
      if (row.increase && row.seconds) row.per_s = *row.increase / *row.seconds;
      lacks_.no_times = lacks_.no_times || (row.increase && !row.seconds);
      lacks_.one_page = lacks_.one_page || one_page();
    }
    report_.server_figures.push_back(std::move(row));
  }

  ServerDistributionRecord distribution_record(std::string_view figure, std::string_view unit) const {
    ServerDistributionRecord out;
    out.server = info_of(server_.key.server).name;
    out.model = model();
    out.instance = server_.key.instance;
    out.figure = figure;
    out.unit = unit;
    out.span = one_page() ? "start" : "pages";
    return out;
  }

  void add_histogram(const MetricOfServer& of) {
    const KnownMetric& metric = known_metrics()[of.metric];
    ServerDistributionRecord row = distribution_record(metric.figure, metric.unit);
    row.metric = metric.name;
    if (one_page() || spans(of)) {
      const Observed observed = between(one_page() ? nullptr : &of.first, of.last);
      row.count = observed.count;
      // The sum has the scale of the figure already.
      if (observed.has_sum && observed.count > 0) row.mean = observed.sum / observed.count;
      const BoundedQuantile p50 = quantile_of(observed, 0.5, metric.scale);
      const BoundedQuantile p99 = quantile_of(observed, 0.99, metric.scale);
      std::tie(row.p50, row.p50_least, row.p50_most) = std::tie(p50.value, p50.least, p50.most);
      std::tie(row.p99, row.p99_least, row.p99_most) = std::tie(p99.value, p99.least, p99.most);
    }
    lacks_.one_page = lacks_.one_page || one_page();
    report_.server_distributions.push_back(std::move(row));
  }

  void add_ratio(const KnownRatio& ratio) {
    const MetricOfServer* above = best_of(ratio.numerator);
    const MetricOfServer* below = best_of(ratio.denominator);
    if (above == nullptr || below == nullptr) return;
    const OptDouble numerator = counted(*above), denominator = counted(*below);
    OptDouble value;
    if (numerator && denominator && *denominator > 0) value = *numerator / *denominator * ratio.scale;
    const std::string metric = fmt::format("{} / {}", ratio.numerator, ratio.denominator);
    if (ratio.is_time) {
      ServerDistributionRecord row = distribution_record(ratio.figure, ratio.unit);
      row.metric = metric;
      row.count = denominator;
      row.mean = value;
      report_.server_distributions.push_back(std::move(row));
      return;
    }
    ServerFigureRecord row = figure_record(ratio.figure, ratio.unit);
    row.kind = "ratio";
    row.metric = metric;
    row.pages = std::min(above->pages, below->pages);
    row.value = value;
    report_.server_figures.push_back(std::move(row));
  }

  const Trace& trace_;
  const std::vector<MetricsPage>& pages_;
  const MetricsOfServer& server_;
  Report& report_;
  LackingFigures& lacks_;
};

// ---- what is not known
// -----------------------------------------------------------------------------------------------

std::string joined_names(const std::set<std::string>& names) {
  constexpr size_t kNamesMost = 3;
  std::string out;
  size_t count = 0;
  for (const std::string& name : names) {
    if (++count > kNamesMost) break;
    out += (out.empty() ? "" : ", ") + name;
  }
  return names.size() > kNamesMost ? fmt::format("{} and {} more", out, names.size() - kNamesMost) : out;
}

void say_what_pages_lack(const LackingFigures& lacks, const ServerReader& reader,
                         std::vector<CannotTell>& cannot_tell) {
  constexpr const char* kRates = "How many requests and tokens per second?";
  const std::string two =
      "ask the server twice and give both pages: curl -s http://HOST:PORT/metrics > before.prom; "
      "sleep 60; curl -s http://HOST:PORT/metrics > after.prom";
  if (lacks.one_page)
    cannot_tell.push_back(
        {kRates, "one page of a server has totals since it started, and times of all requests since", two});
  for (const std::string& server : lacks.restarted)
    cannot_tell.push_back({fmt::format("What did {} do between the pages?", server),
                           "it was restarted in between: counters went down, or its process started again",
                           "give pages of one run of the server"});
  if (lacks.no_times || lacks.copied_files)
    cannot_tell.push_back({kRates,
                           lacks.copied_files
                               ? "nothing says when the pages were read, and their files were changed within a second: "
                                 "they were copied"
                               : "nothing says when the pages were read",
                           "write a line in front of each page: echo \"# time: $(date -u +%FT%TZ)\""});
  else if (lacks.file_times)
    cannot_tell.push_back({"How exact is what happened per second?",
                           "the pages do not say when they were read: the last changes of their files stand for it",
                           "write a line in front of each page: echo \"# time: $(date -u +%FT%TZ)\""});
  if (!lacks.partly.empty())
    cannot_tell.push_back(
        {"What did metrics count that only some pages have, or with other labels?",
         fmt::format("{}: a server writes some labels once it has counted something", joined_names(lacks.partly)),
         "read the first page when the server has answered requests of each kind"});
  if (reader.servers().empty())
    cannot_tell.push_back(
        {"What did the server do?",
         fmt::format("none of the {} metrics of the pages is one of vLLM, SGLang, Triton or the DCGM exporter",
                     reader.unknown_metrics()),
         "the samples are in the table scraped_values: llmprof export --to csv"});
}

void add_pages(const Trace& trace, const ServerReader& reader, Report& report) {
  for (const MetricsPage& page : reader.pages()) {
    MetricsPageRecord row;
    row.source = trace.text(trace.scraped_values.source[page.begin]);
    if (page.time_ns > 0) row.unix_ns = page.time_ns;
    const std::string clock = clock_of(trace, page);
    if (page.time_ns > 0 && !clock.empty()) row.clock = clock;
    row.samples = page.end - page.begin;
    row.known_samples = page.known_samples;
    report.metrics_pages.push_back(std::move(row));
  }
}

}  // namespace
}  // namespace llmprof::servers

namespace llmprof {

void analyze_server_metrics(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (trace.scraped_values.empty()) return;
  const servers::ServerReader reader(trace);
  if (reader.pages().empty()) return;
  servers::add_pages(trace, reader, report);
  servers::LackingFigures lacks;
  for (const servers::MetricsOfServer& server : reader.servers())
    servers::FiguresOfServer(trace, reader.pages(), server, report, lacks).add();
  servers::say_what_pages_lack(lacks, reader, cannot_tell);
}

}  // namespace llmprof
