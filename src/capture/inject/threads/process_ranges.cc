// Ranges of nvtxRangeStart and nvtxRangeEnd: one table for the process, because any thread may end what another one
// started. They are rare and long next to push/pop ranges, so a mutex is good enough.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "capture/inject/locked.h"
#include "capture/inject/threads/reentry_guard.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

namespace {

constexpr uint32_t kOpenMax = 4096;
constexpr uint64_t kProcessWide = uint64_t{1} << 63;

struct ProcessRange {
  uint64_t id = 0;  // 0: free. Low 12 bits: place in the table; the rest: a count that makes it unique
  const void* domain_key = nullptr;
  Id domain = 0;
  Id name = 0;
  Id thread = 0;
  int64_t start_ns = 0;
  Payload payload;
  bool recorded = false;
  bool announced = false;
  bool watched = false;
  WatchedText text;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
ProcessRange* table = nullptr;  // kOpenMax of them, made at the first use
uint16_t* free_places = nullptr;
uint32_t free_count = 0;
uint32_t used_max = 0;  // places at and beyond it were never used
uint64_t last_count = 0;

ProcessRange* take_place(uint32_t& place) {
  if (table == nullptr) {
    table = static_cast<ProcessRange*>(calloc(kOpenMax, sizeof(ProcessRange)));
    free_places = static_cast<uint16_t*>(calloc(kOpenMax, sizeof(uint16_t)));
    if (table == nullptr || free_places == nullptr) {
      free(table);
      free(free_places);
      table = nullptr;
      free_places = nullptr;
      return nullptr;
    }
  }
  if (free_count > 0) {
    place = free_places[--free_count];
  } else if (used_max < kOpenMax) {
    place = used_max++;
  } else {
    return nullptr;
  }
  return &table[place];
}

}  // namespace

bool keep_text(WatchedText& kept, std::string_view text) {
  if (text.size() > kept.capacity) {
    uint32_t capacity = static_cast<uint32_t>(text.size() + 64);
    char* data = static_cast<char*>(realloc(kept.data, capacity));
    if (data == nullptr) return false;
    kept.data = data;
    kept.capacity = capacity;
  }
  memcpy(kept.data, text.data(), text.size());
  kept.size = static_cast<uint32_t>(text.size());
  return true;
}

uint64_t start_process_range(ThreadLog& log, const NewRange& range) {
  Id thread = range.record ? thread_def_id(log) : 0;
  ReentryGuard guard;
  if (guard.nested()) return 0;
  Locked locked(mutex);
  uint32_t place = 0;
  ProcessRange* open = take_place(place);
  if (open == nullptr) {
    if (range.record) count_lost_range();
    return 0;
  }
  open->id = (++last_count << 12 | place) & ~kProcessWide;
  open->domain_key = range.domain_key;
  open->domain = range.domain;
  open->name = range.name;
  open->thread = thread;
  open->payload = range.payload;
  open->recorded = range.record;
  open->announced = false;
  open->watched = range.watched && keep_text(open->text, range.watched_text);
  open->start_ns = now_ns();
  return open->id;
}

void end_process_range(ThreadLog& log, uint64_t id, Payload payload) {
  Event event;
  bool recorded = false;
  WatchedText text;
  {
    ReentryGuard guard;
    if (guard.nested()) return;
    Locked locked(mutex);
    uint32_t place = id % kOpenMax;
    if (id == 0 || table == nullptr || table[place].id != id) return;  // not open: ended twice, or never kept
    ProcessRange& open = table[place];
    recorded = open.recorded;
    event.kind = EventKind::kRange;
    event.process_wide = 1;
    event.definition = open.name;
    event.domain = open.domain;
    event.thread = open.thread;
    event.handle = open.announced ? id | kProcessWide : 0;
    event.start_ns = open.start_ns;
    event.end_ns = now_ns();
    if (payload.kind == PayloadKind::kNone) payload = open.payload;
    event.payload_kind = payload.kind;
    event.payload = payload.value;
    if (open.watched) {
      text = open.text;
      open.text = {};
    }
    open.id = 0;
    free_places[free_count++] = static_cast<uint16_t>(place);
  }
  if (recorded) append(log, event);
  if (text.data != nullptr) {
    ReentryGuard guard;
    if (watches_ranges()) range_closed({text.data, text.size});
    free(text.data);
  }
}

void announce_process_ranges(spool::Writer& writer, int64_t before_ns) {
  Locked locked(mutex);
  for (uint32_t place = 0; place < used_max; ++place) {
    ProcessRange& open = table[place];
    if (open.id == 0 || !open.recorded || open.announced || open.start_ns > before_ns) continue;
    spool::RangeOpen record;
    record.handle = open.id | kProcessWide;
    record.thread = open.thread;
    record.name = open.name;
    record.domain = open.domain;
    record.start_ns = open.start_ns;
    record.process_wide = 1;
    writer.add(record);
    open.announced = true;
  }
}

void abandon_process_ranges() {
  pthread_mutex_init(&mutex, nullptr);  // another thread may have held it at the fork
  table = nullptr;
  free_places = nullptr;
  free_count = 0;
  used_max = 0;
}

}  // namespace llmprof::inject
