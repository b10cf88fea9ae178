// The counter sampler's loop against a stand-in CUPTI: what is stored, what is dropped, what happens when the hardware
// buffer overflows, decoding falls behind, permission is missing or another profiler is in the way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/text_table.h"
#include "capture/samplers/background.h"
#include "capture/samplers/pm_sampler.h"
#include "capture/samplers/pm_session.h"
#include "capture/session/control.h"
#include "capture/spool/records.h"
#include "capture_samplers_support.h"

namespace llmprof::samplers {
namespace {

using testing::kFakeCupti;
using testing::kFakeNvml;
using testing::Settings;
using testing::SpoolContent;

// Runs the sampler for a while in a process of its own, as the launcher does, and reads what it stored.
struct SamplerRun {
  int exit_code = -1;
  std::string ready;  // what it wrote to its ready descriptor
  SpoolContent spool;
};

class Counters : public ::testing::Test {
 protected:
  Counters() : settings_{{"LLMPROF_CUDA", kFakeCupti}, {"LLMPROF_NVML", kFakeNvml}, {"CUDA_VISIBLE_DEVICES", "7"}} {
    options_.folder = folder_.path();
    options_.gpu_uuid = "GPU-00000000-0000-0000-0000-000000000000";
    options_.cupti_path = kFakeCupti;
    options_.interval_ns = 200000;
  }

  pid_t start(int& ready) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      options_.ready_fd = ends[1];
      _exit(run_counter_sampler(options_));
    }
    close(ends[1]);
    ready = ends[0];
    return child;
  }

  static std::string read_line(int fd) {
    std::string text;
    for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }

  SamplerRun finish(pid_t child, int ready) {
    SamplerRun run;
    run.ready = read_line(ready);
    close(ready);
    if (run.ready.rfind("sampling", 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(length_ms_));
    kill(child, SIGTERM);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    run.spool = testing::read_spool(folder_.path() + "/samples/counters-0.spool");
    return run;
  }

  // Ends the session, waits for the sampler and reads what it has written.
  SpoolContent ended(session::Control& page, pid_t child, int ready) {
    page.finished = 1;
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    close(ready);
    return testing::read_spool(folder_.path() + "/samples/counters-0.spool");
  }

  // The session's page, as `run` makes it; recording is wanted. Unmapped with the process.
  session::Control& control_page() {
    const int fd = open((folder_.path() + "/control").c_str(), O_RDWR | O_CREAT, 0600);
    EXPECT_EQ(ftruncate(fd, sizeof(session::Control)), 0);
    void* const memory = mmap(nullptr, sizeof(session::Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    EXPECT_NE(memory, MAP_FAILED);
    session::Control& page = *static_cast<session::Control*>(memory);
    page.magic = session::kControlMagic;
    page.version = session::kControlVersion;
    page.wanted_level = 1;
    return page;
  }

  SamplerRun sample() {
    int ready = -1;
    const pid_t child = start(ready);
    return finish(child, ready);
  }

  TemporaryFolder folder_;
  Settings settings_;
  CounterSamplerOptions options_;
  int length_ms_ = 400;
};

TEST_F(Counters, DeepModeCountsArithmeticToo) {
  length_ms_ = 50;
  options_.operations = true;
  const SpoolContent spool = sample().spool;
  EXPECT_GE(spool.column("pm-sampling", "fma_instructions_per_s"), 0);
  EXPECT_GE(spool.column("pm-sampling", "fma_half_instructions_per_s"), 0);
  EXPECT_NE(spool.fact("counters_metrics").find("tensor_active_frac=sm__pipe_tensor_cycles_active_realtime"),
            std::string::npos);
}

// A GPU on which more counters than the core's cannot be decoded in time.
TEST_F(Counters, DeepModeSamplesABusyGpuWithoutARestart) {
  const Settings slow{{"FAKE_PM_SLOW_ABOVE", "12"}};
  length_ms_ = 600;
  options_.operations = true;
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  const SpoolContent& spool = run.spool;
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

TEST_F(Counters, StoresEverySampleButTheFirst) {
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.ready, "sampling GH100 19");
  const SpoolContent& spool = run.spool;
  EXPECT_EQ(spool.role, "counters");
  EXPECT_TRUE(spool.summary.closed);
  EXPECT_EQ(spool.fact("counters_chip"), "GH100");
  EXPECT_EQ(spool.fact("counters_interval_ns"), "200000");
  EXPECT_EQ(spool.fact("counters_cupti_version"), "13.0.1");
  EXPECT_TRUE(spool.notes.empty()) << spool.notes.front().second;
  ASSERT_EQ(spool.sets.size(), 1U);
  EXPECT_EQ(spool.text(spool.sets.begin()->second.gpu_uuid), options_.gpu_uuid);
  ASSERT_GE(spool.counters.size(), 1500U);
  EXPECT_EQ(std::to_string(spool.counters.size()), spool.fact("counters_samples"));
  const int read = spool.column("pm-sampling", "dram_read_frac"),
            active = spool.column("pm-sampling", "sm_active_frac");
  ASSERT_EQ(read, 0);
  ASSERT_EQ(active, 2);
  size_t unknown = 0;
  for (size_t i = 0; i < spool.counters.size(); ++i) {
    const spool::GpuSample& sample = spool.counters[i];
    EXPECT_EQ(sample.end_ns - sample.start_ns, 200000) << i;
    if (i > 0) {
      ASSERT_EQ(sample.start_ns, spool.counters[i - 1].end_ns) << i;
    }
    ASSERT_NEAR(sample.values[read], 0.01, 1e-5) << "percent became a fraction; the file rounds";
    if (std::isnan(sample.values[active])) ++unknown;
  }
  EXPECT_NEAR(static_cast<double>(unknown), static_cast<double>(spool.counters.size()) / 10, 2)
      << "a value that is not finite is unknown, and its sample stays";
}

TEST_F(Counters, AnOverflowDoublesTheIntervalAndIsCounted) {
  settings_.set("FAKE_PM_OVERFLOW_AT", "5");
  options_.metrics_max = 9;  // the core, of which nothing is left out
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  const SpoolContent& spool = run.spool;
  ASSERT_GE(spool.counters.size(), 300U);
  EXPECT_EQ(spool.counters.front().end_ns - spool.counters.front().start_ns, 200000);
  EXPECT_EQ(spool.counters.back().end_ns - spool.counters.back().start_ns, 400000);
  EXPECT_NE(spool.note("recorder-note").find("overflowed"), std::string::npos);
  EXPECT_NE(spool.note("counter-samples-lost").find("GPU 0"), std::string::npos);
  EXPECT_GE(spool.note_counts.at("counter-samples-lost"), 1U);
}

TEST_F(Counters, WhereDecodingFallsBehindOneRestartIsToBeEnough) {
  settings_.set("FAKE_PM_SLOW_ABOVE", "12");
  length_ms_ = 1000;
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.spool.note("recorder-note").find("could not keep up"), std::string::npos);
  EXPECT_NE(run.spool.note("recorder-note").find("l2_hit_frac"), std::string::npos) << "what is left out is said";
  ASSERT_EQ(run.spool.sets.size(), 2U);
  ASSERT_FALSE(run.spool.counters.empty());
  const spool::GpuSample &first = run.spool.counters.front(), &last = run.spool.counters.back();
  EXPECT_EQ(run.spool.sets.at(first.set).count, 19);
  EXPECT_EQ(run.spool.sets.at(last.set).count, 9);
  EXPECT_EQ(run.spool.text(run.spool.sets.at(last.set).metrics[8]), "dram_write_bytes_per_s");
  EXPECT_EQ(last.end_ns - last.start_ns, 400000) << "each restart loses half a second: the interval is doubled with it";
  EXPECT_NEAR(last.values[0], 0.01, 1e-5);
  EXPECT_GE(run.spool.note_counts.at("counter-samples-lost"), 1U) << "the time of the restart";
}

TEST_F(Counters, DecodingThatFallsBehindDoublesTheInterval) {
  settings_.set("FAKE_PM_SLOW_BELOW", "700000");
  length_ms_ = 1500;
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.spool.note("recorder-note").find("could not keep up"), std::string::npos);
  ASSERT_FALSE(run.spool.counters.empty());
  const spool::GpuSample& last = run.spool.counters.back();
  EXPECT_EQ(last.end_ns - last.start_ns, 800000) << "doubled twice";
}

// The sampler acts before anything is lost: what is missing is the time that it takes to begin anew.
TEST_F(Counters, FallingBehindLeavesAStatedGap) {
  settings_.set("FAKE_PM_SAMPLE_US", "500");
  options_.interval_ns = 400000;  // an image holds four times of what may pile up
  length_ms_ = 2000;
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  const SpoolContent& spool = run.spool;
  ASSERT_FALSE(spool.counters.empty());
  const spool::GpuSample& last = spool.counters.back();
  EXPECT_EQ(last.end_ns - last.start_ns, 800000);
  EXPECT_EQ(spool.note_counts.count("counter-samples-lost"), 0U);
  EXPECT_EQ(spool.fact("counters_samples_lost"), "0");
  int64_t missing_ns = 0;
  for (size_t i = 1; i < spool.counters.size(); ++i)
    missing_ns += spool.counters[i].start_ns - spool.counters[i - 1].end_ns;
  EXPECT_GT(missing_ns, 0);
  EXPECT_EQ(spool.fact("counters_gap_ms"), std::to_string(missing_ns / 1000000));
  EXPECT_NE(spool.note("recorder-note").find("could not keep up at an interval of 400.0 us"), std::string::npos)
      << spool.note("recorder-note");
  EXPECT_EQ(spool.note("counter-gap"), "GPU 0: " + format_ns(missing_ns));
}

TEST_F(Counters, MissingSamplesAreCounted) {
  settings_.set("FAKE_PM_GAP", "37");
  const SamplerRun run = sample();
  EXPECT_EQ(run.spool.note_counts.at("counter-samples-lost"), 37U);
}

TEST_F(Counters, ASessionThatCannotBeRestartedKeepsWhatItHas) {
  settings_.set("FAKE_PM_OVERFLOW_AT", "5");
  settings_.set("FAKE_PM_ENABLE_AGAIN", "26");
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_FALSE(run.spool.counters.empty());
  EXPECT_NE(run.spool.note("counters-busy").find("dcgmi"), std::string::npos);
}

TEST_F(Counters, MissingPermissionIsExplained) {
  settings_.set("FAKE_PM_AVAILABILITY", "35");
  const SamplerRun run = sample();
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.ready, "unavailable no-counter-permission");
  const std::string note = run.spool.note("no-counter-permission");
  EXPECT_NE(note.find("ERR_NVGPUCTRPERM"), std::string::npos) << note;
  EXPECT_NE(note.find("GPM"), std::string::npos) << "what stands in is said: " << note;
  EXPECT_NE(run.spool.fact("counters_error").find("cuptiPmSamplingGetCounterAvailability"), std::string::npos);
  EXPECT_TRUE(run.spool.counters.empty());
}

TEST_F(Counters, ABusyGpuIsExplained) {
  settings_.set("FAKE_PM_ENABLE", "26");
  const SamplerRun run = sample();
  EXPECT_EQ(run.ready, "unavailable counters-busy");
  EXPECT_NE(run.spool.note("counters-busy").find("GPU 0"), std::string::npos);
}

TEST_F(Counters, AVirtualGpuWithoutProfilingIsExplained) {
  settings_.set("FAKE_PM_VGPU", "2");
  const SamplerRun run = sample();
  EXPECT_EQ(run.ready, "unavailable no-counter-permission");
  EXPECT_NE(run.spool.note("no-counter-permission").find("enable_profiling"), std::string::npos);
}

TEST_F(Counters, NoGpuAndNoCuptiAreExplained) {
  settings_.set("FAKE_PM_GPUS", "0");
  EXPECT_NE(sample().spool.note("no-counters").find("CUPTI error 999 from cuInit"), std::string::npos);
  settings_.set("FAKE_PM_GPUS", "1");
  options_.cupti_path = folder_.path() + "/libcupti.so";
  const SamplerRun run = sample();
  EXPECT_EQ(run.ready, "unavailable no-counters");
  EXPECT_NE(run.spool.note("no-counters").find("No CUPTI library"), std::string::npos);
}

TEST_F(Counters, Ga100SamplesByClockCycles) {
  settings_.set("FAKE_PM_CHIP", "GA100");  // the stand-in refuses the timer there
  EXPECT_GE(sample().spool.counters.size(), 1000U);
}

TEST_F(Counters, TheFileGrowsMoreSlowlyNearItsCap) {
  options_.file_cap_bytes = 40000;
  length_ms_ = 2500;
  const SamplerRun run = sample();
  ASSERT_FALSE(run.spool.counters.empty());
  const spool::GpuSample& last = run.spool.counters[run.spool.counters.size() - 2];
  EXPECT_GE(last.end_ns - last.start_ns, 400000);
  EXPECT_NE(run.spool.note("recorder-note").find("stored every"), std::string::npos);
  EXPECT_EQ(run.spool.note_counts.count("counter-samples-lost"), 0U) << "merging loses nothing";
  for (size_t i = 1; i < run.spool.counters.size(); ++i)
    ASSERT_EQ(run.spool.counters[i].start_ns, run.spool.counters[i - 1].end_ns) << i;
}

TEST_F(Counters, AnUnwritableFolderIsTheOnlyFailure) {
  options_.folder = "/proc/no-such-session";
  options_.gpu_index = 0;
  EXPECT_EQ(sample().exit_code, 1);
}

// The control page decides when is sampled and when the process ends.
TEST_F(Counters, FollowsTheSession) {
  const std::string path = folder_.path() + "/control";
  const std::unique_ptr<session::Control> page = std::make_unique<session::Control>();
  page->magic = session::kControlMagic;
  page->version = session::kControlVersion;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  const auto store = [&](uint32_t level, uint32_t finished) {
    page->wanted_level = level;
    page->finished = finished;
    ASSERT_EQ(pwrite(fd, page.get(), sizeof(session::Control), 0), static_cast<ssize_t>(sizeof(session::Control)));
  };
  store(0, 0);
  int ready = -1;
  const pid_t child = start(ready);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const int64_t asked_ns = realtime_ns();
  store(1, 0);
  EXPECT_EQ(read_line(ready), "sampling GH100 19");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  store(0, 0);
  const int64_t paused_ns = realtime_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  store(1, 0);
  const int64_t resumed_ns = realtime_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  store(1, 1);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  close(ready);
  close(fd);
  const SpoolContent spool = testing::read_spool(folder_.path() + "/samples/counters-0.spool");
  ASSERT_FALSE(spool.counters.empty());
  EXPECT_GE(spool.counters.front().start_ns, asked_ns);
  const std::vector<int64_t> started = spool.fact_times("counters_started_ns");
  const std::vector<int64_t> stopped = spool.fact_times("counters_stopped_ns");
  ASSERT_EQ(started.size(), 2U);
  ASSERT_EQ(stopped.size(), 2U);
  EXPECT_GE(stopped[0], paused_ns);
  EXPECT_GE(started[1], resumed_ns);
  for (const spool::GpuSample& sample : spool.counters)
    EXPECT_TRUE(sample.end_ns <= stopped[0] || sample.start_ns >= resumed_ns);
  EXPECT_GE(spool.counters.back().end_ns, resumed_ns);
  EXPECT_EQ(spool.note_counts.count("counter-samples-lost"), 0U) << "a pause is no loss";
}

// What `llmprof ctl counters` and the comparison of `llmprof run` switch: a pause that is no loss, told to the
// program's recorder, after which the interval follows the program's steps.
TEST_F(Counters, ArePausedWithinARecording) {
  options_.interval_ns = 0;
  session::Control& page = control_page();
  int ready = -1;
  const pid_t child = start(ready);
  EXPECT_EQ(read_line(ready), "sampling GH100 19");
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
  wait();
  EXPECT_GT(page.counters_since_ns, 0);
  page.counters = static_cast<uint32_t>(session::Counters::kOffByHand);
  wait();
  const int64_t off_ns = -page.counters_since_ns;
  EXPECT_GT(off_ns, 0);
  page.slots[0].process_id = 1;
  page.slots[0].step_ns = 9'000'000;
  page.counters = static_cast<uint32_t>(session::Counters::kOnByHand);
  wait();
  const int64_t on_ns = page.counters_since_ns;
  EXPECT_GT(on_ns, off_ns);
  const SpoolContent spool = ended(page, child, ready);
  ASSERT_FALSE(spool.counters.empty());
  for (const spool::GpuSample& sample : spool.counters)
    EXPECT_TRUE(sample.end_ns <= off_ns || sample.start_ns >= off_ns) << "none in the pause";
  EXPECT_LE(spool.counters.front().end_ns - spool.counters.front().start_ns, 500'000) << "by the CPUs of this machine";
  EXPECT_EQ(spool.counters.back().end_ns - spool.counters.back().start_ns, 900'000) << "a tenth of a step";
  EXPECT_EQ(spool.note_counts.count("counter-samples-lost"), 0U) << "a pause is no loss";
  EXPECT_EQ(spool.fact("counters_samples_lost"), "0");
}

// Steps that become known while sampling runs: one change, when they have settled and no kernels are recorded.
TEST_F(Counters, FollowTheStepsOnce) {
  options_.interval_ns = 0;
  session::Control& page = control_page();
  session::Slot& slot = page.slots[3];
  slot.process_id = 1;
  slot.level = static_cast<uint32_t>(spool::Level::kDefault);
  int ready = -1;
  const pid_t child = start(ready);
  EXPECT_EQ(read_line(ready), "sampling GH100 19");
  const auto wait = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  slot.step_ns = 9'000'000;
  wait(1600);
  const int64_t first_ns = page.counters_since_ns;
  EXPECT_GT(first_ns, 0) << "it is sampled";
  slot.level = static_cast<uint32_t>(spool::Level::kLight);
  wait(400);
  const int64_t second_ns = page.counters_since_ns;
  EXPECT_GT(second_ns, first_ns + 1'500'000'000) << "recorded steps kept their counters";
  slot.step_ns = 15'000'000;  // not twice as long
  wait(1600);
  EXPECT_EQ(page.counters_since_ns, second_ns);
  const SpoolContent spool = ended(page, child, ready);
  ASSERT_FALSE(spool.counters.empty());
  EXPECT_EQ(spool.sets.size(), 1U) << "nothing is left out";
  EXPECT_EQ(spool.fact_times("counters_started_ns").size(), 2U);
  EXPECT_EQ(spool.counters.back().end_ns - spool.counters.back().start_ns, 900'000);
  EXPECT_EQ(spool.fact("counters_samples_lost"), "0");
  EXPECT_NE(spool.fact("counters_gap_ms"), "");
  EXPECT_NE(spool.note("recorder-note").find("steps take 9.000 ms; counters are sampled every 900.0 us"),
            std::string::npos)
      << spool.note("recorder-note");
  EXPECT_EQ(spool.note_counts.at("counter-gap"), 1U);
}

TEST_F(Counters, AGivenIntervalDoesNotFollowTheSteps) {
  session::Control& page = control_page();
  page.slots[0].process_id = 1;
  page.slots[0].step_ns = 20'000'000;
  length_ms_ = 1300;
  const SpoolContent spool = sample().spool;
  EXPECT_EQ(spool.fact_times("counters_started_ns").size(), 1U);
  ASSERT_FALSE(spool.counters.empty());
  EXPECT_EQ(spool.counters.back().end_ns - spool.counters.back().start_ns, 200'000);
}

TEST_F(Counters, ProbeTriesAndReportsTheFailingCall) {
  const CounterProbe works = probe_counters({kFakeCupti}, options_.gpu_uuid, 0);
  EXPECT_EQ(works.code, 0);
  EXPECT_EQ(works.chip, "GH100");
  EXPECT_EQ(works.metrics, 19U);
  EXPECT_GT(works.samples, 20U);
  settings_.set("FAKE_PM_AVAILABILITY", "35");
  const CounterProbe denied = probe_counters({kFakeCupti}, options_.gpu_uuid, 0);
  EXPECT_EQ(denied.code, 35);
  EXPECT_EQ(denied.call, "cuptiPmSamplingGetCounterAvailability");
  EXPECT_NE(denied.text.find("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"), std::string::npos);
}

// ---- how far into an image samples reach
// -------------------------------------------------------------------------------------------------

constexpr size_t kRecord = 65000, kCapacity = 1000;

TEST(PmImageLayout, IsBelievedAfterItHasHeldForPartsOfAnImage) {
  PmImageLayout layout(1000 + kCapacity * kRecord, kCapacity);
  for (int i = 0; i < 5; ++i) layout.observe(kCapacity, 1000 + kCapacity * kRecord);
  EXPECT_FALSE(layout.known()) << "a full image says nothing";
  for (const size_t samples : {200, 210, 190}) layout.observe(samples, 1000 + samples * kRecord);
  EXPECT_FALSE(layout.known());
  layout.observe(300, 1000 + 300 * kRecord);
  ASSERT_TRUE(layout.known());
  EXPECT_GE(layout.bytes_of(250), 1000 + 250 * kRecord) << "never less than was written";
  EXPECT_LE(layout.bytes_of(250), 1000 + 263 * kRecord) << "and not much more";
  EXPECT_EQ(layout.bytes_of(kCapacity), 1000 + kCapacity * kRecord);
}

TEST(PmImageLayout, ColumnsInsteadOfRecordsAreNotBelieved) {
  // One array a counter: the last one begins near the end.
  PmImageLayout layout(20'000'000, kCapacity);
  for (int i = 0; i < 3; ++i) layout.observe(200, 4'000'000);
  layout.observe(200, 19'000'000);
  for (int i = 0; i < 8; ++i) layout.observe(200, 4'000'000);
  EXPECT_TRUE(layout.settled());
  EXPECT_FALSE(layout.known());
}

TEST(Background, CpusAreReadFromALongList) {
  unsigned long bits[16];
  ASSERT_TRUE(parse_cpus("12-15,3", bits));
  EXPECT_EQ(bits[0], 0xF008UL);
  ASSERT_TRUE(parse_cpus("64", bits));
  EXPECT_EQ(bits[1], 1UL);
  for (const char* text : {"", "x", "3-", "5-3", "1,", "4096"}) EXPECT_FALSE(parse_cpus(text, bits)) << text;
}

}  // namespace
}  // namespace llmprof::samplers
