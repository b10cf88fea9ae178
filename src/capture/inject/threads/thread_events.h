// The hot half of thread_log.h: what NVTX callbacks and library hooks call. A thread's log is a ring of fixed-size
// entries with one producer, its thread, and one consumer at a time, whoever holds the spool; so appending takes no
// lock and no atomic read-modify-write. Bound: 16384 entries, 256 open ranges and two caches of definitions, a megabyte
// of address space for each thread that has events, of which it touches what it fills between two drains.
//
// Texts and shapes become ids of the spool when they are seen: from the thread's cache, which needs one hash, or under
// the spool's lock where the cache misses.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/cpu_wait.h"
#include "capture/inject/inject.h"
#include "capture/inject/python/python_stack.h"
#include "capture/spool/records.h"
#include "capture/spool/writer.h"

namespace llmprof::inject {

using spool::Id;
using spool::PayloadKind;

struct Payload {
  PayloadKind kind = PayloadKind::kNone;
  double value = 0;
};

enum class EventKind : uint8_t {
  kRange,
  kMark,
  kLibraryCall,
  kRecurringCall,
  kProductRows,
  kHostPlace,
  kApiCall,
  kHostPace,
  kCpuReading,
  kOperands
};

struct Event {
  EventKind kind = EventKind::kRange;
  PayloadKind payload_kind = PayloadKind::kNone;
  uint8_t process_wide = 0;
  int16_t depth = -1;  // of a push/pop range in its thread's stack
  Id definition = 0;   // name, library call definition, or Python stack of a place
  Id domain = 0;       // of a range; of an API call the stream that it names
  Id thread = 0;       // 0: the log's own
  // Of the range, library call or recurring call; of a first product its rows; of a place its kind; of an API call its
  // result << 32 | correlation id; of a probe of the CPU the thread's wait for one, as two's complement; the CPU time
  // of a reading; of operands the library call.
  uint64_t handle = 0;
  int64_t start_ns = 0;  // of operands the bits are the address of A
  int64_t end_ns = 0;    // and of B
  double payload = 0;    // and of D; of an API call the bits are the event that it names
};
static_assert(sizeof(Event) == 56);

// A power of two. A program that launches 100,000 kernels a second fills half of it between two drains.
constexpr uint32_t kEventsMax = 16384;
constexpr uint32_t kDepthMax = 256;       // ranges open at once in one thread; deeper ones are counted, not recorded
constexpr uint32_t kTextCacheSets = 256;  // of two entries each
constexpr uint32_t kShapeCacheSize = 256;
constexpr uint32_t kStreamCacheSize = 64;
constexpr uint32_t kStackCacheSize = 1024;

// A range between push and pop. The atomic members are read by whoever drains, as a sequence lock over handle.
struct OpenRange {
  std::atomic<uint64_t> handle;  // 0: nothing to read
  std::atomic<int64_t> start_ns;
  std::atomic<Id> name;
  std::atomic<Id> domain;
  const void* domain_key = nullptr;  // the domain's handle in the program
  int32_t level = 0;                 // how many ranges of this domain are open below it
  bool open = false;
  bool recorded = false;
  bool watched = false;
  Payload payload;
};

struct CachedText {
  uint64_t hash = 0;
  Id id = 0;
};

struct CachedShape {
  uint64_t hash = 0;
  Id id = 0;
};

// A stream's handle and what it stands for.
struct CachedStream {
  uintptr_t key = 0;
  const void* context = nullptr;
  uint32_t known = 0;  // 0: nothing here yet
  Id id = 0;
};

// The text of an open range, kept only while watches_ranges(). Its memory is reused by later ranges at this depth.
struct WatchedText {
  char* data = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;
};

// Zero-filled memory is a valid, empty log.
struct ThreadLog {
  // Written by the thread.
  alignas(64) std::atomic<uint32_t> head;
  uint32_t known_tail;  // no event beyond it has been read; the real tail may be further
  std::atomic<uint32_t> depth;
  uint32_t too_deep;  // ranges open beyond kDepthMax
  uint64_t last_handle;
  std::atomic<bool> ended;
  WatchedText* watched_texts;  // kDepthMax of them, null before the first
  // Written by whoever drains, with the spool locked.
  alignas(64) std::atomic<uint32_t> tail;
  std::atomic<Id> thread_def;
  ThreadLog* next;
  int64_t thread_id;
  char comm[16];
  uint64_t announced[kDepthMax];  // handles written as RangeOpen and not closed since
  // Written by the thread, read by whoever drains.
  OpenRange open[kDepthMax];
  Event events[kEventsMax];
  // The thread's own.
  CachedText texts[kTextCacheSets][2];
  CachedShape shapes[kShapeCacheSize];
  CachedStream streams[kStreamCacheSize];
  CachedShape stacks[kStackCacheSize];
};

// An occurrence of a step key that a range of the thread is (recording.h); no key: none.
struct StepKey;
struct OpenStep {
  StepKey* key = nullptr;
  int64_t begin_ns = 0;
  bool rare = false;  // a window was opened for it
};

struct CodeWatch;  // code_watch.h

struct ThreadState {
  ThreadLog* log = nullptr;
  uint64_t call = 0;          // library call that the thread is inside of
  int64_t call_start_ns = 0;  // 0 where nobody needed it yet
  bool call_asked = false;    // a graph node was captured under it
  int64_t api_start_ns = 0;   // of the outermost CUDA call that the thread is in, and what it is
  int64_t api_end_ns = 0;     // of the last one, 0: none is known
  uint32_t api_correlation = 0;
  uint32_t api_key = 0;
  uint32_t launches = 0, launches_since_wait = 0;  // counted where kernels tell the steps
  OpenStep steps[2];                               // of its outermost range, and of the one in it
  bool launches_graph = false;                     // the thread is inside the launch of a graph
  bool instantiates_graph = false;                 // the thread is inside a hooked call that makes an executable graph
  bool pass_begins = true;                         // no product since the last call that ends a pass
  uint8_t rows_seen = 0;                           // products recorded since (add_product_rows)
  int64_t product_rows = -1;                       // of the last of them
  bool waits = false;                              // the thread is inside a call that waits for the GPU
  bool passes_over = false;                        // the thread is inside a library call that nothing is recorded of
  int64_t pace_ns = 0;                             // when the last probe of its CPU's pace ended (host_pace.h)
  CpuWait cpu_wait;                                // as it was then
  uint8_t unplaced_launches = 0;                   // that pass before one has its Python stack read
  uint16_t placed_launches = 0;                    // whose stack was read, as far as that is counted
  uint32_t drawn = 0x9E3779B9;                     // of a sequence of random numbers
  uint32_t library_calls = 0;
  uint64_t enqueued_before = 0;  // calls of all threads that gave the GPU work, when the outermost CUDA call began
  CodeWatch* code_watch = nullptr;
  bool code_watch_asked = false;  // there may have been none left
  bool inside = false;            // the thread is inside the recorder: what it does there is not recorded
};
extern constinit thread_local ThreadState thread_state;

// False where this process is not watched. Decided by start() the first time, and again after fork in the child.
enum class Watch : uint8_t { kUnknown, kNo, kYes };
extern std::atomic<Watch> watch_state;
bool decide_watch();
inline bool watched() {
  Watch state = watch_state.load(std::memory_order_relaxed);
  return state == Watch::kYes || (state == Watch::kUnknown && decide_watch());
}

// The same where a wrong no would be for good: waits a little for a thread that is starting the recorder.
bool wait_for_watch();

// The calling thread's log; null where there is no memory.
ThreadLog* make_thread_log();
inline ThreadLog* thread_log() {
  ThreadLog* log = thread_state.log;
  return log != nullptr ? log : make_thread_log();
}

// Empties a full log of the calling thread; afterwards there is room.
void empty_own_log(ThreadLog& log);

inline void append(ThreadLog& log, const Event& event) {
  uint32_t head = log.head.load(std::memory_order_relaxed);
  if (head - log.known_tail == kEventsMax) {
    log.known_tail = log.tail.load(std::memory_order_acquire);
    if (head - log.known_tail == kEventsMax) empty_own_log(log);
  }
  log.events[head % kEventsMax] = event;
  log.head.store(head + 1, std::memory_order_release);
}

// The spool's id of a text; 0 for the empty one and where there is no spool.
Id text_id(ThreadLog& log, std::string_view text);
uint64_t text_hash(std::string_view text);

// The spool's id of the calling thread.
Id thread_def_id(ThreadLog& log);

// Gives a thread a name for the report: nvtxNameOsThread.
void name_thread(int64_t thread_id, std::string_view name);

// ---- ranges ------------------------------------------------------------------------------------------------------

// Push and pop of the calling thread. `domain_key` separates the stacks of domains. A range is recorded if `record`;
// pushing it otherwise only keeps the stack straight. Both return the range's level in its domain's stack, -1 if there
// is none to pop.
struct NewRange {
  const void* domain_key = nullptr;
  Id domain = 0;
  Id name = 0;
  Payload payload;
  bool record = false;
  bool watched = false;  // watched_text is told again when the range closes
  std::string_view watched_text;
};
int push_range(ThreadLog& log, const NewRange& range);
int pop_range(ThreadLog& log, const void* domain_key, Payload payload);

// nvtxRangeStart and End: any thread may end what another started. 0 if it could not be kept: 4096 can be open at once.
uint64_t start_process_range(ThreadLog& log, const NewRange& range);
void end_process_range(ThreadLog& log, uint64_t id, Payload payload);
// With the spool locked: writes RangeOpen for those that were open at `before_ns` already.
void announce_process_ranges(spool::Writer& writer, int64_t before_ns);
void abandon_process_ranges();

// Leaves in the report how many ranges could not be kept; written with the next drain.
void count_lost_range();

inline void add_mark(ThreadLog& log, Id domain, Id name, Payload payload) {
  Event event;
  event.kind = EventKind::kMark;
  event.definition = name;
  event.domain = domain;
  event.payload_kind = payload.kind;
  event.payload = payload.value;
  event.start_ns = now_ns();
  append(log, event);
}

// ---- library calls -----------------------------------------------------------------------------------------------

inline void add_recurring_call(ThreadLog& log, uint64_t key, int64_t time_ns) {
  Event event;
  step_recurs(key, time_ns);
  event.kind = EventKind::kRecurringCall;
  event.handle = key;
  event.start_ns = time_ns;
  append(log, event);
  thread_state.pass_begins = true;
}

// Whether a product with weights on so many rows tells of a pass: it is the first one, or its rows are others than
// those before. A step has a few of these; where each expert of a layer has rows of its own, the first kRowsMost stand
// for all.
constexpr uint8_t kRowsMost = 8;
inline bool tells_of_pass(int64_t rows) {
  const ThreadState& state = thread_state;
  return state.pass_begins || (rows != state.product_rows && state.rows_seen < kRowsMost);
}
inline void add_product_rows(ThreadLog& log, int64_t rows, int64_t time_ns) {
  ThreadState& state = thread_state;
  state.rows_seen = state.pass_begins ? uint8_t{1} : static_cast<uint8_t>(state.rows_seen + 1);
  state.pass_begins = false;
  state.product_rows = rows;
  Event event;
  event.kind = EventKind::kProductRows;
  event.handle = static_cast<uint64_t>(rows);
  event.start_ns = time_ns;
  append(log, event);
}

// The spool's id of the Python stack of the calling thread, from its cache; 0 where there is none.
Id python_stack_id(ThreadLog& log, FramesOf frames_of = FramesOf::kProgram);

// Where the thread was in its Python program from start to end.
inline void add_host_place(ThreadLog& log, spool::PlaceKind kind, Id stack, int64_t start_ns, int64_t end_ns) {
  Event event;
  event.kind = EventKind::kHostPlace;
  event.definition = stack;
  event.handle = static_cast<uint64_t>(kind);
  event.start_ns = start_ns;
  event.end_ns = end_ns;
  append(log, event);
}

// What the process has used of its CPUs when long code between two calls ends.
inline void add_cpu_reading(ThreadLog& log, int64_t start_ns, int64_t end_ns, int64_t cpu_ns) {
  Event event;
  event.kind = EventKind::kCpuReading;
  event.handle = static_cast<uint64_t>(cpu_ns);
  event.start_ns = start_ns;
  event.end_ns = end_ns;
  append(log, event);
}

// A number that no other event of the process has.
inline uint64_t next_handle(ThreadLog& log) { return ++log.last_handle; }

}  // namespace llmprof::inject
