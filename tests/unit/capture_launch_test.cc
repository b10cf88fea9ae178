// The parts of the launcher that decide something: names, folders, environments, what a program is, which GPUs it sees.
// Whole runs are in tests/run.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "capture/launch/control_page.h"
#include "capture/launch/environment.h"
#include "capture/launch/program.h"
#include "capture/launch/progress.h"
#include "capture/launch/sampling.h"
#include "capture/launch/session_folder.h"
#include "capture/session/level.h"
#include "temporary_folder.h"

namespace llmprof::launch {
namespace {

namespace fs = std::filesystem;
using Gpu = SessionRecord::Gpu;

class Launch : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& bytes, int mode = 0755) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    chmod(path(name).c_str(), static_cast<mode_t>(mode));
  }
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST(LaunchNames, ShortNameOfACommand) {
  EXPECT_EQ(short_name({"/usr/bin/ls", "-l"}), "ls");
  EXPECT_EQ(short_name({"python3", "-u", "dir/gen.py", "x.py"}), "gen");
  EXPECT_EQ(short_name({"/opt/python3.11", "-m", "vllm.entrypoints.api_server"}), "api_server");
  EXPECT_EQ(short_name({"torchrun", "--nproc-per-node", "2", "train.py"}), "train");
  EXPECT_EQ(short_name({"python3", "-c", "pass"}), "python3");
  EXPECT_EQ(short_name({"./a b;c"}), "a_b_c");
  EXPECT_EQ(short_name({"..."}), "program");
  EXPECT_EQ(short_name({std::string(200, 'x')}), std::string(40, 'x'));
}

TEST_F(Launch, SessionFolders) {
  const Result<std::string> made = create_session_folder(path("a/b"), "x", "");
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(*made, path("a/b"));
  EXPECT_TRUE(fs::is_directory(path("a/b/spool")) && fs::is_directory(path("a/b/samples")));
  const Result<std::string> again = create_session_folder(path("a/b"), "x", "");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().exit_code, ExitCode::kUsage);
  fs::create_directory(path("empty"));
  EXPECT_TRUE(create_session_folder(path("empty"), "x", ""));
}

TEST_F(Launch, TwoSessionsInOneSecondHaveTwoFolders) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const Result<std::string> first = create_session_folder("", "p", "a/b"),
                            second = create_session_folder("", "p", "a/b");
  fs::current_path(before);
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  EXPECT_TRUE(first->ends_with("-a-b")) << *first;
}

TEST_F(Launch, ControlPageIsSharedAndTellsARunningSession) {
  EXPECT_FALSE(session_is_running(folder_.string()));
  {
    const Result<ControlPage> made = ControlPage::create(folder_.string(), spool::Level::kDeep, spool::Level::kOff);
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_TRUE(session_is_running(folder_.string()));
    const Result<ControlPage> seen = ControlPage::open(folder_.string());
    ASSERT_TRUE(seen) << seen.error().text();
    EXPECT_EQ((*seen)->planned_level, static_cast<uint32_t>(spool::Level::kDeep));
    seen->set_level(spool::Level::kLight, 77);
    EXPECT_EQ(made->wanted(), spool::Level::kLight);
    EXPECT_EQ((*made)->command.load(), 1U);
    EXPECT_EQ((*made)->record_until_ns.load(), 77);
  }
  EXPECT_FALSE(session_is_running(folder_.string()));
}

TEST_F(Launch, DamagedControlPagesAreRefused) {
  EXPECT_FALSE(ControlPage::open(folder_.string()));
  write("control", "short");
  EXPECT_FALSE(ControlPage::open(folder_.string()));
  write("control", std::string(sizeof(session::Control), 'x'));
  EXPECT_FALSE(ControlPage::open(folder_.string()));
}

TEST(LaunchProgress, CountsSlots) {
  session::Control control{};
  control.slots[3].process_id = 10;
  control.slots[3].kernels = 1000;
  control.slots[3].state = static_cast<uint32_t>(session::SlotState::kRecording);
  control.slots[9].process_id = 11;
  control.slots[9].kernels = 234;
  control.slots[9].state = static_cast<uint32_t>(session::SlotState::kEnded);
  control.wanted_level = static_cast<uint32_t>(spool::Level::kDefault);
  EXPECT_EQ(progress_of(control).processes, 2U);
  EXPECT_EQ(progress_text(1.25, control, 4'100'000),
            "1.2 s · 1 process · 1,234 kernels · 4.10 MB · recording: default");
  control.wanted_level = 0;
  EXPECT_TRUE(progress_text(0, control, 0).ends_with("not recording"));
}

InjectionPlan plan() {
  InjectionPlan plan;
  plan.session_folder = "/s";
  plan.library = "/lib/inject.so";
  return plan;
}

std::string value(const TargetEnvironment& environment, const std::string& name) {
  const char* found = environment_value(environment.entries, name);
  return found != nullptr ? found : "(none)";
}

TEST(LaunchEnvironment, AddsWhatIsNeededAndKeepsTheRest) {
  const char* const current[] = {"HOME=/h", "LLMPROF_STEPS=4", "LLMPROF_THREADS=2", "EMPTY=", nullptr};
  const TargetEnvironment made = target_environment(current, plan());
  EXPECT_EQ(value(made, "HOME"), "/h");
  EXPECT_EQ(value(made, "EMPTY"), "");
  EXPECT_EQ(value(made, "LLMPROF_THREADS"), "2");
  EXPECT_EQ(value(made, "LLMPROF_STEPS"), "(none)");
  EXPECT_EQ(value(made, "LD_PRELOAD"), "/lib/inject.so");
  EXPECT_EQ(value(made, "CUDA_INJECTION64_PATH"), "/lib/inject.so");
  EXPECT_EQ(value(made, "NVTX_INJECTION64_PATH"), "/lib/inject.so");
  EXPECT_EQ(value(made, "LLMPROF_LEVEL"), "default");
  EXPECT_EQ(value(made, "LLMPROF_NEXT_INJECTION"), "(none)");
  EXPECT_EQ(value(made, "PYTHONPATH"), "(none)");
  EXPECT_TRUE(made.notices.empty());
}

TEST(LaunchEnvironment, ForeignTools) {
  const char* const current[] = {"CUDA_INJECTION64_PATH=/other.so",
                                 "NVTX_INJECTION64_PATH=/other.so",
                                 "LD_PRELOAD=/lib/inject.so a.so:b.so",
                                 "PYTHONPATH=/p",
                                 "LLMPROF_CUPTI=/mine",
                                 nullptr};
  InjectionPlan wanted = plan();
  wanted.cupti = "/theirs";
  wanted.python_folder = "/hook";
  const TargetEnvironment made = target_environment(current, wanted);
  EXPECT_EQ(value(made, "LLMPROF_NEXT_INJECTION"), "/other.so");
  EXPECT_EQ(value(made, "LD_PRELOAD"), "/lib/inject.so:a.so:b.so");
  EXPECT_EQ(value(made, "PYTHONPATH"), "/hook:/p");
  EXPECT_EQ(value(made, "LLMPROF_TORCH"), "1");
  EXPECT_EQ(value(made, "LLMPROF_CUPTI"), "/mine");
  EXPECT_EQ(made.notices.size(), 2U);
}

TEST(LaunchEnvironment, UnderAnotherProfilerNothingOfOursIsLeft) {
  const std::string own = "/x/lib/libllmprof_inject.so";
  const std::vector<std::string> texts = {"HOME=/h",
                                          "LD_PRELOAD=" + own + ":a.so b.so",
                                          "CUDA_INJECTION64_PATH=" + own,
                                          "NVTX_INJECTION64_PATH=/other.so",
                                          "PYTHONPATH=/x/share/llmprof/python:/p",
                                          "LLMPROF_TORCH=1",
                                          "LLMPROF_LEVEL=deep",
                                          "LLMPROF_CUPTI=/mine"};
  std::vector<const char*> current;
  for (const std::string& text : texts) current.push_back(text.c_str());
  current.push_back(nullptr);
  const TargetEnvironment made = plain_environment(current.data());
  for (const std::string& entry : made.entries) EXPECT_EQ(entry.find("libllmprof_inject"), std::string::npos) << entry;
  EXPECT_EQ(value(made, "HOME"), "/h");
  EXPECT_EQ(value(made, "LD_PRELOAD"), "a.so:b.so");
  EXPECT_EQ(value(made, "CUDA_INJECTION64_PATH"), "(none)");
  EXPECT_EQ(value(made, "NVTX_INJECTION64_PATH"), "/other.so");
  EXPECT_EQ(value(made, "PYTHONPATH"), "/p");
  EXPECT_EQ(value(made, "LLMPROF_TORCH"), "(none)");
  EXPECT_EQ(value(made, "LLMPROF_LEVEL"), "(none)");
  ASSERT_EQ(made.notices.size(), 1U);
  EXPECT_NE(made.notices[0].find("/other.so"), std::string::npos);
  // What has nothing of ours stays as it is, separators included.
  const char* const foreign[] = {"LD_PRELOAD=a.so b.so", "PYTHONPATH=/x/share/llmprof/python", nullptr};
  const TargetEnvironment kept = plain_environment(foreign);
  EXPECT_EQ(value(kept, "LD_PRELOAD"), "a.so b.so");
  EXPECT_EQ(value(kept, "PYTHONPATH"), "/x/share/llmprof/python");
}

TEST(LaunchEnvironment, WherePreloadIsImpossible) {
  const char* const current[] = {"LD_PRELOAD=x.so", nullptr};
  InjectionPlan wanted = plan();
  wanted.preload = false;
  EXPECT_EQ(value(target_environment(current, wanted), "LD_PRELOAD"), "x.so");
  wanted.preload = true;
  wanted.library = "/a b/inject.so";
  const TargetEnvironment made = target_environment(current, wanted);
  EXPECT_EQ(value(made, "LD_PRELOAD"), "x.so");
  EXPECT_EQ(made.notices.size(), 1U);
}

// An ELF header with one program header, as much as the launcher looks at.
std::string elf(const char* loader, int machine) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = static_cast<Elf64_Half>(machine);
  header.e_phoff = sizeof header;
  header.e_phnum = 1;
  Elf64_Phdr part{};
  part.p_type = loader != nullptr ? PT_INTERP : PT_LOAD;
  part.p_offset = sizeof header + sizeof part;
  part.p_filesz = loader != nullptr ? std::strlen(loader) : 0;
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  out.append(reinterpret_cast<const char*>(&part), sizeof part);
  return loader != nullptr ? out + loader : out;
}

int this_machine() {
  Elf64_Ehdr header{};
  std::ifstream self("/proc/self/exe", std::ios::binary);
  self.read(reinterpret_cast<char*>(&header), sizeof header);
  return header.e_machine;
}

TEST_F(Launch, WhatAProgramIs) {
  write("usual", elf("/lib64/ld-linux-x86-64.so.2", this_machine()));
  write("musl", elf("/lib/ld-musl-x86_64.so.1", this_machine()));
  write("static", elf(nullptr, this_machine()));
  write("foreign", elf(nullptr, EM_SPARC));
  write("script", "#! " + path("musl") + " -x\n");
  write("text", "echo hi\n");
  // Sizes and offsets that point outside the file.
  std::string broken = elf("/lib/ld-musl-x86_64.so.1", this_machine());
  Elf64_Phdr part{};
  std::memcpy(&part, broken.data() + sizeof(Elf64_Ehdr), sizeof part);
  part.p_filesz = ~0ULL;
  std::memcpy(broken.data() + sizeof(Elf64_Ehdr), &part, sizeof part);
  write("broken", broken);
  write("cut", std::string(ELFMAG) + "\x02");
  const std::pair<const char*, Linkage> expected[] = {{"usual", Linkage::kGlibc},    {"musl", Linkage::kMusl},
                                                      {"static", Linkage::kStatic},  {"foreign", Linkage::kForeign},
                                                      {"script", Linkage::kMusl},    {"text", Linkage::kUnknown},
                                                      {"broken", Linkage::kUnknown}, {"cut", Linkage::kForeign}};
  for (const auto& [name, linkage] : expected) {
    const Result<Program> found = find_program(path(name), nullptr);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->linkage, linkage) << name;
  }
}

TEST_F(Launch, ProgramsAreFoundAsExecDoes) {
  fs::create_directories(path("one/tool"));  // a folder of that name does not hide the program
  fs::create_directory(path("two"));
  write("two/tool", "#!/bin/sh\n");
  write("two/plain", "", 0644);
  const std::string search = path("none") + ":" + path("one") + ":" + path("two");
  const Result<Program> tool = find_program("tool", search.c_str());
  ASSERT_TRUE(tool);
  EXPECT_EQ(tool->path, path("two/tool"));
  EXPECT_EQ(static_cast<int>(find_program("plain", search.c_str()).error().exit_code), kExitNotExecutable);
  EXPECT_EQ(static_cast<int>(find_program("gone", search.c_str()).error().exit_code), kExitNotFound);
  EXPECT_EQ(static_cast<int>(find_program("", search.c_str()).error().exit_code), kExitNotFound);
  EXPECT_EQ(static_cast<int>(find_program(path("two"), nullptr).error().exit_code), kExitNotExecutable);
}

std::string indices(const std::vector<Gpu>& gpus) {
  std::string out;
  for (const Gpu& gpu : gpus) out += gpu.uuid.substr(4, 1);
  return out;
}

TEST(LaunchGpus, VisibleDevices) {
  const std::vector<Gpu> alike = {
      {"GPU-b", "H200", "0000:20:00.0"}, {"GPU-a", "H200", "0000:10:00.0"}, {"GPU-c", "H200", "0000:30:00.0"}};
  EXPECT_EQ(indices(visible_gpus(alike, nullptr, nullptr)), "bac");
  EXPECT_EQ(indices(visible_gpus(alike, "", nullptr)), "");
  EXPECT_EQ(indices(visible_gpus(alike, "0", nullptr)), "a");  // CUDA numbers equal GPUs by their bus
  EXPECT_EQ(indices(visible_gpus(alike, "2,0", nullptr)), "ca");
  EXPECT_EQ(indices(visible_gpus(alike, "GPU-c,1", nullptr)), "cb");
  EXPECT_EQ(indices(visible_gpus(alike, "1,-1,0", nullptr)), "b");  // nothing counts behind a name that is none
  EXPECT_EQ(indices(visible_gpus(alike, "99999999999999999999", nullptr)), "");
  EXPECT_EQ(indices(visible_gpus(alike, "MIG-1234", nullptr)), "bac");
  std::vector<Gpu> mixed = alike;
  mixed[0].name = "A10";
  EXPECT_EQ(indices(visible_gpus(mixed, "0", nullptr)), "bac");
  EXPECT_EQ(indices(visible_gpus(mixed, "0", "PCI_BUS_ID")), "a");
  EXPECT_EQ(indices(visible_gpus({}, "0", nullptr)), "");
}

TEST_F(Launch, RunningSessionsAreListedNewestFirstAndDeadOnesForgotten) {
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  const Result<std::string> session = create_session_folder(path("session"), "x", "");
  ASSERT_TRUE(session);
  ASSERT_TRUE(write_session_file(*session, {}));
  {
    const RunningEntry entry(*session);
    EXPECT_TRUE(running_sessions().empty());  // entered, but nobody holds its page
  }
  const Result<ControlPage> page = ControlPage::create(*session, spool::Level::kLight, spool::Level::kOff);
  ASSERT_TRUE(page);
  {
    const RunningEntry entry(*session);
    EXPECT_EQ(running_sessions(), std::vector<std::string>{*session});
  }
  EXPECT_TRUE(running_sessions().empty());
  unsetenv("XDG_RUNTIME_DIR");
}

// Whoever looks for sessions removes entries that lead to none: it must never come upon one that is being written.
TEST_F(Launch, AnEntryAppearsWhole) {
  const std::string runtime = (folder_ / "runtime").string();
  const std::string entries = runtime + "/llmprof-" + std::to_string(geteuid());
  ASSERT_TRUE(fs::create_directories(entries));
  fs::permissions(entries, fs::perms::owner_all);
  setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(inotify_add_watch(watch, entries.c_str(), IN_CREATE | IN_MOVED_TO), 0);
  { const RunningEntry entry((folder_ / "session").string()); }
  unsetenv("XDG_RUNTIME_DIR");
  alignas(inotify_event) char events[4096];
  const ssize_t size = read(watch, events, sizeof events);
  close(watch);
  bool moved = false;
  for (ssize_t at = 0; at < size;) {
    const inotify_event& event = *reinterpret_cast<const inotify_event*>(events + at);
    if (event.name != std::to_string(getpid())) {
      EXPECT_EQ(event.name[0], '.') << event.name;
    } else {
      EXPECT_EQ(event.mask & IN_CREATE, 0U);
      moved = true;
    }
    at += static_cast<ssize_t>(sizeof event) + event.len;
  }
  EXPECT_TRUE(moved);
}

TEST(LaunchLevels, Names) {
  EXPECT_EQ(session::parse_mode("deep"), spool::Level::kDeep);
  EXPECT_FALSE(session::parse_mode("off"));
  EXPECT_STREQ(session::level_name(99U), "unknown");
}

}  // namespace
}  // namespace llmprof::launch
