// Call stacks of launch sites: when one is taken, what it says, and that nothing grows.
#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <link.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capture/inject/launch_sites/launch_sites.h"
#include "capture/spool/reader.h"
#include "capture_launch_site_module.h"
#include "import/importer.h"
#include "import/session_stacks.h"
#include "temporary_folder.h"

namespace llmprof::inject {
namespace {

struct Site {
  std::string function, stack;
  int64_t thread = 0, time_ns = 0;
  uint32_t correlation = 0;
};

struct SiteCollector {
  std::map<spool::Id, std::string> texts;
  std::map<spool::Id, int64_t> threads;
  std::map<spool::Id, size_t> modules;
  session_importer::Modules names;
  std::vector<Site> sites;
  std::map<std::string, uint64_t> dropped;  // by reason
  void operator()(const spool::TextDef& def) { texts[def.id] = std::string(def.text); }
  void operator()(const spool::ThreadDef& def) { threads[def.id] = def.thread_id; }
  void operator()(const spool::ModuleDef& def) {
    modules[def.id] = names.add(texts.at(def.path), texts.at(def.build_id));
  }
  void operator()(const spool::LaunchSite& r) {
    EXPECT_EQ(r.stack, 0U);
    session_importer::StackText stack;
    for (const spool::Frame& frame : std::span(r.frames).first(static_cast<size_t>(r.frame_count)))
      stack.add(names.line(frame.module == 0 ? SIZE_MAX : modules.at(frame.module), frame.offset));
    sites.push_back({texts.at(r.function), stack.text(), threads.at(r.thread), r.time_ns, r.correlation});
  }
  void operator()(const spool::Note& r) {
    if (texts.at(r.key) == "launch-sites-dropped") dropped[texts.at(r.text)] += r.count;
  }
  template <class Record>
  void operator()(const Record&) {}
};
using Dropped = std::map<std::string, uint64_t>;

class LaunchSiteTest : public testing::Test {
 protected:
  void SetUp() override {
    abandon_launch_sites();
    resolve_launch_sites();
  }
  void TearDown() override { abandon_launch_sites(); }
  // `count` rounds of resolving and draining.
  static auto rounds(int count) {
    return [count](spool::Writer& writer) {
      for (int i = 0; i < count; ++i) {
        resolve_launch_sites();
        drain_launch_sites(writer);
      }
    };
  }
  // What is written when everything sampled so far is drained.
  std::vector<Site> drained(int count = 1) { return written(rounds(count)).sites; }
  template <class Write>
  SiteCollector written(Write&& write) {
    const std::string path = (folder_ / "sites.spool").string();
    spool::Writer writer;
    EXPECT_TRUE(writer.open(path.c_str(), "target"));
    write(writer);
    writer.close();
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    SiteCollector found;
    const spool::ReadSummary summary = spool::read(bytes, found);
    EXPECT_EQ(summary.damaged_blocks + summary.unknown_records, 0U);
    return found;
  }
  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

int launch_silu() {
  sample_launch_site(0x51, "silu_kernel_gpu", 77);
  return 1;
}

TEST_F(LaunchSiteTest, OnlyPowersOfTwoAreSampledAndAtMostSixteenOfThem) {
  std::vector<uint32_t> taken;
  for (uint32_t i = 0; i < 200000; ++i)
    if (is_sampled_launch(i)) taken.push_back(i);
  ASSERT_EQ(taken.size(), kSamplesPerFunction);
  EXPECT_EQ(taken.front(), 1U);
  EXPECT_EQ(taken.back(), 32768U);
  EXPECT_FALSE(is_sampled_launch(1U << 31));

  for (uint32_t i = 1; i <= 100; ++i) sample_launch_site(5, "kernel", i);
  sample_launch_site(6, "other", 101);
  sample_launch_site(6, nullptr, 102);
  std::vector<uint32_t> correlations;
  for (const Site& site : drained()) correlations.push_back(site.correlation);
  EXPECT_EQ(correlations, (std::vector<uint32_t>{1, 2, 4, 8, 16, 32, 64, 101}));
}

TEST_F(LaunchSiteTest, NamesTheChainOfFunctionsInnermostFirst) {
  errno = 42;
  EXPECT_EQ(plain_c_entry(launch_silu), 4);
  EXPECT_EQ(errno, 42);
  const std::vector<Site> sites = drained();
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].function, "silu_kernel_gpu");
  EXPECT_EQ(sites[0].correlation, 77U);
  EXPECT_EQ(sites[0].thread, static_cast<int64_t>(gettid()));
  EXPECT_GT(sites[0].time_ns, int64_t{1600000000} * 1000000000);
  const std::vector<std::string> lines = lines_of(sites[0].stack);
  const auto first = std::find(lines.begin(), lines.end(), "liblaunch_site_module.so!at::native::silu_kernel");
  ASSERT_LE(3, lines.end() - first) << sites[0].stack;
  EXPECT_EQ(first[1], "liblaunch_site_module.so!at::_ops::silu::call");
  EXPECT_EQ(first[2], "liblaunch_site_module.so!plain_c_entry");
  // From the program's own symbol table: the test's body.
  EXPECT_EQ(first[3].rfind("unit_capture!llmprof::inject::", 0), 0U) << sites[0].stack;
}

TEST_F(LaunchSiteTest, DeepStacksAreCutAtTheirOuterEnd) {
  deep_entry(500, launch_silu);
  const std::vector<Site> sites = drained();
  ASSERT_EQ(sites.size(), 1U);
  const std::vector<std::string> lines = lines_of(sites[0].stack);
  EXPECT_EQ(lines.size(), 48U);
  EXPECT_EQ(lines.back(), "liblaunch_site_module.so!deep_entry");
}

TEST_F(LaunchSiteTest, TakingAStackAllocatesNothing) {
  launch_silu();  // gives the thread its id
  const size_t before = mallinfo2().uordblks;
  for (uint64_t key = 100; key < 110; ++key) sample_launch_site(key, "kernel", 0);
  const size_t after = mallinfo2().uordblks;
  EXPECT_EQ(after, before);
  EXPECT_EQ(launch_site_counts().sampled, 11U);
}

TEST_F(LaunchSiteTest, WhatHasNoRoomIsDroppedAndCounted) {
  for (uint64_t key = 1; key <= kPendingMax + 10; ++key) sample_launch_site(key, "kernel", 0);
  EXPECT_EQ(launch_site_counts().sampled, kPendingMax);
  EXPECT_EQ(launch_site_counts().dropped, 10U);
  const SiteCollector found = written(rounds(4));
  EXPECT_EQ(found.sites.size(), kPendingMax);
  EXPECT_EQ(found.dropped, (Dropped{{"512 stacks were waiting to be written", 10}}));
  const SiteCollector again = written(rounds(4));
  EXPECT_TRUE(again.sites.empty());
  EXPECT_EQ(again.dropped, Dropped{}) << "told once";
  sample_launch_site(9999, "later", 5);
  const std::vector<Site> later = drained();
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(later[0].function, "later");
}

TEST_F(LaunchSiteTest, AProcessTakesAtMostFourThousand) {
  uint64_t key = 0;
  size_t count = 0;
  Dropped dropped;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 200; ++i) {
      ++key;
      for (int launch = 0; launch < 2; ++launch) sample_launch_site(key, "kernel", 0);
    }
    const SiteCollector found = written(rounds(2));
    count += found.sites.size();
    for (const auto& [reason, stacks] : found.dropped) dropped[reason] += stacks;
  }
  EXPECT_EQ(launch_site_counts().sampled, kSamplesMax);
  EXPECT_EQ(count, kSamplesMax);
  // The table of functions is full around some places before it is full.
  EXPECT_GT(launch_site_counts().dropped, 20U * 400U * 9 / 10 - kSamplesMax);
  EXPECT_LE(launch_site_counts().dropped, 20U * 400U - kSamplesMax);
  EXPECT_EQ(dropped["the process had its 4096 stacks"], launch_site_counts().dropped);
}

TEST_F(LaunchSiteTest, FunctionsWithoutRoomInTheTableAreTold) {
  for (uint64_t key = 1; key <= 5000; ++key) sample_launch_site(key, nullptr, 0);
  EXPECT_EQ(written(drain_launch_sites).dropped, Dropped{}) << "no name, no launch";
  for (uint64_t key = 1; key <= 5000; ++key) sample_launch_site(key, "kernel", 0);
  const Dropped dropped = written(drain_launch_sites).dropped;
  EXPECT_EQ(dropped.count("4096 functions are distinguished, launches of others were not sampled"), 1U);
}

TEST_F(LaunchSiteTest, WhatIsNotResolvedAtTheEndIsTold) {
  launch_silu();
  resolve_launch_sites();
  launch_silu();
  const SiteCollector found = written(finish_launch_sites);
  EXPECT_EQ(found.sites.size(), 1U);
  EXPECT_EQ(found.dropped, (Dropped{{"the process ended before they were written", 1}}));
}

TEST_F(LaunchSiteTest, TheReportTellsWhatWasDropped) {
  for (int round = 0; round < 2; ++round) {
    for (uint64_t key = 1; key <= kPendingMax + 10; ++key)
      sample_launch_site(1000 * static_cast<uint64_t>(round) + key, "kernel", 0);
  }
  written([](spool::Writer& writer) {
    drain_launch_sites(writer);
    sample_launch_site(7000, "kernel", 0);  // and one more, told later
    drain_launch_sites(writer);
  });
  const Result<Trace> trace = import_files({(folder_ / "sites.spool").string()});
  ASSERT_TRUE(trace) << trace.error().text();
  EXPECT_EQ(trace->diagnostics.count(DiagnosticId::kLaunchSitesDropped), kPendingMax + 21);
  EXPECT_EQ(trace->diagnostics.places(DiagnosticId::kLaunchSitesDropped),
            std::vector<std::string>{"512 stacks were waiting to be written"});
  EXPECT_EQ(trace->diagnostics.count(DiagnosticId::kRecorderNote), 0U);
}

TEST_F(LaunchSiteTest, LongNamesAreKeptAsTheSpoolKeepsThem) {
  const std::string name(10000, 'k');
  sample_launch_site(1, name.c_str(), 0);
  // A megabyte of names is kept: later functions are dropped, not cut.
  for (uint64_t key = 2; key < 300; ++key) sample_launch_site(key, name.c_str(), 0);
  const std::vector<Site> sites = drained(4);
  ASSERT_EQ(sites.size(), launch_site_counts().sampled);
  EXPECT_GT(launch_site_counts().dropped, 0U);
  for (const Site& site : sites) EXPECT_EQ(site.function, name.substr(0, spool::kTextMax));
}

TEST_F(LaunchSiteTest, AForkedChildStartsAnew) {
  for (int i = 0; i < 4; ++i) launch_silu();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    abandon_launch_sites();
    launch_silu();  // not sampled: nobody has looked at the modules yet
    const bool empty = drained().empty() && launch_site_counts().sampled == 0;
    launch_silu();
    _exit(empty && drained().size() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(drained().size(), 3U);
}

TEST_F(LaunchSiteTest, ProgramsThatSwitchStacksAreNotSampled) {
  launch_silu();
  EXPECT_EQ(launch_site_counts().sampled, 1U);
  void* const library = dlopen(LLMPROF_GREENLET, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(drained().size(), 1U);  // looks at the modules again
  for (int i = 0; i < 10; ++i) launch_silu();
  EXPECT_EQ(launch_site_counts().sampled, 1U);
  dlclose(library);
  launch_silu();
  resolve_launch_sites();
  EXPECT_EQ(launch_site_counts().sampled, 1U);  // for good
}

TEST_F(LaunchSiteTest, ThreadsSampleSideBySideWhileOthersDrain) {
  constexpr int kThreads = 4, kFunctions = 100;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (uint64_t launch = 0; launch < 64; ++launch)
        for (uint64_t key = 1; key <= kFunctions; ++key) sample_launch_site(key, "kernel", 1);
      --running;
    });
  size_t written = 0;
  while (running.load() != 0) written += drained().size();
  for (std::thread& thread : threads) thread.join();
  written += drained(8).size();
  const LaunchSiteCounts counts = launch_site_counts();
  EXPECT_EQ(written, counts.sampled);
  EXPECT_EQ(counts.sampled + counts.dropped, kFunctions * 9U);  // 4 * 64 launches each: 1, 2, 4, ... 256
}

// A copy of the module, so that it can go.
class ModuleCopy {
 public:
  explicit ModuleCopy(const std::filesystem::path& path) {
    std::filesystem::copy_file(LLMPROF_LAUNCH_MODULE, path);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~ModuleCopy() { close(); }
  void launch() { reinterpret_cast<int (*)(int (*)())>(dlsym(library_, "plain_c_entry"))(launch_silu); }
  void close() {
    if (library_ != nullptr) dlclose(std::exchange(library_, nullptr));
  }

 private:
  void* library_ = nullptr;
};

TEST_F(LaunchSiteTest, NamesComeFromTheFileThatWasLoadedAndFromNoOther) {
  const std::filesystem::path path = folder_ / "libcopy.so";
  const auto find = [](const std::vector<Site>& sites) {
    for (const std::string& line : lines_of(sites.at(0).stack))
      if (line.starts_with("libcopy.so!")) return line;
    return sites.at(0).stack;
  };
  ModuleCopy copy(path);
  copy.launch();
  EXPECT_EQ(find(drained()), "libcopy.so!plain_c_entry");
  // Another file stands there when the names are looked up: one with a build id of its own, then none.
  std::filesystem::remove(path);
  std::filesystem::copy_file("/proc/self/exe", path);
  copy.launch();
  const std::string replaced = find(drained());
  EXPECT_TRUE(replaced.starts_with("libcopy.so!0x")) << replaced;
  std::filesystem::remove(path);
  copy.launch();
  copy.launch();
  EXPECT_EQ(find(drained()), replaced);
}

TEST_F(LaunchSiteTest, AModuleThatIsGoneWhenItIsLookedForIsUnknown) {
  ModuleCopy copy(folder_ / "libgone.so");
  copy.launch();
  copy.close();
  const std::vector<Site> sites = drained();
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].stack.find("libgone.so"), std::string::npos) << sites[0].stack;
  EXPECT_NE(sites[0].stack.find("[unknown]"), std::string::npos) << sites[0].stack;
}

TEST_F(LaunchSiteTest, AModuleOfARelativePathIsFoundFromElsewhere) {
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  ModuleCopy copy("./librelative.so");
  copy.launch();
  resolve_launch_sites();
  std::filesystem::current_path(here);
  EXPECT_NE(drained().at(0).stack.find("librelative.so!plain_c_entry"), std::string::npos);
}

}  // namespace
}  // namespace llmprof::inject
