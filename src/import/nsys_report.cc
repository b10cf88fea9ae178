// Reports of `nsys profile`: their format is not public. nsys exports them, if it is there.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/shell_word.h"
#include "import/nsys.h"

extern char** environ;

namespace llmprof::nsys {
namespace {

namespace fs = std::filesystem;

// Goes with what was exported into it.
class ExportFolder {
 public:
  ExportFolder() {
    std::error_code error;
    std::string path = (fs::temp_directory_path(error) / "llmprof-nsys-XXXXXX").string();
    if (!error && mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~ExportFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;
  const std::string& path() const { return path_; }  // empty: it could not be made

 private:
  std::string path_;
};

std::string by_hand(const std::string& path) {
  const std::string target = fs::path(path).replace_extension(".sqlite").string();
  return fmt::format("nsys export --type sqlite --output {} {}; then llmprof analyze {}", shell_word(target),
                     shell_word(path), shell_word(target));
}

std::string last_line(const std::string& path) {
  std::ifstream in(path);
  std::string line, last;
  constexpr size_t kBytesMax = 200;
  for (int i = 0; i < 1000 && std::getline(in, line); ++i)
    if (!line.empty()) last = line.substr(0, kBytesMax);
  return last;
}

// The exit code, or -1 and errno where it did not start.
int run(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));  // NOLINT: posix_spawn
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  const int code = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    errno = code;
    return -1;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

bool is_report(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  return extension == ".nsys-rep" || extension == ".qdrep";
}

Status import_report(const std::string& path, Trace& trace) {
  const ExportFolder folder;
  const std::string expected = "expected a recording that llmprof can read, found a report of Nsight Systems, ";
  if (folder.path().empty())
    return fail(expected + "and no folder for its export could be made: " + std::strerror(errno), path,
                "set TMPDIR to a folder of yours, or export it: " + by_hand(path));
  const std::string target = folder.path() + "/report.sqlite", log = folder.path() + "/log";
  // A name that begins with a dash is no option.
  const std::string report = path.starts_with("-") ? "./" + path : path;
  const int code = run({"nsys", "export", "--type", "sqlite", "--output", target, report}, log);
  if (code == 127 || (code < 0 && errno == ENOENT))
    return fail(expected + "which nsys has to export, and nsys is not on PATH", path,
                "where Nsight Systems is installed, run  " + by_hand(path));
  if (code < 0) return fail(expected + "and nsys could not be started: " + std::strerror(errno), path, by_hand(path));
  if (code != 0)
    return fail(fmt::format("{}which nsys could not export (exit code {}): {}", expected, code, last_line(log)), path,
                "a newer nsys than that which recorded it reads it; or run  " + by_hand(path));
  LLMPROF_ASSIGN(InputFile input, InputFile::open(target));
  return import(input, trace);
}

}  // namespace llmprof::nsys
