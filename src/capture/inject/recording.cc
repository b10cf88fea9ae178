#include "capture/inject/recording.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "capture/inject/cupti/activity.h"
#include "capture/inject/cupti/attachment.h"
#include "capture/inject/cupti/decode.h"
#include "capture/inject/process.h"
#include "capture/inject/threads/thread_events.h"
#include "capture/inject/windows/plan.h"

namespace llmprof::inject {
namespace {

struct Plan {
  Level mode = Level::kDefault;
  bool unrecorded = false;
  bool adapt = true;  // a mode that costs too much is given up
  char capture_range[256] = {};
  int64_t steps = 0;  // closings of the capture range after which to stop; 0: no end
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of everything below
Plan plan;
bool cupti_ready = false;
bool kernels_on = false;
bool wrote_first = false;
WindowPlan windows;
int64_t paused_ns = 0;  // since when nothing is to be recorded (ctl, capture range); 0 while it is
std::atomic<int32_t> open_capture_ranges{0};
std::atomic<int64_t> closed_steps{0};
std::atomic<bool> watches{false};

// Without the lock.
StepKeys step_keys;
std::atomic<bool> has_unrecorded{false};
std::atomic<bool> place_wanted{false};  // a window begins or ends at the next place between steps
std::atomic<bool> step_over{false};     // the drain thread was woken at such a place
std::atomic<int64_t> recorded_since_ns{0}, unrecorded_since_ns{0}, disturbed_ns{0}, graph_made_ns{0};
std::atomic<int64_t> leaving_took_ns{0};  // not yet accounted

Conditions conditions() {
  const session::Control* const control = control_page();
  return {recorded_since_ns.load(std::memory_order_relaxed), unrecorded_since_ns.load(std::memory_order_relaxed),
          control == nullptr ? 0 : control->counters_since_ns.load(std::memory_order_relaxed),
          disturbed_ns.load(std::memory_order_relaxed)};
}

Level parse_level(const char* text) {
  if (text == nullptr) return Level::kDefault;
  if (std::strcmp(text, "light") == 0) return Level::kLight;
  if (std::strcmp(text, "deep") == 0) return Level::kDeep;
  return Level::kDefault;
}

struct Wanted {
  Level level;
  const char* reason;
};

// What the plan asks for at `now`, unrecorded windows aside.
Wanted wanted_level(int64_t now) {
  Level level = plan.mode;
  const session::Control* control = control_page();
  if (control != nullptr) {
    const uint32_t wanted = control->wanted_level.load(std::memory_order_relaxed);
    if (wanted < static_cast<uint32_t>(level)) level = static_cast<Level>(wanted);
    const int64_t until = control->record_until_ns.load(std::memory_order_relaxed);
    if (until != 0 && now >= until) return {Level::kOff, "duration"};
    if (level == Level::kOff) return {Level::kOff, "control"};
  }
  if (plan.steps != 0 && closed_steps.load(std::memory_order_relaxed) >= plan.steps) return {Level::kOff, "steps"};
  if (plan.capture_range[0] != '\0' && open_capture_ranges.load(std::memory_order_relaxed) <= 0)
    return {Level::kOff, "capture-range"};
  if (level > Level::kLight && !cupti_ready) level = Level::kLight;
  return {level, "start"};
}

constexpr double kDeepCostMost = 0.25;

// Gives the deep mode up if the program runs that much slower under it. With `lock` held.
void judge_cost() {
  if (plan.mode != Level::kDeep || !plan.adapt || !windows.measured() || windows.cost() <= kDeepCostMost) return;
  plan.mode = Level::kDefault;
  leave_deep_mode();
  char text[160];
  std::snprintf(text, sizeof text,
                "deep recording made the program %.0f %% slower; from then on the default mode was used",
                windows.cost() * 100);
  note("mode-lowered", text);
}

// Moves between recorded and unrecorded windows. True while in an unrecorded one. With `lock` held.
bool follow_windows(Level level, int64_t now, WindowPlan::Place place) {
  if (!plan.unrecorded) return false;
  if (level < Level::kDefault) {
    if (paused_ns == 0) paused_ns = now;
    return false;
  }
  if (paused_ns != 0) windows.paused(now - paused_ns);
  paused_ns = 0;
  if (!windows.is_started()) {
    // The clock starts with the first kernel, not with the import of a framework.
    const int64_t began_ns = attachment.launches.first_ns.load(std::memory_order_relaxed);
    if (began_ns == 0 && recorded_kernels() == 0) return false;
    windows.started(began_ns == 0 ? now : began_ns);
  }
  windows.switched(leaving_took_ns.exchange(0, std::memory_order_relaxed));
  const bool attached = attachment.attached.load(std::memory_order_relaxed);
  StepKeys::Summary steps = step_keys.summary(now);
  steps.disturbed_ns = disturbed_ns.load(std::memory_order_relaxed);
  steps.graph_made_ns = graph_made_ns.load(std::memory_order_relaxed);
  const bool recorded = windows.decide(now, steps, place, attached);
  place_wanted.store(windows.waits_for_place(), std::memory_order_relaxed);
  judge_cost();
  return !recorded;
}

void write_fact(const char* key, const char* value) {
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  spool::Fact fact;
  fact.key = access.writer()->text(key);
  fact.value = access.writer()->text(value);
  access.writer()->add(fact);
}

void write_level(int64_t time_ns, Level level, const char* reason) {
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  spool::LevelChange change;
  change.time_ns = time_ns;
  change.level = level;
  change.reason = access.writer()->text(reason);
  access.writer()->add(change);
}

// With `lock` held.
void apply(int64_t now, WindowPlan::Place place = WindowPlan::Place::kAnywhere) {
  Wanted wanted = wanted_level(now);
  if (follow_windows(wanted.level, now, place)) wanted = {Level::kLight, "unrecorded"};
  const Level before = level();
  if (wanted.level == before && wrote_first) return;
  const bool kernels = wanted.level >= Level::kDefault;
  // Records are switched on before and off after the level says so: what lies between is recorded, not missing.
  const int64_t began = now_ns();
  const bool attached = kernels && !kernels_on && set_kernel_records(true);
  const bool resumes = kernels && !kernels_on && (windows.is_started() || attached);
  const int64_t changed = now_ns();
  unrecorded_since_ns.store(kernels ? 0 : changed, std::memory_order_relaxed);
  recorded_since_ns.store(kernels && !(resumes && attached) ? changed : 0, std::memory_order_relaxed);
  switches.level.store(wanted.level, std::memory_order_relaxed);
  if (kernels != kernels_on) want_kernels(kernels);
  if (!kernels && kernels_on) set_kernel_records(false);
  kernels_on = kernels;
  wrote_first = true;
  if (resumes) {
    if (windows.is_started()) windows.switched(changed - began);
    write_level(began, before, "attaching");
  }
  // CUPTI prepares the program's modules at its first call.
  write_level(changed, wanted.level, resumes && attached ? "attaching" : wanted.reason);
  // Last: a program that launches all the time ends a call at any moment of this, and the end of the first one is to be
  // written behind the attaching.
  if (resumes && attached) switches.first_call_due.store(true, std::memory_order_relaxed);
}

void apply_between_steps() {
  const bool recorded = records_kernels();
  pthread_mutex_lock(&lock);
  apply(now_ns(), WindowPlan::Place::kBetweenSteps);
  pthread_mutex_unlock(&lock);
  if (recorded && !records_kernels()) wake_drain_thread();  // so that CUPTI can leave
  if (!recorded && records_kernels()) rouse_drain_thread();
}

// Whether a stage is to be recorded from here on although the plan has a pause: where CUPTI stays, as long as it lacks
// occurrences; where it must be attached first, which costs this occurrence its time, or would be kept from leaving,
// only what was never seen.
bool is_rare(const StepKey& key) {
  const bool stays = attachment.attached.load(std::memory_order_relaxed) && !activities_leave();
  return stays ? !key.enough() : key.seen.load(std::memory_order_relaxed) == 0;
}

}  // namespace

bool tells_steps() { return has_unrecorded.load(std::memory_order_relaxed); }

void range_step_begins(uint32_t depth, std::string_view text) {
  OpenStep& step = thread_state.steps[depth];
  StepKey* const outer = depth > 0 ? thread_state.steps[0].key : nullptr;
  if (depth > 0 && (outer == nullptr || !StepKeys::looks_within(*outer))) return;
  const KeyText of_text = key_of_text(text);
  step.key = step_keys.find(KeyKind::kRange, of_text.stage, of_text.shape);
  if (step.key == nullptr) return;
  if (place_wanted.load(std::memory_order_relaxed)) apply_between_steps();
  step.rare = false;
  if (!records_kernels() && is_rare(*step.key)) {
    pthread_mutex_lock(&lock);
    const int64_t now = now_ns();
    if (wanted_level(now).level >= Level::kDefault && windows.open_for_rare(now)) {
      step.rare = true;
      apply(now);
    }
    pthread_mutex_unlock(&lock);
  }
  step.begin_ns = now_ns();
  step_keys.begins(*step.key, step.begin_ns);
  if (outer != nullptr) StepKeys::begins_within(*step.key, *outer, thread_state.steps[0].begin_ns);
}

void range_step_ends(uint32_t depth) {
  OpenStep& step = thread_state.steps[depth];
  const int64_t now = now_ns();
  step_keys.ends(*step.key, step.begin_ns, now, conditions());
  step.key = nullptr;
  if (step.rare) {
    pthread_mutex_lock(&lock);
    windows.rare_ended(now);
    pthread_mutex_unlock(&lock);
    apply_between_steps();
  } else if (step_keys.take_grown() || place_wanted.load(std::memory_order_relaxed)) {
    apply_between_steps();
  }
}

// Inside a callback of CUPTI's nothing of it is switched: the drain thread does that, within the time in which the
// program prepares its next step.
void host_waited(int64_t time_ns) {
  if (!tells_steps()) return;
  step_keys.waited(time_ns);
  if (thread_state.steps[0].key != nullptr) return;
  if (!place_wanted.load(std::memory_order_relaxed) && !step_keys.take_grown()) return;
  step_over.store(true, std::memory_order_relaxed);
  wake_drain_thread();
}

void step_recurs(uint64_t key, int64_t time_ns) {
  if (!tells_steps()) return;
  StepKey* const known = step_keys.find(KeyKind::kRecurring, key);
  if (known != nullptr) step_keys.recurs(*known, time_ns, conditions(), thread_state.steps[0].key == nullptr);
}

void kernel_step_seen(const void* function, int64_t time_ns) {
  const uint64_t hash = (reinterpret_cast<uintptr_t>(function) ^ 0x6B65726E656CULL) * 0x9E3779B97F4A7C15ULL;
  StepKey* const known = step_keys.find(KeyKind::kKernel, hash);
  if (known != nullptr) step_keys.recurs(*known, time_ns, conditions(), thread_state.steps[0].key == nullptr);
}

void publish_steps(session::Slot& slot) {
  const StepKeys::CountersCost seen = step_keys.counters_cost();
  slot.step_ns.store(seen.step_ns, std::memory_order_relaxed);
  slot.counters_cost.store(static_cast<float>(seen.cost), std::memory_order_relaxed);
  slot.counters_cost_error.store(static_cast<float>(seen.error), std::memory_order_relaxed);
  slot.steps_with_counters.store(seen.with, std::memory_order_relaxed);
  slot.steps_without_counters.store(seen.without, std::memory_order_relaxed);
}

void step_disturbed(int64_t time_ns) { disturbed_ns.store(time_ns, std::memory_order_relaxed); }

// As at a wait, the drain thread switches.
void graph_made_for_steps(int64_t time_ns) {
  if (!tells_steps()) return;
  graph_made_ns.store(time_ns, std::memory_order_relaxed);
  if (!records_kernels()) wake_drain_thread();
}

void first_call_ended() {
  const int64_t now = now_ns();
  if (!records_kernels()) return;
  recorded_since_ns.store(now, std::memory_order_relaxed);
  write_level(now, level(), "start");
}

void cupti_left(int64_t began_ns, int64_t ended_ns) {
  leaving_took_ns.fetch_add(ended_ns - began_ns, std::memory_order_relaxed);
  if (!records_kernels()) unrecorded_since_ns.store(ended_ns, std::memory_order_relaxed);
  write_level(began_ns, level(), "detaching");
  write_level(ended_ns, level(), "detached");
}

void cupti_came(int64_t began_ns, int64_t ended_ns) {
  leaving_took_ns.fetch_add(ended_ns - began_ns, std::memory_order_relaxed);
  unrecorded_since_ns.store(0, std::memory_order_relaxed);
  write_level(began_ns, level(), "attaching");
  write_level(ended_ns, level(), "graph");
}

void records_were_off(int64_t began_ns, int64_t ended_ns) {
  if (!records_kernels()) return;
  write_level(began_ns, Level::kLight, "graph");
  write_level(ended_ns, level(), "graph");
}

Level deepest_level() { return plan.mode; }

bool awaits_start() {
  const session::Control* const control = control_page();
  return control != nullptr &&
         control->wanted_level.load(std::memory_order_relaxed) == static_cast<uint32_t>(Level::kOff);
}

void begin_recording() {
  pthread_mutex_lock(&lock);
  plan = Plan();
  plan.mode = parse_level(std::getenv(session::kEnvLevel));
  const char* unrecorded = std::getenv(session::kEnvUnrecorded);
  plan.unrecorded = unrecorded != nullptr && std::strcmp(unrecorded, "auto") == 0;
  has_unrecorded.store(plan.unrecorded, std::memory_order_relaxed);
  switches.kernels_tell_steps.store(plan.unrecorded, std::memory_order_relaxed);
  windows = WindowPlan();
  const char* budget = std::getenv(session::kEnvBudget);
  const double percent = budget == nullptr ? 0 : std::strtod(budget, nullptr);
  if (percent > 0) windows.begin(percent / 100);
  const char* adapt = std::getenv(session::kEnvAdapt);
  plan.adapt = adapt == nullptr || std::strcmp(adapt, "off") != 0;
  const char* range = std::getenv(session::kEnvCaptureRange);
  if (range != nullptr && std::strlen(range) < sizeof plan.capture_range)
    std::memcpy(plan.capture_range, range, std::strlen(range) + 1);
  const char* steps = std::getenv(session::kEnvSteps);
  if (steps != nullptr) plan.steps = std::strtoll(steps, nullptr, 10);
  watches.store(plan.capture_range[0] != '\0', std::memory_order_relaxed);
  apply(now_ns());
  pthread_mutex_unlock(&lock);
}

void activities_started() {
  pthread_mutex_lock(&lock);
  cupti_ready = true;
  apply(now_ns());
  pthread_mutex_unlock(&lock);
}

void follow_control() {
  pthread_mutex_lock(&lock);
  const int64_t now = now_ns();
  if (plan.unrecorded) switches.kernels_tell_steps.store(!step_keys.named(now), std::memory_order_relaxed);
  apply(now, step_over.exchange(false, std::memory_order_relaxed) ? WindowPlan::Place::kBetweenSteps
                                                                  : WindowPlan::Place::kAnywhere);
  pthread_mutex_unlock(&lock);
}

int64_t next_wake_ns(int64_t most) {
  pthread_mutex_lock(&lock);
  int64_t wait = most;
  if (plan.unrecorded && windows.is_started()) {
    const int64_t until_edge = windows.next_ns() - now_ns();
    if (until_edge < wait) wait = until_edge < 1'000'000 ? 1'000'000 : until_edge;
  }
  pthread_mutex_unlock(&lock);
  return wait;
}

bool names_wanted() {
  pthread_mutex_lock(&lock);
  const int64_t now = now_ns();
  bool wanted = wanted_level(now).level != Level::kOff;
  // In light mode and before CUDA starts there are no windows.
  if (wanted && plan.mode >= Level::kDefault && cupti_ready && level() < Level::kDefault)
    wanted = !windows.records() && paused_ns == 0 && windows.next_ns() - now < kNamesAheadNs;
  pthread_mutex_unlock(&lock);
  return wanted;
}

void finish_recording() {
  if (!plan.unrecorded || !windows.is_started() || pthread_mutex_trylock(&lock) != 0) return;
  const int64_t now = now_ns();
  const double spent = windows.spent_frac(now);
  const double budget = windows.budget();
  const bool measured = windows.measured();
  pthread_mutex_unlock(&lock);
  char text[256];
  std::snprintf(text, sizeof text, "%.4f", spent);
  write_fact(measured ? "recording_cost_frac" : "recording_cost_guessed_frac", text);
  std::snprintf(text, sizeof text, "%.4f", budget);
  write_fact("recording_budget_frac", text);
  if (!measured || spent <= budget) return;
  std::snprintf(
      text, sizeof text,
      "recording slowed the run by %.1f %% in the mean, by the pace of its steps: more than the budget of %.1f %%, "
      "because a minimum of steady steps of each stage is recorded however short the run is",
      spent * 100, budget * 100);
  note("recorder-note", text);
}

void abandon_recording() {
  pthread_mutex_init(&lock, nullptr);
  cupti_ready = kernels_on = wrote_first = false;
  paused_ns = 0;
  windows = WindowPlan();
  new (&step_keys) StepKeys();
  place_wanted.store(false);
  step_over.store(false);
  for (std::atomic<int64_t>* time :
       {&recorded_since_ns, &unrecorded_since_ns, &disturbed_ns, &graph_made_ns, &leaving_took_ns})
    time->store(0);
  open_capture_ranges.store(0);
  closed_steps.store(0);
}

bool watches_ranges() { return watches.load(std::memory_order_relaxed); }

void range_opened(std::string_view name) {
  if (name != plan.capture_range) return;
  if (open_capture_ranges.fetch_add(1) == 0) follow_control();
}

void range_closed(std::string_view name) {
  if (name != plan.capture_range) return;
  closed_steps.fetch_add(1);
  if (open_capture_ranges.fetch_sub(1) == 1) follow_control();
}

}  // namespace llmprof::inject
