#include "analyze/repeated_reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// Address, outer and inner width.
using Matrix = std::tuple<uint64_t, int64_t, int64_t>;

// What one stream does in one step.
struct Pass {
  std::vector<GpuOpId> ops;
  std::vector<size_t> products;  // places in ops of products with weights of a known address
  std::vector<Matrix> matrices;  // that these read
};

// Time of each activity with what runs beside it taken out: where n run at once, each gets an n-th.
std::vector<double> times_alone(const Trace& trace, const std::vector<GpuOpId>& ops) {
  struct Edge {
    int64_t ns;
    bool begins;
    size_t op;
  };
  std::vector<Edge> edges;
  for (size_t i = 0; i < ops.size(); ++i) {
    edges.push_back({trace.gpu_ops.start_ns[ops[i]], true, i});
    edges.push_back({trace.end_of(ops[i]), false, i});
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return std::tie(a.ns, a.begins) < std::tie(b.ns, b.begins); });
  std::vector<double> out(ops.size());
  std::set<size_t> running;
  int64_t last_ns = 0;
  for (const Edge& edge : edges) {
    for (const size_t i : running)
      out[i] += static_cast<double>(edge.ns - last_ns) / static_cast<double>(running.size());
    last_ns = edge.ns;
    if (edge.begins)
      running.insert(edge.op);
    else
      running.erase(edge.op);
  }
  return out;
}

class StepPasses {
 public:
  StepPasses(const Context& context, const std::vector<GpuOpId>& ops) : context_(context), trace_(context.trace) {
    const std::vector<double> alone = times_alone(trace_, ops);
    for (size_t i = 0; i < ops.size(); ++i) alone_ns_[ops[i]] = alone[i];
    for (const GpuOpId op : ops) {
      Pass& pass = streams_[trace_.gpu_ops.stream[op]];
      if (const Matrix read = matrix_of(op); std::get<0>(read) != 0) {
        pass.products.push_back(pass.ops.size());
        pass.matrices.push_back(read);
      }
      pass.ops.push_back(op);
    }
  }

  void find(std::vector<RepeatedReads>& out) const {
    std::map<std::vector<Matrix>, std::vector<const Pass*>> alike;
    for (const auto& [stream, pass] : streams_)
      if (pass.products.size() >= kProductsMin) alike[pass.matrices].push_back(&pass);
    for (const auto& [matrices, passes] : alike)
      if (passes.size() > 1) out.push_back(joined(passes));
  }

 private:
  static constexpr size_t kProductsMin = 4;

  const Works& works() const { return trace_.works; }
  bool is_product(GpuOpId op) const {
    const WorkId work = context_.groups.work_of(op);
    return work != kNoRow && works().kind[work] == WorkKind::kGemm && works().batch[work] <= 1;
  }
  Matrix matrix_of(GpuOpId op) const {
    const LibraryCallId call = trace_.gpu_links.library_call[op];
    if (call == kNoRow || !is_product(op)) return {};
    const WorkId work = context_.groups.work_of(op);
    return {trace_.library_calls.weights[call], works().n[work], works().k[work]};
  }

  RepeatedReads joined(const std::vector<const Pass*>& passes) const {
    RepeatedReads out;
    out.passes = static_cast<int64_t>(passes.size());
    const Pass& stays = *passes.front();
    std::set<Matrix> matrices;
    for (size_t p = 0; p < stays.products.size(); ++p) {
      const WorkId work = context_.groups.work_of(stays.ops[stays.products[p]]);
      if (matrices.insert(stays.matrices[p]).second) out.read_bytes += works().weight_bytes[work];
    }
    out.again_bytes = out.read_bytes * static_cast<double>(passes.size() - 1);
    out.matrices = static_cast<int64_t>(matrices.size());
    for (size_t p = 0; p < stays.products.size(); ++p) {
      add_product(passes, p, out);
      if (p + 1 < stays.products.size()) add_between(passes, p, out);
    }
    std::set<StringId> names;
    for (const GpuOpId op : stays.ops) names.insert(trace_.gpu_ops.name[op]);
    for (const Pass* const other : passes) {
      if (other == &stays) continue;
      for (size_t at = 0; at < other->ops.size(); ++at)
        if ((at >= other->products.front() && at <= other->products.back()) ||
            names.count(trace_.gpu_ops.name[other->ops[at]]) > 0)
          out.gone.push_back(other->ops[at]);
    }
    return out;
  }

  // On the rows of all passes.
  void add_product(const std::vector<const Pass*>& passes, size_t p, RepeatedReads& out) const {
    const GpuOpId op = passes.front()->ops[passes.front()->products[p]];
    const WorkId work = context_.groups.work_of(op);
    double rows = 0;
    for (const Pass* const pass : passes)
      rows += static_cast<double>(works().m[context_.groups.work_of(pass->ops[pass->products[p]])]);
    const double times = rows / static_cast<double>(std::max<int64_t>(1, works().m[work]));
    const KernelRoof roof = kernel_roof(context_, context_.groups.kernel_of[op]);
    double longer = times;
    if (roof.known && roof.bytes > 0 && roof.point.memory_ns && *roof.point.memory_ns > 0) {
      const double bytes = works().bytes[work], weights = works().weight_bytes[work];
      const double more_bytes = bytes > 0 ? (weights + (bytes - weights) * times) / bytes : times;
      const double memory = *roof.point.memory_ns, compute = roof.point.compute_ns.value_or(0);
      longer = std::max(memory * more_bytes, compute * times) / std::max(memory, compute);
    }
    out.joined.emplace_back(op, ns_of(alone_ns_.at(op) * longer));
  }

  // What lies between a product and the next one.
  void add_between(const std::vector<const Pass*>& passes, size_t p, RepeatedReads& out) const {
    constexpr double kLongBetweenNs = 10'000;
    const Pass& stays = *passes.front();
    for (size_t at = stays.products[p] + 1; at < stays.products[p + 1]; ++at) {
      const GpuOpId op = stays.ops[at];
      double longest = 0, sum = 0;
      for (const Pass* const pass : passes) {
        const size_t there = pass->products[p] + (at - stays.products[p]);
        if (there >= pass->products[p + 1]) continue;
        longest = std::max(longest, alone_ns_.at(pass->ops[there]));
        sum += alone_ns_.at(pass->ops[there]);
      }
      const bool adds_up = trace_.gpu_links.category[op] == Category::kAttention || longest >= kLongBetweenNs;
      out.joined.emplace_back(op, ns_of(adds_up ? sum : longest));
    }
  }
  static int64_t ns_of(double ns) { return std::max<int64_t>(kLeastKernelNs, std::llround(ns)); }

  const Context& context_;
  const Trace& trace_;
  std::map<StreamId, Pass> streams_;
  std::map<GpuOpId, double> alone_ns_;
};

}  // namespace

std::vector<RepeatedReads> repeated_reads(const Context& context) {
  const Trace& trace = context.trace;
  const std::vector<uint64_t>& weights = trace.library_calls.weights;
  if (std::all_of(weights.begin(), weights.end(), [](uint64_t address) { return address == 0; })) return {};
  std::map<StepId, std::vector<GpuOpId>> steps;
  std::map<StepId, std::set<StreamId>> streams;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    if (step == kNoRow) continue;
    steps[step].push_back(op);
    streams[step].insert(trace.gpu_ops.stream[op]);
  }
  std::vector<RepeatedReads> out;
  for (const auto& [step, ops] : steps)
    if (streams[step].size() > 1) StepPasses(context, ops).find(out);
  return out;
}

void find_repeated_reads(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  struct Sums {
    double read = 0, again = 0, matrices = 0, ns = 0;
    int64_t passes = 0;
  };
  std::map<uint32_t, Sums> stages;
  for (const RepeatedReads& one : repeated_reads(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.joined.front().first)];
    sums.read += one.read_bytes;
    sums.again += one.again_bytes;
    sums.matrices += static_cast<double>(one.matrices);
    sums.passes = std::max(sums.passes, one.passes);
    for (const GpuOpId op : one.gone) sums.ns += static_cast<double>(finding.trace().gpu_ops.dur_ns[op]);
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "one-pass", sums.ns >= kShareMin * stage.busy_ns())) continue;
    Finding& out = finding.add("repeated-weight-reads", &stage,
                               fmt::format("{}the same weights are read {} times a step, by passes on as many streams",
                                           stage.label(), sums.passes),
                               sums.ns);
    out.evidence = {counted("matrices that all passes read per step", sums.matrices / stage.count(), Unit::kOne),
                    counted("weights read once per step", sums.read / stage.count(), Unit::kBytes),
                    counted("weights read again per step", sums.again / stage.count(), Unit::kBytes)};
    out.advice = {
        "Run the parts as one batch: a product that is limited by memory takes hardly longer on twice the rows, and "
        "reads "
        "its weights once. Streams side by side share the bandwidth that they wait for.",
        "Where the parts must stay apart (other lengths, other priorities), let each have all of the GPU in turn only "
        "if "
        "its answer is due first."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
