#include "import/nccl_inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "import/serving_walk.h"
#include "trace/trace_builder.h"

namespace llmprof::nccl_inspector {
namespace {

using serving::JsonStream;
using Token = JsonStream::Token;

constexpr size_t kOperationsMax = 50'000'000;
constexpr size_t kDropsMax = 100'000;
constexpr size_t kTextMaxOfInspector = 200;
constexpr double kWholeMax = 1e15;

// Who wrote an operation. From format 4.3 on a line of statistics has it for the lines behind it.
struct Context {
  std::string communicator{}, name{}, host{};
  int64_t rank = -1, ranks = -1, nodes = -1, process = -1;
};

struct Operation {
  std::string kind{}, algorithm{}, protocol{}, timing{};
  double bytes = std::numeric_limits<double>::quiet_NaN(), time_us = std::numeric_limits<double>::quiet_NaN(),
         algorithm_gbs = std::numeric_limits<double>::quiet_NaN(), bus_gbs = std::numeric_limits<double>::quiet_NaN();
};

class InspectorReader : serving::DocumentWalk {
 public:
  InspectorReader(InputFile& input, Trace& trace)
      : DocumentWalk(input, trace.diagnostics),
        builder_(trace),
        source_(builder_.text(input.name().substr(input.name().rfind('/') + 1))) {}

  // How many operations, and counts of lost ones, there were.
  size_t read() {
    for (;;) {
      stopped_ = false;
      const Token token = document_.next();
      if (token == Token::kEnd) break;
      if (token == Token::kObject ? document() : other_value(token)) continue;
      if (cut_) break;
      document_.skip_line();  // a line that is no JSON costs itself
    }
    for (const auto& [key, dropped] : drops_) {
      const auto& [communicator, rank, kind, host, process] = key;
      builder_.add<InspectedLosses>({.source = source_,
                                     .communicator = builder_.text(communicator),
                                     .rank = rank,
                                     .host = builder_.text(host),
                                     .process_id = process,
                                     .kind = builder_.text(kind),
                                     .operations = dropped});
    }
    return operations_ + drops_.size();
  }

 private:
  bool other_value(Token token) {
    if (token == Token::kArray || serving::is_scalar(token))
      count(DiagnosticId::kMalformedEvent, "a line that is no object");
    return skip(token);
  }

  bool document() {
    Context own = last_;
    Operation of;
    bool operation = false, statistics = false, other = false;
    double dropped[2] = {-1, -1};
    const bool whole = members([&](std::string_view key, Token first) {
      if (first != Token::kObject) return skip(first);
      if (key == "header") return header(own);
      if (key == "metadata") return metadata(own);
      if (key == "dump_stats") {
        statistics = true;
        return dump_stats(dropped);
      }
      if (key == "coll_perf" || key == "p2p_perf") {
        operation = true;
        return performance(of, key.substr(0, key.find('_')));
      }
      other = true;  // proxy_trace
      return skip(first);
    });
    if (!whole) return false;
    if (statistics) last_ = own;
    if (statistics) add_drops(own, dropped);
    if (operation) add_operation(own, of);
    if (!operation && !statistics && !other) count(DiagnosticId::kMissingField, "neither coll_perf nor p2p_perf");
    return true;
  }

  bool header(Context& to) {
    to.communicator.clear();
    to.name.clear();
    to.rank = to.ranks = to.nodes = -1;
    return members([&](std::string_view key, Token first) {
      if (key == "id") return words(to.communicator, first);
      if (key == "comm_name") return words(to.name, first);
      if (key == "rank") to.rank = whole_of(first, key);
      if (key == "n_ranks") to.ranks = whole_of(first, key);
      if (key == "nnodes") to.nodes = whole_of(first, key);
      return skip(first);
    });
  }

  bool metadata(Context& to) {
    return members([&](std::string_view key, Token first) {
      if (key == "hostname") return words(to.host, first);
      if (key == "pid") to.process = whole_of(first, key);
      return skip(first);
    });
  }

  bool dump_stats(double* dropped) {
    return members([&](std::string_view key, Token first) {
      if (key == "coll_dropped_total") dropped[0] = static_cast<double>(whole_of(first, key));
      if (key == "p2p_dropped_total") dropped[1] = static_cast<double>(whole_of(first, key));
      return skip(first);
    });
  }

  // Keys begin with `prefix`, coll or p2p, which is also the key of what it is.
  bool performance(Operation& to, std::string_view prefix) {
    return members([&](std::string_view key, Token first) {
      if (key == prefix) return words(to.kind, first);
      if (!key.starts_with(prefix) || key.size() <= prefix.size() || key[prefix.size()] != '_') return skip(first);
      const std::string_view rest = key.substr(prefix.size() + 1);
      if (rest == "algo") return words(to.algorithm, first);
      if (rest == "proto") return words(to.protocol, first);
      if (rest == "timing_source") return words(to.timing, first);
      if (rest == "msg_size_bytes") to.bytes = positive(first, key);
      if (rest == "exec_time_us") to.time_us = positive(first, key);
      if (rest == "algobw_gbs") to.algorithm_gbs = positive(first, key);
      if (rest == "busbw_gbs") to.bus_gbs = positive(first, key);
      return skip(first);
    });
  }

  bool words(std::string& to, Token first) {
    if (first == Token::kText)
      to = document_.text().substr(0, kTextMaxOfInspector);
    else
      count(DiagnosticId::kBadMetadata, "no text");
    if (to == "unknown") to.clear();
    return skip(first);
  }

  double positive(Token first, std::string_view key) {
    const double value = number(first, key);
    if (value >= 0 && value <= 1e18) return value;
    if (!std::isnan(value)) count(DiagnosticId::kBadNumber, fmt::format("{} is out of range", key));
    return std::numeric_limits<double>::quiet_NaN();
  }
  int64_t whole_of(Token first, std::string_view key) {
    const double value = positive(first, key);
    if (value <= kWholeMax && value == std::floor(value)) return static_cast<int64_t>(value);
    if (!std::isnan(value)) count(DiagnosticId::kBadNumber, fmt::format("{} is no whole number", key));
    return -1;
  }

  void add_operation(const Context& from, const Operation& of) {
    if (from.communicator.empty()) return count(DiagnosticId::kMissingField, "an operation without a communicator");
    if (of.kind.empty() || std::isnan(of.bytes) || std::isnan(of.time_us))
      return count(DiagnosticId::kMissingField, "an operation without its name, size or time");
    if (operations_ == kOperationsMax) return count(DiagnosticId::kLimitReached, "operations");
    ++operations_;
    builder_.add<InspectedOperations>({.source = source_,
                                       .communicator = builder_.text(from.communicator),
                                       .name = builder_.text(from.name),
                                       .host = builder_.text(from.host),
                                       .process_id = from.process,
                                       .rank = from.rank,
                                       .ranks = from.ranks,
                                       .nodes = from.nodes,
                                       .operation = builder_.text(of.kind),
                                       .algorithm = builder_.text(of.algorithm),
                                       .protocol = builder_.text(of.protocol),
                                       .timing = builder_.text(of.timing),
                                       .bytes = of.bytes,
                                       .time_us = of.time_us,
                                       .algorithm_gbs = of.algorithm_gbs,
                                       .bus_gbs = of.bus_gbs});
  }

  // The counts are since the communicator began.
  void add_drops(const Context& from, const double* dropped) {
    if (from.communicator.empty()) return count(DiagnosticId::kMissingField, "statistics without a communicator");
    for (int kind = 0; kind < 2; ++kind) {
      if (dropped[kind] <= 0) continue;
      if (drops_.size() == kDropsMax) return count(DiagnosticId::kLimitReached, "communicators");
      double& most = drops_[std::tuple(from.communicator, from.rank, std::string(kind == 0 ? "coll" : "p2p"), from.host,
                                       from.process)];
      most = std::max(most, dropped[kind]);
    }
  }

  TraceBuilder builder_;
  StringId source_;
  Context last_{};
  std::map<std::tuple<std::string, int64_t, std::string, std::string, int64_t>, double> drops_{};
  size_t operations_ = 0;
};

}  // namespace

int sniff(std::string_view head) {
  const size_t at = head.find_first_not_of(" \n\r\t");
  if (at == std::string_view::npos || head[at] != '{') return 0;
  const auto has = [&](std::string_view text) { return head.find(text) != std::string_view::npos; };
  if (has("\"inspector_output_format_version\"")) return 95;
  return (has("\"coll_perf\"") && has("\"coll_exec_time_us\"")) || (has("\"p2p_perf\"") && has("\"p2p_exec_time_us\""))
             ? 90
             : 0;
}

Status import(InputFile& input, Trace& trace) {
  InspectorReader reader(input, trace);
  const size_t rows = reader.read();
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (rows > 0) return {};
  return fail("expected operations that NCCL's Inspector timed (coll_perf, p2p_perf), found none", input.name(),
              "NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1 NCCL_INSPECTOR_DUMP_DIR=DIR "
              "COMMAND; it leaves out messages below NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES (8192)");
}

}  // namespace llmprof::nccl_inspector
