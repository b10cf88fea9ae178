// Permissions, the search for CUPTI, isolation, and the doctor that is made of them, with stand-in libraries.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/diagnostics.h"
#include "capture/samplers/doctor_report.h"
#include "capture/samplers/isolated.h"
#include "capture/samplers/permissions.h"
#include "capture_samplers_support.h"
#include "nvidia/find_cupti.h"

namespace llmprof::samplers {
namespace {

using testing::kFakeCupti;
using testing::kFakeNvml;
using testing::Settings;

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

// ---- permissions
// ------------------------------------------------------------------------------------------------------

Observations failed_with(int code) {
  Observations seen;
  seen.counters_code = code;
  seen.counters_call = "cuptiPmSamplingEnable";
  return seen;
}

std::string first(const Observations& seen) {
  const std::vector<Explanation> why = explain(seen);
  return why.empty() ? "" : why.front().situation;
}

TEST(Permissions, NothingToSayWhereItWorks) {
  EXPECT_EQ(first(Observations()), "");
  EXPECT_EQ(first(failed_with(0)), "");
  Observations divided;  // MIG alone is no failure
  divided.mig = 1;
  EXPECT_EQ(first(divided), "");
}

TEST(Permissions, EverySituationIsRecognised) {
  std::set<std::string> seen_names;
  const auto expect = [&](const Observations& seen, const char* situation) {
    EXPECT_EQ(first(seen), situation);
    seen_names.insert(first(seen));
  };
  expect(failed_with(35), "admin-only");
  Observations seen = failed_with(35);
  seen.container = true;
  expect(seen, "admin-only-container");
  expect(failed_with(26), "busy");
  expect(failed_with(33), "vgpu");
  expect(failed_with(40), "vgpu-disabled");
  expect(failed_with(41), "confidential-computing");
  expect(failed_with(42), "mining-gpu");
  expect(failed_with(43), "mig");
  expect(failed_with(44), "sli");
  expect(failed_with(45), "wsl");
  expect(failed_with(46), "unknown-chip");
  expect(failed_with(15), "old-driver");
  expect(failed_with(27), "old-gpu");
  expect(failed_with(999), "refused");
  seen = failed_with(999);
  seen.gvisor = true;
  expect(seen, "gvisor");
  seen = Observations();
  seen.cupti_found = false;
  expect(seen, "no-cupti");
  seen.cupti_found = true;
  seen.cupti_samples = false;
  expect(seen, "old-cupti");
  EXPECT_EQ(seen_names.size(), situations().size()) << "a row that no case reaches";
}

TEST(Permissions, TheMachineExplainsAGeneralFailure) {
  Observations seen = failed_with(999);
  seen.mig = 1;
  EXPECT_EQ(first(seen), "mig");
  seen.gpm = 1;
  EXPECT_EQ(explain(seen).front().message.find("stand in"), std::string::npos) << "GPM is of all parts together";
  seen = failed_with(27);
  seen.support_vgpu = cupti_profiler::kSupportDisabled;
  EXPECT_EQ(first(seen), "vgpu-disabled");
  EXPECT_EQ(explain(seen).size(), 1U) << "the general row is silent where another speaks";
  EXPECT_NE(explain(failed_with(999)).front().message.find("cuptiPmSamplingEnable"), std::string::npos);
}

TEST(Permissions, KeysAreDiagnosticsAndMessagesSayWhatStandsIn) {
  for (const int code : {35, 26, 33, 40, 41, 42, 43, 44, 45, 46, 15, 27, 999}) {
    Observations seen = failed_with(code);
    for (const Explanation& why : explain(seen)) {
      const bool known = std::any_of(diagnostic_table().begin(), diagnostic_table().end(),
                                     [&](const DiagnosticInfo& info) { return info.key == why.key; });
      EXPECT_TRUE(known) << why.key;
      EXPECT_NE(why.message.find("formulas"), std::string::npos);
    }
    seen.gpm = 1;
    EXPECT_NE(explain(seen).front().message.find("GPM"), std::string::npos);
  }
}

TEST(Permissions, TheMachineIsRead) {
  const TemporaryFolder root;
  write_file(root.path() + "/proc/driver/nvidia/params", "EnableMSI: 1\nRmProfilingAdminOnly: 1\n");
  write_file(root.path() + "/proc/self/status", "Name:\tx\nCapEff:\t0000004000200000\n");
  write_file(root.path() + "/proc/version", "Linux version 5.15 (x@microsoft.com)\n");
  write_file(root.path() + "/proc/1/cgroup", "0::/kubepods/pod1\n");
  Observations seen;
  observe_machine(seen, root.path());
  EXPECT_EQ(seen.admin_only, 1);
  EXPECT_EQ(seen.cap_sys_admin, 1);
  EXPECT_EQ(seen.cap_perfmon, 1);
  EXPECT_TRUE(seen.wsl);
  EXPECT_TRUE(seen.container);
  EXPECT_FALSE(seen.gvisor);
  const TemporaryFolder empty;
  Observations unknown;
  observe_machine(unknown, empty.path());
  EXPECT_EQ(unknown.admin_only, -1);
  EXPECT_EQ(unknown.cap_sys_admin, -1);
  EXPECT_FALSE(unknown.container);
}

// ---- finding CUPTI
// ----------------------------------------------------------------------------------------------------

class FindCupti : public ::testing::Test {
 protected:
  FindCupti()
      : old_path_(std::getenv("PATH")), settings_{{"LD_LIBRARY_PATH", ""}, {"VIRTUAL_ENV", ""}, {"CONDA_PREFIX", ""}} {}
  ~FindCupti() override { setenv("PATH", old_path_.c_str(), 1); }

  std::string place(const std::string& relative) {
    const std::string path = root() + "/" + relative;
    write_file(path, "library");
    return path;
  }
  std::string program(const std::string& relative, const std::string& text) {
    const std::string path = place(relative);
    write_file(path, text);
    chmod(path.c_str(), 0755);
    return path;
  }
  std::string root() const { return std::filesystem::canonical(folder_.path()).string(); }

  TemporaryFolder folder_;
  std::string old_path_;
  Settings settings_;
};

TEST_F(FindCupti, TheInterpretersOwnCopyComesFirst) {
  const std::string thirteen = place("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13");
  const std::string twelve = place("venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12");
  const std::string toolkit = place("cuda/extras/CUPTI/lib64/libcupti.so.12");
  const std::string python = program("venv/bin/python", "ELF");
  settings_.set("CUDA_HOME", root() + "/cuda");
  const std::vector<std::string> found = nvidia::cupti_candidates(python);
  ASSERT_GE(found.size(), 3U);
  EXPECT_EQ(found[0], thirteen);
  EXPECT_EQ(found[1], twelve);
  EXPECT_EQ(found[2], toolkit);
}

TEST_F(FindCupti, AScriptLeadsToItsInterpreter) {
  const std::string library = place("venv/lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12");
  program("venv/bin/python3", "ELF");
  const std::string torchrun = program("bin/torchrun", "#!" + root() + "/venv/bin/python3\nimport sys\n");
  EXPECT_EQ(nvidia::cupti_candidates(torchrun).front(), library);
  setenv("PATH", (root() + "/bin:" + root() + "/venv/bin").c_str(), 1);
  EXPECT_EQ(nvidia::cupti_candidates("torchrun").front(), library) << "by name";
  program("bin/vllm", "#!/usr/bin/env python3\n");
  EXPECT_EQ(nvidia::cupti_candidates("vllm").front(), library) << "through env";
  program("bin/serve.sh", "#!/bin/sh\n");
  EXPECT_EQ(nvidia::cupti_candidates("serve.sh").front(), library) << "anything else: the python3 of PATH";
}

TEST_F(FindCupti, AChosenFileWinsAndNothingIsListedTwice) {
  const std::string library = place("venv/lib/python3.11/site-packages/nvidia/cu12/lib/libcupti.so.12");
  std::filesystem::create_symlink(library, root() + "/mine.so");
  settings_.set("LLMPROF_CUPTI", root() + "/mine.so");
  settings_.set("VIRTUAL_ENV", root() + "/venv");
  const std::vector<std::string> found = nvidia::cupti_candidates();
  EXPECT_EQ(found.front(), library);
  EXPECT_EQ(std::count(found.begin(), found.end(), library), 1);
}

// ---- isolation
// --------------------------------------------------------------------------------------------------------

TEST(Isolated, AnswersWhateverHappens) {
  const IsolatedResult fine = run_isolated([] { return std::string(100000, 'x'); }, 10);
  EXPECT_TRUE(fine.finished);
  EXPECT_EQ(fine.text.size(), 100000U);
  const IsolatedResult crash = run_isolated(
      []() -> std::string {
        std::raise(SIGSEGV);
        return "alive";
      },
      10);
  EXPECT_FALSE(crash.finished);
  EXPECT_NE(crash.trouble.find("signal 11"), std::string::npos) << crash.trouble;
  const IsolatedResult hang = run_isolated(
      []() -> std::string {
        std::this_thread::sleep_for(std::chrono::seconds(60));
        return "late";
      },
      1);
  EXPECT_FALSE(hang.finished);
  EXPECT_NE(hang.trouble.find("within 1 s"), std::string::npos) << hang.trouble;
}

// ---- the doctor
// -------------------------------------------------------------------------------------------------------

const DoctorCheck* find_check(const DoctorResult& report, const std::string& name) {
  for (const DoctorCheck& check : report.checks)
    if (check.name == name) return &check;
  return nullptr;
}

class Doctor : public ::testing::Test {
 protected:
  Doctor() : settings_{{"LLMPROF_NVML", kFakeNvml}, {"LLMPROF_CUDA", kFakeCupti}, {"LLMPROF_CUPTI", kFakeCupti}} {}

  DoctorCheck check(const std::string& name) {
    const DoctorResult report = examine({});
    gpus_ = report.gpus;
    const DoctorCheck* found = find_check(report, name);
    EXPECT_NE(found, nullptr) << name;
    return found != nullptr ? *found : DoctorCheck{};
  }

  Settings settings_;
  int64_t gpus_ = -1;
};

TEST_F(Doctor, EverythingWorks) {
  const DoctorResult report = examine({});
  EXPECT_EQ(report.gpus, 1);
  for (const char* name : {"nvml", "gpu 0", "gpm of gpu 0", "cuda", "cupti", "counters of gpu 0"}) {
    const DoctorCheck* found = find_check(report, name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->state, CheckState::kWorks) << name << ": " << found->found;
    EXPECT_FALSE(found->found.empty());
  }
  EXPECT_NE(find_check(report, "counters of gpu 0")->found.find("GH100: 19 counters"), std::string::npos);
  EXPECT_NE(find_check(report, "cuda")->found.find("CUDA 13.0"), std::string::npos);
  EXPECT_EQ(find_check(report, "recorder")->state, CheckState::kMissing) << "no path was given";
}

TEST_F(Doctor, AProgramThatIsNotThereIsSaid) {
  for (const char* program : {"/nope/python", "no-program-of-this-name", "/"}) {
    DoctorOptions options;
    options.program = program;
    const DoctorResult report = examine(options);
    const DoctorCheck* found = find_check(report, "program");
    ASSERT_NE(found, nullptr) << program;
    EXPECT_EQ(found->state, CheckState::kMissing) << program;
    EXPECT_NE(found->found.find(program), std::string::npos) << found->found;
  }
  DoctorOptions options;
  options.program = "/bin/sh";
  EXPECT_EQ(find_check(examine(options), "program")->state, CheckState::kWorks);
}

TEST_F(Doctor, WithoutPermissionGpmIsLeft) {
  settings_.set("FAKE_PM_AVAILABILITY", "35");
  const DoctorCheck limited = check("counters of gpu 0");
  EXPECT_EQ(limited.state, CheckState::kLimited);
  EXPECT_NE(limited.found.find("INSUFFICIENT_PRIVILEGES"), std::string::npos);
  EXPECT_FALSE(limited.advice.empty());
  settings_.set("FAKE_NVML_GPM", "0");
  EXPECT_EQ(check("counters of gpu 0").state, CheckState::kMissing);
}

TEST_F(Doctor, ACrashingDriverIsAnAnswer) {
  settings_.set("FAKE_PM_CRASH", "1");
  const DoctorCheck crashed = check("counters of gpu 0");
  EXPECT_NE(crashed.found.find("crashed (signal 11"), std::string::npos) << crashed.found;
}

TEST_F(Doctor, WithoutAGpu) {
  settings_.set("LLMPROF_NVML", "/no/such/libnvidia-ml.so.1");
  settings_.set("FAKE_PM_GPUS", "0");
  EXPECT_EQ(check("nvml").state, CheckState::kMissing);
  EXPECT_EQ(gpus_, 0);
  EXPECT_EQ(check("cuda").found, "the CUDA driver did not start: no GPU (error 100)");
}

}  // namespace
}  // namespace llmprof::samplers
