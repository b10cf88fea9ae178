#include "capture/inject/threads/thread_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "capture/inject/python/python_stack.h"
#include "capture/inject/threads/code_watch.h"
#include "capture/inject/threads/reentry_guard.h"
#include "capture/inject/threads/thread_events.h"
#include "capture/session/control.h"

namespace llmprof::inject {

constinit thread_local ThreadState thread_state;
std::atomic<Watch> watch_state{Watch::kUnknown};

namespace {

// Newest first. Threads add themselves without a lock; only whoever holds the spool takes logs out.
std::atomic<ThreadLog*> all_logs{nullptr};
std::atomic<uint32_t> ended_logs{0};
// When this many ended threads wait for the drain thread, the next one to end clears them away itself.
constexpr uint32_t kEndedMax = 32;
// How long a library that asks for its NVTX functions waits for another thread that is starting the recorder.
constexpr int kStartWaitMs = 20;

// The high part of every handle of a thread: 2^40 events a thread, 2^22 threads. The top bit is left to process ranges.
std::atomic<uint64_t> log_count{0};

std::atomic<uint64_t> unbalanced_pops{0};
std::atomic<uint64_t> lost_ranges{0};
int64_t last_drain_ns = 0;  // with the spool locked

// Names given before the thread had a log; with the spool locked.
struct PendingName {
  int64_t thread_id;
  Id name;
};
constexpr uint32_t kPendingMax = 256;
PendingName pending_names[kPendingMax];
uint32_t pending_count = 0;

pthread_key_t exit_key;
pthread_once_t exit_key_once = PTHREAD_ONCE_INIT;
bool exit_key_made = false;

void release_log(ThreadLog* log) {
  if (log->watched_texts != nullptr) {
    for (uint32_t i = 0; i < kDepthMax; ++i) free(log->watched_texts[i].data);
    free(log->watched_texts);
  }
  munmap(log, sizeof(ThreadLog));
}

void write_event(ThreadLog& log, const Event& event, spool::Writer& writer, Id own_thread) {
  switch (event.kind) {
    case EventKind::kRange: {
      spool::Range range;
      range.thread = event.thread != 0 ? event.thread : own_thread;
      range.name = event.definition;
      range.domain = event.domain;
      range.start_ns = event.start_ns;
      range.end_ns = event.end_ns;
      range.payload_kind = event.payload_kind;
      range.payload = event.payload;
      range.process_wide = event.process_wide;
      if (event.process_wide != 0) {
        range.handle = event.handle;
      } else if (log.announced[event.depth] == event.handle) {
        range.handle = event.handle;
        log.announced[event.depth] = 0;
      }
      writer.add(range);
      break;
    }
    case EventKind::kMark: {
      spool::Mark mark;
      mark.thread = own_thread;
      mark.name = event.definition;
      mark.domain = event.domain;
      mark.time_ns = event.start_ns;
      mark.payload_kind = event.payload_kind;
      mark.payload = event.payload;
      writer.add(mark);
      break;
    }
    case EventKind::kLibraryCall: {
      spool::LibraryCall call;
      call.call = event.handle;
      call.def = event.definition;
      call.thread = own_thread;
      call.start_ns = event.start_ns;
      call.end_ns = event.end_ns;
      writer.add(call);
      break;
    }
    case EventKind::kOperands: {
      spool::Operands operands;
      operands.call = event.handle;
      operands.a = static_cast<uint64_t>(event.start_ns);
      operands.b = static_cast<uint64_t>(event.end_ns);
      memcpy(&operands.d, &event.payload, sizeof operands.d);
      writer.add(operands);
      break;
    }
    case EventKind::kApiCall: {
      spool::ApiCall call;
      call.def = event.definition;
      call.thread = own_thread;
      call.start_ns = event.start_ns;
      call.end_ns = event.end_ns;
      call.correlation = static_cast<uint32_t>(event.handle);
      call.result = static_cast<int32_t>(event.handle >> 32);
      writer.add(call);
      spool::CallTarget target{call.correlation, event.domain, 0};
      memcpy(&target.event, &event.payload, sizeof target.event);
      if (target.stream != 0 || target.event != 0) writer.add(target);
      break;
    }
    case EventKind::kRecurringCall: {
      spool::RecurringCall call;
      call.thread = own_thread;
      call.key = event.handle;
      call.time_ns = event.start_ns;
      writer.add(call);
      break;
    }
    case EventKind::kProductRows: {
      spool::ProductRows product;
      product.thread = own_thread;
      product.rows = static_cast<int64_t>(event.handle);
      product.time_ns = event.start_ns;
      writer.add(product);
      break;
    }
    case EventKind::kHostPlace: {
      spool::HostPlace place;
      place.kind = static_cast<spool::PlaceKind>(event.handle);
      place.thread = own_thread;
      place.stack = event.definition;
      place.start_ns = event.start_ns;
      place.end_ns = event.end_ns;
      writer.add(place);
      break;
    }
    case EventKind::kCpuReading: {
      spool::CpuReading reading;
      reading.thread = own_thread;
      reading.start_ns = event.start_ns;
      reading.end_ns = event.end_ns;
      reading.cpu_ns = static_cast<int64_t>(event.handle);
      writer.add(reading);
      break;
    }
    case EventKind::kHostPace: {
      spool::HostPace pace;
      pace.thread = own_thread;
      pace.start_ns = event.start_ns;
      pace.end_ns = event.end_ns;
      pace.waited_ns = static_cast<int64_t>(event.handle);
      writer.add(pace);
      break;
    }
  }
}

// The thread's name as the system has it now, or as it was when the log was made if the thread is gone.
Id define_thread(ThreadLog& log, spool::Writer& writer) {
  spool::ThreadDef def;
  def.thread_id = log.thread_id;
  for (uint32_t i = 0; i < pending_count; ++i) {
    if (pending_names[i].thread_id == log.thread_id) def.name = pending_names[i].name;
  }
  if (def.name == 0) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%lld/comm", static_cast<long long>(log.thread_id));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      char comm[16] = {};
      ssize_t size = read(file, comm, sizeof(comm));
      close(file);
      if (size > 1) {
        comm[size - 1] = 0;  // a newline ends it
        memcpy(log.comm, comm, sizeof(comm));
      }
    }
    def.name = writer.text(std::string_view(log.comm, strnlen(log.comm, sizeof(log.comm))));
  }
  Id id = writer.define(def);
  log.thread_def.store(id, std::memory_order_relaxed);
  return id;
}

// With the spool locked. Without a writer the events are dropped.
void drain_events(ThreadLog& log, spool::Writer* writer) {
  uint32_t tail = log.tail.load(std::memory_order_relaxed);
  uint32_t head = log.head.load(std::memory_order_acquire);
  if (tail == head) return;
  if (writer != nullptr) {
    Id thread = log.thread_def.load(std::memory_order_relaxed);
    if (thread == 0) thread = define_thread(log, *writer);
    for (uint32_t i = tail; i != head; ++i) write_event(log, log.events[i % kEventsMax], *writer, thread);
  }
  log.tail.store(head, std::memory_order_release);
}

// Ranges that were open at the previous drain already. Called after drain_events: a range that closes in between is
// seen here or not, and its closing event, which comes with a later drain, finds its handle in `announced`.
void announce_open_ranges(ThreadLog& log, spool::Writer& writer) {
  uint32_t depth = log.depth.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < depth && i < kDepthMax; ++i) {
    OpenRange& open = log.open[i];
    uint64_t handle = open.handle.load(std::memory_order_acquire);
    if (handle == 0 || log.announced[i] != 0) continue;
    spool::RangeOpen record;
    record.handle = handle;
    // Acquire, so that the second look at the handle comes after them.
    record.name = open.name.load(std::memory_order_acquire);
    record.domain = open.domain.load(std::memory_order_acquire);
    record.start_ns = open.start_ns.load(std::memory_order_acquire);
    if (open.handle.load(std::memory_order_relaxed) != handle || record.start_ns > last_drain_ns) continue;
    record.thread = log.thread_def.load(std::memory_order_relaxed);
    if (record.thread == 0) record.thread = define_thread(log, writer);
    writer.add(record);
    log.announced[i] = handle;
  }
}

void write_counted_note(spool::Writer& writer, std::atomic<uint64_t>& counter, std::string_view key,
                        std::string_view text) {
  uint64_t count = counter.exchange(0, std::memory_order_relaxed);
  if (count == 0) return;
  spool::Note note_record;
  note_record.key = writer.text(key);
  note_record.text = writer.text(text);
  note_record.count = count;
  writer.add(note_record);
}

// Takes an emptied log of an ended thread out of the list. The first in the list can change under us: it stays until
// the next drain then.
bool unlink_log(ThreadLog* previous, ThreadLog* log) {
  if (previous != nullptr) {
    previous->next = log->next;
    return true;
  }
  ThreadLog* expected = log;
  return all_logs.compare_exchange_strong(expected, log->next, std::memory_order_acq_rel);
}

// With the spool locked; without a writer everything is dropped.
void sweep_logs(spool::Writer* writer) {
  ThreadLog* previous = nullptr;
  ThreadLog* log = all_logs.load(std::memory_order_acquire);
  while (log != nullptr) {
    ThreadLog* next = log->next;
    bool ended = log->ended.load(std::memory_order_acquire);
    drain_events(*log, writer);
    if (writer != nullptr) announce_open_ranges(*log, *writer);
    if (ended && unlink_log(previous, log)) {
      ended_logs.fetch_sub(1, std::memory_order_relaxed);
      release_log(log);
    } else {
      previous = log;
    }
    log = next;
  }
}

void thread_ends(void* value) {
  ThreadLog* log = static_cast<ThreadLog*>(value);
  unwatch_code(thread_state);
  thread_state.log = nullptr;
  uint32_t ended = ended_logs.fetch_add(1, std::memory_order_relaxed) + 1;
  log->ended.store(true, std::memory_order_release);  // from here on it belongs to whoever drains
  if (ended < kEndedMax) return;
  ReentryGuard guard;
  if (guard.nested()) return;
  SpoolAccess access;
  sweep_logs(access.writer());
}

}  // namespace

bool decide_watch() {
  if (thread_state.inside) return false;
  ReentryGuard guard;
  if (start()) {
    watch_state.store(Watch::kYes, std::memory_order_relaxed);
    return true;
  }
  // Otherwise another thread may be in the middle of starting: asked again at the next event.
  if (getenv(session::kEnvFolder) == nullptr) watch_state.store(Watch::kNo, std::memory_order_relaxed);
  return false;
}

bool wait_for_watch() {
  for (int i = 0; i < kStartWaitMs; ++i) {
    if (watched()) return true;
    if (thread_state.inside || watch_state.load(std::memory_order_relaxed) == Watch::kNo) return false;
    usleep(1000);
  }
  return watched();
}

ThreadLog* make_thread_log() {
  ReentryGuard guard;
  pthread_once(&exit_key_once, [] { exit_key_made = pthread_key_create(&exit_key, thread_ends) == 0; });
  if (!exit_key_made) return nullptr;
  void* memory = mmap(nullptr, sizeof(ThreadLog), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ThreadLog* log = static_cast<ThreadLog*>(memory);
  log->thread_id = thread_id();
  prctl(PR_GET_NAME, log->comm);
  log->last_handle = (log_count.fetch_add(1, std::memory_order_relaxed) & 0x3FFFFF) << 40;
  if (pthread_setspecific(exit_key, log) != 0) {
    munmap(memory, sizeof(ThreadLog));
    return nullptr;
  }
  thread_state.log = log;
  log->next = all_logs.load(std::memory_order_relaxed);
  while (!all_logs.compare_exchange_weak(log->next, log, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return log;
}

void empty_own_log(ThreadLog& log) {
  ReentryGuard guard;
  if (guard.nested()) {  // a signal handler's event in the middle of a drain: the oldest gives way
    log.known_tail = log.head.load(std::memory_order_relaxed) - kEventsMax + 1;
    return;
  }
  SpoolAccess access;
  drain_events(log, access.writer());
  log.known_tail = log.tail.load(std::memory_order_relaxed);
}

uint64_t text_hash(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

Id text_id(ThreadLog& log, std::string_view text) {
  if (text.empty()) return 0;
  uint64_t hash = XXH3_64bits(text.data(), text.size());
  CachedText* set = log.texts[hash % kTextCacheSets];
  if (set[0].hash == hash && set[0].id != 0) return set[0].id;
  if (set[1].hash == hash && set[1].id != 0) return set[1].id;
  ReentryGuard guard;
  if (guard.nested()) return 0;
  SpoolAccess access;
  if (access.writer() == nullptr) return 0;
  set[1] = set[0];
  set[0] = {hash, access.writer()->text(text)};
  return set[0].id;
}

Id python_stack_id(ThreadLog& log, FramesOf frames_of) {
  PythonStack stack;
  if (!read_python_stack(stack)) return 0;
  watch_code(thread_state, log, stack.thread);
  const uint64_t hash = stack.hash + static_cast<uint64_t>(frames_of);
  CachedShape& cached = log.stacks[hash % kStackCacheSize];
  if (cached.hash == hash && cached.id != 0) return cached.id;
  char text[kPythonTextMost];
  cached = {hash, text_id(log, {text, python_stack_text(stack, frames_of, text, sizeof text)})};
  return cached.id;
}

Id thread_def_of(ThreadLog& log, spool::Writer& writer) {
  const Id id = log.thread_def.load(std::memory_order_relaxed);
  return id != 0 ? id : define_thread(log, writer);
}

Id thread_def_id(ThreadLog& log) {
  Id id = log.thread_def.load(std::memory_order_relaxed);
  if (id != 0) return id;
  ReentryGuard guard;
  if (guard.nested()) return 0;
  SpoolAccess access;
  return access.writer() != nullptr ? define_thread(log, *access.writer()) : 0;
}

void name_thread(int64_t thread_id, std::string_view name) {
  ReentryGuard guard;
  if (guard.nested()) return;
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  Id text = access.writer()->text(name);
  uint32_t at = 0;
  while (at < pending_count && pending_names[at].thread_id != thread_id) ++at;
  if (at < kPendingMax) {
    pending_names[at] = {thread_id, text};
    if (at == pending_count) ++pending_count;
  }
  spool::ThreadDef def;
  def.thread_id = thread_id;
  def.name = text;
  Id id = access.writer()->define(def);
  for (ThreadLog* log = all_logs.load(std::memory_order_acquire); log != nullptr; log = log->next) {
    if (log->thread_id == thread_id) log->thread_def.store(id, std::memory_order_relaxed);
  }
}

int push_range(ThreadLog& log, const NewRange& range) {
  uint32_t depth = log.depth.load(std::memory_order_relaxed);
  if (depth == kDepthMax) {
    ++log.too_deep;
    if (range.record) count_lost_range();
    return static_cast<int>(depth + log.too_deep) - 1;
  }
  int32_t level = 0;
  for (uint32_t i = depth; i-- > 0;) {
    if (log.open[i].open && log.open[i].domain_key == range.domain_key) {
      level = log.open[i].level + 1;
      break;
    }
  }
  OpenRange& open = log.open[depth];
  open.domain_key = range.domain_key;
  open.level = level;
  open.open = true;
  open.recorded = range.record;
  open.watched = false;
  if (range.record) {
    open.payload = range.payload;
    // Release, so that whoever reads one of them finds that the handle was 0 or is another one.
    open.name.store(range.name, std::memory_order_release);
    open.domain.store(range.domain, std::memory_order_release);
    open.start_ns.store(now_ns(), std::memory_order_release);
    open.handle.store(next_handle(log), std::memory_order_release);
  }
  if (range.watched) {
    if (log.watched_texts == nullptr) {
      log.watched_texts = static_cast<WatchedText*>(calloc(kDepthMax, sizeof(WatchedText)));
    }
    if (log.watched_texts != nullptr) open.watched = keep_text(log.watched_texts[depth], range.watched_text);
  }
  log.depth.store(depth + 1, std::memory_order_release);
  return level;
}

int pop_range(ThreadLog& log, const void* domain_key, Payload payload) {
  if (log.too_deep > 0) {
    --log.too_deep;
    return static_cast<int>(kDepthMax + log.too_deep);
  }
  uint32_t depth = log.depth.load(std::memory_order_relaxed);
  uint32_t at = depth;
  while (at > 0 && !(log.open[at - 1].open && log.open[at - 1].domain_key == domain_key)) --at;
  if (at == 0) {
    unbalanced_pops.fetch_add(1, std::memory_order_relaxed);
    return -1;
  }
  OpenRange& open = log.open[--at];
  Event event;
  if (open.recorded) {
    event.end_ns = now_ns();
    event.handle = open.handle.load(std::memory_order_relaxed);
    event.start_ns = open.start_ns.load(std::memory_order_relaxed);
    event.definition = open.name.load(std::memory_order_relaxed);
    event.domain = open.domain.load(std::memory_order_relaxed);
    event.depth = static_cast<int16_t>(at);
    if (payload.kind == PayloadKind::kNone) payload = open.payload;
    event.payload_kind = payload.kind;
    event.payload = payload.value;
    // Before the event is published: a drain that has seen the event must not find the range open.
    open.handle.store(0, std::memory_order_relaxed);
  }
  open.open = false;
  while (depth > 0 && !log.open[depth - 1].open) --depth;
  log.depth.store(depth, std::memory_order_relaxed);
  if (open.recorded) append(log, event);
  if (open.watched && watches_ranges()) {
    const WatchedText& text = log.watched_texts[at];
    ReentryGuard guard;
    range_closed({text.data, text.size});
  }
  return open.level;
}

void count_lost_range() { lost_ranges.fetch_add(1, std::memory_order_relaxed); }

void drain_thread_logs(spool::Writer& writer) {
  int64_t now = now_ns();
  announce_process_ranges(writer, last_drain_ns);
  sweep_logs(&writer);
  write_counted_note(writer, unbalanced_pops, "recorder-note", "NVTX ranges popped that had not been pushed; ignored");
  write_counted_note(writer, lost_ranges, "lost-records",
                     "NVTX ranges open beyond 256 in a thread or 4096 in the process; not recorded");
  last_drain_ns = now;
}

uint64_t current_library_call() {
  ThreadState& state = thread_state;
  if (state.call == 0) return 0;
  state.call_asked = true;
  if (state.call_start_ns == 0) state.call_start_ns = now_ns();
  return state.call;
}

void abandon_thread_logs() {
  watch_state.store(Watch::kUnknown, std::memory_order_relaxed);  // start() knows whether the child may record
  all_logs.store(nullptr, std::memory_order_relaxed);
  ended_logs.store(0, std::memory_order_relaxed);
  unbalanced_pops.store(0, std::memory_order_relaxed);
  lost_ranges.store(0, std::memory_order_relaxed);
  pending_count = 0;
  if (thread_state.log != nullptr) pthread_setspecific(exit_key, nullptr);
  thread_state = {};
  abandon_code_watches();
  abandon_process_ranges();
}

}  // namespace llmprof::inject
