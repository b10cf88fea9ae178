#include "capture/launch/launch.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "capture/launch/child.h"
#include "capture/launch/control_page.h"
#include "capture/launch/counter_trial.h"
#include "capture/launch/environment.h"
#include "capture/launch/progress.h"
#include "capture/launch/sampling.h"
#include "capture/launch/session_folder.h"
#include "capture/launch/signals.h"
#include "capture/session/level.h"
#include "nvidia/cupti_library.h"
#include "nvidia/find_cupti.h"

namespace llmprof::launch {
namespace {

using spool::Level;

// How long the loop sleeps at most: the progress line and the windows are kept to it.
constexpr int64_t kTickNs = 250'000'000;

int64_t as_ns(double seconds) { return std::llround(seconds * 1e9); }

// One program under the collectors. Its parts end in the order in which they must: samplers,
// register, page.
class Session {
 public:
  Session(const LaunchOptions& options, SignalRelay& signals, std::string library, std::string hook, ControlPage page)
      : options_(options),
        signals_(signals),
        library_(std::move(library)),
        hook_(std::move(hook)),
        page_(std::move(page)),
        entry_(options.folder),
        progress_(options.progress, options.folder),
        trial_(options.budget_percent / 100) {}

  Result<LaunchOutcome> run();

 private:
  TargetEnvironment environment() const;
  void describe(const TargetEnvironment& environment);
  void write_description();
  void notice(const std::string& text);
  void open_window(int64_t now);
  int64_t keep_windows(int64_t now);  // gives the time of the next change, or of the next tick
  void follow_counters(int64_t now);
  void keep_below_limit(int64_t now);
  Ending wait_for(pid_t target);

  const LaunchOptions& options_;
  SignalRelay& signals_;
  std::string library_, hook_;
  ControlPage page_;
  RunningEntry entry_;
  Sampling sampling_;
  ProgressLine progress_;
  CounterTrial trial_;
  SessionRecord record_;
  int64_t open_at_ns_ = 0;    // when the delay is over; 0 once it is
  int64_t size_seen_ns_ = 0;  // when the recording's size was last looked at
  bool limit_reached_ = false, interrupted_ = false;
};

void Session::notice(const std::string& text) {
  record_.notices.push_back(text);
  if (options_.quiet) return;
  progress_.clear();
  print_error("llmprof: notice: " + text + "\n");
}

TargetEnvironment Session::environment() const {
  InjectionPlan plan;
  plan.session_folder = options_.folder;
  plan.library = library_;
  plan.level = options_.level;
  plan.preload = options_.program.linkage != Linkage::kMusl && options_.program.linkage != Linkage::kForeign;
  plan.capture_range = options_.capture_range;
  plan.steps = options_.steps;
  plan.unrecorded = options_.unrecorded;
  plan.budget_percent = options_.budget_percent;
  plan.adapt = options_.adapt;
  plan.python_folder = hook_;
  const std::vector<std::string> candidates = nvidia::cupti_candidates(options_.program.path);
  if (!candidates.empty()) plan.cupti = candidates.front();
  return target_environment(environ, plan);
}

void Session::describe(const TargetEnvironment& environment) {
  record_.command = options_.command;
  record_.program = options_.program.path;
  char folder[PATH_MAX];
  record_.working_folder = getcwd(folder, sizeof folder) != nullptr ? folder : "";
  record_.name = options_.name;
  record_.mode = session::level_name(options_.level);
  record_.baseline = options_.baseline;
  const auto option = [&](bool given, const char* name, std::string value) {
    if (given) record_.options.emplace_back(name, std::move(value));
  };
  option(options_.armed, "armed", "yes");
  option(options_.delay_s > 0, "delay_s", fmt::format("{}", options_.delay_s));
  option(options_.duration_s > 0, "duration_s", fmt::format("{}", options_.duration_s));
  option(!options_.capture_range.empty(), "capture_range", options_.capture_range);
  option(options_.steps > 0, "steps", std::to_string(options_.steps));
  option(!options_.unrecorded, "unrecorded_windows", "off");
  option(options_.unrecorded, "budget_percent", fmt::format("{}", options_.budget_percent));
  option(!options_.adapt, "adapt", "off");
  option(options_.torch, "torch", "yes");
  option(!options_.counters, "counters", "off");
  option(options_.counters && !options_.counters_judged, "counters", "on");
  option(options_.counters && options_.counter_interval_us != 0, "counter_interval_us",
         std::to_string(options_.counter_interval_us));
  if (const char* cupti = environment_value(environment.entries, nvidia::kEnvCupti)) option(true, "cupti", cupti);
  record_.gpus = sampling_.gpus();
}

void Session::write_description() {
  if (const Status written = write_session_file(options_.folder, record_); !written)
    notice(written.error().what + " (" + written.error().where + ")");
}

// Recording begins: at the start, or when the delay is over.
void Session::open_window(int64_t now) {
  open_at_ns_ = 0;
  page_.set_level(options_.level, options_.duration_s > 0 ? now + as_ns(options_.duration_s) : 0);
}

int64_t Session::keep_windows(int64_t now) {
  int64_t next = now + kTickNs;
  if (open_at_ns_ != 0) {
    if (page_.wanted() != Level::kOff)
      open_at_ns_ = 0;  // `ctl start` came first
    else if (now >= open_at_ns_)
      open_window(now);
    else
      next = std::min(next, open_at_ns_);
  }
  const int64_t until = page_->record_until_ns.load();
  if (until != 0 && page_.wanted() != Level::kOff) {
    if (now >= until)
      page_.set_level(Level::kOff);
    else
      next = std::min(next, until);
  }
  return next;
}

// A recording that has grown to its limit ends. What is in flight is written still, so it may be somewhat larger.
void Session::keep_below_limit(int64_t now) {
  constexpr int64_t kLookNs = 500'000'000;
  if (options_.bytes_most <= 0 || limit_reached_ || now - size_seen_ns_ < kLookNs) return;
  size_seen_ns_ = now;
  const uint64_t bytes = recorded_bytes(options_.folder);
  if (bytes < static_cast<uint64_t>(options_.bytes_most)) return;
  limit_reached_ = true;
  open_at_ns_ = 0;
  page_.set_level(Level::kOff);
  notice(fmt::format(
      "the recording has {}, the most that one in the run store may have: recording ended, the program runs "
      "on (-o DIR has no limit; LLMPROF_STORE_RUN_GB sets it)",
      format_bytes(static_cast<double>(bytes))));
}

// What is said by hand goes before what was measured.
void Session::follow_counters(int64_t now) {
  if (!options_.counters || !options_.counters_judged || trial_.over()) return;
  const session::Counters before = static_cast<session::Counters>(page_->counters.load());
  if (before == session::Counters::kOnByHand || before == session::Counters::kOffByHand) return;
  const bool sample = trial_.sample(now, steps_seen(*page_));
  const session::Counters after = sample                ? session::Counters::kSampled
                                  : trial_.too_costly() ? session::Counters::kOffTooCostly
                                                        : session::Counters::kOffForComparison;
  uint32_t expected = static_cast<uint32_t>(before);
  page_->counters.compare_exchange_strong(expected, static_cast<uint32_t>(after));
  if (!trial_.too_costly()) return;
  notice(fmt::format(
      "sampling the hardware counters slowed the program's steps by {:.1f} %, more than the budget of {} %: "
      "it was switched off; --counters on keeps it on",
      100 * trial_.cost(), options_.budget_percent));
}

Ending Session::wait_for(pid_t target) {
  while (true) {
    if (const std::optional<Ending> ending = collect(target)) return *ending;
    const int64_t now = realtime_ns();
    const int64_t next = keep_windows(now);
    keep_below_limit(now);
    follow_counters(now);
    progress_.update(*page_);
    if (signals_.wait(std::chrono::nanoseconds(next - now), target)) interrupted_ = true;
  }
}

Result<LaunchOutcome> Session::run() {
  const TargetEnvironment target = environment();
  SamplingOptions sampling;
  sampling.session_folder = options_.folder;
  sampling.counters = options_.counters;
  sampling.counter_interval_us = options_.counter_interval_us;
  sampling.operations = options_.level == spool::Level::kDeep;
  sampling.environment = target.entries;
  sampling.program = options_.program.path;
  sampling.wait_until_ready = !options_.armed && options_.delay_s <= 0;
  if (sampling.wait_until_ready) page_.set_level(options_.level);  // the samplers must run before the program does
  sampling_.start(sampling, signals_);
  for (const std::string& text : target.notices) notice(text);
  for (const std::string& text : sampling_.notices()) notice(text);
  if (const std::string text = linkage_notice(options_.program); !text.empty()) notice(text);
  describe(target);

  record_.start_unix_ns = realtime_ns();
  if (options_.delay_s > 0)
    open_at_ns_ = record_.start_unix_ns + as_ns(options_.delay_s);
  else if (!options_.armed)
    open_window(record_.start_unix_ns);
  write_description();
  const Result<pid_t> started = start_program(options_.program.path, options_.command, target.entries, signals_);
  if (!started) return tl::unexpected<Error>(started.error());
  record_.process_id = *started;

  const Ending ending = wait_for(*started);
  record_.end_unix_ns = realtime_ns();
  page_->finished = 1;
  progress_.clear();
  const size_t said = sampling_.notices().size();
  sampling_.stop();
  for (size_t i = said; i < sampling_.notices().size(); ++i) notice(sampling_.notices()[i]);

  const Progress watched = progress_of(*page_);
  if (watched.alive > 0) {
    // A process that was killed cannot give its slot back, so whoever is counted must also still exist.
    size_t left = 0;
    for (const session::Slot& slot : page_->slots) {
      const int64_t process = slot.process_id.load();
      if (process > 0 && process != *started &&
          slot.state.load() != static_cast<uint32_t>(session::SlotState::kEnded) &&
          kill(static_cast<pid_t>(process), 0) == 0)
        ++left;
    }
    if (left > 0)
      notice(fmt::format("{} process{} that the program started {} still running; the report ends here", left,
                         left == 1 ? "" : "es", left == 1 ? "is" : "are"));
  }
  record_.exit_status = ending.exit_status;
  record_.signal = ending.signal;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  record_.user_cpu_s = seconds(ending.usage.ru_utime);
  record_.system_cpu_s = seconds(ending.usage.ru_stime);
  record_.max_resident_bytes = int64_t{ending.usage.ru_maxrss} * 1024;
  write_description();
  LaunchOutcome outcome{ending.exit_status, ending.signal, ending.exit_code(), interrupted_, watched.processes};
  outcome.never_recorded = page_->command.load() == 0;  // every change of the level raises it
  return outcome;
}

Result<std::string> beside_binary(const char* relative, const char* what, const char* advice) {
  const std::string binaries = binary_folder();
  const std::string path = std::filesystem::path(binaries + "/" + relative).lexically_normal().string();
  if (!binaries.empty() && access(path.c_str(), R_OK) == 0) return path;
  return fail(std::string("expected ") + what + " beside the llmprof binary, found none", path, advice);
}

}  // namespace

Result<std::string> injection_library() {
  return beside_binary("../lib/libllmprof_inject.so", "the injection library",
                       "install llmprof again, or build it: ./dev build");
}

Result<std::string> torch_hook_folder() {
  return beside_binary("../share/llmprof/python", "the PyTorch hook of --torch",
                       "install llmprof again, or run without --torch");
}

Result<LaunchOutcome> launch(const LaunchOptions& options) {
  LLMPROF_ASSIGN(std::string library, injection_library());
  std::string hook;
  if (options.torch) {
    LLMPROF_ASSIGN(std::string folder, torch_hook_folder());
    hook = std::move(folder);
  }
  LLMPROF_ASSIGN(ControlPage page, ControlPage::create(options.folder, options.level, Level::kOff));
  SignalRelay signals;  // before the first thread, and until the last has ended
  return Session(options, signals, std::move(library), std::move(hook), std::move(page)).run();
}

}  // namespace llmprof::launch
