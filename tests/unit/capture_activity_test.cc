// The injection library in a program that launches through a fabricated CUPTI: what is recorded, and what happens at
// the ends of a process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "capture_client.h"

namespace llmprof {
namespace {

struct Counted {
  std::map<spool::Id, std::string> texts{{0, ""}};
  std::map<spool::Id, spool::KernelDef> kernel_defs;
  std::map<spool::Id, spool::ApiDef> api_defs;
  std::vector<spool::Kernel> kernels;
  std::vector<spool::Memcpy> copies;
  std::vector<spool::ApiCall> calls;
  std::vector<spool::GraphNode> nodes;
  std::map<spool::Id, spool::StreamDef> streams;
  struct Target {
    std::string call;
    int64_t stream;  // -1: none
    uint64_t event;
    bool operator==(const Target&) const = default;
  };
  std::vector<Target> targets;
  std::vector<std::pair<uint64_t, uint64_t>> edges;
  std::vector<spool::LevelChange> levels;
  std::vector<spool::Range> ranges;
  std::vector<spool::HostPace> paces;
  std::vector<std::string> notes;
  spool::ReadSummary summary;

  void operator()(const spool::TextDef& def) { texts[def.id] = std::string(def.text); }
  void operator()(const spool::KernelDef& def) { kernel_defs[def.id] = def; }
  void operator()(const spool::ApiDef& def) { api_defs[def.id] = def; }
  void operator()(const spool::Kernel& record) { kernels.push_back(record); }
  void operator()(const spool::Memcpy& record) { copies.push_back(record); }
  void operator()(const spool::ApiCall& record) { calls.push_back(record); }
  void operator()(const spool::GraphNode& record) { nodes.push_back(record); }
  void operator()(const spool::StreamDef& def) { streams[def.id] = def; }
  void operator()(const spool::CallTarget& record) {
    ASSERT_FALSE(calls.empty());
    EXPECT_EQ(record.correlation, calls.back().correlation) << "stands behind its call";
    targets.push_back({texts.at(api_defs.at(calls.back().def).name),
                       record.stream == 0 ? -1 : streams.at(record.stream).stream, record.event});
  }
  void operator()(const spool::GraphEdge& record) { edges.emplace_back(record.node, record.after); }
  void operator()(const spool::LevelChange& record) { levels.push_back(record); }
  void operator()(const spool::Range& record) { ranges.push_back(record); }
  void operator()(const spool::HostPace& record) { paces.push_back(record); }
  void operator()(const spool::Note& record) { notes.push_back(texts[record.key] + ": " + texts[record.text]); }
  template <class Record>
  void operator()(const Record&) {}

  bool noted(const std::string& key) const {
    for (const std::string& note : notes)
      if (note.rfind(key + ": ", 0) == 0) return true;
    return false;
  }
};

struct ClientEnd {
  int status = 0;  // of waitpid
  std::string output;
  std::vector<Counted> spools;

  const Counted& only() const { return spools.at(0); }
};

std::string inject_library() { return std::filesystem::path(LLMPROF_FAKES).parent_path() / "lib/libllmprof_inject.so"; }

// Runs cuda_client with `actions` and reads every spool it left.
ClientEnd watch(const std::vector<std::string>& actions, const std::map<std::string, std::string>& environment = {}) {
  char pattern[] = "/tmp/llmprof-activity-XXXXXX";
  const std::string folder = mkdtemp(pattern);
  std::filesystem::create_directories(folder + "/spool");
  const std::string fakes = LLMPROF_FAKES;
  const std::string library = inject_library();
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    setenv("LLMPROF_SESSION", folder.c_str(), 1);
    setenv("LLMPROF_CUPTI", (fakes + "/hooks/libcupti.so.13").c_str(), 1);
    setenv("LD_PRELOAD", library.c_str(), 1);
    setenv("CUDA_INJECTION64_PATH", library.c_str(), 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::string program = fakes + "/cuda_client";
    std::vector<std::string> words = actions;
    std::vector<char*> arguments{program.data()};
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(program.c_str(), arguments.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  ClientEnd result;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    result.output.append(buffer, static_cast<size_t>(size));
  close(pipe_ends[0]);
  waitpid(child, &result.status, 0);
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder + "/spool")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    Counted counted;
    counted.summary = spool::read(bytes, counted);
    result.spools.push_back(std::move(counted));
  }
  std::filesystem::remove_all(folder);
  return result;
}

// How often CUPTI had been taken out of the process when the client said so.
int times_detached(const ClientEnd& end) {
  const size_t at = end.output.find("detached ");
  return at == std::string::npos ? -1 : std::atoi(end.output.c_str() + at + 9);
}

TEST(Activity, KernelsAndTheirLaunches) {
  const ClientEnd result = watch({"launch=200"});
  EXPECT_EQ(result.status, 0);
  ASSERT_EQ(result.spools.size(), 1U);
  const Counted& spool = result.only();
  EXPECT_TRUE(spool.summary.closed);
  ASSERT_EQ(spool.kernels.size(), 200U);
  ASSERT_EQ(spool.calls.size(), 200U) << "calls not worth a record must not be recorded";
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(spool.kernels[i].end_ns - spool.kernels[i].start_ns, 10'000);
    EXPECT_EQ(spool.kernels[i].correlation, spool.calls[i].correlation);
  }
  const spool::KernelDef& def = spool.kernel_defs.at(spool.kernels[0].def);
  EXPECT_EQ(spool.texts.at(def.name), "_Z6kernelPfi");
  EXPECT_EQ(def.grid[0], 8);
  EXPECT_EQ(def.block[0], 128);
  EXPECT_EQ(spool.texts.at(spool.api_defs.at(spool.calls[0].def).name), "cuLaunchKernel")
      << "one call a kernel, at the driver";
}

TEST(Activity, LightModeLeavesCuptiAlone) {
  const ClientEnd result = watch({"launch=50"}, {{"LLMPROF_LEVEL", "light"}});
  ASSERT_EQ(result.spools.size(), 1U);
  EXPECT_TRUE(result.only().kernels.empty());
  EXPECT_TRUE(result.only().calls.empty());
}

TEST(Activity, CopiesKeepTheKindOfMemory) {
  const ClientEnd result = watch({"copy=4096"});
  ASSERT_EQ(result.only().copies.size(), 1U);
  EXPECT_EQ(result.only().copies[0].bytes, 4096);
  EXPECT_EQ(result.only().copies[0].source_kind, 1);
}

TEST(Activity, ACopyHasOneCallTheOneOfTheDriver) {
  for (const char* const action : {"copy=64", "driver_copy=64"}) {
    const ClientEnd result = watch({action});
    const Counted& spool = result.only();
    ASSERT_EQ(spool.copies.size(), 1U) << action;
    ASSERT_EQ(spool.calls.size(), 1U) << action;
    EXPECT_EQ(spool.texts.at(spool.api_defs.at(spool.calls[0].def).name), "cuMemcpyHtoDAsync") << action;
    EXPECT_EQ(spool.calls[0].correlation, spool.copies[0].correlation);
  }
}

TEST(Activity, ReplayedNodesAndTheirOrigins) {
  const ClientEnd result = watch({"graph=4"});
  const Counted& spool = result.only();
  ASSERT_EQ(spool.kernels.size(), 12U);
  EXPECT_EQ(spool.kernels[0].graph_node, 101U);
  ASSERT_EQ(spool.nodes.size(), 3U) << "copies of nodes; no library call was open at capture";
  EXPECT_EQ(spool.nodes[0].node, 101U);
  EXPECT_EQ(spool.nodes[0].original, 1U);
}

TEST(Activity, CallsNameStreamsAndEvents) {
  const ClientEnd result = watch({"order=100"});
  const Counted& spool = result.only();
  ASSERT_EQ(spool.calls.size(), 802U) << "one record a call";
  ASSERT_EQ(spool.targets.size(), 802U);
  constexpr uint64_t kEvent = 0x7f0012345680, kOther = 0x7f0012345700;
  using Target = Counted::Target;
  EXPECT_EQ(std::vector<Target>(spool.targets.begin(), spool.targets.begin() + 8),
            (std::vector<Target>{{"cuEventRecord", 13, kEvent},
                                 {"cuStreamWaitEvent", 14, kEvent},
                                 {"cuEventRecord", 7, kOther},
                                 {"cuEventRecord", 7, kOther},
                                 {"cuEventRecord", 8, kOther},
                                 {"cuEventRecord", 8, kOther},
                                 {"cuEventSynchronize", -1, kEvent},
                                 {"cuStreamSynchronize", 14, 0}}));
  EXPECT_EQ(spool.targets[800], (Target{"cuEventRecord", 15, kEvent})) << "the handle is 14's, the stream is not";
  EXPECT_EQ(spool.targets[801], (Target{"cuEventRecord", -1, kEvent})) << "rather none than a destroyed one";
  EXPECT_NE(result.output.find("asked 6\n"), std::string::npos)
      << "once a stream, then for what may have changed: " << result.output;
}

TEST(Activity, StreamsAreKnownAgainAfterCuptiWasAway) {
  const ClientEnd result = watch({"order=1", "launch=100", "sleep=1800", "launch=200", "sleep=900", "launch=100",
                                  "sleep=100", "ordered_stage=1", "detached"},
                                 {{"LLMPROF_UNRECORDED", "auto"}, {"NVTX_INJECTION64_PATH", inject_library()}});
  const Counted& spool = result.only();
  EXPECT_GE(times_detached(result), 1) << result.output;
  ASSERT_EQ(spool.targets.size(), 20U);
  EXPECT_EQ(spool.targets[10], (Counted::Target{"cuEventRecord", 16, 0x7f0012345680}));
  EXPECT_EQ(spool.targets[18].stream, 18);
}

TEST(Activity, EdgesOfGraphsAreThoseOfTheCopies) {
  const ClientEnd result = watch({"edges"});
  std::vector<std::pair<uint64_t, uint64_t>> expected;
  for (const uint64_t copy : {100, 200})
    for (const auto& [node, after] : std::vector<std::pair<uint64_t, uint64_t>>{
             {1, 0}, {2, 1}, {3, 1}, {4, 2}, {4, 3}, {5, 12}, {5, 13}, {6, 0}, {11, 4}, {12, 11}, {13, 4}})
      expected.emplace_back(copy + node, after == 0 ? 0 : copy + after);
  std::vector<std::pair<uint64_t, uint64_t>> found = result.only().edges;
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

// A hundred thousand nodes are nothing; what is too much is left out whole, and said.
TEST(Activity, EdgesOfGraphsAreBounded) {
  const ClientEnd result = watch({"chain=100000", "chain=1100000", "chain=100", "chain=1000000", "chain=5"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.only().edges.size(), 100'105U);
  EXPECT_TRUE(result.only().noted("recorder-note"));
  EXPECT_EQ(result.only().summary.damaged_blocks, 0U);
}

TEST(Activity, UnrecordedWindowsHoldNoKernels) {
  // A second of full recording, then windows: the run must be longer.
  const ClientEnd result =
      watch({"launch=100", "sleep=1600", "launch=4000", "sleep=600", "launch=4000", "sleep=700", "launch=10"},
            {{"LLMPROF_UNRECORDED", "auto"}});
  const Counted& spool = result.only();
  ASSERT_GE(spool.levels.size(), 3U);
  size_t in_gap = 0;
  for (const spool::Kernel& kernel : spool.kernels) {
    spool::Level level = spool::Level::kOff;
    for (const spool::LevelChange& change : spool.levels)
      if (change.time_ns <= kernel.start_ns) level = change.level;
    if (level < spool::Level::kDefault) ++in_gap;
  }
  // The switch takes some microseconds, in which a launch may fall.
  EXPECT_LE(in_gap, 20U);
  EXPECT_LT(spool.kernels.size(), 8110U);
}

const std::map<std::string, std::string> kWindowsAndRanges{{"LLMPROF_UNRECORDED", "auto"},
                                                           {"NVTX_INJECTION64_PATH", inject_library()}};

TEST(Activity, AShortProgramHasItsStepsRecordedAfterALongWarmUp) {
  const ClientEnd result = watch({"launch=1", "sleep=2500", "steps=20"}, kWindowsAndRanges);
  EXPECT_EQ(result.only().kernels.size(), 201U) << "although the first second is long over";
}

TEST(Activity, WithEnoughOfEveryStepRecordedThereAreWindows) {
  const ClientEnd result = watch({"steps=400"}, kWindowsAndRanges);
  EXPECT_GE(result.only().kernels.size(), 400U) << "twenty steps at the least";
  EXPECT_LT(result.only().kernels.size(), 3900U);
}

// Of sixty steps of five milliseconds twenty and some are recorded; most of the others run without CUPTI.
TEST(Activity, AShortProgramThatWaitsGoesOnAlone) {
  for (const char* steps : {"waited_steps=60", "waited_gemms=60"}) {
    const ClientEnd result = watch({"cublas", steps, "detached"}, kWindowsAndRanges);
    const Counted& spool = result.only();
    EXPECT_EQ(times_detached(result), 1) << steps << result.output;
    std::vector<int64_t> waits, launches;
    for (const spool::ApiCall& call : spool.calls)
      (spool.texts.at(spool.api_defs.at(call.def).name) == "cuLaunchKernel" ? launches : waits)
          .push_back(call.start_ns);
    EXPECT_GE(waits.size(), 20U) << steps;
    EXPECT_LE(waits.size(), 50U) << steps;
    // Probes of the CPU's pace, before waits at every level, so far apart that they cost next to nothing.
    EXPECT_GE(spool.paces.size(), 10U) << steps;
    // From the second of a thread on it is known how long that had no CPU since, if the system counts it.
    const bool counted = access("/proc/thread-self/schedstat", R_OK) == 0;
    std::set<spool::Id> threads;
    for (const spool::HostPace& pace : spool.paces)
      EXPECT_EQ(pace.waited_ns >= 0, counted && !threads.insert(pace.thread).second) << steps;
    for (size_t i = 0; i < spool.paces.size(); ++i) {
      EXPECT_GT(spool.paces[i].end_ns, spool.paces[i].start_ns);
      EXPECT_GE(spool.paces[i].start_ns, i > 0 ? spool.paces[i - 1].end_ns + 5'000'000 : 0);
    }
    // Nothing is lost, but what was launched while records were switched off may have none.
    EXPECT_NEAR(static_cast<double>(spool.kernels.size()), static_cast<double>(launches.size()), 10) << steps;
    int64_t closed_ns = 0, left_ns = 0;
    for (const spool::LevelChange& change : spool.levels) {
      if (spool.texts.at(change.reason) == "unrecorded" && closed_ns == 0) closed_ns = change.time_ns;
      if (spool.texts.at(change.reason) == "detaching" && left_ns == 0) left_ns = change.time_ns;
    }
    ASSERT_NE(left_ns, 0) << steps;
    int between = 0;
    for (const spool::Range& range : spool.ranges) between += range.start_ns > closed_ns && range.end_ns < left_ns;
    EXPECT_LE(between, 6) << "it leaves within a step or two";
  }
}

// It takes a hundred milliseconds and more on a GPU, so it must not lie in a step.
TEST(Activity, CuptiComesBackBetweenSteps) {
  const ClientEnd result = watch({"steps=900"}, kWindowsAndRanges);
  const Counted& spool = result.only();
  size_t attached = 0;
  for (const spool::LevelChange& change : spool.levels) {
    if (spool.texts.at(change.reason) != "attaching" || change.level >= spool::Level::kDefault) continue;
    ++attached;
    for (const spool::Range& range : spool.ranges)
      EXPECT_FALSE(range.start_ns < change.time_ns && change.time_ns < range.end_ns) << spool.texts.at(range.name);
  }
  EXPECT_GE(attached, 1U);
}

TEST(Activity, AllIsRecordedWhereThatIsWanted) {
  const ClientEnd result =
      watch({"steps=400"}, {{"LLMPROF_UNRECORDED", "off"}, {"NVTX_INJECTION64_PATH", inject_library()}});
  EXPECT_EQ(result.only().kernels.size(), 4000U);
}

TEST(Activity, RareStagesEndAnUnrecordedWindow) {
  // The first gap begins about 1.4 s after the first kernels are seen and lasts a second; the stage comes inside it.
  const ClientEnd result = watch({"launch=100", "sleep=2000", "launch=10", "stage=50", "launch=10"},
                                 {{"LLMPROF_UNRECORDED", "auto"}, {"NVTX_INJECTION64_PATH", inject_library()}});
  const Counted& spool = result.only();
  ASSERT_GE(spool.levels.size(), 3U) << "recorded, gap, recorded again by the stage";
  EXPECT_EQ(spool.kernels.size(), 150U)
      << "100 in the full recording, none in the gap, 50 of the stage and none after it";
}

TEST(Activity, ARareStageIsRecordedToItsEndAndNoFurther) {
  // The stage lasts longer than a drain period; what comes 300 ms after it lies in a gap again.
  const ClientEnd result = watch({"launch=100", "sleep=2000", "stage=20000", "sleep=300", "launch=500", "sleep=100"},
                                 {{"LLMPROF_UNRECORDED", "auto"}, {"NVTX_INJECTION64_PATH", inject_library()}});
  EXPECT_EQ(result.only().kernels.size(), 20100U);
}

std::vector<std::string> level_reasons(const Counted& spool) {
  std::vector<std::string> reasons;
  for (const spool::LevelChange& change : spool.levels) reasons.push_back(spool.texts.at(change.reason));
  return reasons;
}

TEST(Activity, CuptiLeavesInUnrecordedWindowsAndComesBack) {
  const ClientEnd result = watch({"launch=100", "sleep=1800", "launch=200", "sleep=900", "launch=100", "sleep=100",
                                  "stage=20", "launch=20", "detached"},
                                 {{"LLMPROF_UNRECORDED", "auto"}, {"NVTX_INJECTION64_PATH", inject_library()}});
  const Counted& spool = result.only();
  EXPECT_GE(times_detached(result), 1) << result.output;
  const std::vector<std::string> reasons = level_reasons(spool);
  // Coming and going are spans of their own, one after the other.
  for (const auto& [begins, ends] : {std::pair("detaching", "detached"), std::pair("attaching", "attaching")}) {
    const auto at = std::find(reasons.begin(), reasons.end(), begins);
    ASSERT_NE(at, reasons.end()) << begins;
    ASSERT_NE(at + 1, reasons.end()) << begins;
    EXPECT_EQ(*(at + 1), ends);
  }
  // Its ids began anew; the ones written did not, and every kernel still finds its call.
  std::map<uint32_t, int> calls;
  for (const spool::ApiCall& call : spool.calls) ++calls[call.correlation];
  for (const auto& [correlation, count] : calls) EXPECT_EQ(count, 1) << correlation;
  ASSERT_GT(spool.kernels.size(), 30U);
  for (const spool::Kernel& kernel : spool.kernels) EXPECT_EQ(calls.count(kernel.correlation), 1U);
}

TEST(Activity, CuptiStaysWhileAGraphIsCaptured) {
  const ClientEnd result =
      watch({"capture", "launch=100", "sleep=2200", "launch=400", "detached"}, {{"LLMPROF_UNRECORDED", "auto"}});
  EXPECT_EQ(times_detached(result), 0) << result.output;
  const ClientEnd ended = watch({"capture", "launch=100", "capture_ends", "sleep=2200", "launch=400", "detached"},
                                {{"LLMPROF_UNRECORDED", "auto"}});
  EXPECT_EQ(times_detached(ended), 1) << ended.output;
}

// A program that begins them by pointers to the driver's functions: their ends alone are seen.
TEST(Activity, EndsOfCapturesWhoseBeginningWasNotSeenDoNotCount) {
  const ClientEnd result =
      watch({"capture_ends", "capture_ends", "capture", "launch=100", "sleep=2200", "launch=400", "detached"},
            {{"LLMPROF_UNRECORDED", "auto"}});
  EXPECT_EQ(times_detached(result), 0) << result.output;
}

// They run on: the stand-in's fail as the driver's do where they were launched once more with records off before.
TEST(Activity, CuptiLeavesGraphsThatItRecordedAndComesBack) {
  const ClientEnd result = watch(
      {"capture", "capture_ends", "make=1", "graph=1", "replays=250", "detached", "replays=550"}, kWindowsAndRanges);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_GE(times_detached(result), 1) << result.output;
  const Counted& spool = result.only();
  const std::vector<std::string> reasons = level_reasons(spool);
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), "detached"), 2);
  std::map<uint32_t, int> nodes;
  for (const spool::Kernel& kernel : spool.kernels)
    if (kernel.graph_node > 200) ++nodes[kernel.correlation];
  EXPECT_GT(nodes.size(), 30U);
  EXPECT_LT(nodes.size(), 600U);
  std::set<uint32_t> calls;
  for (const spool::ApiCall& call : spool.calls) calls.insert(call.correlation);
  for (const auto& [correlation, count] : nodes) {
    EXPECT_EQ(count, 3) << correlation;
    EXPECT_EQ(calls.count(correlation), 1U) << "recorded although no window was open";
  }
}

// A copy that does not wait ends while the graph runs: CUPTI leaves behind the wait that follows.
TEST(Activity, CuptiLeavesGraphsWhenTheyHaveRun) {
  const ClientEnd result =
      watch({"capture", "capture_ends", "make=1", "graph=1", "copy_replays=250", "detached", "copy_replays=250"},
            kWindowsAndRanges);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_GE(times_detached(result), 1) << result.output;
}

// Nobody is inside the launch of a graph when it leaves: on a GPU every access of it would go astray afterwards.
TEST(Activity, CuptiLeavesWhileAnotherThreadLaunchesGraphs) {
  const ClientEnd result =
      watch({"capture", "capture_ends", "make=2", "graph=1", "both_replay=500", "detached"}, kWindowsAndRanges);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_GE(times_detached(result), 1) << result.output;
}

// Launches that do not come by our hook cannot be held up while it leaves; and a graph that the hook did not see
// instantiated may have been launched first with records on.
TEST(Activity, CuptiStaysWithGraphsThatComePastTheHooks) {
  for (const auto& [made, launched] :
       {std::pair("make=1", "driver_replays=400"), std::pair("chain=3", "replays=400")}) {
    const ClientEnd result =
        watch({"capture", "capture_ends", made, "graph=1", launched, "detached"}, kWindowsAndRanges);
    EXPECT_EQ(result.status, 0) << made << result.output;
    EXPECT_EQ(times_detached(result), 0) << made << result.output;
  }
}

// No moment comes in which CUPTI may leave, so it does not come and go with each step, and does not record in vain.
TEST(Activity, CuptiStaysWhereEveryStepCapturesAGraph) {
  const ClientEnd result = watch({"captures=1100", "detached"}, kWindowsAndRanges);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(times_detached(result), 0) << result.output;
  const std::vector<std::string> reasons = level_reasons(result.only());
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), "graph"), 0);
  EXPECT_GE(std::count(reasons.begin(), reasons.end(), "unrecorded"), 1);
  EXPECT_LT(result.only().kernels.size(), 3U * 1000) << "there was a pause";
}

// The stand-in's graph fails otherwise: what it writes is fixed at its first upload. That time is not recorded.
TEST(Activity, GraphsAreUploadedWithRecordsOff) {
  const ClientEnd result =
      watch({"launch=20", "capture", "capture_ends", "make=3", "launch=20", "replays=250", "detached", "replays=100"},
            kWindowsAndRanges);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_GE(times_detached(result), 1) << result.output;
  const std::vector<std::string> reasons = level_reasons(result.only());
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), "graph"), 6) << "off and on again for each";
}

TEST(Activity, CuptiStaysWithGraphsBeforeCuda13) {
  const ClientEnd result = watch(
      {"replays=400", "detached"},
      {{"LLMPROF_UNRECORDED", "auto"}, {"NVTX_INJECTION64_PATH", inject_library()}, {"FAKE_CUPTI_VERSION", "27"}});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(times_detached(result), 0) << result.output;
}

TEST(Activity, CuptiIsBackBeforeACapture) {
  const ClientEnd result = watch({"launch=100", "sleep=2200", "launch=200", "detached", "capture", "graph=1"},
                                 {{"LLMPROF_UNRECORDED", "auto"}});
  EXPECT_EQ(times_detached(result), 1) << result.output;
  EXPECT_EQ(result.only().nodes.size(), 3U) << "the nodes of a graph that was captured after CUPTI had left";
  const std::vector<std::string> reasons = level_reasons(result.only());
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), "graph"), 1);
}

TEST(Activity, ASecondClientBringsCuptiBack) {
  const ClientEnd result =
      watch({"launch=100", "sleep=2200", "launch=200", "detached", "profiler"}, {{"LLMPROF_UNRECORDED", "auto"}});
  EXPECT_EQ(times_detached(result), 1) << result.output;
  EXPECT_NE(result.output.find("profiler saw 10"), std::string::npos) << result.output;
  EXPECT_TRUE(result.only().noted("second-cupti-user"));
}

TEST(Activity, CuptiStaysWhereTheGpuIsBusyAnyway) {
  const ClientEnd result = watch({"busy=3000", "detached"}, {{"LLMPROF_UNRECORDED", "auto"}});
  EXPECT_EQ(times_detached(result), 0) << result.output;
  EXPECT_LT(result.only().kernels.size(), 2900U) << "there was a gap all the same";
}

TEST(Activity, CuptiNeverLeavesWhereItsVersionCannot) {
  const ClientEnd result = watch({"launch=100", "sleep=2200", "launch=400", "detached"},
                                 {{"LLMPROF_UNRECORDED", "auto"}, {"FAKE_CUPTI_VERSION", "23"}});
  EXPECT_EQ(times_detached(result), 0) << result.output;
}

TEST(Activity, HeldCuptiIsNamedAndSurvived) {
  const ClientEnd result = watch({"launch=20", "exit=3"}, {{"FAKE_CUPTI_SUBSCRIBE", "39"}});
  EXPECT_EQ(WEXITSTATUS(result.status), 3);
  EXPECT_TRUE(result.only().noted("cupti-held"));
  EXPECT_TRUE(result.only().kernels.empty());
}

TEST(Activity, MissingCuptiIsNamed) {
  const ClientEnd result =
      watch({"launch=20"}, {{"LLMPROF_CUPTI", "/nonexistent/libcupti.so"}, {"FAKE_CUPTI_VERSION", "10"}});
  // cuda_client has the fake loaded, which is found first and is too old here.
  EXPECT_TRUE(result.only().noted("no-cupti"));
  EXPECT_EQ(result.status, 0);
}

TEST(Activity, SecondClientAndWeBothGetTheRecords) {
  const ClientEnd result = watch({"launch=30", "profiler", "launch=30"});
  EXPECT_NE(result.output.find("subscribe 0"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("profiler saw 10, 10 in its own time"), std::string::npos) << result.output;
  EXPECT_TRUE(result.only().noted("second-cupti-user"));
  ASSERT_EQ(result.only().kernels.size(), 70U);
  // One clock for all of ours, before and after.
  const std::vector<spool::Kernel>& kernels = result.only().kernels;
  for (const spool::Kernel& kernel : kernels) {
    EXPECT_EQ(kernel.end_ns - kernel.start_ns, 10'000);
    EXPECT_LT(std::abs(kernel.start_ns - kernels[0].start_ns), 10'000'000'000);
  }
}

TEST(Activity, ASecondClientGetsTheRecordsOfABufferThatWasOursWhenItCame) {
  const ClientEnd result = watch({"launch=30", "running=1", "profiler", "running=0", "launch=30"});
  EXPECT_NE(result.output.find("profiler saw 10, 10 in its own time"), std::string::npos) << result.output;
  EXPECT_EQ(result.only().kernels.size(), 70U);
}

TEST(Activity, AClientThatGaveCuptiItsClockBeforeUsKeepsIt) {
  const ClientEnd result = watch({"launch=30", "profiler", "launch=30"}, {{"CLOCK_BEFORE_CUDA", "1"}});
  EXPECT_NE(result.output.find("profiler saw 10, 10 in its own time"), std::string::npos) << result.output;
  ASSERT_EQ(result.only().kernels.size(), 70U);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  for (const spool::Kernel& kernel : result.only().kernels)
    EXPECT_LT(std::abs(kernel.start_ns / 1'000'000'000 - now.tv_sec), 60) << "ours are in real time";
}

struct End {
  const char* action;
  int exit_code;  // -1 if killed
  int signal;
  bool closed;
};

class Ends : public testing::TestWithParam<End> {};

TEST_P(Ends, WhatWasRecordedIsThere) {
  const End& end = GetParam();
  // Half a second and more before the end, so that a drain has happened.
  const ClientEnd result = watch({"launch=300", "sleep=1200", end.action});
  ASSERT_EQ(result.spools.size(), 1U);
  if (end.exit_code >= 0) {
    ASSERT_TRUE(WIFEXITED(result.status));
    EXPECT_EQ(WEXITSTATUS(result.status), end.exit_code);
  } else {
    ASSERT_TRUE(WIFSIGNALED(result.status));
    EXPECT_EQ(WTERMSIG(result.status), end.signal);
  }
  EXPECT_EQ(result.only().kernels.size(), 300U);
  EXPECT_EQ(result.only().summary.closed, end.closed);
  EXPECT_EQ(result.only().summary.damaged_blocks, 0U);
}

std::string name_of_end(const testing::TestParamInfo<End>& end) {
  std::string name = end.param.action;
  for (char& c : name)
    if (c == '=') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Activity, Ends,
                         testing::Values(End{"exit=7", 7, 0, true}, End{"_exit=9", 9, 0, true},
                                         End{"abort", -1, SIGABRT, false}, End{"segv", -1, SIGSEGV, false},
                                         End{"kill", -1, SIGKILL, false}),
                         name_of_end);

TEST(Activity, ForkAfterCudaNeitherHangsNorRecordsTwice) {
  const ClientEnd result = watch({"launch=50", "fork", "launch=50"});
  EXPECT_NE(result.output.find("child 5"), std::string::npos) << result.output;
  ASSERT_EQ(result.spools.size(), 1U);
  EXPECT_EQ(result.only().kernels.size(), 100U);
  EXPECT_TRUE(result.only().summary.closed);
}

TEST(Activity, ChildrenOfTheirOwnHaveASpoolOfTheirOwn) {
  const ClientEnd result = watch({"launch=20", "forkexec", "spawn=30"});
  EXPECT_NE(result.output.find("spawned 0"), std::string::npos) << result.output;
  std::vector<size_t> kernels;
  for (const Counted& spool : result.spools)
    if (!spool.kernels.empty()) kernels.push_back(spool.kernels.size());
  std::sort(kernels.begin(), kernels.end());
  EXPECT_EQ(kernels, (std::vector<size_t>{20, 30}));
}

}  // namespace
}  // namespace llmprof
