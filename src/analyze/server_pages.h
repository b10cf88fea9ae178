// Metrics pages of servers, read: what they say of each metric of each server, page by page. Rules:
// docs/formats/prometheus.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analyze/server_metric_table.h"
#include "trace/trace.h"

namespace llmprof::servers {

// Rows of one reading of one server, as they stand in the table.
struct MetricsPage {
  Row begin = 0, end = 0;
  int64_t time_ns = 0;  // 0: not known
  int64_t known_samples = 0;
};

// What says when a page was read: samples, comment or file; empty if nothing.
std::string clock_of(const Trace& trace, const MetricsPage& page);

struct ServerKey {
  Server server = Server::kVllm;
  std::string model{}, instance{};
  friend bool operator<(const ServerKey& a, const ServerKey& b) {
    return std::tie(a.server, a.model, a.instance) < std::tie(b.server, b.model, b.instance);
  }
};

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

struct MetricOfServer {
  size_t metric = 0;
  PageValues now{}, first{}, last{};
  size_t first_page = 0, last_page = 0;
  int64_t pages = 0;
  double least = 0, most = 0;
  bool fell = false;

  // The end of a page that has it.
  void close_page(size_t page);
  bool same_series() const { return first.series == last.series; }
};

struct MetricsOfServer {
  ServerKey key;
  std::map<size_t, MetricOfServer> metrics{};  // by index in the table
  std::set<size_t> pages{};
  bool restarted = false;
};

struct ServerPages {
  std::vector<MetricsPage> pages{};  // in order of time where all have one, else as they were given
  std::vector<MetricsOfServer> servers{};
  size_t unknown_metrics = 0;
};
ServerPages read_server_pages(const Trace& trace);

}  // namespace llmprof::servers
