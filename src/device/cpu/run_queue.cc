#include "device/cpu/run_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

namespace llmprof::device::cpu {
namespace {

constexpr size_t kThreadsMax = 1024;

// "RUNNING WAITING SLICES", the first two in nanoseconds.
struct Counts {
  int64_t running_ns = 0, waiting_ns = 0;
};
std::optional<Counts> counts_of(int file) {
  char text[96];
  const ssize_t got = pread(file, text, sizeof text, 0);
  if (got <= 0) return std::nullopt;
  Counts counts;
  const char* const end = text + got;
  const auto [behind, error] = std::from_chars(text, end, counts.running_ns);
  if (error != std::errc() || behind == end) return std::nullopt;
  if (std::from_chars(behind + 1, end, counts.waiting_ns).ec != std::errc()) return std::nullopt;
  return counts;
}

}  // namespace

RunQueue::RunQueue(std::string root) : folder_(std::move(root) + "/proc/self/task") { find_threads(); }

RunQueue::~RunQueue() { close_all(); }

void RunQueue::close_all() {
  for (const int file : files_) close(file);
  files_.clear();
}

void RunQueue::find_threads() {
  close_all();
  std::error_code none;
  for (std::filesystem::directory_iterator at(folder_, none), end; !none && at != end; at.increment(none)) {
    if (files_.size() >= kThreadsMax) break;
    const int file = open((at->path() / "schedstat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) files_.push_back(file);
  }
}

std::optional<int64_t> RunQueue::waited_ns() const {
  Counts all;
  bool known = false;
  for (const int file : files_) {
    const std::optional<Counts> counts = counts_of(file);
    if (!counts) continue;  // the thread has ended
    known = true;
    all.running_ns += counts->running_ns;
    all.waiting_ns += counts->waiting_ns;
  }
  // A kernel that does not count says zero everywhere.
  if (!known || all.running_ns <= 0) return std::nullopt;
  return all.waiting_ns;
}

}  // namespace llmprof::device::cpu
