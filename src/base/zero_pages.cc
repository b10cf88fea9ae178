#include "base/zero_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace llmprof {
namespace {

bool is_zero(const char* page, size_t bytes) {
  constexpr size_t kStep = 64;
  static constexpr char kZeros[kStep] = {};
  // Whatever repeats its first zeros is zero.
  return std::memcmp(page, kZeros, kStep) == 0 && std::memcmp(page, page + kStep, bytes - kStep) == 0;
}

}  // namespace

size_t give_back_zero_pages(void* data, size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t into = reinterpret_cast<uintptr_t>(data) % page;
  const size_t skipped = into == 0 ? 0 : page - into;
  if (bytes < skipped + page) return 0;
  char* at = static_cast<char*>(data) + skipped;
  char* const end = at + (bytes - skipped) / page * page;
  size_t given_back = 0;
  while (at < end) {
    char* run = at;
    while (run < end && is_zero(run, page)) run += page;
    const size_t run_bytes = static_cast<size_t>(run - at);
    if (run_bytes != 0 && madvise(at, run_bytes, MADV_DONTNEED) == 0) given_back += run_bytes;
    at = run + page;  // the one that ended it holds something
  }
  return given_back;
}

}  // namespace llmprof
