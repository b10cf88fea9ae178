#include "capture/inject/recording.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "capture/inject/cupti/activity.h"
#include "capture/inject/cupti/decode.h"
#include "capture/inject/process.h"

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
int64_t full_until_ns = 0;   // end of the full recording; 0 until kernels are first recorded
int64_t window_edge_ns = 0;  // when the current window ends
bool in_unrecorded = false;
int64_t window_ns = kRecordedNs;  // length of the recorded windows now
int64_t paused_ns = 0;            // since when nothing is to be recorded (ctl, capture range); 0 while it is
bool forced = false;              // the current window was begun by a rare stage, for which it lasts
int64_t forced_until_ns = 0;      // at most
std::atomic<int32_t> forcing_ranges{0};
std::atomic<int32_t> open_capture_ranges{0};
std::atomic<int64_t> closed_steps{0};
std::atomic<bool> watches{false};

std::atomic<bool> has_unrecorded{false};

// How often outermost ranges of a text were recorded. Without a lock; a full table leaves later texts to chance.
struct RangeCount {
  std::atomic<uint64_t> hash{0};
  std::atomic<uint32_t> recorded{0};
};
constexpr size_t kRangeTexts = 256;
RangeCount range_counts[kRangeTexts];

RangeCount* count_of(uint64_t hash) {
  hash |= 1;  // 0 is a free place
  for (size_t i = 0; i < 8; ++i) {
    RangeCount& place = range_counts[(hash + i) % kRangeTexts];
    uint64_t known = place.hash.load(std::memory_order_relaxed);
    if (known == hash) return &place;
    if (known == 0 && (place.hash.compare_exchange_strong(known, hash) || known == hash)) return &place;
  }
  return nullptr;
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

// The pace of the program in recorded and in unrecorded windows: what recording costs, seen from inside.
struct Pace {
  uint64_t calls = 0;
  int64_t time_ns = 0;
  double per_second() const {
    return time_ns == 0 ? 0 : static_cast<double>(calls) * 1e9 / static_cast<double>(time_ns);
  }
};
Pace recorded_pace, unrecorded_pace;
uint64_t window_first_call = 0;
int64_t window_start_ns = 0;

constexpr double kDeepCostMost = 0.25;
constexpr uint64_t kPaceCalls = 60;  // in either kind of window, before anything is concluded

// At the end of a window: gives the deep mode up if the program runs that much slower under it. With `lock` held.
void judge_cost(bool was_unrecorded, int64_t now) {
  const uint64_t calls = recurring_calls_seen.load(std::memory_order_relaxed);
  if (window_start_ns != 0) {
    Pace& pace = was_unrecorded ? unrecorded_pace : recorded_pace;
    pace.calls += calls - window_first_call;
    pace.time_ns += now - window_start_ns;
  }
  window_first_call = calls;
  window_start_ns = now;
  if (plan.mode != Level::kDeep || !plan.adapt) return;
  if (recorded_pace.calls < kPaceCalls || unrecorded_pace.calls < kPaceCalls) return;
  const double cost = unrecorded_pace.per_second() / recorded_pace.per_second() - 1;
  if (cost <= kDeepCostMost) return;
  plan.mode = Level::kDefault;
  leave_deep_mode();
  char text[160];
  std::snprintf(text, sizeof text,
                "deep recording made the program %.0f %% slower; from then on the default mode was used", cost * 100);
  note("mode-lowered", text);
}

// Moves between recorded and unrecorded windows. True while in an unrecorded one.
bool follow_windows(Level level, int64_t now) {
  if (!plan.unrecorded) return false;
  if (level < Level::kDefault) {
    if (paused_ns == 0) paused_ns = now;
    return false;
  }
  if (paused_ns != 0) {
    // Windows go on where they stopped: a pause is part of none.
    if (window_edge_ns != 0) window_edge_ns += now - paused_ns;
    if (window_start_ns != 0) window_start_ns += now - paused_ns;
    paused_ns = 0;
  }
  if (full_until_ns == 0) {
    // The clock starts with the first kernel, not with the import of a framework.
    if (recorded_kernels() != 0) full_until_ns = window_edge_ns = now + kFullNs;
    return false;
  }
  if (forced) {
    if (forcing_ranges.load(std::memory_order_relaxed) > 0 && now < forced_until_ns) return false;
    forcing_ranges.store(0, std::memory_order_relaxed);  // one that never closes holds up no other
    window_edge_ns = now;
  }
  if (now < window_edge_ns) return in_unrecorded;
  // The first window holds the warm-up: its pace says nothing.
  if (window_start_ns != 0 || in_unrecorded)
    judge_cost(in_unrecorded, now);
  else
    window_start_ns = now, window_first_call = recurring_calls_seen.load(std::memory_order_relaxed);
  in_unrecorded = !in_unrecorded;
  // Windows grow, so that sooner or later one is longer than the program's longest step.
  if (!in_unrecorded && window_ns < kRecordedMostNs && window_edge_ns != 0) window_ns += window_ns / 4;
  forced = false;
  window_edge_ns = now + (in_unrecorded ? window_ns * kUnrecordedPerRecorded : window_ns);
  return in_unrecorded;
}

// With `lock` held.
void apply(int64_t now) {
  Wanted wanted = wanted_level(now);
  if (follow_windows(wanted.level, now)) wanted = {Level::kLight, "unrecorded"};
  const Level before = level();
  if (wanted.level == before && wrote_first) return;
  const bool kernels = wanted.level >= Level::kDefault;
  // Records are switched on before and off after the level says so: what lies between is recorded, not missing.
  if (kernels && !kernels_on) set_kernel_records(true);
  const int64_t changed = now_ns();
  current_level.store(wanted.level, std::memory_order_relaxed);
  if (!kernels && kernels_on) set_kernel_records(false);
  kernels_on = kernels;
  wrote_first = true;
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  spool::LevelChange change;
  change.time_ns = changed;
  change.level = wanted.level;
  change.reason = access.writer()->text(wanted.reason);
  access.writer()->add(change);
}

}  // namespace

bool outermost_range_opened(std::string_view text) {
  if (!has_unrecorded.load(std::memory_order_relaxed)) return false;
  // "step 17" and "step 18" are one stage.
  uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const char c : text)
    if (c < '0' || c > '9') hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  RangeCount* const count = count_of(hash);
  if (count == nullptr || count->recorded.load(std::memory_order_relaxed) >= kRareRecorded) return false;
  bool forcing = false;
  if (!records_kernels()) {
    pthread_mutex_lock(&lock);
    if (in_unrecorded) {
      const int64_t now = now_ns();
      window_edge_ns = 0;  // the unrecorded window ends here
      apply(now);
      forced = forcing = true;
      forced_until_ns = now + kRecordedMostNs;
      forcing_ranges.fetch_add(1, std::memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
  }
  if (records_kernels()) count->recorded.fetch_add(1, std::memory_order_relaxed);
  return forcing;
}

void forcing_range_closed() {
  int32_t open = forcing_ranges.load(std::memory_order_relaxed);
  while (open > 0 && !forcing_ranges.compare_exchange_weak(open, open - 1, std::memory_order_relaxed)) {
  }
}

Level deepest_level() { return plan.mode; }

void begin_recording() {
  pthread_mutex_lock(&lock);
  plan = Plan();
  plan.mode = parse_level(std::getenv(session::kEnvLevel));
  const char* unrecorded = std::getenv(session::kEnvUnrecorded);
  plan.unrecorded = unrecorded != nullptr && std::strcmp(unrecorded, "auto") == 0;
  has_unrecorded.store(plan.unrecorded, std::memory_order_relaxed);
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
  apply(now_ns());
  pthread_mutex_unlock(&lock);
}

int64_t next_wake_ns(int64_t most) {
  pthread_mutex_lock(&lock);
  int64_t wait = most;
  if (plan.unrecorded && full_until_ns != 0 && window_edge_ns != 0) {
    const int64_t until_edge = window_edge_ns - now_ns();
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
    wanted = in_unrecorded && paused_ns == 0 && window_edge_ns - now < kNamesAheadNs;
  pthread_mutex_unlock(&lock);
  return wanted;
}

void abandon_recording() {
  pthread_mutex_init(&lock, nullptr);
  cupti_ready = kernels_on = wrote_first = in_unrecorded = false;
  full_until_ns = window_edge_ns = paused_ns = 0;
  window_ns = kRecordedNs;
  recorded_pace = unrecorded_pace = Pace();
  window_start_ns = 0;
  forced = false;
  forcing_ranges.store(0);
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
