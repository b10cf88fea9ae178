#include "import/trtexec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "import/json_head.h"
#include "import/serving_walk.h"
#include "import/source_name.h"
#include "trace/trace_builder.h"

namespace llmprof::trtexec {
namespace {

using serving::JsonStream;
using Token = JsonStream::Token;

constexpr size_t kLayersMax = 1'000'000;
constexpr size_t kQueriesMax = 50'000'000;
constexpr size_t kTensorsMax = 32;        // of a layer that are kept
constexpr size_t kDimensionsMax = 16;     // TensorRT has 8
constexpr size_t kFormatMax = 120;        // of the name of a format or type
constexpr size_t kTextOfLayerMax = 1000;  // of a tactic, metadata
constexpr double kCountMax = 1e15;
constexpr double kNsOfMs = 1e6;

enum EntryTime : size_t {
  kTotal,
  kMean,
  kMedian,
  kStartEnqueue,
  kEndEnqueue,
  kStartCompute,
  kH2d,
  kCompute,
  kD2h,
  kLatency,
  kEndToEnd,
  kEntryTimes
};
struct EntryKey {
  std::string_view key;
  EntryTime time;
};
// inMs and outMs: of old versions.
constexpr std::array kEntryKeys = {EntryKey{"timeMs", kTotal},        EntryKey{"averageMs", kMean},
                                   EntryKey{"medianMs", kMedian},     EntryKey{"startEnqMs", kStartEnqueue},
                                   EntryKey{"endEnqMs", kEndEnqueue}, EntryKey{"startComputeMs", kStartCompute},
                                   EntryKey{"h2dMs", kH2d},           EntryKey{"inMs", kH2d},
                                   EntryKey{"computeMs", kCompute},   EntryKey{"d2hMs", kD2h},
                                   EntryKey{"outMs", kD2h},           EntryKey{"latencyMs", kLatency},
                                   EntryKey{"endToEndMs", kEndToEnd}};

// An element of the list that --exportTimes or --exportProfile writes; -1: absent.
struct ListEntry {
  ListEntry() { ns.fill(-1); }
  std::array<int64_t, kEntryTimes> ns{};
  std::string name{};
  bool named = false, layer = false, query = false, count = false;  // what its keys are of
  double frac = std::numeric_limits<double>::quiet_NaN();
};

class TrtexecReader : serving::DocumentWalk {
 public:
  TrtexecReader(InputFile& input, Trace& trace)
      : DocumentWalk(input, trace.diagnostics),
        trace_(trace),
        builder_(trace),
        source_(builder_.text(source_name(input, trace))),
        first_time_(trace.layer_times.size()) {}

  // How many layers and queries there were.
  size_t read() {
    const Token token = document_.next();
    bool whole = false;
    if (token == Token::kObject)
      whole = engine();
    else if (token == Token::kArray)
      whole = entries([&](Token first) { return first == Token::kObject ? list_entry() : no_object(first); });
    else
      count(DiagnosticId::kMalformedEvent, "neither a list nor an object");
    if (whole && document_.next() != Token::kEnd) count(DiagnosticId::kTrailingData, "behind the document");
    // The count stands in an element of its own.
    for (size_t row = first_time_; row < trace_.layer_times.size(); ++row)
      trace_.layer_times.iterations[row] = iterations_;
    return rows_;
  }

 private:
  bool no_object(Token first) {
    count(DiagnosticId::kMalformedEvent, "an element that is no object");
    return skip(first);
  }

  bool room(size_t rows, size_t most, std::string_view what) {
    if (rows < most) {
      ++rows_;
      return true;
    }
    count(DiagnosticId::kLimitReached, what);
    return false;
  }

  // ---- lists: times of queries and of layers ----

  bool list_entry() {
    ListEntry entry;
    if (!members([&](std::string_view key, Token first) { return entry_member(entry, key, first); })) return false;
    if (entry.query)
      add_query(entry);
    else if (entry.layer || entry.named)
      add_time(entry);
    else if (!entry.count)
      count(DiagnosticId::kMissingField, "neither a layer nor a query");
    return true;
  }

  bool entry_member(ListEntry& entry, std::string_view key, Token first) {
    if (key == "name" && first == Token::kText) {
      entry.named = true;
      entry.name = document_.text();
      return true;
    }
    if (key == "count") {
      entry.count = true;
      iterations_ = whole_count(first);
      return skip(first);
    }
    if (key == "percentage") {
      entry.layer = true;
      if (!is_nan(first)) entry.frac = number(first, key) / 100;
      return skip(first);
    }
    for (const EntryKey& known : kEntryKeys) {
      if (known.key != key) continue;
      (known.time <= kMedian ? entry.layer : entry.query) = true;
      // Of a layer that never ran the mean is 0 / 0.
      if (known.time != kMean || !is_nan(first)) entry.ns[known.time] = length(first, kNsOfMs, key);
      break;
    }
    return skip(first);
  }

  bool is_nan(Token token) const {
    double value = 0;
    return token == Token::kNumber && json::parse_any_number(document_.text(), value) && std::isnan(value);
  }

  int64_t whole_count(Token token) {
    const double value = number(token, "count");
    if (value >= 0 && value <= kCountMax && value == std::floor(value)) return static_cast<int64_t>(value);
    if (!std::isnan(value)) count(DiagnosticId::kBadNumber, "count is no number of iterations");
    return -1;
  }

  void add_time(const ListEntry& entry) {
    if (!entry.named) return count(DiagnosticId::kMissingField, "a layer without a name");
    if (entry.ns[kTotal] < 0) return count(DiagnosticId::kMissingField, "a layer without timeMs");
    if (!room(trace_.layer_times.size(), kLayersMax, "layers")) return;
    builder_.add<LayerTimes>({.source = source_,
                              .name = builder_.text(entry.name),
                              .iterations = -1,
                              .total_ns = entry.ns[kTotal],
                              .mean_ns = entry.ns[kMean],
                              .median_ns = entry.ns[kMedian],
                              .stated_frac = entry.frac});
  }

  void add_query(const ListEntry& entry) {
    if (entry.ns[kCompute] < 0) return count(DiagnosticId::kMissingField, "a query without computeMs");
    if (!room(trace_.engine_queries.size(), kQueriesMax, "queries")) return;
    int64_t enqueue = -1;
    if (entry.ns[kStartEnqueue] >= 0 && entry.ns[kEndEnqueue] >= 0) {
      enqueue = std::max<int64_t>(entry.ns[kEndEnqueue] - entry.ns[kStartEnqueue], -1);
      if (enqueue < 0) count(DiagnosticId::kNegativeDuration, "endEnqMs is before startEnqMs");
    }
    builder_.add<EngineQueries>({.source = source_,
                                 .compute_start_ns = entry.ns[kStartCompute],
                                 .enqueue_ns = enqueue,
                                 .h2d_ns = entry.ns[kH2d],
                                 .compute_ns = entry.ns[kCompute],
                                 .d2h_ns = entry.ns[kD2h],
                                 .latency_ns = entry.ns[kLatency],
                                 .end_to_end_ns = entry.ns[kEndToEnd]});
  }

  // ---- what the engine inspector says of layers ----

  struct Layer {
    std::string name{}, type{}, tactic{}, tactic_value{}, inputs{}, outputs{}, metadata{};
    int64_t stream = -1;
  };

  bool engine() {
    return members([&](std::string_view key, Token first) {
      if (key != "Layers" || first != Token::kArray) return skip(first);
      return entries([&](Token entry) {
        if (entry == Token::kObject) return layer();
        if (entry != Token::kText) return no_object(entry);
        Layer named;
        named.name = document_.text();
        add_layer(named);
        return true;
      });
    });
  }

  bool layer() {
    Layer of;
    const bool whole = members([&](std::string_view key, Token first) {
      if (key == "Name") return layer_text(of.name, JsonStream::kTextMax, key, first);
      if (key == "LayerType") return layer_text(of.type, kFormatMax, key, first);
      if (key == "TacticName") return layer_text(of.tactic, kTextOfLayerMax, key, first);
      if (key == "Metadata") return layers_of_network(of.metadata, first);
      if (key == "TacticValue" && first == Token::kNumber) {
        of.tactic_value = document_.text();
        return true;
      }
      if (key == "TacticValue") return layer_text(of.tactic_value, kFormatMax, key, first);
      if (key == "Inputs") return tensors(of.inputs, key, first);
      if (key == "Outputs") return tensors(of.outputs, key, first);
      if (key == "StreamId") {
        const double value = number(first, key);
        if (value >= 0 && value <= kCountMax && value == std::floor(value)) of.stream = static_cast<int64_t>(value);
      }
      return skip(first);
    });
    if (!whole) return false;
    if (of.name.empty())
      count(DiagnosticId::kMissingField, "a layer without Name");
    else
      add_layer(of);
    return true;
  }

  bool layer_text(std::string& to, size_t most, std::string_view key, Token first) {
    if (first == Token::kText)
      to = document_.text().substr(0, most);
    else if (first != Token::kWord || document_.text() != "null")
      count(DiagnosticId::kBadMetadata, fmt::format("{} is no text", key));
    return skip(first);
  }

  // Separated by U+001E and U+001F.
  bool layers_of_network(std::string& to, Token first) {
    std::string text;
    const bool whole = layer_text(text, kTextOfLayerMax, "Metadata", first);
    for (const char c : text)
      if (c == '\x1e' || c == '\x1f')
        to += "; ";
      else
        to += c;
    return whole;
  }

  bool tensors(std::string& to, std::string_view key, Token first) {
    if (first != Token::kArray) {
      count(DiagnosticId::kBadMetadata, fmt::format("{} is no list", key));
      return skip(first);
    }
    size_t kept = 0, all = 0;
    const bool whole = entries([&](Token entry) {
      ++all;
      if (entry != Token::kObject || kept == kTensorsMax) return skip(entry);
      if (kept++ > 0) to += "; ";
      return tensor(to);
    });
    if (all > kept) to += fmt::format("{}{} more", kept > 0 ? "; " : "", all - kept);
    return whole;
  }

  // "[1,3,224,224] Half": dimensions, and format and type, which TensorRT 11 has apart.
  bool tensor(std::string& to) {
    std::string dimensions = "?", format, type;
    const bool whole = members([&](std::string_view key, Token first) {
      if (key == "Dimensions" && first == Token::kArray) return dimensions_of(dimensions);
      if (key == "Format/Datatype" || key == "Format") return layer_text(format, kFormatMax, key, first);
      if (key == "DataType" || key == "Datatype") return layer_text(type, kFormatMax, key, first);
      return skip(first);
    });
    to += dimensions;
    for (const std::string& text : {type, format})
      if (!text.empty()) to += " " + text;
    return whole;
  }

  bool dimensions_of(std::string& to) {
    to = "[";
    size_t kept = 0;
    const bool whole = entries([&](Token first) {
      const double value = number(first, "Dimensions");
      if (kept < kDimensionsMax) {
        if (kept++ > 0) to += ',';
        const bool is_length = value >= -1 && value <= kCountMax && value == std::floor(value);
        to += is_length ? std::to_string(static_cast<int64_t>(value)) : std::string("?");
      }
      return skip(first);
    });
    to += "]";
    return whole;
  }

  void add_layer(const Layer& of) {
    if (!room(trace_.inspected_layers.size(), kLayersMax, "layers")) return;
    builder_.add<InspectedLayers>({.source = source_,
                                   .name = builder_.text(of.name),
                                   .type = builder_.text(of.type),
                                   .tactic = builder_.text(of.tactic.empty() ? of.tactic_value : of.tactic),
                                   .inputs = builder_.text(of.inputs),
                                   .outputs = builder_.text(of.outputs),
                                   .stream = of.stream,
                                   .metadata = builder_.text(of.metadata)});
  }

  Trace& trace_;
  TraceBuilder builder_;
  StringId source_;
  size_t first_time_;
  size_t rows_ = 0;
  int64_t iterations_ = -1;
};

}  // namespace

int sniff(std::string_view text) {
  JsonHead head(text);
  if (head.next("[")) {
    if (!head.next("{")) return 0;
    if (head.has("\"startComputeMs\"") && head.has("\"computeMs\"")) return 95;
    if (head.has("\"timeMs\"") && head.has("\"averageMs\"") && head.has("\"percentage\"")) return 95;
    return head.next("\"count\"") && head.next(":") && !head.has("\"ph\"") ? 40 : 0;
  }
  if (!head.next("{")) return 0;
  const bool layers_first = head.next("\"Layers\"") && head.next(":") && head.next("[");
  if (layers_first && (head.next("\"") || head.next("]"))) return 70;
  if (layers_first || head.has("\"I/O Tensors\"") || head.has("\"Bindings\""))
    return head.has("\"Layers\"") && head.has("\"Name\"") && (head.has("\"LayerType\"") || head.has("\"TacticValue\""))
               ? 80
               : 0;
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  TrtexecReader reader(input, trace);
  const size_t rows = reader.read();
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (rows > 0) return {};
  return fail("expected layers or queries of a TensorRT engine as trtexec exports them, found none", input.name(),
              "trtexec --loadEngine=FILE --profilingVerbosity=detailed --exportTimes=times.json "
              "--exportProfile=profile.json --exportLayerInfo=layers.json --separateProfileRun");
}

}  // namespace llmprof::trtexec
