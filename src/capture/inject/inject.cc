// The process's one spool, its lock, the drain thread, and what happens at fork and at the end.
#include "capture/inject/inject.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "capture/inject/cupti/activity.h"
#include "capture/inject/cupti/attachment.h"
#include "capture/inject/cupti/decode.h"
#include "capture/inject/launch_sites/launch_sites.h"
#include "capture/inject/libraries/cudnn_backend.h"
#include "capture/inject/libraries/library_logs.h"
#include "capture/inject/process.h"
#include "capture/inject/ranges/nvtx_names.h"
#include "capture/inject/ranges/nvtx_payload.h"
#include "capture/inject/recording.h"
#include "capture/inject/threads/code_watch.h"
#include "capture/inject/threads/thread_log.h"
#include "capture/session/control.h"

namespace llmprof::inject {

Switches switches;

namespace {

// The drain thread writes this often, so a killed process loses less than a second with what CUPTI holds back. While
// calls are recorded it empties the threads' logs more often, so that none of them fills up and is emptied on its own
// time.
constexpr int64_t kDrainPeriodNs = 400'000'000;
constexpr int64_t kEmptyPeriodNs = 100'000'000;
constexpr int64_t kClockPeriodNs = 10'000'000'000;
// How long the end of the process may wait for a lock that someone else holds.
constexpr int64_t kEndWaitNs = 2'000'000'000;
constexpr size_t kNotesMax = 64;

enum class Start : uint32_t { kNotYet, kStarting, kWatched, kNotWatched, kForkedChild };

struct NoteSeen {
  uint64_t hash;
};

struct Process {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  spool::Writer* writer = nullptr;
  session::Control* control = nullptr;
  session::Slot* slot = nullptr;
  char folder[3072] = {};
  pid_t pid = 0;
  pthread_t drain_thread{};
  bool drain_running = false;
  pthread_mutex_t wake_lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  bool stop = false;
  bool woken = false;
  int64_t next_clock_ns = 0;
  int64_t next_flush_ns = 0;
  NoteSeen notes[kNotesMax] = {};
  size_t note_count = 0;
  bool ended = false;
};

// Never destroyed: threads of the program may still call in while the process ends.
alignas(Process) unsigned char process_storage[sizeof(Process)];
Process* process = nullptr;
std::atomic<Start> start_state{Start::kNotYet};
thread_local int64_t cached_thread_id = 0;
thread_local bool holds_spool = false;

void open_control() {
  char path[3200];
  std::snprintf(path, sizeof path, "%s/control", process->folder);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  process->control = session::map_control(fd, true);
  if (fd >= 0) close(fd);
  if (process->control == nullptr) return;
  for (session::Slot& slot : process->control->slots) {
    int64_t free_slot = 0;
    if (!slot.process_id.compare_exchange_strong(free_slot, process->pid)) continue;
    process->slot = &slot;
    break;
  }
}

void add_fact(spool::Writer& writer, std::string_view key, std::string_view value) {
  spool::Fact fact;
  fact.key = writer.text(key);
  fact.value = writer.text(value);
  writer.add(fact);
}

void write_facts(spool::Writer& writer) {
  char text[2048];
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    const ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size > 0) {
      for (ssize_t i = 0; i + 1 < size; ++i)
        if (text[i] == '\0') text[i] = ' ';
      add_fact(writer, "process_command", std::string_view(text, strnlen(text, static_cast<size_t>(size))));
    }
  }
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES"})
    if (const char* value = std::getenv(name)) add_fact(writer, name, value);
  add_fact(writer, "llmprof_version", LLMPROF_VERSION);
}

bool open_spool() {
  char path[3200];
  std::snprintf(path, sizeof path, "%s/spool/%d-%lld.spool", process->folder, process->pid,
                static_cast<long long>(now_ns()));
  process->writer = new (std::nothrow) spool::Writer();
  if (process->writer == nullptr) return false;
  if (!process->writer->open(path, "target")) {
    delete process->writer;
    process->writer = nullptr;
    return false;
  }
  write_facts(*process->writer);
  return true;
}

void set_slot_state(session::SlotState state) {
  if (process->slot != nullptr) process->slot->state.store(static_cast<uint32_t>(state));
}

// One round of the drain thread. CUPTI's flush comes first and without the lock: it delivers buffers on this thread.
void drain_once() {
  follow_control();
  if (has_activities()) follow_library_logs();
  const int64_t now = now_ns();
  const bool flush = now >= process->next_flush_ns || flush_wait_ns(kDrainPeriodNs) < kDrainPeriodNs;
  if (flush) {
    flush_activities();
    describe_devices();
  }
  if (deepest_level() == Level::kDeep) resolve_launch_sites();
  SpoolAccess access;
  spool::Writer* writer = access.writer();
  if (writer == nullptr) return;
  drain_thread_logs(*writer);
  drain_launch_sites(*writer);
  if (!flush) return;
  process->next_flush_ns = now + kDrainPeriodNs - kEmptyPeriodNs / 2;
  if (now >= process->next_clock_ns) {
    process->next_clock_ns = now + kClockPeriodNs;
    writer->add(read_clocks());
  }
  writer->flush();
  if (process->slot == nullptr) return;
  const spool::WriterStatus status = writer->status();
  session::Slot& slot = *process->slot;
  slot.kernels.store(recorded_kernels(), std::memory_order_relaxed);
  slot.bytes.store(status.bytes_written, std::memory_order_relaxed);
  slot.level.store(static_cast<uint32_t>(level()), std::memory_order_relaxed);
  publish_steps(slot);
  slot.heartbeat_ns.store(now, std::memory_order_relaxed);
  if (status.error != 0) set_slot_state(session::SlotState::kNoSpool);
}

// Waits until the time is there or the drain thread is woken. With wake_lock held; returns so.
void wait_for_wake(int64_t until_ns) {
  if (process->stop || process->woken) return;
  const timespec until{static_cast<time_t>(until_ns / 1'000'000'000), static_cast<long>(until_ns % 1'000'000'000)};
  pthread_cond_timedwait(&process->wake, &process->wake_lock, &until);
}

// Between two rounds the same thread reads where the program's threads are in long code.
void* drain_loop(void*) {
  prctl(PR_SET_NAME, "llmprof");
  while (true) {
    const int64_t round_ns =
        now_ns() + next_wake_ns(flush_wait_ns(records_kernels() ? kEmptyPeriodNs : kDrainPeriodNs));
    bool due = false;
    while (!due) {
      const int64_t sample_ns = sample_code();
      const int64_t now = now_ns();
      pthread_mutex_lock(&process->wake_lock);
      wait_for_wake(sample_ns < round_ns - now ? now + sample_ns : round_ns);
      due = process->stop || process->woken || now_ns() >= round_ns;
      process->woken = false;
      const bool stop = process->stop;
      pthread_mutex_unlock(&process->wake_lock);
      if (stop) return nullptr;
    }
    drain_once();
  }
}

void start_drain_thread() {
  // Signals are for the program's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 512 * 1024);
  process->drain_running = pthread_create(&process->drain_thread, &attributes, drain_loop, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void stop_drain_thread() {
  if (!process->drain_running) return;
  process->drain_running = false;
  pthread_mutex_lock(&process->wake_lock);
  process->stop = true;
  pthread_cond_signal(&process->wake);
  pthread_mutex_unlock(&process->wake_lock);
  const timespec until = realtime_after(kEndWaitNs);
  pthread_timedjoin_np(process->drain_thread, nullptr, &until);
}

// fork() while another thread holds a lock would leave it locked in the child for good: hold both across the fork.
void before_fork() {
  if (start_state.load() != Start::kWatched) return;
  pthread_mutex_lock(&process->lock);
  pthread_mutex_lock(&process->wake_lock);
}

void after_fork_in_parent() {
  if (start_state.load() != Start::kWatched) return;
  pthread_mutex_unlock(&process->wake_lock);
  pthread_mutex_unlock(&process->lock);
}

// The child has the parent's file and no drain thread. If the parent had CUDA traced, CUPTI in the child is in an
// unknown state (it hangs in a flush): the child is left alone until it executes another program. Otherwise it may
// start afresh.
void after_fork_in_child() {
  if (start_state.load() != Start::kWatched) return;
  pthread_mutex_init(&process->lock, nullptr);
  pthread_mutex_init(&process->wake_lock, nullptr);
  pthread_cond_init(&process->wake, nullptr);
  switches.level.store(Level::kOff);
  if (process->writer != nullptr) {
    process->writer->abandon();
    process->writer = nullptr;  // leaked on purpose: its memory is the parent's copy
  }
  process->slot = nullptr;
  process->drain_running = false;
  process->stop = process->woken = false;
  process->note_count = 0;
  cached_thread_id = 0;
  abandon_thread_logs();
  abandon_nvtx_names();
  abandon_nvtx_schemas();
  abandon_launch_sites();
  abandon_library_logs();
  abandon_cudnn_backend();
  const bool traced = abandon_activities();
  abandon_recording();
  start_state.store(traced ? Start::kForkedChild : Start::kNotYet);
}

void end_at_exit() { end_process(true); }

}  // namespace

int64_t thread_id() {
  if (cached_thread_id == 0) cached_thread_id = static_cast<int64_t>(syscall(SYS_gettid));
  return cached_thread_id;
}

session::Control* control_page() { return process == nullptr ? nullptr : process->control; }

bool start() {
  Start state = start_state.load(std::memory_order_acquire);
  if (state == Start::kWatched) return true;
  if (state == Start::kNotWatched || state == Start::kForkedChild) return false;
  if (state == Start::kNotYet) {
    const char* folder = std::getenv(session::kEnvFolder);
    if (folder == nullptr || *folder != '/' || std::strlen(folder) >= sizeof Process::folder) {
      start_state.store(Start::kNotWatched, std::memory_order_release);
      return false;
    }
    if (start_state.compare_exchange_strong(state, Start::kStarting)) {
      const bool first = process == nullptr;
      if (first) process = new (process_storage) Process();
      std::memcpy(process->folder, folder, std::strlen(folder) + 1);
      process->pid = static_cast<pid_t>(syscall(SYS_getpid));
      process->ended = false;
      open_control();
      set_slot_state(session::SlotState::kStarting);
      if (!open_spool()) {
        set_slot_state(session::SlotState::kNoSpool);
        start_state.store(Start::kNotWatched, std::memory_order_release);
        return false;
      }
      if (first) {
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        std::atexit(end_at_exit);
      }
      begin_recording();
      set_slot_state(session::SlotState::kRecording);
      start_state.store(Start::kWatched, std::memory_order_release);
      start_drain_thread();
      return true;
    }
  }
  // Another thread is starting, or this one came here again from inside start(): do not wait for oneself.
  return start_state.load(std::memory_order_acquire) == Start::kWatched;
}

SpoolAccess::SpoolAccess() : writer_(nullptr) {
  if (process == nullptr || holds_spool) return;
  pthread_mutex_lock(&process->lock);
  holds_spool = true;
  writer_ = process->ended ? nullptr : process->writer;
  if (writer_ == nullptr) {
    holds_spool = false;
    pthread_mutex_unlock(&process->lock);
  }
}

SpoolAccess::~SpoolAccess() {
  if (writer_ == nullptr) return;
  holds_spool = false;
  pthread_mutex_unlock(&process->lock);
}

void note(std::string_view key, std::string_view text) {
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  const uint64_t hash = 31 * text_hash(key) + text_hash(text);
  for (size_t i = 0; i < process->note_count; ++i)
    if (process->notes[i].hash == hash) return;
  if (process->note_count == kNotesMax) return;
  process->notes[process->note_count++].hash = hash;
  spool::Note record;
  record.key = access.writer()->text(key);
  record.text = access.writer()->text(text);
  access.writer()->add(record);
  access.writer()->flush();
}

void wake_drain_thread() {
  if (process == nullptr) return;
  pthread_mutex_lock(&process->wake_lock);
  process->woken = true;
  pthread_cond_signal(&process->wake);
  pthread_mutex_unlock(&process->wake_lock);
}

void rouse_drain_thread() {
  if (process == nullptr) return;
  pthread_mutex_lock(&process->wake_lock);
  pthread_cond_signal(&process->wake);
  pthread_mutex_unlock(&process->wake_lock);
}

void set_cupti_state(session::SlotState state) {
  if (process != nullptr) set_slot_state(state);
}

void end_process(bool orderly) {
  if (process == nullptr || start_state.load() != Start::kWatched) return;
  if (static_cast<pid_t>(syscall(SYS_getpid)) != process->pid) return;  // a vfork child shares this memory
  if (process->ended) return;
  stop_drain_thread();
  close_logged_call();
  finish_activities(orderly);
  finish_recording();
  if (orderly && deepest_level() == Level::kDeep) resolve_launch_sites();
  const timespec until = realtime_after(kEndWaitNs);
  if (holds_spool || pthread_mutex_timedlock(&process->lock, &until) != 0) return;
  process->ended = true;
  switches.level.store(Level::kOff);
  if (process->writer != nullptr) {
    drain_thread_logs(*process->writer);
    finish_launch_sites(*process->writer);
    process->writer->add(read_clocks());
    process->writer->close();
    if (process->slot != nullptr) {
      process->slot->kernels.store(recorded_kernels());
      process->slot->bytes.store(process->writer->status().bytes_written);
    }
  }
  set_slot_state(session::SlotState::kEnded);
  pthread_mutex_unlock(&process->lock);
}

}  // namespace llmprof::inject
