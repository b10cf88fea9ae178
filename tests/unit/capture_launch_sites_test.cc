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
#include <string>
#include <thread>
#include <vector>

#include "capture/inject/launch_sites/launch_sites.h"
#include "capture/inject/launch_sites/launch_symbols.h"
#include "capture/spool/reader.h"
#include "capture_launch_site_module.h"
#include "import/importer.h"
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
  std::vector<Site> sites;
  std::map<std::string, uint64_t> dropped;  // by reason
  void operator()(const spool::TextDef& def) { texts[def.id] = std::string(def.text); }
  void operator()(const spool::ThreadDef& def) { threads[def.id] = def.thread_id; }
  void operator()(const spool::LaunchSite& r) {
    sites.push_back({texts.at(r.function), texts.at(r.stack), threads.at(r.thread), r.time_ns, r.correlation});
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

std::string short_name(const char* symbol) {
  char out[256];
  return {out, short_function(symbol, out, sizeof out)};
}
std::string line(const char* module, const char* symbol, uint64_t offset = 0) {
  char out[256];
  return {out, frame_line(module, symbol, offset, out, sizeof out)};
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
  EXPECT_EQ(lines.size(), kFramesMax);
  EXPECT_EQ(lines.back(), "liblaunch_site_module.so!deep_entry");
  EXPECT_LE(sites[0].stack.size(), spool::kTextMax);
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

TEST(LaunchSiteNames, AreShortened) {
  EXPECT_EQ(short_name("main"), "main");
  EXPECT_EQ(short_name("_ZN2at4_ops2mm4callERKNS_6TensorES4_"), "at::_ops::mm::call");
  EXPECT_EQ(short_name("_ZN2at6native11silu_kernelIiEET_PFS2_vES2_"), "at::native::silu_kernel");
  EXPECT_EQ(short_name("_ZNK3c104SizecvT_IiEEv").substr(0, 19), "c10::Size::operator");
  EXPECT_EQ(short_name("_ZN12_GLOBAL__N_13runEi"), "(anonymous namespace)::run");
  EXPECT_EQ(short_name("_ZZN1a1fEiENKUliE_clEi"), "a::f::{lambda#1}::operator()");
  EXPECT_EQ(short_name("_ZN1alsERSoRKNS_1bE"), "a::operator<<");
  EXPECT_EQ(short_name("_Znwm"), "operator new");
  EXPECT_EQ(short_name("_ZNSt6vectorIiSaIiEE9push_backERKi"), "std::vector::push_back");
  EXPECT_EQ(short_name("_Znonsense"), "_Znonsense");
  // A comparison among the template arguments: void f<(4ul)>(2)>() and what the demangler makes of it.
  EXPECT_EQ(short_name("_Z1fILi3EEvN9enable_ifIXgtT_Li2EEiE4typeE"), "f");
}

TEST(LaunchSiteNames, TooLongForTheDemanglerGiveThePath) {
  std::string name = "_ZN2at6native12_GLOBAL__N_14loopI";
  for (int i = 0; i < 400; ++i) name += "St4pairIiiE";
  name += "EEvv";
  EXPECT_EQ(short_name(name.c_str()), "at::native::(anonymous namespace)::loop");
  const std::string odd = "_ZN99999999999999999999999abc" + std::string(2000, 'x');
  EXPECT_LE(short_name(odd.c_str()).size(), 256U);
}

TEST(LaunchSiteNames, AddressesAreFoundAsTheLoaderFindsThem) {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY);
  ASSERT_NE(libc, nullptr);
  void* const inside_qsort = static_cast<char*>(dlsym(libc, "qsort")) + 1;
  void* const entry = reinterpret_cast<void*>(&plain_c_entry);
  void* const method = reinterpret_cast<void*>(&at::_ops::silu::call);
  char out[256];
  for (void* const address : {inside_qsort, entry, method}) {
    Dl_info info{};
    ASSERT_NE(dladdr(address, &info), 0);
    ASSERT_NE(info.dli_sname, nullptr);
    const std::string found(out, describe_address(reinterpret_cast<uintptr_t>(address), out, sizeof out));
    EXPECT_EQ(found, line(info.dli_fname, info.dli_sname));
  }
  const int on_stack = 0;
  const std::string found(out, describe_address(reinterpret_cast<uintptr_t>(&on_stack), out, sizeof out));
  EXPECT_EQ(found, "[unknown]");
}

TEST(LaunchSiteNames, OfAModuleThatWasUnloadedAreForgotten) {
  char out[256];
  // Whatever lies there afterwards, it is not the module that was unloaded.
  void* const library = dlopen("libanl.so.1", RTLD_NOW);
  if (library == nullptr) GTEST_SKIP() << "no library to load and unload";
  dl_phdr_info found{};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        if (std::string(info->dlpi_name).find("libanl") == std::string::npos) return 0;
        *static_cast<dl_phdr_info*>(data) = *info;
        return 1;
      },
      &found);
  ASSERT_NE(found.dlpi_addr, 0U);
  const uintptr_t address = found.dlpi_addr + 64;
  EXPECT_EQ(std::string(out, describe_address(address, out, sizeof out)), "libanl.so.1!0x40");
  dlclose(library);
  EXPECT_EQ(std::string(out, describe_address(address, out, sizeof out)), "[unknown]");
}

TEST(LaunchSiteNames, FramesOfModules) {
  EXPECT_EQ(line("/opt/lib/libtorch_cpu.so", "_ZN2at4_ops2mm4callERKNS_6TensorES4_"),
            "libtorch_cpu.so!at::_ops::mm::call");
  EXPECT_EQ(line("/usr/lib/libcublasLt.so.12", nullptr, 0x1f20), "libcublasLt.so.12!0x1f20");
  EXPECT_EQ(line("/usr/bin/python3.11", "_PyEval_EvalFrameDefault"), "[python]");
  EXPECT_EQ(line("/usr/bin/python", nullptr, 3), "[python]");
  EXPECT_EQ(line("/usr/bin/python3.13t", nullptr, 3), "[python]");
  EXPECT_EQ(line("/usr/lib/libpython3.11.so.1.0", nullptr, 3), "[python]");
  EXPECT_EQ(line("/usr/bin/python-app", "run"), "python-app!run");
  EXPECT_EQ(line("", nullptr, 3), "[unknown]");
}

TEST(LaunchSiteNames, StacksAreCutAndFolded) {
  StackText text;
  for (const char* frame :
       {"libllmprof_inject.so!0x10", "libcupti.so.12!0x20", "libcuda.so.1!0x30", "libcudart.so.12!cudaLaunchKernel",
        "libtorch_cuda.so!at::native::silu_kernel", "libcudart.so.12!kept", "[python]", "[python]", "[python]",
        "libtorch_python.so!torch::run", "[python]", "[python]", "libc.so.6!f", "libc.so.6!f"})
    text.add(frame);
  EXPECT_EQ(text.view(),
            "libtorch_cuda.so!at::native::silu_kernel\nlibcudart.so.12!kept\n[python]\nlibtorch_python.so!torch::run\n"
            "[python]\nlibc.so.6!f\nlibc.so.6!f");
  StackText wide;
  const std::string frame = "lib!" + std::string(240, 'w');
  for (int i = 0; i < 60; ++i) wide.add(frame);
  EXPECT_LE(wide.view().size(), spool::kTextMax);
  EXPECT_EQ(wide.view().size(), 16 * 245 - 1U);  // whole lines only
}

}  // namespace
}  // namespace llmprof::inject
