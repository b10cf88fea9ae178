#include "capture/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "capture/launch/program.h"

namespace llmprof::launch {
namespace {

// Pointers for execve, which does not change the words although it does not say so.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

// Forks; the child runs `in_child`, which returns only if it failed, with errno set. Gives the process id, or that
// errno negated.
template <class InChild>
pid_t fork_and_exec(InChild&& in_child) {
  Pipe report;  // closed by a successful exec, so reading nothing from it means that
  if (!report.open()) return -errno;
  const pid_t child = fork();
  if (child < 0) return -errno;
  if (child == 0) {
    in_child();
    const int why = errno;
    const ssize_t told = write(report.write_end, &why, sizeof why);
    _exit(told == sizeof why ? kExitNotFound : kExitNotExecutable);
  }
  Pipe::close_end(report.write_end);
  int why = 0;
  ssize_t got;
  do got = read(report.read_end, &why, sizeof why);
  while (got < 0 && errno == EINTR);
  if (got != sizeof why) return child;
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  return -why;
}

}  // namespace

bool Pipe::open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end = ends[0];
  write_end = ends[1];
  return true;
}

void Pipe::close_end(int& end) {
  if (end >= 0) close(end);
  end = -1;
}

Result<pid_t> start_program(const std::string& path, const std::vector<std::string>& command,
                            const std::vector<std::string>& environment, const SignalRelay& signals, int error_to,
                            int output_to) {
  std::vector<char*> words = pointers(command), variables = pointers(environment);
  const pid_t child = fork_and_exec([&] {
    signals.restore_in_child();
    if (error_to >= 0) dup2(error_to, STDERR_FILENO);
    if (output_to >= 0) dup2(output_to, STDOUT_FILENO);
    // execvpe, because a script without "#!" goes to the shell then, as it does when it is typed; the path has a slash,
    // so it is not searched for.
    execvpe(path.c_str(), words.data(), variables.data());
  });
  if (child > 0) return child;
  const int code = child == -ENOENT ? kExitNotFound : kExitNotExecutable;
  return fail(std::string("the program could not be started: ") + std::strerror(-child), path,
              child == -ENOENT ? "the interpreter that it names in its first line may be missing"
                               : "check that it is a program for this machine",
              static_cast<ExitCode>(code));
}

Result<pid_t> start_helper(const std::vector<std::string>& arguments, const std::string& log, int kept,
                           const SignalRelay& signals) {
  std::vector<std::string> words = {"llmprof"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers_to_words = pointers(words);
  const pid_t parent = getpid();
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int log_fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const pid_t child = fork_and_exec([&] {
    signals.restore_in_child();
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(0);
    if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
    const int words_to = log_fd >= 0 ? log_fd : null_fd;
    if (words_to >= 0) {
      dup2(words_to, STDOUT_FILENO);
      dup2(words_to, STDERR_FILENO);
    }
    if (kept >= 0) fcntl(kept, F_SETFD, 0);
    execv("/proc/self/exe", pointers_to_words.data());
  });
  if (null_fd >= 0) close(null_fd);
  if (log_fd >= 0) close(log_fd);
  if (child > 0) return child;
  return fail(std::string("a helper process could not be started: ") + std::strerror(-child), "/proc/self/exe");
}

std::optional<Ending> collect(pid_t process) {
  int status = 0;
  Ending ending;
  pid_t got;
  do got = wait4(process, &status, WNOHANG, &ending.usage);
  while (got < 0 && errno == EINTR);
  if (got < 0) {  // somebody else collected it; nothing better is known
    ending.exit_status = 0;
    return ending;
  }
  if (got == 0) return std::nullopt;
  if (WIFSIGNALED(status))
    ending.signal = WTERMSIG(status);
  else
    ending.exit_status = WEXITSTATUS(status);
  return ending;
}

}  // namespace llmprof::launch
