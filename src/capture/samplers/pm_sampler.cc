#include "capture/samplers/pm_sampler.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "capture/samplers/background.h"
#include "capture/samplers/permissions.h"
#include "capture/samplers/pm_session.h"
#include "capture/samplers/sample_series.h"
#include "capture/samplers/session_watch.h"
#include "capture/samplers/step_interval.h"
#include "capture/spool/writer.h"
#include "nvidia/find_cupti.h"
#include "nvidia/libraries.h"
#include "nvidia/nvml_library.h"

namespace llmprof::samplers {
namespace {

using cupti_profiler::Code;

constexpr int64_t kSecondNs = 1000000000;
// Decoding that falls behind (pm_load.h) or fills an image must be given less to decode. An image that is full because
// the sampler did not run for a while is no reason.
constexpr double kBusyFullMax = 0.7;
constexpr int64_t kMergedMaxNs = kSecondNs;

// What a failure is found out with, apart from CUPTI's own answer: the machine and NVML.
Observations observe(const std::string& gpu_uuid, int gpu_index) {
  Observations seen;
  observe_machine(seen);
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open();
  if (!nvml) return seen;
  seen.confidential = nvml->confidential();
  for (const nvidia::NvmlGpu& gpu : nvml->gpus()) {
    if (gpu_uuid.empty() ? gpu.index != gpu_index : gpu.uuid != gpu_uuid) continue;
    seen.mig = gpu.mig;
    seen.virtualization = gpu.virtualization;
    seen.gpm = gpu.gpm;
  }
  return seen;
}

int nvml_index(const std::string& gpu_uuid) {
  const Result<nvidia::NvmlLibrary> nvml = nvidia::NvmlLibrary::open();
  if (!nvml) return 0;
  for (const nvidia::NvmlGpu& gpu : nvml->gpus())
    if (gpu.uuid == gpu_uuid) return gpu.index;
  return 0;
}

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

struct Opened {
  std::unique_ptr<nvidia::CuptiProfilerLibrary> cupti;
  PmDevice device;
};

// The first copy of CUPTI that can sample this GPU. A copy that is too new for the driver, too old for PM sampling or
// does not know the chip makes way for the next; a missing permission or busy counters are the same for all.
PmResult<Opened> open_device(const std::vector<std::string>& paths, size_t ordinal, size_t metrics_max, PmFocus focus,
                             Observations& seen) {
  PmFailure first;
  bool tried = false;
  seen.cupti_found = false;
  seen.cupti_samples = false;
  for (const std::string& path : paths) {
    Result<nvidia::CuptiProfilerLibrary> library = nvidia::CuptiProfilerLibrary::open(path);
    if (!library) continue;
    seen.cupti_found = true;
    if (!library->has_pm_sampling()) continue;
    seen.cupti_samples = true;
    Opened opened;
    opened.cupti = std::make_unique<nvidia::CuptiProfilerLibrary>(std::move(*library));
    PmDevice support;
    PmResult<PmDevice> device = open_pm_device(*opened.cupti, ordinal, &support, metrics_max, focus);
    seen.support_vgpu = support.support_vgpu;
    seen.support_confidential = support.support_confidential;
    seen.support_wsl = support.support_wsl;
    seen.support_architecture = support.support_architecture;
    if (device) {
      opened.device = std::move(*device);
      return opened;
    }
    if (!tried) first = device.error();
    tried = true;
    const Code code = device.error().code;
    if (code != cupti_profiler::kNotInitialized && code != cupti_profiler::kInvalidChipName) break;
  }
  if (!tried) first = {cupti_profiler::kNotSupported, "", ""};
  return tl::unexpected<PmFailure>(first);
}

std::optional<nvidia::CudaDevice> find_device(const nvidia::CudaDevices& all, const std::string& uuid, int index) {
  for (const nvidia::CudaDevice& device : all.devices)
    if (uuid.empty() ? device.ordinal == index : device.uuid == uuid) return device;
  return std::nullopt;
}

class CounterSampler {
 public:
  explicit CounterSampler(const CounterSamplerOptions& options) : options_(options), watch_(options.folder) {}
  ~CounterSampler() { say_ready("unavailable"); }
  CounterSampler(const CounterSampler&) = delete;
  CounterSampler& operator=(const CounterSampler&) = delete;

  bool open_spool();
  void run();

 private:
  bool prepare();
  bool begin_session(SampleSeries::Break before);
  void end_session();
  void loop();
  int64_t period_ns() const;
  bool close_session();
  bool drain();
  PmSink sink();
  void follow_steps();
  void relieve(const char* why, SampleSeries::Break until);
  void restart(int64_t interval_ns, SampleSeries::Break until, bool core_only, const std::string& why);
  std::string keep_core();
  spool::Id define_metrics();
  void once_a_second();
  void bound_file();
  void report_missing();
  void explain_failure(const PmFailure& failure);
  void note(const char* key, const std::string& text, uint64_t count = 1) {
    writer_.add(spool::Note{writer_.text(key), writer_.text(text), count});
  }
  void fact(const char* key, const std::string& value) {
    writer_.add(spool::Fact{writer_.text(key), writer_.text(value)});
  }
  void say_ready(const std::string& line);
  std::string gpu_label() const { return "GPU " + std::to_string(options_.gpu_index); }

  CounterSamplerOptions options_;
  SessionWatch watch_;
  spool::Writer writer_;
  Observations seen_;
  Opened opened_;
  std::string uuid_;
  std::unique_ptr<SampleSeries> series_;
  std::unique_ptr<PmSession> session_;
  BackgroundSwitches switches_;
  int cpus_ = 1;
  int64_t interval_ns_ = 0;
  StepInterval steps_;
  uint32_t merges_ = 0;
  uint64_t lost_ = 0;
  int64_t gap_ns_ = 0;
  PmCost cost_;        // of the sessions that are over
  bool over_ = false;  // no further session is possible
};

bool CounterSampler::open_spool() {
  if (options_.gpu_index < 0) options_.gpu_index = nvml_index(options_.gpu_uuid);
  const std::string folder = options_.folder + "/samples";
  if (mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST) {
    const std::string path = folder + "/counters-" + std::to_string(options_.gpu_index) + ".spool";
    if (writer_.open(path.c_str(), "counters")) return true;
    errno = writer_.status().error;
  }
  print_error("llmprof: cannot write the counter samples below " + folder + ": " + std::strerror(errno) + "\n");
  return false;
}

void CounterSampler::say_ready(const std::string& line) {
  if (options_.ready_fd < 0) return;
  const std::string text = line + "\n";
  const ssize_t written = write(options_.ready_fd, text.data(), text.size());
  static_cast<void>(written);  // whoever asked may be gone
  close(options_.ready_fd);
  options_.ready_fd = -1;
}

void CounterSampler::explain_failure(const PmFailure& failure) {
  seen_.counters_code = failure.call.empty() ? Observations::kNotTried : failure.code;
  seen_.counters_call = failure.call;
  const std::vector<Explanation> why = explain(seen_);
  const char* key = "no-counters";
  std::string text = failure.text;
  if (!why.empty()) {
    key = why.front().key;
    text = why.front().message;
    if (!why.front().advice.empty()) text += " To change that: " + why.front().advice + ".";
  }
  note(key, gpu_label() + ": " + text);
  if (!failure.text.empty()) fact("counters_error", failure.text);
  say_ready(std::string("unavailable ") + key);
}

bool CounterSampler::prepare() {
  const Observations machine = observe(options_.gpu_uuid, options_.gpu_index);
  seen_ = machine;
  const Result<nvidia::CudaDevices> devices = nvidia::list_cuda_devices();
  if (!devices) {
    explain_failure({cupti_profiler::kUnknown, "cuInit", devices.error().what});
    return false;
  }
  const std::optional<nvidia::CudaDevice> device = find_device(*devices, options_.gpu_uuid, options_.gpu_index);
  if (!device) {
    explain_failure(
        {cupti_profiler::kInvalidDevice, "cuDeviceGet", "the CUDA driver does not list the GPU " + options_.gpu_uuid});
    return false;
  }
  std::vector<std::string> paths = {options_.cupti_path};
  if (options_.cupti_path.empty()) paths = nvidia::cupti_candidates(options_.program);
  PmResult<Opened> opened = open_device(paths, static_cast<size_t>(device->ordinal), options_.metrics_max,
                                        options_.operations ? PmFocus::kOperations : PmFocus::kBroad, seen_);
  if (!opened) {
    explain_failure(opened.error());
    return false;
  }
  opened_ = std::move(*opened);
  uuid_ = device->uuid;
  // What deep mode counts is added up, and a total needs nearly all of its time. On a busy GPU the whole set is more
  // than can be decoded; to find that out and restart was seen to lose 0.5 to 0.7 s of it.
  const std::string left_out = options_.operations ? keep_core() : std::string();
  if (!left_out.empty()) {
    note("recorder-note",
         gpu_label() + ": deep mode samples what FLOPs and memory traffic are counted with; with the " +
             "rest, decoding could not keep up on a busy GPU. The other modes try to sample " + left_out);
  }
  std::string names;
  for (const PmMetric& metric : opened_.device.set.metrics)
    names += (names.empty() ? "" : ",") + std::string(metric.column) + "=" + metric.metric;
  series_ = std::make_unique<SampleSeries>(opened_.device.set.metrics, define_metrics(),
                                           [this](const spool::GpuSample& sample) { writer_.add(sample); });
  fact("counters_gpu_uuid", device->uuid);
  fact("counters_pci_bus", device->pci_bus);
  fact("counters_chip", opened_.device.chip);
  fact("counters_cupti", opened_.cupti->path());
  fact("counters_cupti_version", nvidia::cupti_version_text(opened_.cupti->version()));
  fact("counters_metrics", names);
  return true;
}

spool::Id CounterSampler::define_metrics() {
  spool::MetricSetDef def;
  for (const PmMetric& metric : opened_.device.set.metrics) {
    if (def.count == static_cast<int32_t>(std::size(def.metrics))) break;
    def.metrics[def.count++] = writer_.text(metric.column);
  }
  def.source = writer_.text("pm-sampling");
  def.gpu_uuid = writer_.text(uuid_);
  return writer_.define(def);
}

bool CounterSampler::begin_session(SampleSeries::Break before) {
  watch_.tell(SessionWatch::Counting::kChanging);
  // The program's steps may be known by now. A longer interval that losses asked for stays.
  if (options_.interval_ns == 0) interval_ns_ = std::max(interval_ns_, default_interval_ns(watch_.step_ns(), cpus_));
  PmSessionConfig config;
  config.interval_ns = interval_ns_;
  series_->begin_session(before);
  PmResult<std::unique_ptr<PmSession>> session = PmSession::start(*opened_.cupti, opened_.device, config);
  if (!session) {
    over_ = true;
    explain_failure(session.error());
    return false;
  }
  session_ = std::move(*session);
  fact("counters_interval_ns", std::to_string(interval_ns_));
  fact("counters_started_ns", std::to_string(realtime_ns()));
  watch_.tell(SessionWatch::Counting::kOn);
  say_ready("sampling " + opened_.device.chip + " " + std::to_string(opened_.device.set.metrics.size()));
  return true;
}

PmSink CounterSampler::sink() {
  return [this](int64_t start_ns, int64_t end_ns, const double* values) { series_->add(start_ns, end_ns, values); };
}

// Whether all that was collected was passed on.
bool CounterSampler::close_session() {
  // What failed, failed before, or only lost the last samples.
  const PmResult<PmDrain> rest = session_->finish(sink());
  const PmCost cost = session_->cost();
  cost_.clean_ns += cost.clean_ns;
  cost_.decode_ns += cost.decode_ns;
  cost_.evaluate_ns += cost.evaluate_ns;
  session_.reset();
  return rest && !rest->overflow && !rest->full;
}

void CounterSampler::end_session() {
  if (session_ == nullptr) return;
  watch_.tell(SessionWatch::Counting::kChanging);
  close_session();
  watch_.tell(SessionWatch::Counting::kOff);
  series_->finish();
  fact("counters_stopped_ns", std::to_string(realtime_ns()));
}

// False if the session is of no further use.
bool CounterSampler::drain() {
  const PmResult<PmDrain> drained = session_->drain(sink());
  if (!drained) {
    explain_failure(drained.error());
    over_ = true;
    return false;
  }
  if (drained->overflow) {
    relieve("the hardware buffer overflowed", SampleSeries::Break::kLoss);
  } else if (drained->behind || (drained->full && drained->busy_frac > kBusyFullMax)) {
    relieve("decoding could not keep up", drained->full ? SampleSeries::Break::kLoss : SampleSeries::Break::kGap);
  }
  return session_ != nullptr;
}

void CounterSampler::follow_steps() {
  if (options_.interval_ns != 0) return;
  const int64_t step_ns = watch_.step_ns();
  const int64_t due_ns =
      steps_.due(monotonic_ns(), step_ns, default_interval_ns(step_ns, cpus_), interval_ns_, watch_.kernels_recorded());
  if (due_ns == 0) return;
  restart(due_ns, SampleSeries::Break::kGap, false, "the program's steps take " + format_ns(step_ns));
}

// Restarts with less to decode. No samples are taken in the time between the sessions, so one restart is to be enough:
// at twice the interval, and with the core of the set. On a GPU that is busy everywhere a longer interval alone was
// seen to cost as much CPU time as before, because the hardware writes by what it counts.
void CounterSampler::relieve(const char* why, SampleSeries::Break until) {
  restart(std::min(interval_ns_ * 2, kIntervalMaxNs), until, true,
          std::string(why) + " at an interval of " + format_ns(interval_ns_));
}

// What was collected is decoded first. Where all of it was, and nothing was lost before, the time until sampling runs
// again is a gap: it was chosen, and its length is said. Else it counts as lost samples, like what was lost.
void CounterSampler::restart(int64_t interval_ns, SampleSeries::Break until, bool core_only, const std::string& why) {
  const int64_t begin_ns = monotonic_ns();
  watch_.tell(SessionWatch::Counting::kChanging);
  if (!close_session()) until = SampleSeries::Break::kLoss;
  const int64_t closed_ns = monotonic_ns();
  report_missing();
  if (watch_.finished()) return;
  const std::string left_out = core_only ? keep_core() : std::string();
  if (!left_out.empty()) {
    const spool::Id set = define_metrics();
    series_->change_metrics(opened_.device.set.metrics, set);
  }
  interval_ns_ = interval_ns;
  const int64_t opening_ns = monotonic_ns();
  if (!begin_session(until)) return;
  note("recorder-note", gpu_label() + ": " + why + "; counters are sampled every " + format_ns(interval_ns_) +
                            " from here on" + (left_out.empty() ? "" : ", without " + left_out));
  fact("counters_restart_close_open_ms", std::to_string((closed_ns - begin_ns) / 1000000) + " " +
                                             std::to_string((monotonic_ns() - opening_ns) / 1000000));
}

// Leaves the core of the set, and returns the columns that went.
std::string CounterSampler::keep_core() {
  std::vector<PmMetric>& metrics = opened_.device.set.metrics;
  const size_t core = core_size(opened_.device.set);
  std::string left_out;
  for (size_t i = core; i < metrics.size(); ++i)
    left_out += (left_out.empty() ? "" : ", ") + std::string(metrics[i].column);
  metrics.resize(core);
  return left_out;
}

void CounterSampler::report_missing() {
  for (const auto& [column, count] : series_->take_impossible())
    note("impossible-counter", gpu_label() + ": " + std::string(column), count);
  if (const int64_t gap_ns = series_->take_gap_ns(); gap_ns > 0) {
    gap_ns_ += gap_ns;
    note("counter-gap", gpu_label() + ": " + format_ns(gap_ns));
  }
  const uint64_t lost = series_->take_lost();
  lost_ += lost;
  if (lost == 0) return;
  note("counter-samples-lost", gpu_label() + ": samples lost at an interval of " + format_ns(interval_ns_), lost);
}

// Half of the cap at full resolution, then half the rate at every further sixteenth of it.
void CounterSampler::bound_file() {
  const uint64_t bytes = writer_.status().bytes_written;
  const uint64_t limit = options_.file_cap_bytes / 2 + merges_ * (options_.file_cap_bytes / 16);
  const int64_t longer_ns = series_->last_duration_ns() * series_->merge() * 2;
  if (bytes < limit || longer_ns > kMergedMaxNs) return;
  ++merges_;
  series_->set_merge(series_->merge() * 2);
  note("recorder-note",
       gpu_label() + ": the recording is long; counters are stored every " + format_ns(longer_ns) + " from here on");
}

void CounterSampler::once_a_second() {
  report_missing();
  writer_.flush();
  bound_file();
}

// Three hundred samples a time, so that an image holds those of three, as long as that is not too seldom to see the
// session end. Not more often: each time holds a lock of the driver for 0.7 ms, however few samples there are, and
// allocations of device memory wait for it (benchmarks/reading_stalls.py).
int64_t CounterSampler::period_ns() const {
  constexpr int64_t kMillisecondNs = 1000000, kMostNs = 100 * kMillisecondNs, kSamples = 300;
  if (switches_.drain_ms > 0) return switches_.drain_ms * kMillisecondNs;
  return std::max(std::min(interval_ns_ * kSamples, kMostNs), std::max(options_.drain_ms, 1) * kMillisecondNs);
}

void CounterSampler::loop() {
  int64_t tick_ns = monotonic_ns(), second_ns = tick_ns + kSecondNs;
  while (!watch_.finished() && !over_ && writer_.status().open) {
    const bool wanted = watch_.wanted() && watch_.counters_wanted();
    if (wanted && session_ == nullptr && !begin_session(SampleSeries::Break::kPause)) break;
    if (!wanted) end_session();
    if (session_ != nullptr && switches_.decode && !drain() && over_) break;
    if (session_ != nullptr && switches_.decode) follow_steps();
    if (monotonic_ns() >= second_ns) {
      once_a_second();
      second_ns += kSecondNs;
    }
    // To the next tick; a tick that was missed is not made up for.
    tick_ns = std::max(tick_ns + period_ns(), monotonic_ns());
    sleep_until_monotonic(tick_ns);
  }
}

void CounterSampler::run() {
  writer_.add(spool::ClockReading{realtime_ns(), read_clock_ns(CLOCK_MONOTONIC_RAW), 0});
  switches_ = go_to_background();
  cpus_ = available_cpus();
  if (options_.interval_ns != 0) interval_ns_ = std::clamp(options_.interval_ns, kIntervalMinNs, kIntervalMaxNs);
  if (prepare()) {
    writer_.flush();
    loop();
    end_session();
    report_missing();
    fact("counters_samples", std::to_string(series_->added()));
    fact("counters_samples_lost", std::to_string(lost_));
    fact("counters_gap_ms", std::to_string(gap_ns_ / 1000000));
    fact("counters_clean_decode_evaluate_ms", std::to_string(cost_.clean_ns / 1000000) + " " +
                                                  std::to_string(cost_.decode_ns / 1000000) + " " +
                                                  std::to_string(cost_.evaluate_ns / 1000000));
    rusage used{};
    if (getrusage(RUSAGE_SELF, &used) == 0)
      fact("counters_cpu_ms", std::to_string((used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                                             (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000));
  }
  writer_.close();
}

}  // namespace

int64_t default_interval_ns(int64_t step_ns, int cpus) {
  constexpr int64_t kUsualNs = 200'000, kFewCpusNs = 500'000, kLongStepsNs = 2'000'000;
  return std::max(cpus < 4 ? kFewCpusNs : kUsualNs, std::min(step_ns / 10, kLongStepsNs));
}

int run_counter_sampler(const CounterSamplerOptions& options) {
  CounterSampler sampler(options);
  if (!sampler.open_spool()) return 1;
  sampler.run();
  return 0;
}

CounterProbe probe_counters(const std::vector<std::string>& cupti_paths, const std::string& gpu_uuid, int gpu_index) {
  CounterProbe probe;
  const std::function<CounterProbe(const PmFailure&)> refuse = [&probe](const PmFailure& failure) {
    probe.code = failure.code;
    probe.call = failure.call;
    probe.text = failure.text;
    return probe;
  };
  const Result<nvidia::CudaDevices> devices = nvidia::list_cuda_devices();
  if (!devices) return refuse({cupti_profiler::kUnknown, "cuInit", devices.error().what});
  const std::optional<nvidia::CudaDevice> device = find_device(*devices, gpu_uuid, gpu_index);
  if (!device) return refuse({cupti_profiler::kInvalidDevice, "cuDeviceGet", "the CUDA driver does not list the GPU"});
  Observations seen;
  PmResult<Opened> opened = open_device(cupti_paths, static_cast<size_t>(device->ordinal), 0, PmFocus::kBroad, seen);
  probe.support_vgpu = seen.support_vgpu;
  probe.support_confidential = seen.support_confidential;
  probe.support_wsl = seen.support_wsl;
  probe.support_architecture = seen.support_architecture;
  if (!opened) return refuse(opened.error());
  probe.chip = opened->device.chip;
  probe.metrics = opened->device.set.metrics.size();
  PmSessionConfig config;
  config.interval_ns = 1000000;
  config.max_samples = 100;
  config.hardware_buffer_bytes = size_t{32} << 20U;
  PmResult<std::unique_ptr<PmSession>> session = PmSession::start(*opened->cupti, opened->device, config);
  if (!session) return refuse(session.error());
  sleep_until_monotonic(monotonic_ns() + 50000000);
  const PmResult<PmDrain> drained = (*session)->finish([](int64_t, int64_t, const double*) {});
  if (!drained) return refuse(drained.error());
  probe.samples = drained->samples;
  probe.code = cupti_profiler::kSuccess;
  return probe;
}

}  // namespace llmprof::samplers
