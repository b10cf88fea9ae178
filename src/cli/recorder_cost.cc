#include "cli/recorder_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/input_file.h"
#include "base/json_document.h"
#include "base/record_json.h"
#include "base/record_reader.h"
#include "base/statistics.h"
#include "capture/launch/environment.h"
#include "capture/launch/launch.h"
#include "capture/launch/session_folder.h"
#include "capture/session/control.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/temporary_folder.h"
#include "device/cuda/call_costs.h"
#include "import/importer.h"

namespace llmprof::cli {
namespace {

constexpr const char* kCallCostsCommand = "call-costs";
constexpr double kSecondsEach = 0.12;
constexpr size_t kCostsBytesMax = size_t{1} << 20;

// ---- in the process that is timed ------------------------------------------------------------------------------

Status time_and_write(int ordinal, double seconds, const std::string& path) {
  LLMPROF_ASSIGN(const std::unique_ptr<device::cuda::Context> context, device::cuda::Context::open(ordinal));
  LLMPROF_ASSIGN(const std::vector<CallCost> costs, device::cuda::time_calls(*context, seconds));
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

// Medians of how long the recording says that these calls took, by kind; 0 of what is no call.
std::map<std::string, double> seen_calls(const Trace& trace, const std::vector<CallCost>& costs) {
  std::map<std::string, double> seen;
  for (const CallCost& cost : costs) {
    const std::string_view call = cost.name.starts_with("launch")  ? "cuLaunchKernel"
                                  : cost.name.starts_with("graph") ? "cuGraphLaunch"
                                  : cost.name == "wait"            ? "cuStreamSynchronize"
                                  : cost.name == "copy_in"         ? "cuMemcpyHtoDAsync"
                                                                   : "";
    std::vector<double> durations;
    for (Row row = 0; !call.empty() && row < trace.api_calls.size(); ++row) {
      const int64_t start = trace.api_calls.start_ns[row] + trace.base_unix_ns;
      if (start < cost.start_unix_ns || start > cost.end_unix_ns) continue;
      if (trace.text(trace.api_calls.name[row]).starts_with(call))
        durations.push_back(static_cast<double>(trace.api_calls.dur_ns[row]));
    }
    seen[cost.name] = durations.empty() ? 0 : median_of(std::move(durations));
  }
  return seen;
}

struct Timed {
  std::vector<CallCost> costs;
  std::map<std::string, double> seen;
};

Result<Timed> run_once(int ordinal, bool recorded, const std::string& folder) {
  std::error_code none;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", none).string();
  const std::string results = folder + "/costs.json";
  launch::LaunchOptions plan;
  plan.command = {self, kCallCostsCommand, "--gpu", std::to_string(ordinal), "--output", results};
  plan.level = recorded ? spool::Level::kDefault : spool::Level::kLight;
  plan.unrecorded = plan.adapt = plan.counters = false;
  plan.quiet = true;
  LLMPROF_ASSIGN(plan.program, launch::find_program(self, nullptr));
  LLMPROF_ASSIGN(plan.folder, launch::create_session_folder(folder + "/session", {}, {}));
  LLMPROF_ASSIGN(const launch::LaunchOutcome outcome, launch::launch(plan));
  if (outcome.exit_code != 0)
    return fail(fmt::format("the process whose calls were to be timed ended with {}", outcome.exit_code));
  Timed timed;
  LLMPROF_ASSIGN(timed.costs, read_costs(results));
  if (recorded) {
    LLMPROF_ASSIGN(const Trace trace, import_files({plan.folder}));
    timed.seen = seen_calls(trace, timed.costs);
    if (timed.seen["launch_0k"] <= 0) return fail("expected recorded launches, found none: CUPTI does not record here");
  }
  return timed;
}

}  // namespace

Result<RecorderCosts> measure_recorder_costs(int ordinal, int pairs) {
  if (std::getenv(session::kEnvFolder) != nullptr)
    return fail("what recording costs cannot be measured in a process that is recorded itself");
  std::map<std::string, std::vector<double>> plain, recorded, seen, between;
  for (int pair = 0; pair < pairs; ++pair) {
    std::map<std::string, double> between_plain;
    // Alternately first, so that what drifts is in both.
    for (const bool record : {pair % 2 == 1, pair % 2 == 0}) {
      const TemporaryFolder folder;
      if (folder.path().empty()) return fail("cannot make a folder for temporary files", "TMPDIR");
      LLMPROF_ASSIGN(Timed timed, run_once(ordinal, record, folder.path()));
      for (const CallCost& cost : timed.costs) {
        (record ? recorded : plain)[cost.name].push_back(cost.call_ns);
        between[cost.name].push_back(record ? cost.between_ns : -cost.between_ns);
        if (record) seen[cost.name].push_back(timed.seen[cost.name]);
      }
    }
  }
  RecorderCosts costs;
  for (const auto& [name, times] : recorded) {
    if (plain[name].size() != times.size()) continue;
    RecorderCost& cost = costs[name];
    cost.plain_ns = median_of(plain[name]);
    cost.recorded_ns = median_of(times);
    cost.seen_ns = median_of(seen[name]);
    std::vector<double> differences, own;
    for (size_t i = 0; i < times.size(); ++i) {
      differences.push_back(times[i] - plain[name][i]);
      own.push_back(between[name][2 * i] + between[name][2 * i + 1]);
    }
    cost.between_ns = median_of(std::move(own));
    const auto [least, most] = std::minmax_element(differences.begin(), differences.end());
    cost.spread_ns = *most - *least;
  }
  return costs;
}

void add_call_costs(Parser& parser) {
  struct Options {
    int gpu = 0;
    double seconds = kSecondsEach;
    std::string output;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  const Command command = parser.add_command(kCallCostsCommand, "time calls of CUDA in this process");
  command.hide();
  command.option("--gpu", options->gpu, "CUDA number of the GPU").check(whole_number(0, 1024));
  command.option("--seconds", options->seconds, "for each kind of call").check(decimal_number(0.001, 60.0));
  command.option("--output", options->output, "file for the times; standard output without it");
  command.action([options] {
    const Status status = time_and_write(options->gpu, options->seconds, options->output);
    return status ? 0 : report_error(status.error());
  });
}

}  // namespace llmprof::cli
