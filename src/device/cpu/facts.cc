#include "device/cpu/facts.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/nearest.h"

namespace llmprof::device::cpu {
namespace {

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<int64_t> read_number(const std::string& path) {
  const std::optional<std::string> line = read_line(path);
  return line ? number(*line) : std::nullopt;
}

// "32768K", "32M"
int64_t size_in_bytes(const std::string& text) {
  const int64_t value = number(text).value_or(0);
  switch (text.empty() ? '\0' : text.back()) {
    case 'K':
      return value << 10;
    case 'M':
      return value << 20;
    case 'G':
      return value << 30;
    default:
      return value;
  }
}

// The value of "key   : value", of the first processor.
std::string cpuinfo_value(const std::string& root, std::string_view key) {
  std::ifstream file(root + "/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string_view name = std::string_view(line).substr(0, colon);
    while (!name.empty() && (name.back() == '\t' || name.back() == ' ')) name.remove_suffix(1);
    if (name != key) continue;
    const size_t start = line.find_first_not_of(' ', colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

// kB of /proc/meminfo.
int64_t meminfo_bytes(const std::string& root, std::string_view key) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0 || line.size() <= key.size() || line[key.size()] != ':') continue;
    const size_t start = line.find_first_of("0123456789");
    if (start != std::string::npos) return number(std::string_view(line).substr(start)).value_or(0) << 10;
  }
  return 0;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  // More CPUs than the set holds, or not allowed to ask.
  if (cpus.empty())
    for (int cpu = 0; cpu < std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)); ++cpu) cpus.push_back(cpu);
  return cpus;
}

// Processors' worth of time that the control group grants (version 2, as seen from inside); empty: no limit.
std::optional<int> quota_threads(const std::string& root) {
  const std::optional<std::string> line = read_line(root + "/sys/fs/cgroup/cpu.max");
  if (!line) return std::nullopt;
  const size_t space = line->find(' ');
  const std::optional<int64_t> quota = number(*line);
  const std::optional<int64_t> period =
      space == std::string::npos ? std::nullopt : number(std::string_view(*line).substr(space + 1));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return std::max(1, static_cast<int>(*quota / *period));
}

// Each cache of the highest level that one of the CPUs has, once.
int64_t last_level_bytes(const std::string& root, const std::vector<int>& cpus) {
  int64_t level = 0;
  std::set<std::string> seen;
  int64_t total = 0;
  for (const int cpu : cpus) {
    for (int index = 0; index < 8; ++index) {
      const std::string at =
          root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
      const std::optional<int64_t> found = read_number(at + "/level");
      if (!found) break;
      if (read_line(at + "/type").value_or("") == "Instruction" || *found < level) continue;
      if (*found > level) {
        level = *found;
        seen.clear();
        total = 0;
      }
      if (seen.insert(read_line(at + "/shared_cpu_list").value_or(std::to_string(cpu))).second)
        total += size_in_bytes(read_line(at + "/size").value_or(""));
    }
  }
  return total;
}

std::string folded_key(const std::string& name, const std::string& family, const std::string& model) {
  std::string key;
  for (const char c : name) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool upper = c >= 'A' && c <= 'Z';
    if (kept || upper)
      key += upper ? static_cast<char>(c - 'A' + 'a') : c;
    else if (!key.empty() && key.back() != '-')
      key += '-';
  }
  while (!key.empty() && key.back() == '-') key.pop_back();
  if (!family.empty()) key += "-family" + family;
  if (!model.empty()) key += "-model" + model;
  return key;
}

}  // namespace

Instructions cpu_instructions() {
  Instructions has;
#if defined(__x86_64__)
  // Asks the operating system too: what it does not save is not reported.
  __builtin_cpu_init();
  has.avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  has.avx512 = has.avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
               __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  has.avx512_vnni = has.avx512 && __builtin_cpu_supports("avx512vnni") != 0;
  const std::string flags = " " + cpuinfo_value("", "flags") + " ";
  const auto flag = [&](const char* name) { return flags.find(std::string(" ") + name + " ") != std::string::npos; };
  has.avx_vnni = has.avx2 && flag("avx_vnni");
  has.avx512_bf16 = has.avx512 && flag("avx512_bf16");
  has.amx_bf16 = has.avx512 && flag("amx_bf16");
  has.amx_int8 = has.avx512 && flag("amx_int8");
#endif
  return has;
}

Facts read_facts(const std::string& root) {
  Facts facts;
  facts.name = cpuinfo_value(root, "model name");
#if defined(__x86_64__)
  if (facts.name.empty()) facts.name = "x86-64 CPU";
#elif defined(__aarch64__)
  if (facts.name.empty()) facts.name = "Arm64 CPU";
#else
  if (facts.name.empty()) facts.name = "CPU";
#endif
  facts.key = folded_key(facts.name, cpuinfo_value(root, "cpu family"), cpuinfo_value(root, "model"));
  const std::vector<int> cpus = allowed_cpus();
  facts.threads = static_cast<int>(cpus.size());
  if (const std::optional<int> quota = quota_threads(root)) facts.threads = std::min(facts.threads, *quota);
  facts.cache_bytes = last_level_bytes(root, cpus);
  facts.memory_bytes = meminfo_bytes(root, "MemTotal");
  if (const std::optional<int64_t> limit = read_number(root + "/sys/fs/cgroup/memory.max"))
    facts.memory_bytes = std::min(facts.memory_bytes, *limit);
  const std::string clock =
      root + "/sys/devices/system/cpu/cpu" + std::to_string(cpus[0]) + "/cpufreq/cpuinfo_max_freq";
  facts.clock_max_mhz = static_cast<double>(read_number(clock).value_or(0)) / 1000;
  return facts;
}

int64_t available_memory(const std::string& root) {
  int64_t available = meminfo_bytes(root, "MemAvailable");
  const std::optional<int64_t> limit = read_number(root + "/sys/fs/cgroup/memory.max");
  const std::optional<int64_t> used = read_number(root + "/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, std::max(int64_t{0}, *limit - *used));
  return available;
}

}  // namespace llmprof::device::cpu
