// The hardware-counter sampler: a process of its own beside the target, one per GPU, because decoding takes most of a
// core and must not share a process (or CUPTI's one subscription) with the program that is watched. `llmprof run`
// starts the llmprof binary with a hidden command that calls run_counter_sampler(). It decodes in one thread and
// evaluates in another (pm_evaluator.h).
//
// It samples while the session's control page wants recording (no page: always), and ends when the page says finished,
// on SIGTERM, or when its parent dies; `ctl counters` and `run` pause it within a recording. Whatever was collected by
// then is decoded and stored. SIGINT is left to the target. Everything that goes wrong is a Note in its spool: a
// missing permission, another profiler in the way, lost samples, fewer counters, a longer interval. Bounds: the
// hardware buffer is 128 MB of pinned memory, four counter images take 230 to 280 MB for a GH100.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace llmprof::samplers {

struct CounterSamplerOptions {
  std::string folder;       // the session folder; writes samples/counters-N.spool
  int gpu_index = -1;       // N: NVML's index; -1: looked up by gpu_uuid. Which GPU, if gpu_uuid is empty
  std::string gpu_uuid;     // "GPU-..."
  int64_t interval_ns = 0;  // 0: default_interval_ns() of the steps; longer where decoding cannot keep up
  std::string cupti_path;   // empty: nvidia::cupti_candidates(program)
  std::string program;      // what is being watched, for that search
  size_t metrics_max = 0;   // 0: as many as fit into one pass
  bool operations = false;  // the core of the set of PmFocus::kOperations, from the start (core_size())
  int drain_ms = 20;        // how often the hardware buffer is emptied; seldomer at long intervals
  // When the file reaches half of this, two samples become one record, and again at every further sixteenth: 100 us
  // samples of 19 counters pass half in minutes, and hours stay near the cap. No record grows longer than a second.
  uint64_t file_cap_bytes = uint64_t{256} << 20U;
  // If not -1: a line is written here as soon as sampling runs ("sampling GH100 19\n") or cannot ("unavailable KEY\n"),
  // and the descriptor is closed.
  int ready_fd = -1;
};

// The process's main function. 0 if samples or an explanation were stored, 1 if the spool could not be written.
int run_counter_sampler(const CounterSamplerOptions& options);

// Where decoding keeps up: 200 us, which takes half a core to a whole one; longer on few CPUs, and where a usual step
// of the program takes so long that a tenth of it is longer (0: not known), 2 ms at most. Steps become known while
// sampling runs (step_interval.h).
int64_t default_interval_ns(int64_t step_ns, int cpus);
constexpr int64_t kIntervalMinNs = 10000, kIntervalMaxNs = 100000000;

// A short session (a few samples of the first metrics), for `llmprof doctor`. Call it in a process that may die.
struct CounterProbe {
  int code = -1;     // cupti_profiler::Code: 0 it works
  std::string call;  // what failed
  std::string text;  // in words
  std::string chip;
  size_t metrics = 0, samples = 0;
  int support_vgpu = 0, support_confidential = 0, support_wsl = 0, support_architecture = 0;
};
CounterProbe probe_counters(const std::vector<std::string>& cupti_paths, const std::string& gpu_uuid, int gpu_index);

}  // namespace llmprof::samplers
