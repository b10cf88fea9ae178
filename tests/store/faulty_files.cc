// Preloaded into a program: calls that change files below FAULTY_ROOT fail, or end the program. Files of recordings
// (.../recording/...) are left alone: what becomes of a run whose recording cannot be written is for other tests.
//
//   FAULTY_LOG=FILE   the name of each such call, one a line: how many there are
//   FAULTY_AT=N       the Nth of them (from 1) fails with FAULTY_ERRNO and does nothing
//   FAULTY_FROM=N     it and all that follow
//   FAULTY_KILL=N     the program is killed in place of the Nth
//   FAULTY_BYTES=N    so many bytes are free: each new name takes 512 of them, writes what they write
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kDescriptors = 1024;
bool watched[kDescriptors];
long calls = 0;

long number(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? atol(text) : otherwise;
}

struct Plan {
  const char* root = getenv("FAULTY_ROOT");
  const char* log = getenv("FAULTY_LOG");
  long at = number("FAULTY_AT", -1), from = number("FAULTY_FROM", -1), kill = number("FAULTY_KILL", -1);
  long bytes = number("FAULTY_BYTES", -1);
  int error = static_cast<int>(number("FAULTY_ERRNO", EIO));
};
Plan& plan() {
  static Plan the_plan;
  return the_plan;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool is_below(const char* path) {
  const char* root = plan().root;
  if (root == nullptr || path == nullptr) return false;
  const size_t length = strlen(root);
  return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == '\0') &&
         strstr(path, "/recording") == nullptr;
}

bool is_watched(int fd) { return fd >= 0 && fd < kDescriptors && watched[fd]; }

// Whether this call is to fail; errno is set then.
bool fails(const char* name) {
  const long now = ++calls;
  if (plan().log != nullptr) {
    using Open = int (*)(const char*, int, ...);
    using Write = ssize_t (*)(int, const void*, size_t);
    const int fd = real<Open>("open")(plan().log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char line[64];
    const int length = snprintf(line, sizeof line, "%s\n", name);
    if (fd >= 0 && length > 0 && real<Write>("write")(fd, line, static_cast<size_t>(length)) < 0) abort();
    real<int (*)(int)>("close")(fd);
  }
  if (now == plan().kill) kill(getpid(), SIGKILL);
  if (now != plan().at && (plan().from < 0 || now < plan().from)) return false;
  errno = plan().error;
  return true;
}

bool is_full(long bytes) {
  if (plan().bytes < 0) return false;
  if (plan().bytes < bytes) {
    errno = ENOSPC;
    return true;
  }
  plan().bytes -= bytes;
  return false;
}
constexpr long kNameBytes = 512;

template <class Open>
int open_with(Open open, const char* name, const char* path, int flags, mode_t mode) {
  const bool below = is_below(path);
  const bool makes = (flags & O_CREAT) != 0;
  if (below && (flags & O_ACCMODE) != O_RDONLY) {
    if (fails(name)) return -1;
    if (makes && access(path, F_OK) != 0 && is_full(kNameBytes)) return -1;
  }
  const int fd = open(path, flags, mode);
  if (fd >= 0 && fd < kDescriptors) watched[fd] = below;
  return fd;
}

template <class Write>
ssize_t write_with(Write write, const char* name, int fd, size_t size) {
  if (!is_watched(fd)) return write(size);
  if (fails(name)) return -1;
  if (plan().bytes >= 0 && static_cast<size_t>(plan().bytes) < size) {
    // As a disk does: what fits, and the next time nothing.
    const size_t fits = static_cast<size_t>(plan().bytes);
    plan().bytes = 0;
    if (fits == 0) {
      errno = ENOSPC;
      return -1;
    }
    return write(fits);
  }
  if (plan().bytes >= 0) plan().bytes -= static_cast<long>(size);
  return write(size);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_with(real<int (*)(const char*, int, ...)>("open"), "open", path, flags, mode);
}
EXPORT int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_with(real<int (*)(const char*, int, ...)>("open64"), "open", path, flags, mode);
}
EXPORT ssize_t write(int fd, const void* bytes, size_t size) {
  return write_with([&](size_t n) { return real<ssize_t (*)(int, const void*, size_t)>("write")(fd, bytes, n); },
                    "write", fd, size);
}
EXPORT ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  return write_with(
      [&](size_t n) { return real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64")(fd, bytes, n, at); },
      "pwrite", fd, size);
}
EXPORT ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) { return pwrite64(fd, bytes, size, at); }
EXPORT int fsync(int fd) {
  if (is_watched(fd) && fails("fsync")) return -1;
  return real<int (*)(int)>("fsync")(fd);
}
EXPORT int fdatasync(int fd) {
  if (is_watched(fd) && fails("fsync")) return -1;
  return real<int (*)(int)>("fdatasync")(fd);
}
EXPORT int ftruncate64(int fd, off64_t size) {
  if (is_watched(fd) && fails("ftruncate")) return -1;
  return real<int (*)(int, off64_t)>("ftruncate64")(fd, size);
}
EXPORT int close(int fd) {
  const bool failed = is_watched(fd) && fails("close");
  if (fd >= 0 && fd < kDescriptors) watched[fd] = false;
  const int error = errno;
  const int closed = real<int (*)(int)>("close")(fd);  // Linux closes whatever it says
  if (!failed) return closed;
  errno = error;
  return -1;
}
EXPORT int rename(const char* from, const char* to) {
  if ((is_below(from) || is_below(to)) && fails("rename")) return -1;
  return real<int (*)(const char*, const char*)>("rename")(from, to);
}
EXPORT int mkdir(const char* path, mode_t mode) {
  if (is_below(path) && (fails("mkdir") || (access(path, F_OK) != 0 && is_full(kNameBytes)))) return -1;
  return real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
EXPORT int unlink(const char* path) {
  if (is_below(path) && fails("unlink")) return -1;
  return real<int (*)(const char*)>("unlink")(path);
}
EXPORT int rmdir(const char* path) {
  if (is_below(path) && fails("rmdir")) return -1;
  return real<int (*)(const char*)>("rmdir")(path);
}
