#include "base/cpu_wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

namespace llmprof {
namespace {

// -1 where it cannot be read.
int64_t total_wait_ns(const char* schedstat) {
  const int file = open(schedstat, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  char text[128];
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  if (size <= 0) return -1;
  const char* const end = text + size;
  const char* const second = std::find(static_cast<const char*>(text), end, ' ');
  int64_t out = -1;
  if (second == end || std::from_chars(second + 1, end, out).ec != std::errc()) return -1;
  return out;
}

// A thread that was never taken off its CPU, and never waited by itself, had one all the time.
int64_t switches_of(int whose) {
  rusage usage{};
  return getrusage(whose, &usage) == 0 ? usage.ru_nvcsw + usage.ru_nivcsw : -1;
}

class KeepErrno {
 public:
  KeepErrno() = default;
  ~KeepErrno() { errno = kept_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int kept_ = errno;
};

}  // namespace

int64_t cpu_wait_since_ns(CpuWait& last) {
  const KeepErrno keep;
  const int64_t switches = switches_of(RUSAGE_THREAD);
  if (switches >= 0 && switches == last.switches) return last.total_ns < 0 ? -1 : 0;
  const CpuWait before = last;
  last = {switches, total_wait_ns("/proc/thread-self/schedstat")};
  if (before.total_ns < 0 || last.total_ns < 0) return -1;
  return std::max<int64_t>(0, last.total_ns - before.total_ns);
}

int64_t ProcessCpuWait::since_last_ns() {
  const KeepErrno keep;
  const int64_t switches = switches_of(RUSAGE_SELF);
  if (switches >= 0 && switches == switches_) return total_ns_.empty() ? -1 : 0;
  switches_ = switches;
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return -1;
  const bool first = total_ns_.empty();
  int64_t longest = 0;
  while (const dirent* const entry = readdir(tasks)) {
    const std::string name = entry->d_name;
    int64_t thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec != std::errc()) continue;
    const int64_t total = total_wait_ns(("/proc/self/task/" + name + "/schedstat").c_str());
    if (total < 0) continue;
    const auto [known, added] = total_ns_.try_emplace(thread, total);
    if (!added) longest = std::max(longest, total - known->second);
    known->second = total;
  }
  closedir(tasks);
  return first || total_ns_.empty() ? -1 : longest;
}

}  // namespace llmprof
