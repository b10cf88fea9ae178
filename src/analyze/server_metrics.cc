// Metrics pages of servers: what each server did between the first page and the last, or since it started where there
// is one page; and what it was like when they were read. Rules: docs/formats/prometheus.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/server_metric_table.h"
#include "analyze/server_pages.h"

namespace llmprof::servers {
namespace {

constexpr double kNsPerS = 1e9;
// Files that were changed closer together were copied, not written by a server that was asked twice.
constexpr double kFileTimesApartLeast = 1;

// ---- figures --------------------------------------------------------------------------------------------------------

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

// ---- what is not known ----------------------------------------------------------------------------------------------

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

void say_what_pages_lack(const LackingFigures& lacks, const ServerPages& read, std::vector<CannotTell>& cannot_tell) {
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
  if (read.servers.empty())
    cannot_tell.push_back(
        {"What did the server do?",
         fmt::format("none of the {} metrics of the pages is one of vLLM, SGLang, Triton or the DCGM exporter",
                     read.unknown_metrics),
         "the samples are in the table scraped_values: llmprof export --to csv"});
}

void add_pages(const Trace& trace, const ServerPages& read, Report& report) {
  for (const MetricsPage& page : read.pages) {
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
  const servers::ServerPages read = servers::read_server_pages(trace);
  if (read.pages.empty()) return;
  servers::add_pages(trace, read, report);
  servers::LackingFigures lacks;
  for (const servers::MetricsOfServer& server : read.servers)
    servers::FiguresOfServer(trace, read.pages, server, report, lacks).add();
  servers::say_what_pages_lack(lacks, read, cannot_tell);
}

}  // namespace llmprof
