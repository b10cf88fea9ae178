#include "analyze/output_layers.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace llmprof {
namespace {

constexpr int64_t kVocabularyMin = 30'000, kVocabularyPerHidden = 6;
constexpr size_t kLayersMin = 8;

bool may_be_one(const Works& works, WorkId work) {
  return work != kNoRow && works.kind[work] == WorkKind::kGemm && works.n[work] >= kVocabularyMin &&
         works.n[work] >= kVocabularyPerHidden * works.k[work];
}

}  // namespace

OutputLayers::OutputLayers(const Trace& trace) : works_(trace.works) {
  bool any = false;
  for (WorkId work = 0; work < works_.size(); ++work) any |= may_be_one(works_, work);
  if (!any || trace.gpu_links.work.empty()) return;
  int64_t width = -1;
  size_t calls = 0, steps = 0;
  std::vector<uint8_t> seen;
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
    const WorkId work = trace.gpu_links.work[gpu];
    const StepId step = trace.gpu_links.step[gpu];
    if (step == kNoRow || !may_be_one(works_, work) || works_.n[work] < width) continue;
    if (works_.n[work] > width) {
      width = works_.n[work];
      calls = steps = 0;
      seen.assign(trace.steps.size(), 0);
    }
    ++calls;
    steps += seen[step] == 0 ? 1 : 0;
    seen[step] = 1;
  }
  if (calls < kLayersMin * steps) width_ = width;
}

bool OutputLayers::has(WorkId work) const { return width_ > 0 && may_be_one(works_, work) && works_.n[work] == width_; }

}  // namespace llmprof
