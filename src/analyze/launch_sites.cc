// Where the most expensive kernels are launched from, by the call stacks that a deep recording took at some launches.
#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "analyze/analysis.h"

namespace llmprof {
namespace {

constexpr size_t kSitesPerKernel = 3;
constexpr size_t kNamesPerSite = 3;

struct Frame {
  std::string_view line, module, function;  // function empty where only an offset is known
};

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return text.starts_with(p); });
}

Frame parse_frame(std::string_view line) {
  Frame frame{line, {}, {}};
  const size_t mark = line.find('!');
  if (mark == std::string_view::npos) return frame;  // [python], [unknown]
  frame.module = line.substr(0, mark);
  std::string_view function = line.substr(mark + 1);
  if (function.starts_with("0x")) return frame;
  // What runs inside a function as a lambda is named by the function.
  function = function.substr(0, std::min(function.find("::{lambda"), function.size()));
  if (function.starts_with("at::_ops::"))
    for (const std::string_view entry : {"::call", "::redispatch"})
      if (function.ends_with(entry)) function.remove_suffix(entry.size());
  frame.function = function;
  return frame;
}

// Frames that stand between a caller and a launch whatever is launched.
bool is_plumbing(const Frame& frame) {
  if (starts_with_any(frame.module, {"libcudart", "libcuda.", "libcupti", "libllmprof_inject", "libc.so", "libpthread",
                                     "ld-linux", "libstdc++", "libgcc_s", "libffi", "_ctypes"}))
    return true;
  return starts_with_any(frame.function, {"std::",
                                          "__gnu_cxx::",
                                          "c10::impl::",
                                          "c10::detail::",
                                          "c10::Dispatcher",
                                          "c10::OperatorHandle",
                                          "c10::KernelFunction",
                                          "c10::BoxedKernel",
                                          "cudaLaunchKernel",
                                          "cuLaunchKernel",
                                          "__cudaLaunchKernel",
                                          "__device_stub__",
                                          "at::native::gpu_kernel",
                                          "at::native::opmath_",
                                          "at::native::launch_",
                                          "at::(anonymous namespace)::wrapper_",
                                          "_start",
                                          "__libc_start",
                                          "start_thread",
                                          "clone"});
}

// Libraries that everyone uses: a frame outside them says more.
bool is_framework(std::string_view module) {
  return starts_with_any(module, {"libtorch", "libc10", "libcublas", "libcudnn", "libcufft", "libcusparse",
                                  "libcusolver", "libcurand", "libnccl", "libnvrtc"});
}

std::vector<Frame> parse_stack(std::string_view stack) {
  std::vector<Frame> frames;
  for (size_t at = 0; at < stack.size();) {
    const size_t end = std::min(stack.find('\n', at), stack.size());
    if (end != at) frames.push_back(parse_frame(stack.substr(at, end - at)));
    at = end + 1;
  }
  return frames;
}

// Site and number of stacks that show it, of one kernel.
struct Sites {
  int64_t stacks = 0;
  std::map<std::string, std::pair<int64_t, StringId>> by_name;  // with one of the stacks
};

}  // namespace

std::string launch_site(std::string_view stack) {
  const std::vector<Frame> frames = parse_stack(stack);
  std::vector<size_t> named;
  for (size_t i = 0; i < frames.size(); ++i)
    if (!frames[i].function.empty() && !is_plumbing(frames[i])) named.push_back(i);
  if (named.empty()) {  // whatever there is
    for (const Frame& frame : frames)
      if (!frame.module.empty() && !is_plumbing(frame)) return std::string(frame.line);
    for (const Frame& frame : frames)
      if (frame.module.empty()) return std::string(frame.line);
    return frames.empty() ? std::string() : std::string(frames.front().line);
  }
  std::vector<size_t> chosen;
  const auto choose = [&](size_t i) {
    const bool known = std::any_of(chosen.begin(), chosen.end(),
                                   [&](size_t other) { return frames[other].function == frames[i].function; });
    if (!known && chosen.size() < kNamesPerSite) chosen.push_back(i);
  };
  const auto choose_first = [&](auto&& wanted) {
    const auto at = std::find_if(named.begin(), named.end(), [&](size_t i) { return wanted(frames[i]); });
    if (at != named.end()) choose(*at);
  };
  choose(named.front());
  choose_first([](const Frame& frame) { return frame.function.starts_with("at::_ops::"); });
  choose_first([](const Frame& frame) { return !is_framework(frame.module); });
  for (const size_t i : named)
    if (chosen.size() < 2) choose(i);
  std::sort(chosen.begin(), chosen.end());
  std::string site;
  for (const size_t i : chosen) site += (site.empty() ? "" : " < ") + std::string(frames[i].function);
  return site;
}

void analyze_launch_sites(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  const LaunchSites& table = trace.launch_sites;
  const Recorded& levels = trace.recorded;
  const bool deep = std::find(levels.level.begin(), levels.level.end(), RecordingLevel::kDeep) != levels.level.end();
  if (table.empty()) {
    if (deep && !trace.gpu_ops.empty())
      cannot_tell.push_back({"Where are kernels launched from?", "no call stack was taken at a launch",
                             "start the recording before the first launches, with `llmprof run --mode deep`"});
    return;
  }
  std::unordered_map<uint32_t, Sites> kernels;  // by name
  for (Row row = 0; row < table.size(); ++row) {
    Sites& sites = kernels[index(table.name[row])];
    ++sites.stacks;
    auto& [stacks, stack] = sites.by_name[launch_site(trace.text(table.stack[row]))];
    if (++stacks == 1) stack = table.stack[row];
  }
  std::unordered_map<uint32_t, std::pair<int64_t, int64_t>> ran;  // calls, ns
  for (Row g = 0; g < trace.gpu_ops.size(); ++g) {
    if (trace.gpu_ops.kind[g] != GpuOpKind::kKernel) continue;
    auto& [calls, ns] = ran[index(trace.gpu_ops.name[g])];
    ++calls;
    ns += trace.gpu_ops.dur_ns[g];
  }
  std::vector<uint32_t> order;
  for (const auto& [name, sites] : kernels) order.push_back(name);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (ran[a].second != ran[b].second) return ran[a].second > ran[b].second;
    return trace.text(static_cast<StringId>(a)) < trace.text(static_cast<StringId>(b));
  });
  for (const uint32_t name : order) {
    const Sites& sites = kernels[name];
    std::vector<std::pair<std::string, std::pair<int64_t, StringId>>> rows(sites.by_name.begin(), sites.by_name.end());
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
    if (rows.size() > kSitesPerKernel) rows.resize(kSitesPerKernel);
    for (const auto& [site, found] : rows) {
      LaunchSiteRecord& row = report.launch_sites.emplace_back();
      row.kernel = trace.text(static_cast<StringId>(name));
      row.site = site;
      row.stacks = found.first;
      row.kernel_stacks = sites.stacks;
      row.kernel_calls = ran[name].first;
      row.kernel_ms.ns = ran[name].second;
      if (context.groups.gpu_ns > 0)
        row.share = static_cast<double>(ran[name].second) / static_cast<double>(context.groups.gpu_ns);
      row.stack = trace.text(found.second);
    }
  }
}

}  // namespace llmprof
