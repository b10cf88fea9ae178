#include "import/proton.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "import/json_head.h"
#include "import/msgpack_stream.h"
#include "import/serving_walk.h"
#include "import/session_names.h"
#include "import/source_name.h"
#include "trace/trace_builder.h"

namespace llmprof::proton {
namespace {

using serving::JsonStream;
using Token = JsonStream::Token;

constexpr size_t kTreeDepthMax = 2000;  // Python stops at 1000 frames, if not asked for more
constexpr size_t kNestingOfTree = 2 * kTreeDepthMax;
constexpr size_t kNodesMax = 1'000'000;
constexpr size_t kMetricsMax = 5'000'000;
constexpr size_t kGpusMax = 1'000;
constexpr size_t kMetricNameMax = 200;
constexpr size_t kGpuTextMax = 40;
constexpr double kCountMax = 1e15;

// Of a node but its metrics, which go to their table as they come.
struct TreeNode {
  size_t parent = kNoParent;
  StringId name = StringId::kEmpty;
  int64_t own_ns = -1, launches = -1;
  std::string gpu_kind{}, gpu_number{};
  bool named = false, any = false;  // any: it has a key of a node

  static constexpr size_t kNoParent = static_cast<size_t>(-1);
};

struct TreeMetric {
  size_t node = 0;
  StringId name = StringId::kEmpty;
  double value = 0;
};

// "Time (ns)", "DeviceId" of old versions are "time (ns)", "device_id" of newer ones.
std::string key_of(std::string_view key) {
  std::string out;
  for (const char c : key.substr(0, kMetricNameMax))
    if (c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// CUPTI's names are mangled. Each reference back (S_, S1_, T0_) may double a name: those with many of them stay as they
// are.
std::string plain_name(std::string_view name) {
  constexpr size_t kMangledMax = 1024, kReferencesMax = 12;
  size_t references = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    if (name[at] != 'S' && name[at] != 'T') continue;
    size_t end = at + 1;
    while (end < name.size() && (std::isdigit(static_cast<unsigned char>(name[end])) != 0 ||
                                 std::isupper(static_cast<unsigned char>(name[end])) != 0))
      ++end;
    references += end < name.size() && name[end] == '_';
  }
  const bool small = name.size() <= kMangledMax && references <= kReferencesMax;
  return small ? session_importer::demangled(name) : std::string(name);
}

bool is_of_work(std::string_view key) { return key.starts_with("flops") || key == "bytes"; }

// Of the tokens of JSON or of MessagePack.
template <class Stream>
class ProtonReader : serving::DocumentWalkOf<Stream> {
  using Walk = serving::DocumentWalkOf<Stream>;
  using Walk::count, Walk::cut_, Walk::entries, Walk::document_, Walk::length, Walk::members, Walk::number, Walk::skip,
      Walk::stop, Walk::stopped_;

 public:
  ProtonReader(InputFile& input, Trace& trace)
      : Walk(input, trace.diagnostics, kNestingOfTree),
        trace_(trace),
        builder_(trace),
        source_(builder_.text(source_name(input, trace))) {}

  // How many kernels and metrics there were.
  size_t read() {
    const Token token = document_.next();
    bool whole = false;
    if (token == Token::kArray)
      whole = entries([&](Token first) { return first == Token::kObject ? tree() : no_node(first); });
    else
      count(DiagnosticId::kMalformedEvent, "no list");
    if (whole && document_.next() != Token::kEnd) count(DiagnosticId::kTrailingData, "behind the document");
    add_rows();
    return kernels_ + metrics_.size();
  }

  // Of a document that could not be read to its end: "; reading ends at byte 17: the document has no end".
  std::string where_it_ended() const {
    if (!stopped_) return {};
    return fmt::format("; reading ends at {}: {}", document_.place(),
                       cut_ ? "the document has no end" : document_.problem());
  }

 private:
  bool no_node(Token first) {
    count(DiagnosticId::kMalformedEvent, "an element that is no object");
    return skip(first);
  }

  // ---- the tree, without recursion: Python's stacks are deep ----

  struct Open {
    size_t node;
    bool in_children = false;
  };

  // From behind the bracket of an element of the file to behind its end: a tree, or what is said of GPUs.
  bool tree() {
    std::vector<Open> open = {{new_node(TreeNode::kNoParent)}};
    const size_t root = open.front().node;
    bool whole = true;
    while (whole && !open.empty()) whole = open.back().in_children ? child(open) : member(open);
    if (root + 1 == nodes_.size() && !nodes_[root].any) nodes_.pop_back();
    return whole;
  }

  // A key of the innermost node, with its value, or its end.
  bool member(std::vector<Open>& open) {
    const Token token = document_.next();
    const size_t node = open.back().node;
    if (token == Token::kObjectEnd) {
      if (nodes_[node].any && !nodes_[node].named) count(DiagnosticId::kMissingField, "a node without frame.name");
      open.pop_back();
      return true;
    }
    if (token != Token::kKey) return stop_tree(token);
    const std::string key(document_.text());
    const Token first = document_.next();
    if (!serving::is_scalar(first) && !serving::is_container(first)) return stop_tree(first);
    nodes_[node].any |= key == "children" || key == "frame" || key == "metrics";
    if (key == "children" && first == Token::kArray) {
      open.back().in_children = true;
      return true;
    }
    if (key == "frame" && first == Token::kObject) return frame(node);
    if (key == "metrics" && first == Token::kObject) return metrics(node);
    if (nodes_[node].any && first != Token::kObject && (key == "frame" || key == "metrics" || key == "children"))
      count(DiagnosticId::kMalformedEvent, fmt::format("{} is not what it should be", key));
    const bool of_gpus = first == Token::kObject && open.size() == 1 && !nodes_[node].any;
    return of_gpus ? gpus_of(key) : skip(first);
  }

  bool child(std::vector<Open>& open) {
    const Token token = document_.next();
    if (token == Token::kArrayEnd) {
      open.back().in_children = false;
      return true;
    }
    if (token == Token::kObject) {
      if (nodes_.size() == kNodesMax) {
        count(DiagnosticId::kLimitReached, "nodes");
        return skip(token);
      }
      open.push_back({new_node(open.back().node)});
      return true;
    }
    if (!serving::is_scalar(token) && !serving::is_container(token)) return stop_tree(token);
    return no_node(token);
  }

  bool stop_tree(Token token) {
    if (token == Token::kBad && document_.depth() == kNestingOfTree)
      count(DiagnosticId::kLimitReached, fmt::format("a tree deeper than {}", kTreeDepthMax));
    return stop(token);
  }

  size_t new_node(size_t parent) {
    nodes_.push_back({});
    nodes_.back().parent = parent;
    return nodes_.size() - 1;
  }

  bool frame(size_t node) {
    return members([&](std::string_view key, Token first) {
      if (key == "name" && first == Token::kText) {
        nodes_[node].name = builder_.text(plain_name(document_.text()));
        nodes_[node].named = true;
      }
      return skip(first);
    });
  }

  // ---- metrics ----

  bool metrics(size_t node) {
    const size_t first_metric = metrics_.size();
    const bool whole = members([&](std::string_view name, Token first) {
      TreeNode& of = nodes_[node];
      const std::string key = key_of(name);
      if (key == "time (ns)")
        of.own_ns = length(first, 1, name);
      else if (key == "count")
        of.launches = whole_launches(first);
      else if (key == "deviceid" && (first == Token::kText || first == Token::kNumber))
        of.gpu_number = document_.text().substr(0, kGpuTextMax);
      else if (key == "devicetype" && (first == Token::kText || first == Token::kNumber))
        of.gpu_kind = document_.text().substr(0, kGpuTextMax);
      else if (first == Token::kNumber)
        add_metric(node, name, key, number(first, name));
      return skip(first);  // texts and lists are of no use here
    });
    if (whole) return true;
    // Cut: work without its time, or launches without either, would make rates that no kernel has.
    metrics_.resize(first_metric);
    nodes_[node].own_ns = nodes_[node].launches = -1;
    return false;
  }

  int64_t whole_launches(Token token) {
    const double value = number(token, "count");
    if (value >= 0 && value <= kCountMax && value == std::floor(value)) return static_cast<int64_t>(value);
    if (!std::isnan(value)) count(DiagnosticId::kBadNumber, "count is no number of launches");
    return -1;
  }

  void add_metric(size_t node, std::string_view name, std::string_view key, double value) {
    const bool root = nodes_[node].parent == TreeNode::kNoParent;
    if (root && value == 0) return;  // Proton writes a 0 there for each metric that is anywhere
    if (!std::isfinite(value)) {
      if (std::isinf(value)) count(DiagnosticId::kBadNumber, fmt::format("{} is infinite", name));
      return;
    }
    if (is_of_work(key) && value < 0)
      return count(DiagnosticId::kBadNumber, fmt::format("{} is negative: it was too large for its type", name));
    if (metrics_.size() == kMetricsMax) return count(DiagnosticId::kLimitReached, "metrics");
    metrics_.push_back({node, builder_.text(name.substr(0, kMetricNameMax)), value});
  }

  // ---- GPUs ----

  // {"0": {"arch": "90", "num_sms": 132, ...}} behind a kind of GPU.
  bool gpus_of(std::string_view kind) {
    return members([&](std::string_view ordinal, Token first) {
      if (first != Token::kObject) return skip(first);
      const std::string gpu = gpu_text(kind, ordinal);
      ProtonGpus::Values row{.source = source_,
                             .gpu = builder_.text(gpu),
                             .arch = StringId::kEmpty,
                             .sms = -1,
                             .clock_khz = -1,
                             .memory_clock_khz = -1,
                             .bus_bits = -1};
      bool any = false;
      const bool whole = members([&](std::string_view key, Token value) { return fact(row, any, key, value); });
      if (any && gpus_++ < kGpusMax) builder_.add<ProtonGpus>(row);
      return whole;
    });
  }

  bool fact(ProtonGpus::Values& row, bool& any, std::string_view key, Token value) {
    if (key == "arch" && (value == Token::kText || value == Token::kNumber)) {
      row.arch = builder_.text(document_.text().substr(0, kGpuTextMax));
      any = true;
      return true;
    }
    int64_t* const to = key == "num_sms"             ? &row.sms
                        : key == "clock_rate"        ? &row.clock_khz
                        : key == "memory_clock_rate" ? &row.memory_clock_khz
                        : key == "bus_width"         ? &row.bus_bits
                                                     : nullptr;
    if (to == nullptr) return skip(value);
    const double stated = number(value, key);
    if (stated > 0 && stated <= kCountMax) *to = static_cast<int64_t>(stated);  // 0: the driver did not say
    any = any || *to > 0;
    return skip(value);
  }

  static std::string gpu_text(std::string_view kind, std::string_view ordinal) {
    std::string out(kind.substr(0, kGpuTextMax));
    if (!out.empty() && !ordinal.empty()) out += ' ';
    return out + std::string(ordinal.substr(0, kGpuTextMax));
  }

  // ---- rows ----

  void add_rows() {
    const Row base = static_cast<Row>(trace_.proton_nodes.size());
    for (const TreeNode& node : nodes_) {
      const bool kernel = node.own_ns > 0 || (node.own_ns == 0 && node.launches > 0);
      kernels_ += kernel;
      if (kernel && node.launches < 0) count(DiagnosticId::kMissingField, "a kernel without count");
      ProtonNodeId parent = kNoRow;
      if (node.parent != TreeNode::kNoParent) parent = ProtonNodeId(base + static_cast<Row>(node.parent));
      builder_.add<ProtonNodes>(
          {.source = source_,
           .parent = parent,
           .name = node.name,
           .own_ns = kernel ? node.own_ns : -1,
           .launches = kernel ? node.launches : -1,
           .gpu = kernel ? builder_.text(gpu_text(node.gpu_kind, node.gpu_number)) : StringId::kEmpty});
    }
    // MessagePack has the metrics of a node before its children, JSON behind them.
    std::stable_sort(metrics_.begin(), metrics_.end(),
                     [](const TreeMetric& a, const TreeMetric& b) { return a.node < b.node; });
    for (const TreeMetric& metric : metrics_)
      builder_.add<ProtonMetrics>(
          {.node = ProtonNodeId(base + static_cast<Row>(metric.node)), .name = metric.name, .value = metric.value});
  }

  Trace& trace_;
  TraceBuilder builder_;
  StringId source_;
  std::vector<TreeNode> nodes_{};
  std::vector<TreeMetric> metrics_{};
  size_t kernels_ = 0, gpus_ = 0;
};

// A list whose first element has the keys of a node, and a frame with a name somewhere. Proton writes the frame first.
int sniff_msgpack(std::string_view text) {
  Result<InputFile> head = InputFile::from_memory(text, "head");
  if (!head) return 0;
  msgpack::MsgpackStream tokens(*head, kNestingOfTree);
  if (tokens.next() != Token::kArray || tokens.next() != Token::kObject || tokens.next() != Token::kKey) return 0;
  if (tokens.text() != "frame" && tokens.text() != "metrics" && tokens.text() != "children") return 0;
  bool frame = false;  // the last key
  for (Token token = Token::kKey; token != Token::kBad && token != Token::kCut && token != Token::kEnd;
       token = tokens.next()) {
    if (token != Token::kKey) continue;
    if (frame && tokens.text() == "name") return 95;
    frame = tokens.text() == "frame";
  }
  return 0;
}

template <class Stream>
Status read_tree(InputFile& input, Trace& trace) {
  ProtonReader<Stream> reader(input, trace);
  const size_t rows = reader.read();
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (rows > 0) return {};
  return fail("expected a tree of Triton's Proton with kernels or metrics, found none" + reader.where_it_ended(),
              input.name(),
              "proton.start(\"profile\", hook=\"triton\"), run kernels, proton.finalize(); llmprof analyze "
              "profile.hatchet");
}

}  // namespace

// Keys of nlohmann's objects are sorted: a deep tree begins with nothing but children of children.
int sniff(std::string_view text) {
  if (msgpack::begins_array(text)) return sniff_msgpack(text);
  JsonHead head(text);
  if (!head.next("[") || !head.next("{")) return 0;
  const bool children = head.next("\"children\"");
  if (!children && !head.next("\"frame\"") && !head.next("\"metrics\"")) return 0;
  if (head.has("\"frame\"") && head.has("\"name\"")) return 95;
  return children && head.next(":") && head.next("[") && head.next("{") && head.next("\"children\"") ? 60 : 0;
}

Status import(InputFile& input, Trace& trace) {
  return msgpack::begins_array(input.head()) ? read_tree<msgpack::MsgpackStream>(input, trace)
                                             : read_tree<JsonStream>(input, trace);
}

}  // namespace llmprof::proton
