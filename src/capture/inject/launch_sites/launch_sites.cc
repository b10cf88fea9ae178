#include "capture/inject/launch_sites/launch_sites.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>

#include "capture/inject/inject.h"
#include "capture/spool/build_id.h"

namespace llmprof::inject {
namespace {

constexpr size_t kFunctionsMax = 4096;          // a power of two
constexpr size_t kNameBytes = size_t{1} << 20;  // of all functions
constexpr size_t kModulesMax = 256;             // that launches come from

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
  int32_t frame_count;
  uintptr_t addresses[spool::kFramesMax];  // once resolved: offsets in their modules
  uint16_t modules[spool::kFramesMax];     // once resolved: 1 + index among `modules`, 0 for code of no module
};

struct Module {
  char path[PATH_MAX];
  char build_id[65];  // hexadecimal
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
    "the names of functions filled 1 MiB",
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
Module modules[kModulesMax + 1];  // and one being looked at
size_t module_count = 0;
unsigned long long loads_seen = 0;

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
  slot.addresses[slot.frame_count++] = before_call != 0 ? address : address - 1;
  return slot.frame_count == spool::kFramesMax ? _URC_END_OF_STACK : _URC_NO_REASON;
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
  slot.frame_count = 0;
  // Of libgcc, linked statically: it reads the unwind tables of the modules and, unlike backtrace() of libc, loads and
  // allocates nothing at its first call. Code without such tables ends the walk.
  _Unwind_Backtrace(add_frame, &slot);
  pending.fetch_add(1, std::memory_order_relaxed);
  slot.state.store(kSampled, std::memory_order_release);
}

// ---- addresses to modules ------------------------------------------------------------------------------------------

// Libraries that move between call stacks within a thread: the words at the end of such a stack are not return
// addresses for certain, and walking it could read anywhere.
bool switches_stacks(const char* path) {
  const char* const slash = strrchr(path, '/');
  const char* const module = slash != nullptr ? slash + 1 : path;
  for (const char* name : {"_greenlet.", "libboost_context.", "libboost_coroutine."})
    if (strncmp(module, name, strlen(name)) == 0) return true;
  return false;
}

void look_at_modules() {
  struct Modules {
    unsigned long long loads = 0;
    bool switching = false;
  } now;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        Modules& all = *static_cast<Modules*>(data);
        all.loads = info->dlpi_adds;
        if (all.loads == loads_seen) return 1;  // nothing new
        all.switching |= info->dlpi_name != nullptr && switches_stacks(info->dlpi_name);
        return 0;
      },
      &now);
  loads_seen = now.loads;
  if (now.switching) may_walk.store(kMayNot, std::memory_order_relaxed);
  if (may_walk.load(std::memory_order_relaxed) == kNotLooked) may_walk.store(kMay, std::memory_order_relaxed);
}

std::string_view build_id_of(const dl_phdr_info& info) {
  for (size_t i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& notes = info.dlpi_phdr[i];
    if (notes.p_type != PT_NOTE) continue;
    for (size_t k = 0; k < info.dlpi_phnum; ++k) {  // what lies outside is not in memory
      const ElfW(Phdr)& loaded = info.dlpi_phdr[k];
      if (loaded.p_type != PT_LOAD || notes.p_vaddr < loaded.p_vaddr ||
          notes.p_vaddr + notes.p_memsz > loaded.p_vaddr + loaded.p_memsz)
        continue;
      const char* const at = reinterpret_cast<const char*>(info.dlpi_addr + notes.p_vaddr);
      const std::string_view found = spool::build_id_among({at, notes.p_memsz}, notes.p_align);
      if (!found.empty()) return found;
    }
  }
  return {};
}

// 1 + index among `modules`, which keep what is unloaded; 0 if there is no room.
uint16_t index_of(const dl_phdr_info& info, bool is_program) {
  Module& fresh = modules[module_count];
  fresh = Module{};
  const char* const name = info.dlpi_name != nullptr ? info.dlpi_name : "";
  if (is_program)
    static_cast<void>(readlink("/proc/self/exe", fresh.path, sizeof fresh.path - 1) != 0);
  else if (name[0] == '/' || strchr(name, '/') == nullptr || realpath(name, fresh.path) == nullptr)
    strncpy(fresh.path, name, sizeof fresh.path - 1);
  const std::string_view id = build_id_of(info);
  for (size_t i = 0; i < id.size() && 2 * i + 2 < sizeof fresh.build_id; ++i) {
    fresh.build_id[2 * i] = "0123456789abcdef"[static_cast<uint8_t>(id[i]) >> 4];
    fresh.build_id[2 * i + 1] = "0123456789abcdef"[id[i] & 0xF];
  }
  size_t i = 0;
  while (strcmp(modules[i].path, fresh.path) != 0 || strcmp(modules[i].build_id, fresh.build_id) != 0) ++i;
  if (i == kModulesMax) return 0;
  module_count = std::max(module_count, i + 1);
  return static_cast<uint16_t>(i + 1);
}

// Which modules the addresses of a stack lie in, and where.
void resolve(Slot& slot) {
  struct Search {
    Slot& slot;
    bool is_program = true;  // comes first
  } search{slot};
  memset(slot.modules, 0, sizeof slot.modules);
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        Search& all = *static_cast<Search*>(data);
        uint16_t module = 0;
        for (size_t i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
          for (int32_t frame = 0; frame < all.slot.frame_count; ++frame) {
            uintptr_t& address = all.slot.addresses[frame];
            if (all.slot.modules[frame] != 0 || address - info->dlpi_addr - segment.p_vaddr >= segment.p_memsz)
              continue;
            if (module == 0) module = index_of(*info, all.is_program);
            all.slot.modules[frame] = module;
            if (module != 0) address -= info->dlpi_addr;
          }
        }
        all.is_program = false;
        return 0;
      },
      &search);
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
    resolve(slot);
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
    record.correlation = slot.correlation;
    record.frame_count = slot.frame_count;
    for (int32_t frame = 0; frame < slot.frame_count; ++frame) {
      if (slot.modules[frame] == 0) continue;
      const Module& module = modules[slot.modules[frame] - 1];
      spool::ModuleDef def;
      def.path = writer.text(module.path);
      def.build_id = writer.text(module.build_id);
      record.frames[frame] = {writer.define(def), slot.addresses[frame]};
    }
    writer.add(record);
    pending.fetch_sub(1, std::memory_order_relaxed);
    slot.state.store(kFree, std::memory_order_release);
  }
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
  }
  names_used.store(0, std::memory_order_relaxed);
  next_slot.store(0, std::memory_order_relaxed);
  pending.store(0, std::memory_order_relaxed);
  sampled.store(0, std::memory_order_relaxed);
  for (std::atomic<uint64_t>& count : missing) count.store(0, std::memory_order_relaxed);
  memset(missing_told, 0, sizeof missing_told);
  busy.store(false, std::memory_order_relaxed);
  may_walk.store(kNotLooked, std::memory_order_relaxed);
  module_count = 0;
  loads_seen = 0;
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
