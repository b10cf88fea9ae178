#include "capture/samplers/background.h"

#include <sched.h>
#include <sys/resource.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace llmprof::samplers {
namespace {

constexpr int kNice = 5;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : std::string_view();
}

}  // namespace

bool parse_cpus(std::string_view text, unsigned long (&bits)[16]) {
  constexpr unsigned kPerWord = 8 * sizeof(unsigned long);
  const auto number = [&text](unsigned& value) {
    const std::from_chars_result read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec != std::errc() || value >= 16 * kPerWord) return false;
    text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
    return true;
  };
  std::memset(bits, 0, sizeof bits);
  while (true) {
    unsigned first = 0, last = 0;
    if (!number(first)) return false;
    last = first;
    if (!text.empty() && text.front() == '-') {
      text.remove_prefix(1);
      if (!number(last) || last < first) return false;
    }
    for (unsigned cpu = first; cpu <= last; ++cpu) bits[cpu / kPerWord] |= 1UL << (cpu % kPerWord);
    if (text.empty()) return true;
    if (text.front() != ',') return false;
    text.remove_prefix(1);
  }
}

BackgroundSwitches go_to_background() {
  const std::string_view policy = variable("LLMPROF_COUNTERS_SCHED");
  if (policy != "normal") {
    // Batch threads never preempt the program's when they wake up, and idle ones run only where nothing else would.
    const sched_param none{};
    sched_setscheduler(0, policy == "idle" ? SCHED_IDLE : SCHED_BATCH, &none);
    setpriority(PRIO_PROCESS, 0, kNice);
  }
  unsigned long cpus[16];
  if (parse_cpus(variable("LLMPROF_COUNTERS_CPUS"), cpus))
    sched_setaffinity(0, sizeof cpus, reinterpret_cast<const cpu_set_t*>(cpus));
  BackgroundSwitches out;
  out.decode = variable("LLMPROF_COUNTERS_DECODE") != "off";
  const std::string_view drain = variable("LLMPROF_COUNTERS_DRAIN_MS");
  std::from_chars(drain.data(), drain.data() + drain.size(), out.drain_ms);
  return out;
}

}  // namespace llmprof::samplers
