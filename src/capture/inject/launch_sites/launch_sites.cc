#include "capture/inject/launch_sites/launch_sites.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#include <atomic>

#include "capture/inject/inject.h"
#include "capture/inject/launch_sites/launch_symbols.h"

namespace llmprof::inject {
namespace {

constexpr size_t kAddressesMax = kFramesMax + 16;  // with frames that are cut off or folded later
constexpr size_t kFunctionsMax = 4096;             // a power of two
constexpr size_t kNameBytes = size_t{1} << 20;     // of all functions
constexpr size_t kTextBytes = size_t{512} << 10;   // of stacks between resolving and draining
constexpr size_t kLinesMax = 8192;                 // distinct addresses remembered; a power of two
constexpr size_t kLineBytes = size_t{512} << 10;
constexpr size_t kLineSizeMax = 256;

// Zero is the start state of everything here, so it costs no memory until it is used.
struct Function {
  std::atomic<uint64_t> key;  // 0: free
  std::atomic<uint32_t> launches;
  std::atomic<const char*> name;  // in `function_names`
};

enum SlotState : uint32_t { kFree, kTaken, kSampled, kResolved };
struct Slot {
  std::atomic<uint32_t> state;
  uint32_t correlation;
  int64_t time_ns;
  int64_t thread_id;
  const char* function;
  const char* text;
  uint32_t text_size;
  uint32_t address_count;
  uintptr_t addresses[kAddressesMax];
};

struct Line {
  uintptr_t address;
  uint32_t at, size;
};

Function functions[kFunctionsMax];
char function_names[kNameBytes];
std::atomic<size_t> names_used;
Slot slots[kPendingMax];
std::atomic<uint32_t> next_slot;
std::atomic<uint32_t> pending;
std::atomic<uint32_t> sampled;

// Why a stack that was wanted is missing.
enum Missing : uint32_t { kPendingFull, kProcessFull, kNamesFull, kFunctionsFull, kUnwritten, kMissingReasons };
constexpr const char* kMissingTexts[kMissingReasons] = {
    "512 stacks were waiting to be written",
    "the process had its 4096 stacks",
    "the function_names of functions filled 1 MiB",
    "4096 functions are distinguished, launches of others were not sampled",
    "the process ended before they were written",
};
static_assert(kPendingMax == 512 && kSamplesMax == 4096 && kNameBytes == size_t{1} << 20 && kFunctionsMax == 4096);
std::atomic<uint64_t> missing[kMissingReasons];  // stacks; kFunctionsFull: 1 if it happened
uint64_t missing_told[kMissingReasons];          // of those, in the spool; under its lock

enum Walking : uint32_t { kNotLooked, kMay, kMayNot };
std::atomic<uint32_t> may_walk;
thread_local bool inside = false;

// Of whoever resolves or drains.
std::atomic<bool> busy;
char texts[kTextBytes];
size_t texts_used = 0;
Line lines[kLinesMax];
size_t line_count = 0;
char line_bytes[kLineBytes];
size_t line_bytes_used = 0;
unsigned long long loads_seen = 0, unloads_seen = 0;

class Busy {
 public:
  Busy() : mine_(!busy.exchange(true, std::memory_order_acquire)) {}
  ~Busy() {
    if (mine_) busy.store(false, std::memory_order_release);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  bool mine() const { return mine_; }

 private:
  bool mine_;
};

uint64_t mixed(uint64_t key) {
  key *= 0x9E3779B97F4A7C15ULL;
  return key ^ (key >> 32);
}

// ---- on the program's thread ---------------------------------------------------------------------------------------

// Null where the table is full around its place.
Function* function_of(uint64_t key) {
  constexpr size_t kProbesMax = 32;
  if (key == 0) key = 1;
  const size_t first = mixed(key);
  for (size_t i = 0; i < kProbesMax; ++i) {
    Function& place = functions[(first + i) % kFunctionsMax];
    uint64_t known = place.key.load(std::memory_order_relaxed);
    if (known == key) return &place;
    if (known == 0 && (place.key.compare_exchange_strong(known, key, std::memory_order_relaxed) || known == key))
      return &place;
  }
  return nullptr;
}

// Kept for as long as the process; null if there is no room. Two threads may keep a name twice.
const char* kept_name(Function& function, const char* name) {
  const char* kept = function.name.load(std::memory_order_acquire);
  if (kept != nullptr) return kept;
  const size_t size = strnlen(name, spool::kTextMax);
  const size_t at = names_used.fetch_add(size + 1, std::memory_order_relaxed);
  if (at + size + 1 > kNameBytes) {
    names_used.fetch_sub(size + 1, std::memory_order_relaxed);
    return nullptr;
  }
  memcpy(function_names + at, name, size);
  function_names[at + size] = '\0';
  function.name.store(function_names + at, std::memory_order_release);
  return function_names + at;
}

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* data) {
  Slot& slot = *static_cast<Slot*>(data);
  int before_call = 0;
  const uintptr_t address = _Unwind_GetIPInfo(context, &before_call);
  if (address == 0) return _URC_END_OF_STACK;
  // A return address may lie in the next function already, where the call is the last thing of its own.
  slot.addresses[slot.address_count++] = before_call != 0 ? address : address - 1;
  return slot.address_count == kAddressesMax ? _URC_END_OF_STACK : _URC_NO_REASON;
}

void take_sample(Function& function, const char* kernel_name, uint32_t correlation) {
  if (sampled.load(std::memory_order_relaxed) >= kSamplesMax) {
    missing[kProcessFull].fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Slot& slot = slots[next_slot.fetch_add(1, std::memory_order_relaxed) % kPendingMax];
  uint32_t expected = kFree;
  const char* const name = kept_name(function, kernel_name);
  if (name == nullptr || !slot.state.compare_exchange_strong(expected, kTaken, std::memory_order_acquire)) {
    missing[name == nullptr ? kNamesFull : kPendingFull].fetch_add(1, std::memory_order_relaxed);
    return;
  }
  sampled.fetch_add(1, std::memory_order_relaxed);
  slot.correlation = correlation;
  slot.time_ns = now_ns();
  slot.thread_id = thread_id();
  slot.function = name;
  slot.address_count = 0;
  // Of libgcc, linked statically: it reads the unwind tables of the modules and, unlike backtrace() of libc, loads and
  // allocates nothing at its first call. Code without such tables ends the walk.
  _Unwind_Backtrace(add_frame, &slot);
  pending.fetch_add(1, std::memory_order_relaxed);
  slot.state.store(kSampled, std::memory_order_release);
}

// ---- addresses to lines --------------------------------------------------------------------------------------------

void forget_lines() {
  memset(lines, 0, sizeof lines);
  line_count = 0;
  line_bytes_used = 0;
}

// Libraries that move between call stacks within a thread: the words at the end of such a stack are not return
// addresses for certain, and walking it could read anywhere.
bool switches_stacks(const char* path) {
  const char* const slash = strrchr(path, '/');
  const char* const module = slash != nullptr ? slash + 1 : path;
  for (const char* name : {"_greenlet.", "libboost_context.", "libboost_coroutine."})
    if (strncmp(module, name, strlen(name)) == 0) return true;
  return false;
}

// The modules of the process: whether there are new ones, and whether one was unloaded.
void look_at_modules() {
  struct Modules {
    unsigned long long loads = 0, unloads = 0;
    bool switching = false;
  } now;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        Modules& modules = *static_cast<Modules*>(data);
        modules.loads = info->dlpi_adds;
        modules.unloads = info->dlpi_subs;
        if (modules.loads == loads_seen) return 1;  // nothing new
        modules.switching |= info->dlpi_name != nullptr && switches_stacks(info->dlpi_name);
        return 0;
      },
      &now);
  if (now.switching) may_walk.store(kMayNot, std::memory_order_relaxed);
  if (may_walk.load(std::memory_order_relaxed) == kNotLooked) may_walk.store(kMay, std::memory_order_relaxed);
  if (now.unloads != unloads_seen) forget_lines();  // another module may lie there now
  loads_seen = now.loads;
  unloads_seen = now.unloads;
}

// Valid until the next call.
std::string_view line_of(uintptr_t address) {
  if (line_count * 2 >= kLinesMax || line_bytes_used + kLineSizeMax > kLineBytes) forget_lines();
  size_t i = mixed(address) % kLinesMax;
  while (lines[i].address != 0 && lines[i].address != address) i = (i + 1) % kLinesMax;
  Line& line = lines[i];
  if (line.address == 0) {
    line.address = address;
    line.at = static_cast<uint32_t>(line_bytes_used);
    line.size = static_cast<uint32_t>(describe_address(address, line_bytes + line_bytes_used, kLineSizeMax));
    line_bytes_used += line.size;
    ++line_count;
  }
  return {line_bytes + line.at, line.size};
}

// ---- into the spool ------------------------------------------------------------------------------------------------

// What is missing since the last time. Not left to the end of the process, which may be killed.
void tell_missing(spool::Writer& writer) {
  for (uint32_t reason = 0; reason < kMissingReasons; ++reason) {
    const uint64_t count = missing[reason].load(std::memory_order_relaxed);
    if (count == missing_told[reason]) continue;
    spool::Note note;
    note.key = writer.text("launch-sites-dropped");
    note.text = writer.text(kMissingTexts[reason]);
    note.count = count - missing_told[reason];
    writer.add(note);
    missing_told[reason] = count;
  }
}

}  // namespace

bool is_sampled_launch(uint32_t occurrence) {
  return occurrence != 0 && (occurrence & (occurrence - 1)) == 0 && occurrence < 1U << kSamplesPerFunction;
}

void sample_launch_site(uint64_t function_key, const char* kernel_name, uint32_t correlation) {
  if (kernel_name == nullptr || inside || may_walk.load(std::memory_order_relaxed) != kMay) return;
  Function* const function = function_of(function_key);
  if (function == nullptr) {
    // Which of its launches is the 1st, 2nd, 4th, ... is not known, so there is nothing to count.
    if (missing[kFunctionsFull].load(std::memory_order_relaxed) == 0) missing[kFunctionsFull].store(1);
    return;
  }
  if (!is_sampled_launch(function->launches.fetch_add(1, std::memory_order_relaxed) + 1)) return;
  const int saved_errno = errno;
  inside = true;
  take_sample(*function, kernel_name, correlation);
  inside = false;
  errno = saved_errno;
}

void resolve_launch_sites() {
  const Busy guard;
  if (!guard.mine()) return;
  look_at_modules();
  if (pending.load(std::memory_order_relaxed) == 0) return;
  const uint32_t oldest = next_slot.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kPendingMax; ++i) {
    Slot& slot = slots[(oldest + i) % kPendingMax];
    if (slot.state.load(std::memory_order_acquire) != kSampled) continue;
    if (texts_used + spool::kTextMax > kTextBytes) return;  // the rest after the next drain
    StackText text;
    for (uint32_t frame = 0; frame < slot.address_count; ++frame) text.add(line_of(slot.addresses[frame]));
    memcpy(texts + texts_used, text.view().data(), text.view().size());
    slot.text = texts + texts_used;
    slot.text_size = static_cast<uint32_t>(text.view().size());
    texts_used += text.view().size();
    slot.state.store(kResolved, std::memory_order_relaxed);
  }
}

void drain_launch_sites(spool::Writer& writer) {
  tell_missing(writer);
  if (pending.load(std::memory_order_relaxed) == 0) return;
  const Busy guard;
  if (!guard.mine()) return;
  const uint32_t oldest = next_slot.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kPendingMax; ++i) {
    Slot& slot = slots[(oldest + i) % kPendingMax];
    if (slot.state.load(std::memory_order_relaxed) != kResolved) continue;
    spool::ThreadDef thread;
    thread.thread_id = slot.thread_id;
    spool::LaunchSite record;
    record.time_ns = slot.time_ns;
    record.thread = writer.define(thread);
    record.function = writer.text(slot.function);
    record.stack = writer.text({slot.text, slot.text_size});
    record.correlation = slot.correlation;
    if (slot.text_size != 0) writer.add(record);
    pending.fetch_sub(1, std::memory_order_relaxed);
    slot.state.store(kFree, std::memory_order_release);
  }
  texts_used = 0;
}

void finish_launch_sites(spool::Writer& writer) {
  drain_launch_sites(writer);
  missing[kUnwritten].fetch_add(pending.load(std::memory_order_relaxed), std::memory_order_relaxed);
  tell_missing(writer);
}

void abandon_launch_sites() {
  if (next_slot.load(std::memory_order_relaxed) != 0) {
    for (Function& function : functions) {
      function.key.store(0, std::memory_order_relaxed);
      function.launches.store(0, std::memory_order_relaxed);
      function.name.store(nullptr, std::memory_order_relaxed);
    }
    for (Slot& slot : slots) slot.state.store(kFree, std::memory_order_relaxed);
    forget_lines();
    abandon_symbols(busy.load(std::memory_order_relaxed));
  }
  names_used.store(0, std::memory_order_relaxed);
  next_slot.store(0, std::memory_order_relaxed);
  pending.store(0, std::memory_order_relaxed);
  sampled.store(0, std::memory_order_relaxed);
  for (std::atomic<uint64_t>& count : missing) count.store(0, std::memory_order_relaxed);
  memset(missing_told, 0, sizeof missing_told);
  busy.store(false, std::memory_order_relaxed);
  may_walk.store(kNotLooked, std::memory_order_relaxed);
  texts_used = 0;
  loads_seen = unloads_seen = 0;
  inside = false;
}

LaunchSiteCounts launch_site_counts() {
  LaunchSiteCounts counts;
  counts.sampled = sampled.load(std::memory_order_relaxed);
  for (const Missing reason : {kPendingFull, kProcessFull, kNamesFull})
    counts.dropped += missing[reason].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace llmprof::inject
