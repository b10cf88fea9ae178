#include "cli/measuring.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>

#include "base/nearest.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "cli/checks.h"

namespace llmprof::cli {
namespace {

constexpr size_t kLineWidth = 100;

// As PyTorch and configurations spell them.
struct Spelling {
  std::string_view typed, name;
};
constexpr Spelling kSpellings[] = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"},
                                   {"float32", "fp32"},  {"float", "fp32"},   {"float64", "fp64"},
                                   {"double", "fp64"},   {"fp8_e4m3", "fp8"}, {"float8_e4m3fn", "fp8"}};

std::string_view usual_spelling(std::string_view typed) {
  for (const Spelling& spelling : kSpellings)
    if (spelling.typed == typed) return spelling.name;
  return typed;
}

std::vector<std::string> dtype_names(std::span<const DType> sensible) {
  std::vector<std::string> names;
  for (const DType dtype : sensible) names.emplace_back(dtype_name(dtype));
  for (int i = 1; sensible.empty() && i < static_cast<int>(DType::kCount); ++i)
    names.emplace_back(dtype_name(static_cast<DType>(i)));
  return names;
}

constexpr double kBusyCores = 0.2;
constexpr std::chrono::milliseconds kBusyWindow{300};

// The driver's own memory on a GPU and one process's context, with room; and what more than that is called use.
constexpr int64_t kOwnGpuBytes = int64_t{2} << 30, kBusyGpuBytes = int64_t{1} << 30;
constexpr double kBusyGpuFrac = 0.05;
constexpr std::chrono::milliseconds kBusyGpuWindow{300};
constexpr int kBusyGpuLooks = 5;
constexpr size_t kProcessesNamed = 4;

// Clock ticks of all cores since boot that were not idle; -1 where /proc does not say.
double busy_ticks() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0;
  if (!(stat >> cpu >> user >> nice >> system)) return -1;
  return user + nice + system;
}

// Cores that other processes keep busy; 0 where /proc does not say.
double cores_busy_with_others() {
  const double before = busy_ticks();
  std::this_thread::sleep_for(kBusyWindow);
  const double after = busy_ticks(), ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (before < 0 || after < before || ticks_per_s <= 0) return 0;
  return (after - before) / ticks_per_s / std::chrono::duration<double>(kBusyWindow).count();
}

// "python3 (12), process 34": of those that this machine or container knows, the name as well.
std::string process_names(const std::vector<int64_t>& pids) {
  std::string text;
  for (size_t i = 0; i < std::min(pids.size(), kProcessesNamed); ++i) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", pids[i])), name);
    text += fmt::format("{}{}", i == 0 ? "" : ", ",
                        name.empty() ? fmt::format("process {}", pids[i]) : fmt::format("{} ({})", name, pids[i]));
  }
  if (pids.size() > kProcessesNamed) text += fmt::format(" and {} more", pids.size() - kProcessesNamed);
  return text;
}

}  // namespace

std::string busy_with_others(device::Device& device) {
  if (device.identity().kind == device::DeviceKind::kCpu) {
    const double cores = cores_busy_with_others();
    return cores > kBusyCores ? fmt::format("other programs keep {:.1f} cores busy", cores) : "";
  }
  device::Telemetry readings;
  // What has just ended still shows for about a second.
  for (int look = 0; look < kBusyGpuLooks; ++look) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::this_thread::sleep_for(kBusyGpuWindow);
    readings = device.telemetry(int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
    if (readings.busy_frac.value_or(0) <= kBusyGpuFrac) break;
  }
  const int64_t others = readings.used_bytes.value_or(0) - kOwnGpuBytes;
  const bool running = readings.busy_frac.value_or(0) > kBusyGpuFrac, holding = others > kBusyGpuBytes;
  std::string text;
  if (running) text = fmt::format("kernels of other programs run {:.0f} % of the time", *readings.busy_frac * 100);
  if (holding)
    text += fmt::format("{}other programs hold about {} of its memory", running ? ", and " : "",
                        format_bytes(static_cast<double>(others)));
  if (text.empty()) return text;
  const std::string names = process_names(device.other_processes());
  return names.empty() ? text : fmt::format("{}: {}", text, names);
}

Result<std::string> refuse_if_busy(device::Device& device, bool busy_ok, bool quiet) {
  std::string busy = busy_with_others(device);
  if (busy.empty()) return busy;
  const bool gpu = device.identity().kind == device::DeviceKind::kCuda;
  if (gpu && !busy_ok)
    return fail(fmt::format("this GPU is in use: {}", busy), fmt::format("cuda:{}", device.identity().ordinal),
                "nvidia-smi shows who; end them, take another GPU with --device, or measure all the same with "
                "--busy-ok, which marks every row");
  if (!quiet) complain(busy + ": times will be longer and less even");
  return busy;
}

void add_device_options(const Command& command, DeviceOptions& options) {
  command
      .option("--device", options.device,
              "cpu, cuda:N, or a uuid: GPU-..., MIG-... (default: the first GPU, else the CPU)")
      .type_name("NAME");
  command.option("--threads", options.threads, "threads of a CPU (default: all that the process may use)")
      .check(whole_number(1, 4096))
      .type_name("N");
  command.flag("--busy-ok", options.busy_ok, "measure a GPU that others use, too; its rows say so");
}

Result<std::unique_ptr<device::Device>> open_measured_device(const DeviceOptions& options, bool quiet) {
  LLMPROF_ASSIGN(std::unique_ptr<device::Device> device, device::open_device({options.device, options.threads}));
  if (options.device.empty() && device->identity().kind == device::DeviceKind::kCpu && !quiet)
    complain("no GPU can be used here (llmprof doctor says why): the CPU is measured");
  return device;
}

Result<std::vector<DType>> parse_dtypes(const std::vector<std::string>& names, std::span<const DType> sensible) {
  std::vector<DType> out;
  const std::vector<std::string> known = dtype_names(sensible);
  for (const std::string& name : names) {
    const std::optional<DType> dtype = parse_dtype(usual_spelling(name));
    const std::vector<std::string> near = nearest_names(name, known, 2);
    if (!dtype)
      return fail(fmt::format("expected a data type, found \"{}\"", name), "--dtype",
                  "--dtype " + join_or(near.empty() ? known : near), ExitCode::kUsage);
    out.push_back(*dtype);
  }
  return out;
}

Status check_writable(const std::string& path) {
  if (path.empty()) return {};
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  struct stat there {};
  const bool exists = stat(path.c_str(), &there) == 0;
  if (exists ? access(path.c_str(), W_OK) == 0 : access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return fail(std::string("cannot write the output: ") + std::strerror(errno), path,
              "choose a path in a folder that exists and that you may write to");
}

ProgressLine::ProgressLine(bool quiet) : on_(!quiet && can_redraw(STDERR_FILENO)) {}

void ProgressLine::show(const std::string& text) {
  if (!on_) return;
  // One column stays free: a full line would make some terminals begin the next one, which is then not written over.
  const Charset charset = locale_charset();
  const size_t width = std::max(terminal_width(STDERR_FILENO).value_or(kLineWidth + 1), kLeastWidth) - 1;
  const std::string line = ellipsize(printable(text, charset), std::min(width, kLineWidth), charset);
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

}  // namespace llmprof::cli
