#include "drive/run_tool.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

namespace llmprof::drive {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook(100);

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// Every process by its parent, as /proc has it now.
std::multimap<pid_t, pid_t> children_of_all() {
  std::multimap<pid_t, pid_t> out;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    const std::string stat = content_of("/proc/" + std::string(entry->d_name) + "/stat");
    const size_t name_end = stat.rfind(')');  // the name before may hold anything
    if (name_end == std::string::npos) continue;
    std::istringstream rest(stat.substr(name_end + 1));
    std::string state;
    pid_t parent = 0;
    if (rest >> state >> parent && state != "Z")
      out.emplace(parent, static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10)));
  }
  closedir(folder);
  return out;
}

// Below this process. What lost its parent is among them, because this process adopts it (kSubreaper).
std::set<pid_t> descendants() {
  const std::multimap<pid_t, pid_t> children = children_of_all();
  std::set<pid_t> out;
  std::vector<pid_t> open = {getpid()};
  while (!open.empty()) {
    const auto [from, to] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = from; child != to; ++child)
      if (out.insert(child->second).second) open.push_back(child->second);
  }
  return out;
}

// The one that tells whom a signal was sent to (capture/launch/signals.h), which may come anew.
bool is_witness(pid_t process) {
  return content_of("/proc/" + std::to_string(process) + "/comm").starts_with("llmprof-signals");
}

// Whether a process is the profiler's: it was given the file to write, or has a profiler's name.
bool is_tools(pid_t process, const std::string& file) {
  const std::string at = "/proc/" + std::to_string(process);
  if (!file.empty() && content_of(at + "/cmdline").find(file) != std::string::npos) return true;
  const std::string name = content_of(at + "/comm");
  const auto begins = [&](std::string_view known) { return name.starts_with(known); };
  constexpr std::array kNames = {"ncu", "nsys", "nsight", "Nsight", "Qdstrm", "TreeLauncher"};
  return std::any_of(kNames.begin(), kNames.end(), begins);
}

// Passes on what comes through a pipe, and keeps the end of it.
class Passing {
 public:
  explicit Passing(int from) : from_(from), thread_([this] { pass(); }) {}
  ~Passing() { finish(); }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;
  // Whoever still holds the other end is not waited for.
  std::string finish() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    return kept_;
  }

 private:
  void pass() {
    constexpr size_t kKeptBytes = 64 * 1024;
    char buffer[4096];
    while (true) {
      pollfd wait{from_, POLLIN, 0};
      const bool last = ended_;
      if (poll(&wait, 1, last ? 0 : 50) <= 0) {
        if (last) return;
        continue;
      }
      const ssize_t got = read(from_, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return;
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t now = write(STDERR_FILENO, buffer + sent, static_cast<size_t>(got - sent));
        if (now <= 0) break;
        sent += now;
      }
      kept_.append(buffer, static_cast<size_t>(got));
      if (kept_.size() > 2 * kKeptBytes) kept_.erase(0, kept_.size() - kKeptBytes);
    }
  }

  int from_;
  std::atomic<bool> ended_{false};
  std::string kept_;
  std::thread thread_;
};

// Orphans of the program come to this process while it lives, so that they can be found.
class Subreaper {
 public:
  Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 0); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
};

class Watch {
 public:
  Watch(const ToolRun& run, launch::SignalRelay& signals, std::set<pid_t> before)
      : run_(run), signals_(signals), before_(std::move(before)), begin_(SteadyClock::now()) {}

  void wait_for(pid_t tool, ToolOutcome& out) {
    while (true) {
      if (const std::optional<launch::Ending> ending = launch::collect(tool)) {
        out.ending = *ending;
        break;
      }
      keep_budget(out);
      if (signals_.wait(kLook, tool)) out.interrupted = true;
    }
    if (stage_ > 0) send(SIGKILL, true);  // nothing of a stopped run may run on
  }

 private:
  double seconds() const { return std::chrono::duration<double>(SteadyClock::now() - begin_).count(); }

  void keep_budget(ToolOutcome& out) {
    if (stage_ == 0) {
      out.out_of_time = run_.budget_s > 0 && seconds() >= run_.budget_s;
      struct stat file {};
      out.out_of_room =
          run_.file_bytes_most > 0 && stat(run_.file.c_str(), &file) == 0 && file.st_size > run_.file_bytes_most;
      if (!out.out_of_time && !out.out_of_room) return;
      next_s_ = seconds();
    }
    if (seconds() < next_s_) return;
    // While the tool starts the program, and while it writes, there is none: then these two reach nobody.
    next_s_ = seconds() + (stage_ == kKillProgram - 1 ? run_.writing_s : run_.mercy_s);
    ++stage_;
    if (stage_ <= kKillProgram)
      send(stage_ == kEndProgram ? SIGTERM : SIGKILL, false);
    else
      send(stage_ == kEndTool ? SIGTERM : SIGKILL, true);
  }

  void send(int signal, bool tool_too) const {
    for (const pid_t process : descendants()) {
      if (before_.count(process) > 0 || is_witness(process) || (!tool_too && is_tools(process, run_.file))) continue;
      kill(process, signal);
    }
  }

  const ToolRun& run_;
  launch::SignalRelay& signals_;
  const std::set<pid_t> before_;
  const SteadyClock::time_point begin_;
  static constexpr int kEndProgram = 1, kKillProgram = 2, kEndTool = 3;  // after that: SIGKILL to all
  int stage_ = 0;
  double next_s_ = 0;
};

}  // namespace

Result<ToolOutcome> run_tool(const ToolRun& run) {
  launch::SignalRelay signals;  // before the first thread, and until the last has ended
  const Subreaper adopts;
  const std::set<pid_t> before = descendants();
  launch::Pipe errors;
  const bool piped = errors.open();
  LLMPROF_ASSIGN(const pid_t tool,
                 launch::start_program(run.words.front(), run.words, run.environment, signals, errors.write_end));
  launch::Pipe::close_end(errors.write_end);
  ToolOutcome out;
  std::optional<Passing> passing;
  if (piped) passing.emplace(errors.read_end);
  Watch(run, signals, before).wait_for(tool, out);
  if (passing) out.errors = passing->finish();
  return out;
}

std::string output_of(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
  constexpr size_t kBytesMost = 256 * 1024;
  constexpr double kSecondsMost = 20;
  launch::SignalRelay signals;
  launch::Pipe pipe;
  if (!pipe.open()) return {};
  const Result<pid_t> started =
      launch::start_program(words.front(), words, environment, signals, pipe.write_end, pipe.write_end);
  launch::Pipe::close_end(pipe.write_end);
  if (!started) return {};
  std::string out;
  const SteadyClock::time_point end = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                                                               std::chrono::duration<double>(kSecondsMost));
  char buffer[4096];
  bool whole = false;
  while (SteadyClock::now() < end && out.size() < kBytesMost && !whole) {
    pollfd wait{pipe.read_end, POLLIN, 0};
    if (poll(&wait, 1, 50) <= 0) continue;
    const ssize_t got = read(pipe.read_end, buffer, sizeof buffer);
    whole = got == 0;
    if (got > 0) out.append(buffer, static_cast<size_t>(got));
  }
  if (!whole) kill(*started, SIGKILL);
  std::optional<launch::Ending> ending;
  while (!(ending = launch::collect(*started))) signals.wait(std::chrono::milliseconds(20), *started);
  return whole && ending->exit_code() == 0 ? out : "";
}

}  // namespace llmprof::drive
