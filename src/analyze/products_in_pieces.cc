#include "analyze/products_in_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/finding.h"
#include "analyze/kernel_times.h"
#include "base/text_table.h"

namespace llmprof {

std::vector<ProductsInPieces> products_in_pieces(const Context& context) {
  constexpr size_t kPiecesMin = 4;
  const Trace& trace = context.trace;
  const Works& works = trace.works;
  struct Open {
    StepId step = kNoRow;
    ProductsInPieces run;
  };
  std::map<StreamId, Open> streams;
  std::vector<ProductsInPieces> out;
  const auto close = [&](Open& open, GpuOpId behind) {
    ProductsInPieces& run = open.run;
    if (run.pieces.size() >= kPiecesMin) {
      if (behind != kNoRow && concatenates(trace.text(trace.gpu_ops.name[behind]))) run.around.push_back(behind);
      out.push_back(std::move(run));
    }
    open.run = {};
  };
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    Open& open = streams[trace.gpu_ops.stream[op]];
    if (open.step != step) close(open, kNoRow);
    open.step = step;
    if (step == kNoRow) continue;
    if (trace.gpu_ops.kind[op] == GpuOpKind::kMemset) {
      if (!open.run.pieces.empty()) open.run.around.push_back(op);
      continue;
    }
    const WorkId work = context.groups.work_of(op);
    const bool product = work != kNoRow && works.kind[work] == WorkKind::kGemm;
    // The sum of a split product's parts has no shape of its own.
    if (!product && trace.gpu_links.category[op] == Category::kGemm && !open.run.pieces.empty()) {
      open.run.around.push_back(op);
      continue;
    }
    const bool piece =
        product && works.batch[work] == 1 && works.weight_bytes[work] > 0 && 2 * works.n[work] <= works.k[work];
    const bool goes_on =
        piece && (open.run.pieces.empty() || (works.m[work] == open.run.m && works.k[work] == open.run.k));
    if (!goes_on) close(open, op);
    if (!piece) continue;
    open.run.m = works.m[work];
    open.run.k = works.k[work];
    open.run.n += works.n[work];
    open.run.pieces.push_back(op);
  }
  for (auto& [stream, open] : streams) close(open, kNoRow);
  return out;
}

void find_products_in_pieces(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  struct Sums {
    double ns = 0, pieces = 0, products = 0;
    int64_t k = 0;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  for (const ProductsInPieces& one : products_in_pieces(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.pieces.front())];
    ++sums.products;
    sums.pieces += static_cast<double>(one.pieces.size());
    sums.k = one.k;
    for (const GpuOpId op : one.pieces) sums.ns += static_cast<double>(trace.gpu_ops.dur_ns[op]);
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    if (!finding.worth(stage, "joined-products", sums.ns >= kShareMin * stage.busy_ns())) continue;
    Finding& out =
        finding.add("products-in-pieces", &stage,
                    fmt::format("{}products are computed in {:.0f} pieces each, {} of the GPU time", stage.label(),
                                sums.pieces / sums.products, format_percent(sums.ns / stage.busy_ns())),
                    sums.ns);
    out.evidence = {counted("products in pieces per step", sums.products / stage.count(), Unit::kOne),
                    counted("pieces per step", sums.pieces / stage.count(), Unit::kOne),
                    measured("their GPU time per step", stage.per_step_ms(sums.ns), Unit::kMs)};
    out.advice = {
        "Put the weights of the pieces beside each other once, when they are loaded, and compute one product (as one "
        "matrix for queries, keys and values, or one for gate and up).",
        "Where the weights must stay apart, a grouped or batched product launches once for all."};
    out.bound = stage.bound(sums.ns);
  }
}

}  // namespace llmprof
