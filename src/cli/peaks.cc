// `llmprof peaks`: the measured ceilings of a device, kept for later reports.
#include "bench/peaks.h"

#include <fmt/format.h>

#include "bench/peak_rows.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/measuring.h"
#include "cli/recorder_cost.h"
#include "cli/stored_run.h"
#include "hardware/measured.h"
#include "kernels/op.h"

namespace llmprof::cli {
namespace {

struct PeaksArguments {
  DeviceOptions device;
  std::vector<std::string> dtypes;
  bool quick = false, no_store = false, recorder_only = false;
  OutputOptions output;
};

// The sentence about the ceilings file. Ceilings of a part of the data types join those that are kept already, and are
// never kept alone: reports would take them for all that there is, and have no figure for the rest.
std::string store(const bench::Peaks& peaks, const PeaksArguments& options) {
  if (options.no_store) return "not kept (--no-store)";
  MeasuredCeilings ceilings = bench::ceilings_of(peaks);
  ceilings.tool_version = LLMPROF_VERSION;
  const std::string path = ceilings_path(ceilings.device_key);
  std::string stay;
  const Result<MeasuredCeilings> before = read_ceilings(path);
  const bool joins = before && before->driver == ceilings.driver;
  const bool part = !options.dtypes.empty() || peaks.interrupted || options.recorder_only;
  if (!peaks.rows.empty() && part && !joins)
    return fmt::format("not kept: reports need all figures, and these are a part; llmprof peaks {} measures all",
                       options.dtypes.empty() ? "that is not interrupted" : "without --dtype");
  if (before) {
    MergedCeilings merged = merge_ceilings(*before, ceilings);
    ceilings = std::move(merged.ceilings);
    if (merged.fuller > 0) stay += fmt::format(", but {} that were measured in full before stay", merged.fuller);
    if (merged.better > 0)
      stay +=
          fmt::format(", but {} that were better before stay, since other programs had cores meanwhile", merged.better);
  }
  if (peaks.rows.empty() && peaks.recorder_ns.empty()) return "nothing was measured, so nothing is kept";
  const Status status = write_ceilings(path, ceilings);
  if (!status) return "not kept: " + status.error().text();
  return fmt::format("kept in {}{}; later reports use it", path, stay);
}

// What was asked for by name and cannot be measured is no remark beside other figures.
Status check_device(const PeaksArguments& options, const device::Device& device) {
  if (options.recorder_only && device.identity().kind != device::DeviceKind::kCuda)
    return fail("expected a GPU, found a CPU: what `llmprof run` costs is measured on calls of CUDA", "--recorder-only",
                "llmprof peaks --device cpu measures what the CPU can do", ExitCode::kUsage);
  LLMPROF_ASSIGN(const std::vector<DType> dtypes, parse_dtypes(options.dtypes));
  for (const DType dtype : dtypes)
    if (const std::optional<std::string> why = bench::why_no_arithmetic(device, kernels::operations(), dtype))
      return fail(
          fmt::format("expected data types that this device can measure, found {}: {}", dtype_name(dtype), *why),
          "--dtype", "leave it out; without --dtype all that the device has are measured", ExitCode::kUsage);
  return {};
}

constexpr int kCostPairs = 9, kQuickCostPairs = 5;

// What recording costs on this GPU goes with its ceilings; a failure is a remark.
void measure_recorder(const PeaksArguments& options, const device::Device& device, bench::Peaks& peaks) {
  if (device.identity().kind != device::DeviceKind::kCuda) return;
  Result<RecorderCosts> costs =
      measure_recorder_costs(device.identity().ordinal, options.quick ? kQuickCostPairs : kCostPairs);
  if (costs)
    peaks.recorder_ns = *std::move(costs);
  else
    peaks.remarks.push_back("what recording costs was not measured: " + costs.error().what);
}

Result<bench::Peaks> measure(const PeaksArguments& options, device::Device& device, const std::atomic<bool>& stop) {
  bench::PeaksOptions peaks;
  peaks.operations = kernels::operations();
  peaks.quick = options.quick;
  LLMPROF_ASSIGN(peaks.dtypes, parse_dtypes(options.dtypes));
  ProgressLine progress(options.output.quiet);
  int done = 0;
  peaks.begin = [&](const std::string& what) { progress.show(fmt::format("{} measured; now {}", done, what)); };
  bench::Peaks out;
  if (options.recorder_only) {
    out.device = device.identity();
  } else {
    LLMPROF_ASSIGN(out, bench::measure_peaks(device, peaks, stop, [&](const bench::PeakRow&) { ++done; }));
  }
  if (out.interrupted || (!options.dtypes.empty() && !options.recorder_only)) return out;
  peaks.begin("what recording costs");
  measure_recorder(options, device, out);
  return out;
}

Status check(const PeaksArguments& options) {
  if (options.recorder_only && !options.dtypes.empty())
    return fail("--recorder-only measures no arithmetic: expected no --dtype beside it, found one", "--dtype",
                "leave one of the two out", ExitCode::kUsage);
  LLMPROF_CHECK(parse_dtypes(options.dtypes, bench::peak_dtypes(kernels::operations())));
  LLMPROF_CHECK(check_folder(options.output, "llmprof peaks --format csv -o peaks"));
  return check_writable(options.output.path);
}

int run(const PeaksArguments& options) {
  if (const Status status = check(options); !status) return report_error(status.error());
  const Result<std::unique_ptr<device::Device>> device = open_measured_device(options.device, options.output.quiet);
  if (!device) return report_error(device.error());
  if (const Status status = check_device(options, **device); !status) return report_error(status.error());
  const Result<std::string> busy = refuse_if_busy(**device, options.device.busy_ok, options.output.quiet);
  if (!busy) return report_error(busy.error());
  StoredRun stored(RunKind::kPeaks, !options.no_store, options.output.quiet);
  const Interrupt interrupt(options.output.quiet);
  Result<bench::Peaks> peaks = measure(options, **device, interrupt.flag());
  if (!peaks) return report_error(peaks.error());
  peaks->busy = !busy->empty();
  if (peaks->busy) peaks->remarks.push_back("measured while " + *busy);
  bench::PeaksResult result = bench::peaks_result(*peaks, LLMPROF_VERSION);
  result.kept = store(*peaks, options);
  const Status written = write_result(result, options.output);
  if (!written) return report_error(written.error());
  if (!options.output.is_text() && !options.output.quiet) complain(result.kept);
  stored.manifest().name = result.device.name;
  if (!peaks->rows.empty() || !peaks->recorder_ns.empty()) stored.take(result);
  stored.keep();
  if (peaks->interrupted) return kInterruptedExit;
  return peaks->rows.empty() && peaks->recorder_ns.empty() ? static_cast<int>(ExitCode::kFailed) : 0;
}

}  // namespace

void add_peaks(Parser& parser) {
  const std::shared_ptr<PeaksArguments> options = std::make_shared<PeaksArguments>();
  const Command command = parser.add_command(
      "peaks", "measure what this device can do at most: FLOP/s per data type, bandwidths, ridge points");
  add_device_options(command, options->device);
  command.option("--dtype", options->dtypes, "data types of the arithmetic (default: all that the device has)")
      .delimiter(',')
      .type_name("LIST");
  command.flag("--quick", options->quick, "shorter, and less exact");
  command.flag("--recorder-only", options->recorder_only, "only what `llmprof run` costs a program on this GPU: 10 s");
  command.flag("--no-store", options->no_store,
               "do not keep the ceilings for later reports, nor the result in the run store");
  add_output_options(command, options->output);
  command.footer("Example:  llmprof peaks --device cpu --quick");
  command.action([options] { return run(*options); });
}

}  // namespace llmprof::cli
