#include "analyze/server_pages.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/flat_index.h"
#include "results/values.h"
#include "trace/sample_labels.h"

namespace llmprof::servers {
namespace {

// ---- pages ----------------------------------------------------------------------------------------------------------

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

// ---- samples of known metrics ---------------------------------------------------------------------------------------

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

// ---- what pages say of one metric of one server ---------------------------------------------------------------------

// Whether a number that only grows is smaller than before.
bool has_fallen(const PageValues& before, const PageValues& now, MetricKind kind) {
  if (kind == MetricKind::kGauge || before.series != now.series) return false;
  if (now.value < before.value || now.count < before.count) return true;
  for (const auto& [bound, count] : before.buckets) {
    const auto found = now.buckets.find(bound);
    if (found != now.buckets.end() && found->second < count) return true;
  }
  return false;
}

// ---- reading pages --------------------------------------------------------------------------------------------------

class ServerReader {
 public:
  explicit ServerReader(const Trace& trace) : trace_(trace), rows_(trace.scraped_values), pages_(pages_of(trace)) {
    start_times_.resize(pages_.size());
    for (size_t page = 0; page < pages_.size(); ++page) read_page(page);
    for (MetricsOfServer& server : servers_) server.restarted = was_restarted(server);
  }

  ServerPages result() { return {std::move(pages_), std::move(servers_), unknown_.size()}; }

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

}  // namespace

std::string clock_of(const Trace& trace, const MetricsPage& page) {
  const std::string_view source = trace.text(trace.scraped_values.source[page.begin]);
  const auto found = trace.metadata.find("metrics_page.clock." + std::string(source.substr(source.rfind('/') + 1)));
  return found == trace.metadata.end() ? std::string() : found->second;
}

void MetricOfServer::close_page(size_t page) {
  const PageValues values = std::exchange(now, PageValues());
  if (!values.any) return;
  const MetricKind kind = known_metrics()[metric].kind;
  if (pages == 0) {
    first = values;
    first_page = page;
    least = most = values.value;
  } else {
    fell = fell || has_fallen(last, values, kind);
  }
  least = std::min(least, values.value);
  most = std::max(most, values.value);
  last = values;
  last_page = page;
  ++pages;
}

ServerPages read_server_pages(const Trace& trace) { return ServerReader(trace).result(); }

}  // namespace llmprof::servers
