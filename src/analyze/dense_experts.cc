#include "analyze/dense_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"
#include "derive/kernel_rules.h"
#include "trace/signature.h"

namespace llmprof {
namespace {

// Fewer would save less than half with two chosen; routers of the field have up to 512 outputs.
constexpr int64_t kExpertsMin = 4, kExpertsMost = 512;
// A router's outputs are few beside the hidden size.
constexpr int64_t kHiddenPerExpert = 4;
// Two of the experts for a token, as Mixtral and GShard have it, where the recording does not say how many.
constexpr int64_t kUsuallyChosen = 2;
// Products of shared experts may come between the router and the first expert.
constexpr size_t kBetweenMost = 3;
// gate and up as one product and down, or all three by themselves.
constexpr size_t kProductsMin = 2, kProductsMost = 3;

bool has_word(std::string_view name, std::string_view word) {
  return std::search(name.begin(), name.end(), word.begin(), word.end(),
                     [](unsigned char a, unsigned char b) { return std::tolower(a) == b; }) != name.end();
}

class Finder {
 public:
  explicit Finder(const Context& context)
      : context_(context), trace_(context.trace), verdicts_(trace_.strings.size(), Choice::kUnseen) {
    if (context.device != nullptr) bytes_per_ns_ = reached_bytes_per_ns(*context.device).value_or(0);
  }

  std::vector<DenseExperts> find() {
    // Most models have no router: nothing to look through then.
    bool routers = false;
    for (WorkId w = 0; w < trace_.works.size(); ++w) routers |= is_router(w);
    if (!routers) return {};
    std::map<StreamId, std::vector<GpuOpId>> streams;
    for (GpuOpId op = 0; op < trace_.gpu_ops.size(); ++op) {
      std::vector<GpuOpId>& run = streams[trace_.gpu_ops.stream[op]];
      if (!run.empty() && trace_.gpu_links.step[run.front()] != trace_.gpu_links.step[op]) judge(run);
      if (trace_.gpu_links.step[op] != kNoRow) run.push_back(op);
    }
    for (auto& [stream, run] : streams) judge(run);
    return std::move(found_);
  }

 private:
  enum class Choice : uint8_t { kUnseen, kNone, kSome, kOne };

  WorkId work(GpuOpId op) const { return context_.groups.work_of(op); }
  bool is_product(GpuOpId op) const { return work(op) != kNoRow && trace_.works.kind[work(op)] == WorkKind::kGemm; }
  bool is_router(WorkId w) const {
    const Works& works = trace_.works;
    return w != kNoRow && works.kind[w] == WorkKind::kGemm && works.batch[w] <= 1 && works.m[w] > 0 &&
           works.n[w] >= kExpertsMin && works.n[w] <= kExpertsMost && works.n[w] * kHiddenPerExpert <= works.k[w];
  }
  // Attention, or a product that nothing is known of: what lies beyond is another part of the model.
  bool ends_layer(GpuOpId op) const {
    const Category category = trace_.gpu_links.category[op];
    if (category == Category::kAttention || category == Category::kConvolution) return true;
    return category == Category::kGemm && !is_product(op) && !is_auxiliary_kernel(trace_.text(trace_.gpu_ops.name[op]));
  }
  // Whether a kernel picks the largest of some scores: without that, all experts are meant to work.
  Choice choice(GpuOpId op) {
    Choice& verdict = verdicts_[index(trace_.gpu_ops.name[op])];
    if (verdict != Choice::kUnseen) return verdict;
    const std::string_view name = trace_.text(trace_.gpu_ops.name[op]);
    verdict = has_word(name, "argmax")                           ? Choice::kOne
              : has_word(name, "topk") || has_word(name, "sort") ? Choice::kSome
                                                                 : Choice::kNone;
    return verdict;
  }
  // How many experts torch.topk was asked for; 0: not known.
  int64_t asked_for(GpuOpId op) const {
    const OpId caller = trace_.gpu_links.op[op];
    if (caller == kNoRow || trace_.text(trace_.ops.name[caller]) != "aten::topk") return 0;
    return SignatureShapes(trace_, trace_.ops.signature[caller]).integer(1).value_or(0);
  }
  bool same_shape(GpuOpId a, GpuOpId b) const {
    const Works& works = trace_.works;
    const WorkId x = work(a), y = work(b);
    return x == y || (works.batch[x] == works.batch[y] && works.m[x] == works.m[y] && works.n[x] == works.n[y] &&
                      works.k[x] == works.k[y]);
  }

  void judge(std::vector<GpuOpId>& run) {
    for (size_t i = 0; i < run.size(); ++i)
      if (is_router(work(run[i]))) i = std::max(i, behind(run, i));
    run.clear();
  }

  // Looks at what follows a router at `at`; returns the last place of its experts, or `at`.
  size_t behind(const std::vector<GpuOpId>& run, size_t at) {
    const Works& works = trace_.works;
    const WorkId router = work(run[at]);
    DenseExperts out;
    out.step = trace_.gpu_links.step[run[at]];
    out.experts = works.n[router];
    out.rows = works.m[router];
    std::vector<size_t> products;  // places
    bool picks = false;
    // The router's products, one more cycle than there are experts, and what may come between.
    const size_t most = static_cast<size_t>(out.experts + 2) * kProductsMost + kBetweenMost;
    for (size_t i = at + 1; i < run.size() && products.size() < most && !ends_layer(run[i]); ++i) {
      if (is_product(run[i])) {
        products.push_back(i);
      } else if (const Choice choice_here = choice(run[i]); products.size() <= kBetweenMost) {
        picks |= choice_here != Choice::kNone;
        if (const int64_t asked = asked_for(run[i]); asked > 0) out.chosen = asked, out.chosen_known = true;
        if (choice_here == Choice::kOne) out.chosen = 1, out.chosen_known = true;
      }
    }
    if (!picks) return at;
    if (out.chosen == 0) out.chosen = kUsuallyChosen;
    if (out.chosen >= out.experts) return at;
    for (size_t first = 0; first <= kBetweenMost && first < products.size(); ++first)
      for (size_t length = kProductsMin; length <= kProductsMost; ++length)
        if (one_by_one(run, products, first, length, router, out)) return products.back();
    for (size_t first = 0; first <= kBetweenMost && first < products.size(); ++first)
      if (at_once(run, products, first, router, out)) return products.back();
    return at;
  }

  // Whether `length` products from `of` on lead from the hidden state of all rows to one like it.
  bool leads_back(const std::vector<GpuOpId>& run, const std::vector<size_t>& products, size_t of, size_t length,
                  int64_t batch, WorkId router) const {
    const Works& works = trace_.works;
    if (of + length > products.size()) return false;
    for (size_t j = 0; j < length; ++j) {
      const WorkId w = work(run[products[of + j]]);
      if (std::max<int64_t>(1, works.batch[w]) != batch || works.m[w] != works.m[router]) return false;
      const bool last = j + 1 == length;
      const WorkId before = j > 0 ? work(run[products[of + j - 1]]) : kNoRow;
      if (!last && works.k[w] != works.k[router]) return false;
      if (last && works.n[w] != works.k[router]) return false;
      // down takes what gate and up make, or half of it where both are one product.
      if (last && works.k[w] != works.n[before] && (length > kProductsMin || 2 * works.k[w] != works.n[before]))
        return false;
    }
    return true;
  }

  // One expert behind the other, as often as the router has outputs; one more may be shared.
  bool one_by_one(const std::vector<GpuOpId>& run, const std::vector<size_t>& products, size_t first, size_t length,
                  WorkId router, DenseExperts& out) {
    if (!leads_back(run, products, first, length, 1, router)) return false;
    size_t cycles = 1;
    const auto repeats = [&](size_t cycle) {
      for (size_t j = 0; j < length; ++j) {
        const size_t at = first + cycle * length + j;
        if (at >= products.size() || !same_shape(run[products[at]], run[products[first + j]])) return false;
      }
      return true;
    };
    while (repeats(cycles)) ++cycles;
    const size_t experts = static_cast<size_t>(out.experts);
    if (cycles != experts && cycles != experts + 1) return false;
    const int64_t shared = static_cast<int64_t>(cycles - experts);
    const size_t last = products[first + cycles * length - 1];
    // Behind the last expert comes what comes behind the others, as far as it does.
    const size_t before = products[first + (cycles - 1) * length - 1];
    size_t end = last;
    while (end + 1 < run.size() && before + (end + 1 - last) < products[first + (cycles - 1) * length] &&
           trace_.gpu_ops.name[run[end + 1]] == trace_.gpu_ops.name[run[before + (end + 1 - last)]])
      ++end;
    add(run, products[first], end, static_cast<int64_t>(cycles), shared, out);
    return true;
  }

  // All experts in one product of so many matrices.
  bool at_once(const std::vector<GpuOpId>& run, const std::vector<size_t>& products, size_t first, WorkId router,
               DenseExperts& out) {
    for (size_t length = kProductsMin; length <= kProductsMost; ++length) {
      if (!leads_back(run, products, first, length, out.experts, router)) continue;
      const size_t last = products[first + length - 1];
      add(run, products[first], last, out.experts, 0, out);
      return true;
    }
    return false;
  }

  // What lies from `begin` to `end` is of so many experts, of which `shared` are for all tokens.
  void add(const std::vector<GpuOpId>& run, size_t begin, size_t end, int64_t experts, int64_t shared,
           DenseExperts& out) {
    const Works& works = trace_.works;
    const double rows = static_cast<double>(out.rows);
    const double part = static_cast<double>(out.chosen + shared) / static_cast<double>(experts);
    const double touched = 1 - std::pow(1 - part, rows);  // of the experts, where each token chooses for itself
    // Tokens are gathered for their experts, and what these make is read once more for the sum.
    const WorkId first = work(run[begin]);
    const double hidden = rows * static_cast<double>(works.k[first]) * dtype_bytes(works.dtype[first]);
    const double moved_ns = bytes_per_ns_ > 0 ? (3 * static_cast<double>(out.chosen) + 1) * hidden / bytes_per_ns_ : 0;
    double products = 0;
    for (size_t i = begin; i <= end; ++i) products += is_product(run[i]) ? 1 : 0;
    for (size_t i = begin; i <= end; ++i) {
      const double ns = static_cast<double>(trace_.gpu_ops.dur_ns[run[i]]);
      double then = ns * part;
      if (is_product(run[i])) {
        const WorkId w = work(run[i]);
        const double weights = static_cast<double>(std::max<int64_t>(1, works.batch[w])) *
                               static_cast<double>(works.n[w]) * static_cast<double>(works.k[w]) *
                               dtype_bytes(works.weight_dtype[w]);
        if (bytes_per_ns_ > 0) then = std::max(then, touched * weights / bytes_per_ns_);
        then += moved_ns / products;
      } else if (ns < kShortKernelNs) {
        then = ns;  // its fixed cost
      }
      out.now_ns += trace_.gpu_ops.dur_ns[run[i]];
      if (then < ns) out.then.emplace_back(run[i], std::max<int64_t>(1, std::llround(then)));
    }
    found_.push_back(std::move(out));
  }

  const Context& context_;
  const Trace& trace_;
  double bytes_per_ns_ = 0;
  std::vector<Choice> verdicts_;  // by name
  std::vector<DenseExperts> found_;
};

}  // namespace

std::vector<DenseExperts> dense_experts(const Context& context) { return Finder(context).find(); }

void find_dense_experts(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;  // below, a change would not be noticed
  const std::vector<DenseExperts> all = dense_experts(finding.context);
  if (all.empty()) return;
  for (const StageView& stage : finding.stages) {
    const DenseExperts* one = nullptr;
    double layers = 0, now_ns = 0, gain_ns = 0;
    std::set<StepId> steps;
    for (const DenseExperts& layer : all) {
      if (finding.context.groups.stage_of_step[layer.step] != stage.stage) continue;
      one = &layer;
      steps.insert(layer.step);
      ++layers;
      now_ns += static_cast<double>(layer.now_ns);
      for (const auto& [op, then_ns] : layer.then)
        gain_ns += static_cast<double>(finding.trace().gpu_ops.dur_ns[op] - then_ns);
    }
    if (one == nullptr) continue;
    const double seen = static_cast<double>(steps.size());
    now_ns *= stage.count() / seen;
    gain_ns *= stage.count() / seen;
    if (!finding.worth(stage, "routed-experts", gain_ns >= kShareMin * stage.busy_ns())) continue;
    Finding& out =
        finding.add("dense-experts", &stage,
                    fmt::format("{}each of {} experts computes all {} tokens, though {}{} chosen for a token",
                                stage.label(), one->experts, format_count(static_cast<double>(one->rows)), one->chosen,
                                one->chosen_known ? (one->chosen == 1 ? " is" : " are") : " (assumed) are"),
                    gain_ns);
    out.evidence = {
        counted("experts of a layer", static_cast<double>(one->experts), Unit::kOne),
        counted("tokens that each of them computes", static_cast<double>(one->rows), Unit::kOne),
        {one->chosen_known ? "experts chosen for a token" : "experts chosen for a token: not recorded, two is usual",
         static_cast<double>(one->chosen), Unit::kOne, one->chosen_known ? Provenance::kCounted : Provenance::kFormula},
        counted("layers of such experts per step", layers / seen, Unit::kOne),
        measured("GPU time of the experts per step", stage.per_step_ms(now_ns), Unit::kMs),
        measured("share of the stage's GPU time", now_ns / stage.busy_ns(), Unit::kFrac)};
    out.advice = {
        "Give each expert only the tokens that chose it: sort them by expert and run one grouped product (the fused "
        "MoE kernels of inference servers, torch._grouped_mm), or index its rows before and add them back after. "
        "Zero weights hide the others' results, but not their work."};
    finding.bound_work(stage, gain_ns, out);
  }
}

}  // namespace llmprof
