// Scopes and kernels by Triton's Proton: trees of launches that are added up over a run. Rules: docs/formats/proton.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/recorded_names.h"
#include "analyze/without_program.h"

namespace llmprof {
namespace {

constexpr size_t kScopeRowsMax = 10'000;
constexpr size_t kOtherMetricsMax = 10'000;
constexpr size_t kPathMax = 400;
constexpr std::string_view kMetadataScope = "__proton_launch_metadata";  // and ":" with the kernel's name behind it

constexpr std::array<std::string_view, 5> kFlopWidths = {"4", "8", "16", "32", "64"};

// What is stated of work, FLOPs or bytes, and the time of the kernels that it is of.
struct Stated {
  double value = 0;
  int64_t covered_ns = 0;
  bool any = false;
  uint8_t widths = 0;  // of FLOPs: bits of kFlopWidths

  void state(double amount, std::string_view width) {
    value += amount;
    any = true;
    for (size_t i = 0; i < kFlopWidths.size(); ++i)
      if (kFlopWidths[i] == width) widths = static_cast<uint8_t>(widths | 1U << i);
  }

  void add(const Stated& other) {
    value += other.value;
    covered_ns += other.covered_ns;
    any |= other.any;
    widths = static_cast<uint8_t>(widths | other.widths);
  }
  // Takes in what is stated below a node with so much time; what the node states itself is of all of it.
  void settle(const Stated& below, int64_t total_ns) {
    const bool stated = any;
    add(below);
    if (stated) covered_ns = total_ns;
  }
  OptDouble amount() const { return any ? OptDouble(value) : OptDouble(); }
  OptDouble covered_ms() const { return any ? OptDouble(static_cast<double>(covered_ns) / 1e6) : OptDouble(); }
  // In units of 1e9 by second: GB/s; 1000 of them are one TFLOP/s.
  OptDouble giga_per_s() const {
    return any && covered_ns > 0 ? OptDouble(value / static_cast<double>(covered_ns)) : OptDouble();
  }
  OptDouble tera_per_s() const {
    const OptDouble giga = giga_per_s();
    return giga ? OptDouble(*giga / 1e3) : giga;
  }
  OptText widths_text() const {
    std::string out;
    for (size_t i = 0; i < kFlopWidths.size(); ++i)
      if ((widths >> i & 1U) != 0) out.append(out.empty() ? "" : "+").append(kFlopWidths[i]);
    return out.empty() ? OptText() : OptText(out);
  }
};

struct ScopeNode {
  Row row = kNoRow;          // in proton_nodes
  size_t parent = kNoScope;  // in the file's nodes
  std::vector<size_t> children{};
  int64_t own_ns = -1, launches = 0;            // of it as a kernel
  int64_t total_ns = 0, total_launches = 0;     // with what is below
  int64_t scope_ns = 0, scope_launches = 0;     // of kernels that are of no scope below
  size_t kernels = 0;                           // nodes with a time, itself among them
  bool states = false, any_stated = false;      // any metric: of itself, or below
  bool in_kernel = false, in_metadata = false;  // below a kernel; below Proton's hook
  Stated flops{}, bytes{};                      // first of itself, then with what is below

  static constexpr size_t kNoScope = static_cast<size_t>(-1);
  bool is_kernel() const { return own_ns >= 0; }
  bool is_scope() const {
    if (parent == kNoScope) return true;
    if (is_kernel()) return kernels > 1;
    return kernels > 0 || (any_stated && !in_kernel);
  }
};

OptText text_if_any(std::string_view text) { return text.empty() ? OptText() : OptText(std::string(text)); }
double ms_from(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// The tree of one file.
class ProtonTree {
 public:
  ProtonTree(const Trace& trace, StringId source) : trace_(trace), source_(source) {}

  void add(Row row) {
    const ProtonNodes& table = trace_.proton_nodes;
    ScopeNode node;
    node.row = row;
    const Row parent = table.parent[row];
    // A node stands behind the one it is below; in a file that says otherwise it is a root.
    if (const auto found = at_.find(parent); parent != kNoRow && found != at_.end()) node.parent = found->second;
    node.own_ns = table.own_ns[row];
    node.launches = std::max<int64_t>(table.launches[row], 0);
    node.in_metadata = trace_.text(table.name[row]).starts_with(kMetadataScope);
    at_.emplace(row, nodes_.size());
    if (node.parent != ScopeNode::kNoScope) {
      ScopeNode& above = nodes_[node.parent];
      node.in_kernel = above.in_kernel || above.is_kernel();
      node.in_metadata = node.in_metadata || above.in_metadata;
      above.children.push_back(nodes_.size());
    }
    nodes_.push_back(std::move(node));
  }

  void add_metric(Row row, std::string_view name, double value) {
    const auto found = at_.find(row);
    if (found == at_.end()) return;
    ScopeNode& node = nodes_[found->second];
    node.states = node.any_stated = true;
    Stated* const to = name == "bytes" ? &node.bytes : name.starts_with("flops") ? &node.flops : nullptr;
    if (to == nullptr) return;
    to->state(value, to == &node.flops ? name.substr(5) : std::string_view());
  }

  // Sums over what is below; called once, behind the last node and metric.
  void add_up() {
    std::vector<Stated> flops(nodes_.size()), bytes(nodes_.size());  // below
    for (size_t at = nodes_.size(); at-- > 0;) {
      ScopeNode& node = nodes_[at];
      if (node.is_kernel()) {
        node.total_ns += node.own_ns;
        node.total_launches += node.launches;
        ++node.kernels;
      }
      node.flops.settle(flops[at], node.total_ns);
      node.bytes.settle(bytes[at], node.total_ns);
      if (node.parent == ScopeNode::kNoScope) continue;
      ScopeNode& above = nodes_[node.parent];
      above.total_ns += node.total_ns;
      above.total_launches += node.total_launches;
      above.kernels += node.kernels;
      above.any_stated |= node.any_stated;
      flops[node.parent].add(node.flops);
      bytes[node.parent].add(node.bytes);
    }
    for (size_t at = 0; at < nodes_.size(); ++at) {
      if (!nodes_[at].is_kernel()) continue;
      ScopeNode& scope = nodes_[at].is_scope() ? nodes_[at] : nodes_[nodes_[at].parent];
      scope.scope_ns += nodes_[at].own_ns;
      scope.scope_launches += nodes_[at].launches;
    }
  }

  std::string_view name(const ScopeNode& node) const {
    const std::string_view out = trace_.text(trace_.proton_nodes.name[node.row]);
    return out.empty() ? std::string_view("?") : out;
  }

  // Names with > between, those of the outermost left out where it is long, and the root's.
  std::string path(size_t at) const {
    std::string out(name(nodes_[at]));
    for (size_t above = nodes_[at].parent; above != ScopeNode::kNoScope; above = nodes_[above].parent) {
      if (nodes_[above].parent == ScopeNode::kNoScope && name(nodes_[above]) == "ROOT") break;
      if (out.size() > kPathMax) return "... > " + out;
      out = std::string(name(nodes_[above])) + " > " + out;
    }
    return out;
  }

  // What is stated for the kernel: by itself, or by a scope that holds nothing else.
  const ScopeNode& stated_for(size_t kernel) const {
    size_t at = kernel;
    while (nodes_[at].parent != ScopeNode::kNoScope && nodes_[nodes_[at].parent].kernels == 1) at = nodes_[at].parent;
    return nodes_[at];
  }

  const std::vector<ScopeNode>& nodes() const { return nodes_; }
  StringId source() const { return source_; }
  size_t index_of(Row row) const { return at_.at(row); }

 private:
  const Trace& trace_;
  StringId source_;
  std::vector<ScopeNode> nodes_{};
  std::unordered_map<Row, size_t> at_{};
};

// ---- rows ----------------------------------------------------------------------------------------------------------

struct FileTotals {
  int64_t ns = 0, launches = 0, metadata_ns = 0;
  size_t kernels = 0;  // nodes
  Stated flops{}, bytes{};
  OptDouble frac(int64_t part) const {
    return ns > 0 ? OptDouble(static_cast<double>(part) / static_cast<double>(ns)) : OptDouble();
  }
};

FileTotals totals_of(const ProtonTree& tree) {
  FileTotals out;
  for (const ScopeNode& node : tree.nodes()) {
    if (node.is_kernel() && node.in_metadata) out.metadata_ns += node.own_ns;
    if (node.parent != ScopeNode::kNoScope) continue;
    out.ns += node.total_ns;
    out.launches += node.total_launches;
    out.kernels += node.kernels;
    out.flops.add(node.flops);
    out.bytes.add(node.bytes);
  }
  return out;
}

template <class Record>
void take_rates(const Stated& flops, const Stated& bytes, Record& row) {
  row.flops = flops.amount();
  row.flops_of = flops.widths_text();
  row.flops_time_ms = flops.covered_ms();
  row.tflops = flops.tera_per_s();
  row.bytes = bytes.amount();
  row.bytes_time_ms = bytes.covered_ms();
  row.gbs = bytes.giga_per_s();
}

class ProtonRows {
 public:
  ProtonRows(const Trace& trace, const ProtonTree& tree, Report& report)
      : trace_(trace), tree_(tree), report_(report), totals_(totals_of(tree)), source_(trace.text(tree.source())) {}

  void fill() {
    add_scopes();
    const size_t first = report_.proton_kernels.size();
    add_kernels();
    ProtonProfileRecord profile;
    profile.source = source_;
    profile.nodes = static_cast<int64_t>(tree_.nodes().size());
    profile.kernels = static_cast<int64_t>(report_.proton_kernels.size() - first);
    profile.launches = totals_.launches;
    if (totals_.kernels > 0) profile.time_ms = ms_from(totals_.ns);
    if (totals_.metadata_ns > 0) profile.metadata_ms = ms_from(totals_.metadata_ns);
    profile.flops = totals_.flops.amount();
    profile.bytes = totals_.bytes.amount();
    profile.flops_time_ms = totals_.flops.covered_ms();
    profile.bytes_time_ms = totals_.bytes.covered_ms();
    report_.proton_profiles.push_back(std::move(profile));
    add_gpus();
  }

 private:
  // The scopes with most time; those around one of them have no less. Scopes that come first stay where times are
  // equal.
  std::vector<bool> kept_scopes() const {
    const std::vector<ScopeNode>& nodes = tree_.nodes();
    std::vector<size_t> scopes;
    for (size_t at = 0; at < nodes.size(); ++at)
      if (nodes[at].is_scope()) scopes.push_back(at);
    std::stable_sort(scopes.begin(), scopes.end(),
                     [&](size_t a, size_t b) { return nodes[a].total_ns > nodes[b].total_ns; });
    if (scopes.size() > kScopeRowsMax) scopes.resize(kScopeRowsMax);
    std::vector<bool> out(nodes.size(), false);
    for (const size_t at : scopes) out[at] = true;
    return out;
  }

  // In the order of the tree, of several in one scope the one with most time first.
  void add_scopes() {
    const std::vector<ScopeNode>& nodes = tree_.nodes();
    const std::vector<bool> kept = kept_scopes();
    std::vector<std::pair<size_t, int64_t>> open;  // with its depth; the next one last
    const auto push = [&](std::vector<size_t> scopes, int64_t depth) {
      std::stable_sort(scopes.begin(), scopes.end(),
                       [&](size_t a, size_t b) { return nodes[a].total_ns > nodes[b].total_ns; });
      for (size_t i = scopes.size(); i-- > 0;) open.emplace_back(scopes[i], depth);
    };
    std::vector<size_t> roots;
    for (size_t at = 0; at < nodes.size(); ++at)
      if (nodes[at].parent == ScopeNode::kNoScope) roots.push_back(at);
    push(std::move(roots), 0);
    ProtonScopeRecord others;
    int64_t left_out = 0, other_ns = 0;
    while (!open.empty()) {
      const auto [at, depth] = open.back();
      open.pop_back();
      const ScopeNode& node = nodes[at];
      push(node.children, depth + 1);
      if (kept[at]) {
        add_scope(at, depth);
      } else if (node.is_scope()) {
        ++left_out;
        other_ns += node.scope_ns;
        others.own_launches += node.scope_launches;
      }
    }
    if (left_out == 0) return;
    others.source = source_;
    others.path = others.name = fmt::format("[{} others]", left_out);
    others.own_ms = ms_from(other_ns);
    others.launches = others.own_launches;
    report_.proton_scopes.push_back(std::move(others));
  }

  void add_scope(size_t at, int64_t depth) {
    const ScopeNode& node = tree_.nodes()[at];
    ProtonScopeRecord row;
    row.source = source_;
    row.path = tree_.path(at);
    row.name = std::string(tree_.name(node));
    row.depth = depth;
    row.launches = node.total_launches;
    row.own_launches = node.scope_launches;
    if (node.kernels > 0) {
      row.time_ms = ms_from(node.total_ns);
      row.frac = totals_.frac(node.total_ns);
      row.own_ms = ms_from(node.scope_ns);
    }
    take_rates(node.flops, node.bytes, row);
    report_.proton_scopes.push_back(std::move(row));
  }

  struct KernelSum {
    int64_t ns = 0, launches = 0, places = 0, most_ns = -1;
    size_t main = 0;
    bool counted = true;  // all places have a count
    Stated flops{}, bytes{};
  };

  void add_kernels() {
    const ProtonNodes& table = trace_.proton_nodes;
    std::map<std::pair<StringId, StringId>, KernelSum> sums;
    for (size_t at = 0; at < tree_.nodes().size(); ++at) {
      const ScopeNode& node = tree_.nodes()[at];
      if (!node.is_kernel()) continue;
      KernelSum& sum = sums[{table.name[node.row], table.gpu[node.row]}];
      sum.ns += node.own_ns;
      sum.launches += node.launches;
      sum.counted = sum.counted && table.launches[node.row] > 0;
      ++sum.places;
      if (node.own_ns > sum.most_ns) {
        sum.most_ns = node.own_ns;
        sum.main = at;
      }
      if (node.kernels > 1) continue;  // what it states may be of those below it
      const ScopeNode& stated = tree_.stated_for(at);
      sum.flops.add(stated.flops);
      sum.bytes.add(stated.bytes);
    }
    const size_t first = report_.proton_kernels.size();
    for (const auto& [key, sum] : sums) report_.proton_kernels.push_back(kernel_row(key.second, sum));
    std::stable_sort(report_.proton_kernels.begin() + static_cast<std::ptrdiff_t>(first), report_.proton_kernels.end(),
                     [](const ProtonKernelRecord& a, const ProtonKernelRecord& b) {
                       return std::tie(b.time_ms, a.name, a.gpu) < std::tie(a.time_ms, b.name, b.gpu);
                     });
  }

  ProtonKernelRecord kernel_row(StringId gpu, const KernelSum& sum) const {
    const ScopeNode& main = tree_.nodes()[sum.main];
    ProtonKernelRecord row;
    row.source = source_;
    row.name = std::string(tree_.name(main));
    row.gpu = text_if_any(trace_.text(gpu));
    row.launches = sum.launches;
    row.time_ms = ms_from(sum.ns);
    row.frac = totals_.frac(sum.ns);
    if (sum.counted) row.mean_us = static_cast<double>(sum.ns) / 1e3 / static_cast<double>(sum.launches);
    row.places = sum.places;
    if (main.parent != ScopeNode::kNoScope) row.main_path = tree_.path(main.parent);
    take_rates(sum.flops, sum.bytes, row);
    return row;
  }

  void add_gpus() {
    const ProtonGpus& table = trace_.proton_gpus;
    std::unordered_map<uint32_t, std::pair<int64_t, int64_t>> used;  // time and launches
    for (const ScopeNode& node : tree_.nodes()) {
      if (!node.is_kernel()) continue;
      auto& [ns, launches] = used[index(trace_.proton_nodes.gpu[node.row])];
      ns += node.own_ns;
      launches += node.launches;
    }
    for (Row row = 0; row < table.size(); ++row) {
      if (table.source[row] != tree_.source()) continue;
      ProtonGpuRecord gpu;
      gpu.source = source_;
      gpu.gpu = std::string(trace_.text(table.gpu[row]));
      gpu.arch = text_if_any(trace_.text(table.arch[row]));
      if (table.sms[row] > 0) gpu.sms = table.sms[row];
      if (table.clock_khz[row] > 0) gpu.clock_mhz = static_cast<double>(table.clock_khz[row]) / 1e3;
      const auto memory_khz = static_cast<double>(table.memory_clock_khz[row]);
      if (memory_khz > 0) gpu.memory_clock_mhz = memory_khz / 1e3;
      if (table.bus_bits[row] > 0) gpu.bus_bits = table.bus_bits[row];
      if (gpu.memory_clock_mhz && gpu.bus_bits)
        gpu.peak_gbs = 2 * memory_khz * 1e3 * static_cast<double>(*gpu.bus_bits) / 8 / 1e9;
      if (const auto found = used.find(index(table.gpu[row])); found != used.end()) {
        gpu.time_ms = ms_from(found->second.first);
        gpu.launches = found->second.second;
      }
      report_.proton_gpus.push_back(std::move(gpu));
    }
  }

  const Trace& trace_;
  const ProtonTree& tree_;
  Report& report_;
  FileTotals totals_;
  std::string source_;
};

void add_other_metrics(const Trace& trace, const std::vector<ProtonTree>& trees,
                       const std::map<StringId, size_t>& tree_of, Report& report) {
  const ProtonMetrics& table = trace.proton_metrics;
  for (Row row = 0; row < table.size() && report.proton_metrics.size() < kOtherMetricsMax; ++row) {
    const std::string_view name = trace.text(table.name[row]);
    if (name == "bytes" || name.starts_with("flops")) continue;
    const ProtonTree& tree = trees[tree_of.at(trace.proton_nodes.source[table.node[row]])];
    ProtonMetricRecord metric;
    metric.source = std::string(trace.text(tree.source()));
    metric.path = tree.path(tree.index_of(table.node[row]));
    metric.metric = std::string(name);
    metric.value = table.value[row];
    report.proton_metrics.push_back(std::move(metric));
  }
}

// ---- the recording beside ------------------------------------------------------------------------------------------

struct KernelBeside {
  std::set<std::string_view> names;  // that share what they are found by
  int64_t calls = 0, total_ns = 0;
};

using KernelsBeside = std::map<std::string, KernelBeside>;

KernelsBeside kernels_beside(const Context& context, int naming) {
  KernelsBeside out;
  for (uint32_t k = 0; k < context.groups.kernels.size(); ++k) {
    const KernelKey& key = context.groups.kernel_keys.key(k);
    if (key.config == kNoRow) continue;
    const std::string_view name = context.trace.text(key.name);
    KernelBeside& kernel = out[named(naming, name)];
    kernel.names.insert(name);
    kernel.calls += context.groups.kernels[k].calls;
    kernel.total_ns += context.groups.kernels[k].total_ns;
  }
  return out;
}

// How many of each file's kernels were found.
void count_beside(Report& report) {
  struct Found {
    int64_t matched = 0, missing = 0;
    double missing_frac = 0;
  };
  std::map<std::string_view, Found> found;
  for (const ProtonKernelRecord& row : report.proton_kernels) {
    Found& of = found[row.source];
    ++(row.recorded_calls ? of.matched : of.missing);
    if (!row.recorded_calls) of.missing_frac += row.frac.value_or(0);
  }
  for (ProtonProfileRecord& profile : report.proton_profiles) {
    const Found& of = found[profile.source];
    profile.recorded_kernels = of.matched;
    profile.missing_kernels = of.missing;
    if (profile.time_ms.value_or(0) > 0) profile.missing_frac = of.missing_frac;
  }
}

// Gives kernels what the recording says of them, where one name on either side stands for one on the other.
void find_beside(const Context& context, Report& report) {
  std::vector<bool> settled(report.proton_kernels.size(), false);
  for (int naming = 0; naming < kNamings; ++naming) {
    const KernelsBeside beside = kernels_beside(context, naming);
    std::map<std::string, std::set<std::string_view>> ours;
    for (const ProtonKernelRecord& row : report.proton_kernels) ours[named(naming, row.name)].insert(row.name);
    for (size_t i = 0; i < settled.size(); ++i) {
      ProtonKernelRecord& row = report.proton_kernels[i];
      const std::string name = named(naming, row.name);
      const auto found = settled[i] ? beside.end() : beside.find(name);
      if (found == beside.end()) continue;
      settled[i] = true;  // a shorter name tells them apart no better
      if (found->second.names.size() > 1 || ours[name].size() > 1 || found->second.calls == 0) continue;
      row.recorded_calls = found->second.calls;
      row.recorded_us = static_cast<double>(found->second.total_ns) / 1e3 / static_cast<double>(found->second.calls);
    }
  }
  count_beside(report);
}

// ---- what is not in the files --------------------------------------------------------------------------------------

void say_what_proton_lacks(const Trace& trace, const Report& report, std::vector<CannotTell>& cannot_tell) {
  const auto any = [&](auto&& is) {
    return std::any_of(report.proton_profiles.begin(), report.proton_profiles.end(), is);
  };
  if (any([](const ProtonProfileRecord& row) { return !row.time_ms; }))
    cannot_tell.push_back({"How long did kernels take?",
                           "a file of Proton has no times: it was made by instrumented kernels or PC samples alone",
                           "proton.start(\"profile\", backend=\"cupti\")"});
  if (!any([](const ProtonProfileRecord& row) { return row.flops || row.bytes; }))
    cannot_tell.push_back({"What rates do Proton's kernels reach?", "no scope and no kernel states FLOPs or bytes",
                           "proton.start(\"profile\", hook=\"triton\") with launch_metadata of the kernels, or "
                           "proton.scope(\"name\", {\"flops16\": N, \"bytes\": N})"});
  for (const ProtonProfileRecord& row : report.proton_profiles)
    if (row.missing_kernels.value_or(0) > 0)
      cannot_tell.push_back(
          {"How long do all kernels of " + row.source + " take in the recording?",
           fmt::format(
               "of {} kernels, by name, {} are not in the recording or could be one of several; they are {:.1f} "
               "% of the file's time",
               row.kernels, *row.missing_kernels, 100 * row.missing_frac.value_or(0)),
           "record the same program; a name that launch_metadata makes up is in no recording"});
  if (profiled_only(trace))
    cannot_tell.push_back({"When did kernels run, and why was the GPU idle in between?",
                           "Proton adds launches up by scope and kernel, and keeps no times of single ones",
                           "llmprof run -- python script.py"});
}

}  // namespace

void analyze_proton(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (!of_proton(trace)) return;
  std::vector<ProtonTree> trees;
  std::map<StringId, size_t> known;
  for (Row row = 0; row < trace.proton_nodes.size(); ++row) {
    const StringId source = trace.proton_nodes.source[row];
    const auto [found, added] = known.try_emplace(source, trees.size());
    if (added) trees.emplace_back(trace, source);
    trees[found->second].add(row);
  }
  const ProtonMetrics& metrics = trace.proton_metrics;
  for (Row row = 0; row < metrics.size(); ++row) {
    const StringId source = trace.proton_nodes.source[metrics.node[row]];
    trees[known.at(source)].add_metric(metrics.node[row], trace.text(metrics.name[row]), metrics.value[row]);
  }
  for (ProtonTree& tree : trees) {
    tree.add_up();
    ProtonRows(trace, tree, report).fill();
  }
  add_other_metrics(trace, trees, known, report);
  if (!context.groups.kernels.empty()) find_beside(context, report);
  say_what_proton_lacks(trace, report, cannot_tell);
}

}  // namespace llmprof
