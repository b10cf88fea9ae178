// The page of memory that a session shares between `llmprof run`, `llmprof ctl` and every watched process: a small file
// "control" in the session folder, mapped by all. Fixed layout, lock-free; the version guards it.
//
// Who writes what: `run` creates it and sets the plan; `ctl` and `run` set wanted_level and raise command; every
// watched process owns one slot and writes its progress there, at most every drain period; counter samplers tell when
// they sample. A process finds no free slot when kSlots processes are watched; it records all the same, without
// progress.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>

namespace llmprof::session {

constexpr uint64_t kControlMagic = 0x316C74634D4C4CULL;  // "LLMctl1"
constexpr uint32_t kControlVersion = 3;
constexpr uint32_t kSlots = 256;

struct Slot {
  std::atomic<int64_t> process_id;  // 0 free; set by compare-exchange
  std::atomic<int64_t> heartbeat_ns;
  std::atomic<uint64_t> kernels;
  std::atomic<uint64_t> bytes;
  std::atomic<uint32_t> level;  // spool::Level it records at
  std::atomic<uint32_t> state;  // SlotState
  // Of the kind of step that takes most of the process's time (capture/inject/windows/step_keys.h): what it usually
  // takes, 0 where that is not known; how many steady unrecorded ones were seen while counters were sampled and while
  // they were not; and what sampling slows them by, as a share, with its standard error, -1 where that is not known.
  std::atomic<int64_t> step_ns;
  std::atomic<uint32_t> steps_with_counters, steps_without_counters;
  std::atomic<float> counters_cost, counters_cost_error;
};

enum class SlotState : uint32_t { kStarting, kRecording, kNoCupti, kCuptiHeld, kNoSpool, kEnded };

// Of a process that is there.
inline bool is_live(const Slot& slot) {
  return slot.process_id.load(std::memory_order_relaxed) != 0 &&
         slot.state.load(std::memory_order_relaxed) != static_cast<uint32_t>(SlotState::kEnded);
}

// Whether hardware counters are to be sampled while recording is wanted, and who says so.
enum class Counters : uint32_t { kSampled, kOffForComparison, kOffTooCostly, kOffByHand, kOnByHand };
inline bool sampled(Counters counters) { return counters == Counters::kSampled || counters == Counters::kOnByHand; }

struct Control {
  uint64_t magic;
  uint32_t version;
  std::atomic<uint32_t> wanted_level;      // spool::Level; kOff while armed
  std::atomic<uint32_t> command;           // raised by one at every change, so that a watcher sees it
  std::atomic<uint32_t> finished;          // 1 once the target of `run` has ended
  uint32_t planned_level;                  // spool::Level that --mode names: what the delay and `ctl start` switch to
  std::atomic<int64_t> record_until_ns;    // CLOCK_REALTIME; 0 for no end (--duration)
  std::atomic<uint32_t> counters;          // Counters; by `run`, or `ctl counters`
  std::atomic<int64_t> counters_since_ns;  // by samplers: sampled since; negative: not sampled since; 0: changing
  Slot slots[kSlots];
};

// The page in a file that is open for reading, or for both; null if it holds none of this version. Unmapped by its
// size.
inline Control* map_control(int fd, bool writable) {
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(sizeof(Control))) return nullptr;
  void* const page = mmap(nullptr, sizeof(Control), writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return nullptr;
  Control* const control = static_cast<Control*>(page);
  if (control->magic == kControlMagic && control->version == kControlVersion) return control;
  munmap(page, sizeof(Control));
  return nullptr;
}

// Environment of the watched process. Everything else is in the session folder.
constexpr const char* kEnvFolder = "LLMPROF_SESSION";              // absolute path of the session folder
constexpr const char* kEnvLevel = "LLMPROF_LEVEL";                 // light, default or deep
constexpr const char* kEnvCaptureRange = "LLMPROF_CAPTURE_RANGE";  // NVTX text: record only inside it
constexpr const char* kEnvSteps = "LLMPROF_STEPS";                 // stop after this many closings of the step range
constexpr const char* kEnvUnrecorded = "LLMPROF_UNRECORDED";  // auto or off: unrecorded windows that measure distortion
constexpr const char* kEnvBudget = "LLMPROF_BUDGET";          // percent that recording may slow the run by
constexpr const char* kEnvAdapt = "LLMPROF_ADAPT";  // auto or off: whether a mode that costs too much is lowered
// Set by a program of ours that begins captures of graphs only while it is recorded, so that CUPTI may leave it.
constexpr const char* kEnvCapturesRecorded = "LLMPROF_CAPTURES_RECORDED";
constexpr const char* kEnvNext = "LLMPROF_NEXT_INJECTION";  // a foreign CUDA_INJECTION64_PATH to load as well
constexpr const char* kEnvTorch = "LLMPROF_TORCH";          // 1: operators of PyTorch (the hook module reads it)

// Files of a session folder:
//   session.json            what was run, how, when, how it ended; written by `run`
//   control                 the page above
//   spool/PID-START.spool   one per watched process; START is CLOCK_REALTIME ns at load
//   samples/nvml.spool      NVML and GPM readings, all GPUs
//   samples/counters-N.spool  hardware counters of NVML's GPU N
//   samples/counters.log    what a counter sampler printed; only if it did

}  // namespace llmprof::session
