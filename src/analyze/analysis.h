// analyze(): from a derived Trace to a Report. Each question is a pure function of a const Context that fills its own
// part of the Report; the list of questions is one constexpr array (registry.cc), printed by `llmprof list analyses`.
// Adding one: docs/howto/add-an-analysis.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyze/groups.h"
#include "analyze/launch_places.h"
#include "analyze/matched_products.h"
#include "analyze/undisturbed.h"
#include "base/result.h"
#include "derive/host_pace.h"
#include "hardware/measured.h"
#include "results/report.h"
#include "trace/trace.h"

namespace llmprof {

enum class SortKey : uint8_t { kTotal, kMean, kCalls, kName };

namespace replay {
struct WhatIf;
}

// A counterfactual to simulate (replay/what_if.h).
struct Change {
  const replay::WhatIf* what_if = nullptr;
  std::string gpu{};  // of the hardware table, of those that name one
  friend bool operator==(const Change&, const Change&) = default;
};
using Combination = std::vector<Change>;  // made together

struct AnalyzeOptions {
  std::string gpu{};    // a name of the hardware table instead of the recorded device
  std::string model{};  // an identifier of the model table or the path of a config.json; empty: recognise it
  int64_t batch = 0;    // sequences; 0: as the recording tells
  int64_t context = 0;  // tokens attended by a decode step; 0: as the recording tells
  size_t top = 0;       // kernels, roofline rows, launch sites and allocating operators kept; 0 keeps all
  SortKey sort = SortKey::kTotal;
  std::vector<Combination> what_ifs{};
  // A second run of the same program in light mode, derived; its step times tell what recording cost. Null: none.
  const Trace* baseline = nullptr;
  // Measured ceilings to choose from: those of the recorded device are taken, by its uuid, else by its name if only one
  // of them has it. `given`: the first is taken whatever it was measured on, and a difference is remarked on.
  std::vector<MeasuredCeilings> measured{};
  bool measured_given = false;
};

// What every analysis may read. report.device is filled before the analyses run, `device` points to it.
struct Context {
  const Trace& trace;
  const AnalyzeOptions& options;
  const Groups& groups;
  const DeviceReport* device;  // null if unknown
  const RecorderCosts& costs;  // of the recorder that made the recording, on its machine; empty: not known
  const ReplayedSteps& replayed;
  const UndisturbedTimes& undisturbed;
  const HostPace& host_pace;
  std::vector<LaunchPlace> launch_places = {};
  MatchedProducts products = {};
};

struct Analysis {
  std::string_view name;
  std::string_view description;
  // Fills the parts of the report named in the description, and nothing else: analyses of one phase run side by side.
  void (*run)(const Context&, Report&, std::vector<CannotTell>&);
  int phase;  // phase 1 may read what phase 0 wrote
};

std::span<const Analysis> analyses();

// Runs everything. `trace` must have been through derive(). Fails only on wrong options: an unknown GPU or model name.
Result<Report> analyze(const Trace& trace, const AnalyzeOptions& options = {});

// Leaves so many rows of the long tables, as AnalyzeOptions::top does; 0: all. Of launch sites those of so many
// kernels.
void keep_top(Report& report, size_t rows_most);

// Checks that totals add up: stages to windows, busy and idle to wall, categories, kernels and operators to the sum of
// GPU durations. All equalities are exact.
std::vector<ConservationCheck> check_conservation(const Trace& trace, const Report& report);

struct TimedStep {
  bool recorded = false;  // its kernels were; else it lies in unrecorded time
  double ns = 0;
};
// Of those that were recorded, or of the others.
std::vector<double> times_ns(const std::vector<TimedStep>& steps, bool recorded);

// Step times of one stage, in time order.
struct StageTimes {
  std::string stage;  // name without suffixes of missing kernels
  StageKind kind = StageKind::kOther;
  std::vector<TimedStep> steps;
};
std::vector<StageTimes> stage_times(const Trace& trace, const HostPace& host_pace);

// What recording did to step times: ratio of medians less 1, with a 95 % percentile bootstrap interval (1,000
// resamples, fixed seed). Empty with fewer than 5 steps on either side. Method is left to the caller.
std::optional<DistortionRecord> compare_step_times(const std::vector<double>& recorded_ns,
                                                   const std::vector<double>& unrecorded_ns);

// The functions of a stack of launch_sites that say who launched: innermost first, joined by " < ", at most three: the
// innermost that not every launch goes through, PyTorch's operator, and the first outside the usual libraries.
std::string launch_site(std::string_view stack);

// A sentence on how much of the GPU time without an operator (and idle time without a function before it) comes from
// the beginning of recorded windows, where `llmprof run --torch` had not begun to name; empty for none.
std::string unnamed_before_names(const Trace& trace);

// Mean, deviation and order statistics; empty for no samples. See Summary for the method.
std::optional<Summary> summarize(std::vector<double> samples);

// Whether the recording does not tell which steps are prompts and which make a token; then says why.
bool latency_is_unknown(const Trace& trace, std::vector<CannotTell>& cannot_tell);

// ---- the analyses, one file each ----
void analyze_latency(const Context&, Report&, std::vector<CannotTell>&);
void analyze_stages(const Context&, Report&, std::vector<CannotTell>&);
void analyze_stage_steps(const Context&, Report&, std::vector<CannotTell>&);
void analyze_warm_up(const Context&, Report&, std::vector<CannotTell>&);
void analyze_operators(const Context&, Report&, std::vector<CannotTell>&);
void analyze_kernels(const Context&, Report&, std::vector<CannotTell>&);
void analyze_profiled_kernels(const Context&, Report&, std::vector<CannotTell>&);
void analyze_logged_products(const Context&, Report&, std::vector<CannotTell>&);
void analyze_client_runs(const Context&, Report&, std::vector<CannotTell>&);
void analyze_client_stages(const Context&, Report&, std::vector<CannotTell>&);
void analyze_server_metrics(const Context&, Report&, std::vector<CannotTell>&);
void analyze_ranks(const Context&, Report&, std::vector<CannotTell>&);
void analyze_nccl_log(const Context&, Report&, std::vector<CannotTell>&);
void analyze_nccl_inspector(const Context&, Report&, std::vector<CannotTell>&);
void analyze_engine(const Context&, Report&, std::vector<CannotTell>&);
void analyze_proton(const Context&, Report&, std::vector<CannotTell>&);
void analyze_joined_files(const Context&, Report&, std::vector<CannotTell>&);
void analyze_launch_sites(const Context&, Report&, std::vector<CannotTell>&);
void analyze_categories(const Context&, Report&, std::vector<CannotTell>&);
void analyze_idle(const Context&, Report&, std::vector<CannotTell>&);
void analyze_host(const Context&, Report&, std::vector<CannotTell>&);
void analyze_host_places(const Context&, Report&, std::vector<CannotTell>&);
void analyze_launch_places(const Context&, Report&, std::vector<CannotTell>&);
void analyze_what_ifs(const Context&, Report&, std::vector<CannotTell>&);
void analyze_critical_path(const Context&, Report&, std::vector<CannotTell>&);
void analyze_memory(const Context&, Report&, std::vector<CannotTell>&);
void analyze_memory_snapshot(const Context&, Report&, std::vector<CannotTell>&);
void analyze_telemetry(const Context&, Report&, std::vector<CannotTell>&);
void analyze_overhead(const Context&, Report&, std::vector<CannotTell>&);
void analyze_coverage(const Context&, Report&, std::vector<CannotTell>&);
void diagnose(const Context&, Report&, std::vector<CannotTell>&);

}  // namespace llmprof
