#include "capture/inject/python/guarded_memory.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace llmprof::inject {
namespace {

constexpr uintptr_t kAddressEnd = uintptr_t{1} << 57;  // of what a program may have on any machine

}  // namespace

void GuardedMemory::begin() {
  std::fill(std::begin(numbers_), std::end(numbers_), uintptr_t{0});
  loads_ = 0;
  failed_ = false;
}

// The call is allowed for the own process, but by some sandboxes. The file is opened each time: a descriptor that is
// kept would lead to the parent's memory behind a fork, and elsewhere in a program that closes all it finds.
bool GuardedMemory::load(uintptr_t number, unsigned char* to) {
  const uintptr_t from = number * kPageBytes;
  if (way_ == Way::kCall) {
    const iovec here{to, kPageBytes};
    const iovec there{reinterpret_cast<void*>(from), kPageBytes};
    const pid_t process = static_cast<pid_t>(syscall(SYS_getpid));
    const ssize_t got = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got == static_cast<ssize_t>(kPageBytes)) return true;
    if (got >= 0 || (errno != EPERM && errno != ENOSYS)) return false;
    way_ = Way::kFile;
  }
  if (way_ == Way::kNone) return false;
  const int file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    way_ = Way::kNone;
    return false;
  }
  const ssize_t got = pread(file, to, kPageBytes, static_cast<off_t>(from));
  close(file);
  return got == static_cast<ssize_t>(kPageBytes);
}

const unsigned char* GuardedMemory::page(uintptr_t number) {
  const size_t place = number % kPages;
  if (numbers_[place] == number) return pages_[place];
  numbers_[place] = 0;
  if (loads_++ == kLoadsMost || !load(number, pages_[place])) {
    failed_ = true;
    return nullptr;
  }
  numbers_[place] = number;
  return pages_[place];
}

bool GuardedMemory::copy(uintptr_t from, void* to, size_t size) {
  if (from < kPageBytes || from >= kAddressEnd || size > kAddressEnd - from) failed_ = true;
  unsigned char* out = static_cast<unsigned char*>(to);
  while (size > 0 && !failed_) {
    const unsigned char* const here = page(from / kPageBytes);
    if (here == nullptr) return false;
    const size_t part = std::min(size, kPageBytes - from % kPageBytes);
    std::memcpy(out, here + from % kPageBytes, part);
    out += part;
    from += part;
    size -= part;
  }
  return !failed_;
}

const uint8_t* GuardedMemory::bytes(const char* from, int64_t size) {
  if (size < 0 || size > kBytesMost) failed_ = true;
  if (failed_ || !copy(reinterpret_cast<uintptr_t>(from), bytes_, static_cast<size_t>(size))) return nullptr;
  return bytes_;
}

}  // namespace llmprof::inject
