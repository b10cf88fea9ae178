#include "cli/recorder_cost.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>
#include <tuple>

#include "base/clock.h"
#include "base/input_file.h"
#include "base/json_document.h"
#include "base/pace_work.h"
#include "base/record_json.h"
#include "base/record_reader.h"
#include "base/statistics.h"
#include "capture/launch/control_page.h"
#include "capture/launch/environment.h"
#include "capture/launch/launch.h"
#include "capture/launch/session_folder.h"
#include "capture/session/control.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/temporary_folder.h"
#include "device/cuda/call_costs.h"
#include "import/importer.h"
#include "nvidia/cupti_library.h"

namespace llmprof::cli {
namespace {

constexpr const char* kCallCostsCommand = "call-costs";
constexpr double kSecondsEach = 0.02;      // of each kind of call in a turn
constexpr double kSecondsToSwitch = 0.25;  // for CUPTI to come or go, once the recorder knows that it is to
constexpr double kSecondsToKnow = 2;
constexpr int64_t kBetweenMostNs = 10'000;  // between two kernels that are queued
constexpr size_t kCostsBytesMax = size_t{1} << 20;

// ---- in the process that is timed ------------------------------------------------------------------------------

// The level that this process says it records at.
bool records_at(const session::Control& control, spool::Level level) {
  for (const session::Slot& slot : control.slots)
    if (slot.process_id.load() == getpid()) return slot.level.load() == static_cast<uint32_t>(level);
  return false;
}

// Whether CUPTI can leave this process when it has made graphs, as the recorder judges it (capture/inject/cupti).
bool cupti_leaves_graphs() {
  nvidia::CuptiLibrary cupti;  // the one that the recorder has loaded
  std::string none;
  return cupti.open(none) && cupti.version >= cupti::kVersion13_0;
}

// Records in even turns; without graphs in turns, at the end too.
Result<std::vector<CallCost>> time_in_turns(device::cuda::Context& context, double seconds, int pairs,
                                            bool graphs_last) {
  const char* const session = std::getenv(session::kEnvFolder);
  if (pairs == 0 || session == nullptr) return device::cuda::time_calls(context, seconds);
  LLMPROF_ASSIGN(const launch::ControlPage control, launch::ControlPage::open(session));
  const device::cuda::SwitchRecorder switch_recorder = [&](int turn) -> Status {
    const spool::Level level = turn % 2 == 0 || turn < 0 ? spool::Level::kDefault : spool::Level::kOff;
    control.set_level(level);
    const int64_t until = monotonic_ns() + static_cast<int64_t>(kSecondsToKnow * 1e9);
    while (!records_at(*control, level) && monotonic_ns() < until)
      LLMPROF_CHECK(device::cuda::settle(context, kSecondsToSwitch / 10));
    return device::cuda::settle(context, kSecondsToSwitch);
  };
  return device::cuda::time_calls(context, seconds, 2 * pairs, switch_recorder, !graphs_last && cupti_leaves_graphs());
}

Status time_and_write(int ordinal, double seconds, int pairs, bool graphs_last, const std::string& path) {
  // The recorder, which is in this process, looks when CUDA starts.
  setenv(session::kEnvCapturesRecorded, "1", 1);
  LLMPROF_ASSIGN(const std::unique_ptr<device::cuda::Context> context, device::cuda::Context::open(ordinal));
  LLMPROF_ASSIGN(const std::vector<CallCost> costs, time_in_turns(*context, seconds, pairs, graphs_last));
  JsonWriter json;
  json.begin_object().key("costs").begin_array();
  for (const CallCost& cost : costs) write_record(json, cost);
  json.end_array().end_object();
  return write_output(json.take(), path);
}

// ---- in the process that starts it -----------------------------------------------------------------------------

Result<std::vector<CallCost>> read_costs(const std::string& path) {
  LLMPROF_ASSIGN(InputFile file, InputFile::open(path));
  LLMPROF_ASSIGN(const std::string text, file.read_all(kCostsBytesMax, "times of calls"));
  LLMPROF_ASSIGN(const JsonDocument document, JsonDocument::parse(text));
  std::vector<CallCost> costs;
  for (const JsonValue row : document.root()["costs"].entries()) {
    CallCost cost;
    RecordReader reader(row, 256);
    cost.for_each_field(reader);
    if (!reader.wrong().empty()) return fail("expected times of calls, found none of " + reader.wrong(), path);
    costs.push_back(std::move(cost));
  }
  return costs;
}

// The calls that the recording shows of those that were timed; empty for what is no call.
std::string_view call_named(std::string_view cost) {
  return cost == "launch_wait"        ? ""
         : cost.starts_with("launch") ? "cuLaunchKernel"
         : cost.starts_with("graph")  ? "cuGraphLaunch"
         : cost == "wait"             ? "cuStreamSynchronize"
         : cost == "copy_in"          ? "cuMemcpyHtoDAsync"
                                      : "";
}

// Mean time from the end of a kernel to the start of the next one, both queued or both nodes of one launch, in the
// recording. With a kernel on all of the GPU none begins before the one ahead of it has ended.
double seen_between_ns(const Trace& trace, const CallCost& cost, bool nodes) {
  const GpuOps& ops = trace.gpu_ops;
  double sum = 0;
  int64_t count = 0;
  for (Row row = 1; row < ops.size(); ++row) {
    const int64_t before = ops.start_ns[row - 1] + trace.base_unix_ns;
    if (before < cost.start_unix_ns || before > cost.end_unix_ns) continue;
    if (!nodes ? ops.graph_node[row] != 0 : ops.graph_node[row - 1] == 0) continue;
    if (nodes != (ops.correlation[row] == ops.correlation[row - 1])) continue;
    // Behind the last of a sample comes the wait of the host.
    if (!nodes && ops.start_ns[row] - ops.start_ns[row - 1] - ops.dur_ns[row - 1] > kBetweenMostNs) continue;
    sum += static_cast<double>(ops.start_ns[row] - ops.start_ns[row - 1] - ops.dur_ns[row - 1]);
    ++count;
  }
  return count == 0 ? 0 : std::max(0.0, sum / static_cast<double>(count));
}

// Median of how long the recording says that these calls took; of kernels and nodes, how far apart it says that they
// lay; 0 of what is neither.
double seen_ns(const Trace& trace, const CallCost& cost) {
  if (cost.name == "gpu_kernel" || cost.name == "gpu_node")
    return seen_between_ns(trace, cost, cost.name == "gpu_node");
  const std::string_view call = call_named(cost.name);
  std::vector<double> durations;
  for (Row row = 0; !call.empty() && row < trace.api_calls.size(); ++row) {
    const int64_t start = trace.api_calls.start_ns[row] + trace.base_unix_ns;
    if (start < cost.start_unix_ns || start > cost.end_unix_ns) continue;
    if (trace.text(trace.api_calls.name[row]).starts_with(call))
      durations.push_back(static_cast<double>(trace.api_calls.dur_ns[row]));
  }
  return durations.empty() ? 0 : median_of(std::move(durations));
}

// What the recorder did all the while that calls were timed: recorded them, or was out of the process; else nothing.
enum class Recorder : uint8_t { kIn, kOut, kNeither };
Recorder recorder_during(const Trace& trace, const CallCost& cost) {
  const Recorded& spans = trace.recorded;
  for (Row row = 0; row < spans.size(); ++row) {
    const int64_t start = spans.start_ns[row] + trace.base_unix_ns;
    if (cost.start_unix_ns < start || cost.end_unix_ns > start + spans.dur_ns[row]) continue;
    if (spans.level[row] >= RecordingLevel::kDefault) return Recorder::kIn;
    return trace.text(spans.reason[row]) == "detached" ? Recorder::kOut : Recorder::kNeither;
  }
  return Recorder::kNeither;
}

struct Timed {
  std::vector<CallCost> costs;
  Trace trace;
};

Result<Timed> run_once(int ordinal, int pairs, bool graphs_last, const std::string& folder) {
  std::error_code none;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", none).string();
  const std::string results = folder + "/costs.json";
  launch::LaunchOptions plan;
  plan.command = {self,      kCallCostsCommand,     "--gpu",    std::to_string(ordinal),
                  "--pairs", std::to_string(pairs), "--output", results};
  if (graphs_last) plan.command.push_back("--graphs-last");
  plan.level = pairs > 0 ? spool::Level::kDefault : spool::Level::kLight;
  plan.unrecorded = plan.adapt = plan.counters = false;
  plan.quiet = true;
  LLMPROF_ASSIGN(plan.program, launch::find_program(self, nullptr));
  LLMPROF_ASSIGN(plan.folder, launch::create_session_folder(folder + "/session", {}, {}));
  LLMPROF_ASSIGN(const launch::LaunchOutcome outcome, launch::launch(plan));
  if (outcome.exit_code != 0)
    return fail(fmt::format("the process whose calls were to be timed ended with {}", outcome.exit_code));
  Timed timed;
  LLMPROF_ASSIGN(timed.costs, read_costs(results));
  if (pairs == 0) return timed;
  LLMPROF_ASSIGN(timed.trace, import_files({plan.folder}));
  return timed;
}

// What a probe of the host's pace takes: at best, and half of the time. On one CPU after the other, for each may be
// slow for seconds, and no two at a time, for they may be halves of one core.
RecorderCost host_pace() {
  constexpr int kProbesOfCpu = 12;
  constexpr size_t kCpusMost = 32;
  using namespace std::chrono_literals;
  std::vector<double> took_ns;
  std::thread([&took_ns] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    size_t cpus = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && cpus < kCpusMost; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
      ++cpus;
      for (int i = 0; i < kProbesOfCpu; ++i) {
        std::this_thread::sleep_for(500us);
        took_ns.push_back(static_cast<double>(timed_pace_work_ns()));
      }
    }
  }).join();
  if (took_ns.empty()) return {};
  std::sort(took_ns.begin(), took_ns.end());
  RecorderCost cost;
  cost.plain_ns = quantile_of_sorted(took_ns, 0.05);
  cost.recorded_ns = median_of(took_ns);
  cost.spread_ns = took_ns.back() - took_ns.front();
  return cost;
}

// What one kind of call took, with and without the recorder.
struct Times {
  std::vector<CallCost> plain, recorded;
  std::vector<double> seen;  // one for each of `recorded`
};

// Those at the full pace of the host, by what the quickest probe of all took; all where there are none. What the GPU
// does has no pace.
std::vector<CallCost> at_full_pace(const std::vector<CallCost>& rows, double best_ns) {
  std::vector<CallCost> out;
  for (const CallCost& row : rows)
    if (row.pace_ns * kFullPace <= best_ns) out.push_back(row);
  return out.empty() ? rows : out;
}

std::vector<double> sorted(const std::vector<CallCost>& rows, double CallCost::*field) {
  std::vector<double> out;
  for (const CallCost& row : rows) out.push_back(row.*field);
  std::sort(out.begin(), out.end());
  return out;
}

// By how much the differences of two sorted lists differ; 0 of less than two.
double spread_of(const std::vector<double>& alone, const std::vector<double>& with) {
  const size_t pairs = std::min(alone.size(), with.size());
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (size_t i = 0; i < pairs; ++i) {
    least = std::min(least, with[i] - alone[i]);
    most = std::max(most, with[i] - alone[i]);
  }
  return pairs == 0 ? 0 : most - least;
}

// The quickest where none is at full pace, for a host that is a virtual machine may be slow for whole turns.
RecorderCost cost_of(std::string_view kind, const Times& times, double best_ns) {
  const bool of_gpu = kind.starts_with("gpu_");
  const std::vector<CallCost> plain = of_gpu ? times.plain : at_full_pace(times.plain, best_ns);
  const std::vector<CallCost> recorded = of_gpu ? times.recorded : at_full_pace(times.recorded, best_ns);
  const std::vector<double> alone = sorted(plain, &CallCost::call_ns), with = sorted(recorded, &CallCost::call_ns);
  const auto is_full = [&](const std::vector<CallCost>& rows) {
    return of_gpu || rows.front().pace_ns * kFullPace <= best_ns;
  };
  RecorderCost cost;
  cost.plain_ns = is_full(plain) ? median_of(alone) : alone.front();
  cost.recorded_ns = is_full(recorded) ? median_of(with) : with.front();
  // As seen by the row that is nearest.
  double nearest = HUGE_VAL;
  for (size_t i = 0; i < times.recorded.size(); ++i) {
    const double off = std::fabs(times.recorded[i].call_ns - cost.recorded_ns);
    if (off < nearest) nearest = off, cost.seen_ns = times.seen[i];
  }
  if (of_gpu) cost.seen_ns = median_of(times.seen);
  cost.between_ns =
      median_of(sorted(recorded, &CallCost::between_ns)) - median_of(sorted(plain, &CallCost::between_ns));
  // One pair has no spread that is known, and 0 would be read as certainty: that of all turns then, which is wider.
  cost.spread_ns = std::min(alone.size(), with.size()) > 1
                       ? spread_of(alone, with)
                       : spread_of(sorted(times.plain, &CallCost::call_ns), sorted(times.recorded, &CallCost::call_ns));
  return cost;
}

bool is_of_graphs(std::string_view kind) {
  return kind.starts_with("graph") || kind == "gpu_node" || kind == "gpu_graph";
}

using KindTimes = std::map<std::string, Times>;

// One process, in which the recorder comes and goes.
Result<KindTimes> take_turns(int ordinal, int pairs, bool graphs_last) {
  const TemporaryFolder folder;
  if (folder.path().empty()) return fail("cannot make a folder for temporary files", "TMPDIR");
  LLMPROF_ASSIGN(const Timed timed, run_once(ordinal, pairs, graphs_last, folder.path()));
  KindTimes kinds;
  for (const CallCost& cost : timed.costs) {
    const Recorder recorder = recorder_during(timed.trace, cost);
    Times& times = kinds[cost.name];
    if (recorder == Recorder::kIn) {
      times.recorded.push_back(cost);
      times.seen.push_back(seen_ns(timed.trace, cost));
    } else if (recorder == Recorder::kOut) {
      times.plain.push_back(cost);
    }
  }
  return kinds;
}

// Where CUPTI did not leave a process that had graphs, a second one without it tells what they take alone.
Status time_graphs_alone(int ordinal, KindTimes& kinds) {
  const auto lacks = [&](const std::string& name) { return is_of_graphs(name) && kinds[name].plain.empty(); };
  if (std::none_of(kinds.begin(), kinds.end(), [&](const auto& kind) { return lacks(kind.first); })) return {};
  const TemporaryFolder folder;
  if (folder.path().empty()) return fail("cannot make a folder for temporary files", "TMPDIR");
  LLMPROF_ASSIGN(const Timed alone, run_once(ordinal, 0, true, folder.path()));
  for (const CallCost& cost : alone.costs) {
    if (!lacks(cost.name)) continue;
    kinds[cost.name].plain.push_back(cost);
  }
  return {};
}

}  // namespace

Result<RecorderCosts> measure_recorder_costs(int ordinal, int pairs) {
  if (std::getenv(session::kEnvFolder) != nullptr)
    return fail("what recording costs cannot be measured in a process that is recorded itself");
  LLMPROF_ASSIGN(KindTimes kinds, take_turns(ordinal, pairs, false));
  // A driver that does not let CUPTI leave once there are graphs, whatever its version says: they come last.
  if (kinds["launch_0k"].plain.empty()) {
    LLMPROF_ASSIGN(kinds, take_turns(ordinal, pairs, true));
  }
  const Times& launches = kinds["launch_0k"];
  if (launches.recorded.empty() || median_of(launches.seen) <= 0)
    return fail("expected recorded launches, found none: CUPTI does not record here");
  if (launches.plain.empty()) return fail("expected CUPTI to leave the process when recording stops, and it did not");
  LLMPROF_CHECK(time_graphs_alone(ordinal, kinds));
  RecorderCosts costs;
  const RecorderCost pace = host_pace();
  if (pace.plain_ns > 0) costs[kHostPaceCost] = pace;
  double best_ns = pace.plain_ns;
  for (const auto& [name, times] : kinds)
    for (const std::vector<CallCost>& rows : {times.plain, times.recorded})
      for (const CallCost& row : rows) best_ns = std::min(best_ns, row.pace_ns);
  for (const auto& [name, times] : kinds)
    if (!times.plain.empty() && !times.recorded.empty()) costs[name] = cost_of(name, times, best_ns);
  return costs;
}

void add_call_costs(Parser& parser) {
  struct Options {
    int gpu = 0, pairs = 0;
    bool graphs_last = false;
    double seconds = kSecondsEach;
    std::string output;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  const Command command = parser.add_command(kCallCostsCommand, "time calls of CUDA in this process");
  command.hide();
  command.option("--gpu", options->gpu, "CUDA number of the GPU").check(whole_number(0, 1024));
  command.option("--seconds", options->seconds, "for each kind of call").check(decimal_number(0.001, 60.0));
  command.option("--pairs", options->pairs, "how often the recorder of this process comes and goes meanwhile")
      .check(whole_number(0, 1000));
  command.flag("--graphs-last", options->graphs_last, "graphs once, behind all turns");
  command.option("--output", options->output, "file for the times; standard output without it");
  command.action([options] {
    const Status status =
        time_and_write(options->gpu, options->seconds, options->pairs, options->graphs_last, options->output);
    return status ? 0 : report_error(status.error());
  });
}

}  // namespace llmprof::cli
