// The pieces of the text report. Each returns finished lines, or nothing if it has nothing to say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/page.h"
#include "base/text_table.h"
#include "report/render.h"

namespace llmprof {

using Align = TextTable::Align;
constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

// Escape sequences, or nothing.
class Ink {
 public:
  explicit Ink(bool on) : on_(on) {}
  bool on() const { return on_; }
  std::string bold(std::string_view text) const { return wrap("\033[1m", text); }
  std::string dim(std::string_view text) const { return wrap("\033[2m", text); }
  std::string accent(std::string_view text) const { return wrap("\033[1;36m", text); }

 private:
  std::string wrap(const char* code, std::string_view text) const {
    return on_ ? code + std::string(text) + "\033[0m" : std::string(text);
  }
  bool on_;
};

// Of a path, for people: its last part, of a recording in the run store its run.
std::string file_name(std::string_view path);

// The program ran its model on the CPU: what our words call the GPU is the CPU there, and its SMs are threads. Only our
// own words change; names of the recording stay as they are.
bool on_cpu(const Report& report);
// Whether the recording shows that a GPU was used at all, be its name known or not.
bool gpu_was_seen(const Report& report);
const char* processor(const Report& report);  // "GPU" or "CPU"
// Whether the report is about kernels that a profiler ran alone, logged products or metrics pages, none of which has a
// place in the time of a program; how many kernels those are.
bool profiled_alone(const Report& report);
int64_t profiled_calls(const Report& report);
// "456 kernels profiled, 18 matrix products logged, 1 run of a benchmark, 2 metrics pages".
std::string alone_text(const Report& report);

// Name of a stage, with its GPU where the report holds several.
std::string stage_label(const Report& report, const StageTiming& stage);

// Whether a stage, by its name, is steps of warm-up: in no table but their own.
bool is_warm_up(const Report& report, std::string_view stage);

// "-" for unknown.
std::string percent_or_dash(const OptDouble& frac);

// The share, or "≥ 41.0 %" where only a part of it is known.
std::string at_least_text(const OptDouble& frac, const OptDouble& at_least);

// "copy, 41.2 % of roof"; "-" for unknown.
std::string limit_of(const OptBound& bound, const OptDouble& of_roof);

// Stages worth a block of their own: at least 2 % of the recording, the longest first, at most four.
std::vector<const StageTiming*> main_stages(const Report& report);

// The mean over the steps of a stage.
double per_instance(const StageTiming& stage, double total);

// The line above a table.
std::string title(const Ink& ink, std::string_view text, std::string_view note = {});

// GPU busy share of a stage: from recorded activities; "~97 %" by hardware counter where those are missing.
std::string busy_text(const StageTiming& stage);

// "GPU idle is of recorded steps: decode 40 of 1,240", where a stage has others too; else nothing.
std::string text_recorded_steps(const Report& report, std::string_view what, const RenderOptions& options,
                                const Ink& ink);

// "TPOT 26.00 ms -> 6.335 ms"
std::string bound_text(const GainBound& bound);

// " (recording costs +1.2 % [0.8, 1.6] against unrecorded steps)" for the stage, or nothing if unknown.
std::string distortion_label(const Report& report, StageKind stage_kind);

// TTFT, TPOT and tokens per second: what requests typically take, the first one beside it.
std::string text_latency(const Report& report, const RenderOptions& options, const Ink& ink);
// The same, or why there are none.
std::string text_latency_or_why(const Report& report, const RenderOptions& options, const Ink& ink);
// A replay that is further off does not give steps back as they were recorded, and says nothing of what they consist
// of.
constexpr double kPathErrorMost = 0.05;

// All of it on one page of at most so many lines, below `head`: what was recorded, and warnings.
constexpr size_t kPageLines = 60;
std::string text_page(const Report& report, std::string_view head, const RenderOptions& options, const Ink& ink);

std::string text_verdict(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_stages(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_stage_steps(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_warm_up(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_where(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_measured(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_idle(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_undisturbed(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_what_ifs(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_critical_path(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_host(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_operators(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_profiled_kernels(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_logged_products(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_client_runs(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_servers(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_ranks(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_nccl(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_engine(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_joined_files(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_proton(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_kernels(const Report& report, const RenderOptions& options, const Ink& ink);
// "Simulated: TPOT 3.3 ms -> 1.7 ms (95 %: 1.6 ms to 1.8 ms)".
std::string gain_text(const FindingGain& gain);
// Where a finding is: "at Sampler.pick (serve.py:41)", or before it, where host code ends there.
std::string place_text(const FindingPlace& place);
std::string text_launch_places(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_host_places(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_launch_sites(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_allocators(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_memory(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_findings(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_cannot_tell(const Report& report, const RenderOptions& options, const Ink& ink);
std::string text_foot(const Report& report, const RenderOptions& options, const Ink& ink);

}  // namespace llmprof
