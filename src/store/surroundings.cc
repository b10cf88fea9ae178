#include "store/surroundings.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/clock.h"
#include "store/files.h"

namespace llmprof::store {
namespace {

constexpr size_t kVariableBytesMax = 1000;
constexpr size_t kCommandBytesMax = size_t{1} << 16;
constexpr size_t kRefDepthMax = 5;
constexpr int kGitMs = 1000;

constexpr std::string_view kPrefixes[] = {"CUDA_",   "NCCL_",  "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "LLMPROF_",
                                          "CUBLAS_", "CUDNN_", "NVIDIA_",  "VLLM_",  "TRITON_"};
constexpr std::string_view kVariables[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM"};
constexpr std::string_view kSecrets[] = {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "AUTH"};

bool matters(std::string_view name) {
  if (std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables)) return true;
  for (const std::string_view secret : kSecrets)
    if (name.find(secret) != std::string_view::npos) return false;
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The first line of a small file, "" if there is none.
std::string first_line(const std::string& path) {
  const Result<std::string> text = read_small(path, uint64_t{1} << 16);
  if (!text) return {};
  std::string line = text->substr(0, text->find('\n'));
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
  return line;
}

bool is_commit(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// The folder that git keeps its own files in, for the repository that `folder` is in; "" if it is in none.
std::string git_folder(std::string folder) {
  while (!folder.empty()) {
    const std::string here = folder + "/.git";
    struct stat status {};
    if (stat(here.c_str(), &status) == 0) {
      if (S_ISDIR(status.st_mode)) return here;
      const std::string line = first_line(here);  // a worktree or a submodule: "gitdir: PATH"
      constexpr std::string_view kPointer = "gitdir: ";
      if (!line.starts_with(kPointer)) return {};
      const std::string target = line.substr(kPointer.size());
      return target.starts_with('/') ? target : folder + "/" + target;
    }
    folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  }
  return {};
}

// What the reference stands for, "" if that is not known. `own` is the worktree's folder, `common` the repository's.
std::string commit_of(const std::string& own, const std::string& common, std::string reference) {
  for (size_t depth = 0; depth < kRefDepthMax; ++depth) {
    if (reference.find("..") != std::string::npos) return {};
    std::string line = first_line(own + "/" + reference);
    if (line.empty()) line = first_line(common + "/" + reference);
    if (is_commit(line)) return line;
    constexpr std::string_view kReference = "ref: ";
    if (!line.starts_with(kReference)) break;
    reference = line.substr(kReference.size());
  }
  std::ifstream packed(common + "/packed-refs");
  for (std::string line; std::getline(packed, line);) {
    const size_t blank = line.find(' ');
    if (blank != std::string::npos && line.compare(blank + 1, std::string::npos, reference) == 0 &&
        is_commit(line.substr(0, blank)))
      return line.substr(0, blank);
  }
  return {};
}

// Whether tracked files differ from the commit, by git itself; nothing where it is missing, fails or takes too long.
std::optional<bool> is_dirty(const std::string& folder, int limit_ms) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  Descriptor read_end(ends[0]), write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // No locks, and nothing that the repository's own configuration could have git start.
  std::array<std::string, 11> words = {"git",
                                       "--no-optional-locks",
                                       "-c",
                                       "core.fsmonitor=false",
                                       "-C",
                                       folder,
                                       "status",
                                       "--porcelain",
                                       "--untracked-files=no",
                                       "--ignore-submodules",
                                       "-z"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  const bool started = posix_spawnp(&process, "git", &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  write_end.close();
  if (!started) return std::nullopt;
  const int64_t until = realtime_ns() + int64_t{limit_ms} * 1'000'000;
  bool said = false, ended = false;
  while (!ended) {
    const int64_t left_ms = (until - realtime_ns()) / 1'000'000;
    if (left_ms <= 0) break;
    pollfd waited{read_end.get(), POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(left_ms)) <= 0) continue;
    char bytes[512];
    const ssize_t got = read(read_end.get(), bytes, sizeof bytes);
    if (got > 0) said = true;
    ended = got == 0 || said;
  }
  if (!ended || said) kill(process, SIGKILL);  // one changed file is enough
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (said) return true;
  if (!ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return false;
}

}  // namespace

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string bytes(kCommandBytesMax, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  std::vector<std::string> words;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', at), bytes.size());
    words.push_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::vector<RunVariable> variables_that_matter(const char* const* environment) {
  std::vector<RunVariable> out;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !matters(entry.substr(0, equals))) continue;
    out.push_back({std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1, kVariableBytesMax))});
  }
  std::sort(out.begin(), out.end(), [](const RunVariable& a, const RunVariable& b) { return a.name < b.name; });
  return out;
}

std::optional<RunGit> git_state(const std::string& folder, int limit_ms) {
  const std::string own = git_folder(folder);
  if (own.empty()) return std::nullopt;
  std::string common = first_line(own + "/commondir");
  common = common.empty() ? own : common.starts_with('/') ? common : own + "/" + common;
  RunGit out;
  out.commit = commit_of(own, common, "HEAD");
  const std::string head = first_line(own + "/HEAD");
  constexpr std::string_view kBranch = "ref: refs/heads/";
  if (head.starts_with(kBranch)) {
    out.branch = head.substr(kBranch.size());
    if (out.commit.empty()) out.commit = commit_of(own, common, head.substr(5));
  }
  if (out.commit.empty()) return std::nullopt;  // nothing has been committed yet
  out.dirty = is_dirty(folder, limit_ms);
  return out;
}

std::optional<std::string> driver_in(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    // "580.159.04" among words like "x86_64" and "NVIDIA".
    const bool digits =
        std::all_of(word.begin(), word.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
    if (digits && word.find('.') != std::string_view::npos && word.front() != '.') return std::string(word);
  }
  return std::nullopt;
}

void describe_surroundings(RunManifest& manifest) {
  manifest.command = own_command();
  char folder[PATH_MAX];
  if (getcwd(folder, sizeof folder) != nullptr) manifest.working_folder = folder;
  if (!manifest.working_folder.empty()) manifest.git = git_state(manifest.working_folder, kGitMs);
  manifest.environment = variables_that_matter(environ);
  utsname system{};
  if (uname(&system) == 0) {
    manifest.host = system.nodename;
    manifest.kernel = system.release;
  }
  if (const Result<std::string> driver = read_small("/proc/driver/nvidia/version", uint64_t{1} << 16))
    manifest.driver = driver_in(*driver);
  manifest.start_unix_ns = realtime_ns();
  manifest.tool_version = LLMPROF_VERSION;
}

}  // namespace llmprof::store
