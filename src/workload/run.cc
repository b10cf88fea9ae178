#include "workload/run.h"

#include <time.h>

#include "base/statistics.h"
#include "base/steady_series.h"
#include "workload/bundle.h"
#include "workload/image.h"

namespace llmprof::workload {
namespace {

// Tells everybody, and keeps the times.
class StageScope {
 public:
  StageScope(RunResult& result, const std::vector<StageListener*>& listeners, std::string_view name,
             const StageWork& work = {})
      : result_(result), listeners_(listeners) {
    for (StageListener* const listener : listeners_) listener->begin(name, work);
    result_.stages.push_back({name, clock_ns(), 0});
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;
  ~StageScope() {
    result_.stages.back().end_ns = clock_ns();
    for (StageListener* const listener : listeners_) listener->end();
  }

 private:
  RunResult& result_;
  const std::vector<StageListener*>& listeners_;
};

template <class Body>
auto timed(HostListener* host, std::string_view name, Body&& body) {
  const int64_t start = clock_ns();
  auto value = body();
  if (host != nullptr) host->host_operator(name, start, clock_ns());
  return value;
}

std::vector<float> preprocess(const VisionConfig& vision, HostListener* host) {
  const Image image = timed(host, "unpack_picture", [] { return bundle_image(); });
  const std::vector<float> planes = timed(host, "resize_bicubic", [&] { return resize(image, vision.image); });
  return timed(host, "patchify", [&] { return patchify(planes, vision.image, vision.patch); });
}

void take_tokens(const std::vector<int32_t>& tokens, RunResult& result) {
  result.tokens.resize(tokens.size());
  for (size_t sequence = 0; sequence < tokens.size(); ++sequence) result.tokens[sequence].push_back(tokens[sequence]);
  result.token_ns.push_back(clock_ns());
}

}  // namespace

int64_t clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

int64_t RunResult::stage_ns(std::string_view name) const {
  int64_t sum = 0;
  for (const Stage& stage : stages)
    if (stage.name == name) sum += stage.end_ns - stage.start_ns;
  return sum;
}

double RunResult::ttft_ms() const { return static_cast<double>(token_ns.front() - stages.front().start_ns) / 1e6; }

double RunResult::tpot_ms() const {
  if (token_ns.size() < 2) return -1;
  return static_cast<double>(token_ns.back() - token_ns.front()) / 1e6 / static_cast<double>(token_ns.size() - 1);
}

double RunResult::tokens_per_s() const {
  return token_ns.size() < 2 ? -1 : static_cast<double>(tokens.size()) * 1e3 / tpot_ms();
}

std::optional<RunResult::Steady> RunResult::steady() const {
  std::vector<double> all;
  for (size_t t = 1; t < token_ns.size(); ++t) all.push_back(static_cast<double>(token_ns[t] - token_ns[t - 1]) / 1e6);
  if (all.empty()) return std::nullopt;
  std::vector<SeriesStep> series;
  for (const double ms : all) series.push_back({.ns = ms * 1e6});
  const SteadySeries found = find_steady_series(series, StepSize::kAlike);
  Steady out;
  out.first_ms = all.front();
  std::vector<double> steady;
  double sum_ms = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (found.warm_up[i] != 0 && !found.falls) {
      ++out.cold;
      out.cold_ms += all[i];
    } else {
      steady.push_back(all[i]);
      sum_ms += all[i];
    }
  }
  if (out.cold > 0) out.cold_ms /= static_cast<double>(out.cold);
  out.steps = steady.size();
  out.median_ms = median_of(steady);
  out.tokens_per_s = 1e3 * static_cast<double>(tokens.size() * steady.size()) / sum_ms;
  return out;
}

Result<RunResult> run_model(Model& model, const Size& size, const ModelOptions& options,
                            const std::vector<StageListener*>& listeners, HostListener* host,
                            const std::atomic<bool>& stop) {
  RunResult result;
  {
    const StageScope scope(result, listeners, kPreprocess);
    const std::vector<float> patches = preprocess(size.vision, host);
    LLMPROF_CHECK(model.load(patches));
  }
  {
    const StageScope scope(result, listeners, kEncoder);
    LLMPROF_CHECK(model.encode());
  }
  {
    const StageScope scope(result, listeners, kProjector);
    LLMPROF_CHECK(model.project());
  }
  const int64_t tokens = options.tokens(size);
  std::vector<int32_t> prompt;
  for (int sequence = 0; sequence < options.sequences; ++sequence) {
    const std::vector<int32_t> mine = prompt_of(sequence, options.prompt, size.decoder.vocabulary);
    prompt.insert(prompt.end(), mine.begin(), mine.end());
  }
  {
    const StageScope scope(result, listeners, kPrefill, {options.sequences, options.sequences * tokens, tokens});
    LLMPROF_ASSIGN(const std::vector<int32_t> first, model.prefill(prompt));
    take_tokens(first, result);
  }
  for (int64_t step = 0; step + 1 < options.new_tokens; ++step) {
    if (stop.load()) {
      result.interrupted = true;
      break;
    }
    const StageScope scope(result, listeners, kDecode, {options.sequences, options.sequences, tokens + step + 1});
    LLMPROF_ASSIGN(const std::vector<int32_t> next, model.decode(step));
    take_tokens(next, result);
  }
  return result;
}

}  // namespace llmprof::workload
