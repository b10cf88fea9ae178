// One run of the workload: the picture decoded and cut into patches, encoded, projected, the prompt read, tokens made
// one after the other (greedily). Times are the workload's own, CLOCK_MONOTONIC.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "workload/model.h"
#include "workload/stages.h"

namespace llmprof::workload {

// Names as the stage rules of reports know them; a decode step is one stage.
constexpr std::string_view kPreprocess = "preprocess", kEncoder = "vision encoder", kProjector = "vision projector",
                           kPrefill = "prefill", kDecode = "decode";

struct RunResult {
  struct Stage {
    std::string_view name;
    int64_t start_ns = 0, end_ns = 0;
  };
  std::vector<Stage> stages;                 // in time order
  std::vector<std::vector<int32_t>> tokens;  // of each sequence
  std::vector<int64_t> token_ns;             // when each token (of all sequences) was there
  bool interrupted = false;

  int64_t stage_ns(std::string_view name) const;  // all of that name together
  double ttft_ms() const;                         // from the beginning of preprocessing to the first token
  // Mean time of a token after the first; negative if there is only one.
  double tpot_ms() const;
  double tokens_per_s() const;  // of all sequences, over the decode steps; negative without one
  // The same as reports give it in their first lines: of steady decode steps (base/steady_series.h).
  struct Steady {
    size_t steps = 0;
    double median_ms = 0, tokens_per_s = 0, first_ms = 0;
    size_t cold = 0;
    double cold_ms = 0;  // mean of the cold ones
  };
  std::optional<Steady> steady() const;  // empty without a decode step
};

// How the operators of preprocessing are told, which run on the host whatever the backend is.
class HostListener {
 public:
  virtual ~HostListener() = default;
  virtual void host_operator(std::string_view name, int64_t start_ns, int64_t end_ns) = 0;
};

// `stop` is looked at between steps: what is finished is kept.
Result<RunResult> run_model(Model& model, const Size& size, const ModelOptions& options,
                            const std::vector<StageListener*>& listeners, HostListener* host,
                            const std::atomic<bool>& stop);

int64_t clock_ns();  // CLOCK_MONOTONIC

}  // namespace llmprof::workload
