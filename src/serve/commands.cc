#include "serve/commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>

#include "base/printable.h"
#include "store/files.h"

namespace llmprof::serve {
namespace {

using store::Descriptor;

constexpr int kPollMs = 50;
constexpr int kNicer = 10;             // others of this machine may be measuring something
constexpr size_t kSaidMost = 1 << 16;  // of standard error: its first line is what is shown
constexpr size_t kReasonMost = 300;

struct Ends {
  Descriptor read, write;
};

std::optional<Ends> pipe_ends() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  return Ends{Descriptor(ends[0]), Descriptor(ends[1])};
}

// Between fork and exec of a process with threads: calls that are allowed there, and nothing else.
[[noreturn]] void become(const char* program, char* const* words, const char* folder, int out, int said, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);  // Ctrl-C is for the server, which ends this one
  static_cast<void>(setpriority(PRIO_PROCESS, 0, kNicer));
  // Where memory runs out, this process is what may go.
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0 && write(score, "1000", 4) != 4) close(score);  // then it is as likely to go as others are
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(said, STDERR_FILENO) < 0 ||
      chdir(folder) != 0)
    _exit(1);
  execv(program, words);
  _exit(1);
}

// A process that is killed and collected with its owner.
class Process {
 public:
  Process(const std::string& program, const std::vector<std::string>& words, const std::string& folder, int out,
          int said) {
    std::vector<char*> pointers = {const_cast<char*>("llmprof")};                               // NOLINT: execv
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));  // NOLINT: execv
    pointers.push_back(nullptr);
    const pid_t parent = getpid();
    id_ = fork();
    if (id_ == 0) become(program.c_str(), pointers.data(), folder.c_str(), out, said, parent);
  }
  ~Process() {
    if (id_ <= 0) return;
    kill(id_, SIGKILL);
    static_cast<void>(wait());
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool started() const { return id_ > 0; }
  // Its exit code, or nothing where a signal ended it.
  std::optional<int> wait() {
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) continue;
    id_ = 0;
    return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
  }

 private:
  pid_t id_ = 0;
};

enum class Stopped : uint8_t { kEnded, kUnwanted, kTooLong, kTooLarge };

// Reads both until they end, and says what ended it otherwise.
Stopped read_both(const Descriptor& out_end, const Descriptor& said_end, const CommandLimits& limits,
                  const Unwanted& unwanted, std::string& out, std::string& said) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(limits.most_ms);
  std::array<pollfd, 2> waited = {pollfd{out_end.get(), POLLIN, 0}, pollfd{said_end.get(), POLLIN, 0}};
  std::array<std::string*, 2> into = {&out, &said};
  std::vector<char> buffer(size_t{1} << 16);
  while (waited[0].fd >= 0 || waited[1].fd >= 0) {
    if (unwanted()) return Stopped::kUnwanted;
    if (std::chrono::steady_clock::now() > until) return Stopped::kTooLong;
    if (poll(waited.data(), waited.size(), kPollMs) <= 0) continue;
    for (size_t i = 0; i < waited.size(); ++i) {
      if (waited[i].revents == 0) continue;
      const ssize_t got = read(waited[i].fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        waited[i].fd = -1;  // poll leaves it out
      else if (i == 0 || said.size() < kSaidMost)
        into[i]->append(buffer.data(), static_cast<size_t>(got));
    }
    if (out.size() > limits.output_bytes) return Stopped::kTooLarge;
  }
  return Stopped::kEnded;
}

// "llmprof: expected ..., found ...": what was wrong, as a sentence; its next lines have places and advice for a
// terminal.
std::string reason_in(const std::string& said) {
  constexpr std::string_view kBefore = "llmprof: ";
  std::string line = said.substr(0, said.find('\n'));
  if (!line.starts_with(kBefore)) return {};
  line.erase(0, kBefore.size());
  if (line.size() > kReasonMost) line.resize(kReasonMost);
  line = printable(line);
  if (!line.empty() && line[0] >= 'a' && line[0] <= 'z') line[0] = static_cast<char>(line[0] - 'a' + 'A');
  return line + ".";
}

}  // namespace

Result<std::string> ProcessCommands::output_of(const std::vector<std::string>& words, const Unwanted& unwanted) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Kept& one : kept_)
      if (one.words == words) return one.output;
  }
  std::optional<Ends> out_ends = pipe_ends(), said_ends = pipe_ends();
  if (!out_ends || !said_ends) return fail("This machine has no pipes left for a process.");
  Process process(program_, words, folder_, out_ends->write.get(), said_ends->write.get());
  if (!process.started()) return fail("This machine lets no further process start.");
  out_ends->write.close();
  said_ends->write.close();
  std::string out, said;
  switch (read_both(out_ends->read, said_ends->read, limits_, unwanted, out, said)) {
    case Stopped::kUnwanted:
      return fail("Nobody waits for this any more.");
    case Stopped::kTooLong:
      return fail(fmt::format("It took more than {} s, and was given up: the command itself has no limit.",
                              limits_.most_ms / 1000));
    case Stopped::kTooLarge:
      return fail("It is too large to be shown.");
    case Stopped::kEnded:
      break;
  }
  const std::optional<int> code = process.wait();
  if (!code) return fail("The process that was to answer this was ended, by want of memory for example.");
  if (*code != static_cast<int>(ExitCode::kOk) && *code != static_cast<int>(ExitCode::kInputErrors)) {
    const std::string reason = reason_in(said);
    return fail(reason.empty() ? "The process that was to answer this failed." : reason);
  }
  keep(words, out);
  return out;
}

void ProcessCommands::keep(const std::vector<std::string>& words, const std::string& output) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (output.size() > limits_.kept_bytes) return;
  size_t bytes = output.size();
  for (const Kept& one : kept_) bytes += one.output.size();
  while (bytes > limits_.kept_bytes) {
    bytes -= kept_.front().output.size();
    kept_.pop_front();
  }
  kept_.push_back({words, output});
}

}  // namespace llmprof::serve
