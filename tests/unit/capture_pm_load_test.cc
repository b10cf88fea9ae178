// The counter sampler under load: when decoding counts as too slow, and that deep mode does not lose a busy stretch to
// finding out.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "capture/samplers/pm_load.h"
#include "capture/samplers/pm_metrics.h"
#include "capture/samplers/pm_sampler.h"
#include "capture_samplers_support.h"

namespace llmprof::samplers {
namespace {

using testing::kFakeCupti;
using testing::kFakeNvml;
using testing::Settings;
using testing::SpoolContent;
using testing::TemporaryFolder;

constexpr int64_t kMs = 1000000, kPeriodNs = 20 * kMs;

// The sampler's loop where decoding takes `cost` of the time that is decoded, and `longest_ns` at most what had piled
// up. Runs until it is behind; returns how long that took, -1 if it never was.
struct Drains {
  PmLoad load;
  int64_t begin_ns = 0, end_ns = 0, longest_ns = 0;
  explicit Drains(int64_t image_ns) : load(0, image_ns) {}

  // A tick, later by `held_ns`.
  void tick(double cost, int64_t held_ns = 0) {
    const int64_t next_ns = std::max(begin_ns + kPeriodNs, end_ns) + held_ns;
    end_ns = next_ns + static_cast<int64_t>(cost * static_cast<double>(next_ns - begin_ns));
    begin_ns = next_ns;
    longest_ns = std::max(longest_ns, end_ns - begin_ns);
    load.drained(begin_ns, end_ns);
  }
  bool behind_within(double cost, int ticks) {
    for (int i = 0; i < ticks && !load.behind(); ++i) tick(cost);
    return load.behind();
  }
};

TEST(PmLoad, IsBehindBeforeAnImageIsFull) {
  for (const int64_t image_ms : {100, 200}) {
    for (const double cost : {1.1, 1.2, 1.35, 1.6}) {
      Drains drains(image_ms * kMs);
      EXPECT_TRUE(drains.behind_within(cost, 100)) << image_ms << " " << cost;
      EXPECT_GT(drains.longest_ns, image_ms * kMs / 2) << "a burst is ridden out";
      EXPECT_LT(drains.longest_ns, image_ms * kMs) << image_ms << " " << cost;
    }
  }
}

TEST(PmLoad, IsNotBehindWhereDecodingKeepsUp) {
  Drains drains(200 * kMs);
  EXPECT_FALSE(drains.behind_within(0.97, 1000));
}

TEST(PmLoad, IsNotBehindAfterItWasKeptFromRunning) {
  Drains drains(200 * kMs);
  for (int i = 0; i < 10; ++i) drains.tick(0.9);
  drains.tick(0.9, 250 * kMs);
  EXPECT_GT(drains.longest_ns, 200 * kMs);
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(drains.load.behind()) << i;
    drains.tick(0.9);
  }
}

TEST(PmLoad, AShortBurstIsNoReason) {
  Drains drains(200 * kMs);
  EXPECT_FALSE(drains.behind_within(1.2, 6));
  EXPECT_FALSE(drains.behind_within(0.6, 50));
}

TEST(PmLoad, TheCoreOfDeepModeHoldsWhatFlopsAreCountedWith) {
  PmMetricSet set;
  size_t rest = 0;
  for (const PmCandidate& candidate : pm_candidates(PmFocus::kOperations))
    set.metrics.push_back({candidate.column, candidate.metrics.front(), candidate.scale, candidate.total});
  const size_t core = core_size(set);
  ASSERT_LT(core, set.metrics.size());
  for (size_t i = core; i < set.metrics.size(); ++i) {
    const std::string column = set.metrics[i].column;
    EXPECT_EQ(column.rfind("fma_", 0), std::string::npos) << column;
    EXPECT_TRUE(column != "tensor_active_frac" && column != "sm_clock_hz") << column;
    rest += column == "l2_hit_frac" ? 1 : 0;
  }
  EXPECT_EQ(rest, 1U);
}

// A GPU on which more counters than the core's cannot be decoded in time.
TEST(PmLoad, DeepModeSamplesABusyGpuWithoutARestart) {
  const TemporaryFolder folder;
  Settings settings{{"LLMPROF_LIBCUDA", kFakeCupti}, {"LLMPROF_NVML", kFakeNvml}, {"FAKE_PM_SLOW_ABOVE", "12"}};
  CounterSamplerOptions options;
  options.folder = folder.path();
  options.gpu_uuid = "GPU-00000000-0000-0000-0000-000000000000";
  options.cupti_path = kFakeCupti;
  options.interval_ns = 200000;
  options.operations = true;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    options.ready_fd = ready[1];
    _exit(run_counter_sampler(options));
  }
  close(ready[1]);
  char first = 0;
  EXPECT_EQ(read(ready[0], &first, 1), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  kill(child, SIGTERM);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  close(ready[0]);
  EXPECT_EQ(status, 0);

  const SpoolContent spool = testing::read_spool(folder.path() + "/samples/counters-0.spool");
  EXPECT_EQ(spool.note_counts.count("counter-samples-lost"), 0U) << spool.note("counter-samples-lost");
  ASSERT_EQ(spool.sets.size(), 1U);
  ASSERT_GT(spool.counters.size(), 2000U);
  for (size_t i = 1; i < spool.counters.size(); ++i)
    ASSERT_EQ(spool.counters[i].start_ns, spool.counters[i - 1].end_ns) << i;
  // What the FLOPs of a stage are computed from.
  for (const char* column : {"sm_active_frac", "tensor_active_frac", "sm_clock_hz", "dram_read_bytes_per_s",
                             "dram_write_bytes_per_s", "fma_instructions_per_s", "fma_half_instructions_per_s"})
    EXPECT_GE(spool.column("pm-sampling", column), 0) << column;
  const std::string note = spool.note("recorder-note");
  EXPECT_NE(note.find("l2_hit_frac"), std::string::npos) << "what is left out is said: " << note;
  EXPECT_EQ(note.find("fma_"), std::string::npos) << note;
}

}  // namespace
}  // namespace llmprof::samplers
