#include "capture/launch/environment.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "capture/session/control.h"
#include "capture/session/level.h"
#include "nvidia/cupti_library.h"

namespace llmprof::launch {
namespace {

// Variables of an earlier session must not reach this one. LLMPROF_CUPTI stays: the user may have set it.
constexpr const char* kOwn[] = {session::kEnvFolder, session::kEnvLevel,      session::kEnvCaptureRange,
                                session::kEnvSteps,  session::kEnvUnrecorded, session::kEnvAdapt,
                                session::kEnvNext,   session::kEnvTorch,      session::kEnvBudget};

class Environment {
 public:
  explicit Environment(const char* const* current) {
    for (; *current != nullptr; ++current) entries_.emplace_back(*current);
  }
  const char* get(const std::string& name) const { return environment_value(entries_, name); }
  void set(const std::string& name, const std::string& value) {
    unset(name);
    entries_.push_back(name + "=" + value);
  }
  void unset(const std::string& name) {
    std::erase_if(entries_, [&](const std::string& entry) {
      return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
    });
  }
  std::vector<std::string> take() { return std::move(entries_); }

 private:
  std::vector<std::string> entries_;
};

bool same_file(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char real_a[PATH_MAX], real_b[PATH_MAX];
  return realpath(a.c_str(), real_a) != nullptr && realpath(b.c_str(), real_b) != nullptr &&
         std::strcmp(real_a, real_b) == 0;
}

// LD_PRELOAD separates with spaces and colons and knows no quotes.
void add_preload(Environment& environment, const InjectionPlan& plan, std::vector<std::string>& notices) {
  if (plan.library.find_first_of(" :") != std::string::npos) {
    notices.push_back("LD_PRELOAD cannot name " + plan.library +
                      " (a space or colon in the path): library calls (GEMM shapes) are not seen");
    return;
  }
  const char* old = environment.get("LD_PRELOAD");
  std::string value = plan.library;
  std::string_view rest = old != nullptr ? old : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(" :"), rest.size());
    const std::string one(rest.substr(0, end));
    if (!one.empty() && !same_file(one, plan.library)) value += ":" + one;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  environment.set("LD_PRELOAD", value);
}

void add_injection(Environment& environment, const InjectionPlan& plan, std::vector<std::string>& notices) {
  if (const char* foreign = environment.get("CUDA_INJECTION64_PATH");
      foreign != nullptr && *foreign != '\0' && !same_file(foreign, plan.library)) {
    environment.set(session::kEnvNext, foreign);
    notices.push_back(std::string("CUDA_INJECTION64_PATH already names ") + foreign +
                      ": it is loaded as well; if it uses CUPTI, only one of the two can record kernels");
  }
  environment.set("CUDA_INJECTION64_PATH", plan.library);
  if (const char* foreign = environment.get("NVTX_INJECTION64_PATH");
      foreign != nullptr && *foreign != '\0' && !same_file(foreign, plan.library))
    notices.push_back(std::string("NVTX_INJECTION64_PATH names ") + foreign + ": replaced for this run");
  environment.set("NVTX_INJECTION64_PATH", plan.library);
}

}  // namespace

const char* environment_value(const std::vector<std::string>& entries, const std::string& name) {
  for (const std::string& entry : entries)
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name))
      return entry.c_str() + name.size() + 1;
  return nullptr;
}

TargetEnvironment target_environment(const char* const* current, const InjectionPlan& plan) {
  TargetEnvironment out;
  Environment environment(current);
  for (const char* name : kOwn) environment.unset(name);
  add_injection(environment, plan, out.notices);
  if (plan.preload) add_preload(environment, plan, out.notices);
  environment.set(session::kEnvFolder, plan.session_folder);
  environment.set(session::kEnvLevel, session::level_name(plan.level));
  const char* cupti = environment.get(nvidia::kEnvCupti);
  if ((cupti == nullptr || *cupti == '\0') && !plan.cupti.empty()) environment.set(nvidia::kEnvCupti, plan.cupti);
  if (!plan.capture_range.empty()) environment.set(session::kEnvCaptureRange, plan.capture_range);
  if (plan.steps > 0) environment.set(session::kEnvSteps, std::to_string(plan.steps));
  environment.set(session::kEnvUnrecorded, plan.unrecorded ? "auto" : "off");
  environment.set(session::kEnvBudget, fmt::format("{}", plan.budget_percent));
  environment.set(session::kEnvAdapt, plan.adapt ? "auto" : "off");
  if (!plan.python_folder.empty()) {
    const char* old = environment.get("PYTHONPATH");
    environment.set("PYTHONPATH", plan.python_folder + (old != nullptr && *old != '\0' ? std::string(":") + old : ""));
    environment.set(session::kEnvTorch, "1");
  }
  out.entries = environment.take();
  return out;
}

TargetEnvironment plain_environment(const char* const* current) {
  constexpr std::string_view kLibrary = "libllmprof_inject.so";
  TargetEnvironment out;
  Environment environment(current);
  const bool hooked = environment.get(session::kEnvTorch) != nullptr;
  for (const char* name : kOwn) environment.unset(name);
  // A list of paths without those that `drop` names; a variable with nothing left goes.
  const auto filter = [&](const char* name, std::string_view separators, auto&& drop) {
    const char* value = environment.get(name);
    if (value == nullptr) return;
    std::string kept;
    bool dropped = false;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find_first_of(separators), rest.size());
      const std::string_view one = rest.substr(0, end);
      if (drop(one))
        dropped = true;
      else if (!one.empty())
        kept += (kept.empty() ? "" : ":") + std::string(one);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (!dropped) return;
    environment.unset(name);
    if (!kept.empty()) environment.set(name, kept);
  };
  const auto is_own = [&](std::string_view path) { return path.substr(path.find_last_of('/') + 1) == kLibrary; };
  filter("LD_PRELOAD", " :", is_own);
  filter("CUDA_INJECTION64_PATH", "", is_own);
  filter("NVTX_INJECTION64_PATH", "", is_own);
  if (hooked) filter("PYTHONPATH", ":", [](std::string_view path) { return path.ends_with("/share/llmprof/python"); });
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"})
    if (const char* foreign = environment.get(name); foreign != nullptr && *foreign != '\0')
      out.notices.push_back(std::string(name) + " names " + foreign +
                            ": it is left to the profiler; if it uses CUPTI, one of the two gets nothing");
  out.entries = environment.take();
  return out;
}

std::string binary_folder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length >= static_cast<ssize_t>(sizeof path)) return {};
  const std::string_view whole(path, static_cast<size_t>(length));
  return std::string(whole.substr(0, whole.find_last_of('/')));
}

}  // namespace llmprof::launch
