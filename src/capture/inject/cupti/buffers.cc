#include "capture/inject/cupti/buffers.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstring>

#include "capture/inject/cupti/decode.h"

namespace llmprof::inject {
namespace {

// 8 MiB hold 40,000 kernels. Handing a buffer over holds a launch up for 100 to 300 us, whatever its size (seen on
// virtual machines), so it is to be seldom. CUPTI gives each thread of the program a buffer for its calls; what a
// thread does not fill takes no memory, and a flush hands over what is there.
constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr size_t kKept = 8, kReadyLeast = 2;

pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;
uint8_t* kept_buffers[kKept];
size_t kept_count = 0;
size_t asked_for = 0;  // since keep_buffers_ready()

struct Filled {
  uint8_t* buffer = nullptr;
  size_t valid_size = 0;
};
constexpr size_t kWaiting = 32;  // 256 MiB at most
Filled waiting[kWaiting];
size_t waiting_count = 0;

uint8_t* fresh_buffer(int flags) {
  void* const fresh = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return fresh == MAP_FAILED ? nullptr : static_cast<uint8_t*>(fresh);
}

// False where there is no room: it goes back to the system.
bool keep(uint8_t* buffer) {
  pthread_mutex_lock(&buffers_lock);
  const bool room = kept_count < kKept;
  if (room) kept_buffers[kept_count++] = buffer;
  pthread_mutex_unlock(&buffers_lock);
  if (!room) munmap(buffer, kBufferBytes);
  return room;
}

void decode_and_keep(Filled filled) {
  decode_buffer(filled.buffer, filled.valid_size);
  // CUPTI expects zeroed memory; what lies behind the valid part never was anything else.
  std::memset(filled.buffer, 0, filled.valid_size < kBufferBytes ? filled.valid_size : kBufferBytes);
  keep(filled.buffer);
}

}  // namespace

void keep_buffers_ready() {
  pthread_mutex_lock(&buffers_lock);
  size_t wanted = 2 * asked_for;
  asked_for = 0;
  wanted = wanted < kReadyLeast ? kReadyLeast : wanted < kKept ? wanted : kKept;
  size_t lacking = wanted > kept_count ? wanted - kept_count : 0;
  pthread_mutex_unlock(&buffers_lock);
  for (; lacking != 0; --lacking) {
    uint8_t* const fresh = fresh_buffer(MAP_POPULATE);
    if (fresh == nullptr || !keep(fresh)) return;
  }
}

void buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  uint8_t* memory = nullptr;
  pthread_mutex_lock(&buffers_lock);
  if (kept_count != 0) memory = kept_buffers[--kept_count];
  ++asked_for;
  pthread_mutex_unlock(&buffers_lock);
  // Refusing a buffer drops records, which CUPTI counts; versions before 12.9 may not survive it, but neither does a
  // program without a few megabytes of memory.
  if (memory == nullptr) memory = fresh_buffer(0);
  *buffer = memory;
  *size = memory == nullptr ? 0 : kBufferBytes;
  *max_records = 0;
}

void buffer_completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_size) {
  if (buffer == nullptr) return;
  bool full = false;
  pthread_mutex_lock(&buffers_lock);
  if (waiting_count < kWaiting)
    waiting[waiting_count++] = {buffer, valid_size};
  else
    full = true;
  pthread_mutex_unlock(&buffers_lock);
  // The drain thread is that far behind only if it is starved of time: then whoever delivers does the work.
  if (full) decode_and_keep({buffer, valid_size});
}

void decode_completed() {
  for (;;) {
    Filled next;
    pthread_mutex_lock(&buffers_lock);
    // Oldest first: times in the spool are coded as differences.
    const bool any = waiting_count != 0;
    if (any) {
      next = waiting[0];
      --waiting_count;
      std::memmove(waiting, waiting + 1, waiting_count * sizeof(Filled));
    }
    pthread_mutex_unlock(&buffers_lock);
    if (!any) return;
    decode_and_keep(next);
  }
}

void discard_completed() {
  pthread_mutex_lock(&buffers_lock);
  for (size_t i = 0; i < waiting_count; ++i) munmap(waiting[i].buffer, kBufferBytes);
  waiting_count = 0;
  pthread_mutex_unlock(&buffers_lock);
}

void abandon_buffers() {
  pthread_mutex_init(&buffers_lock, nullptr);
  kept_count = waiting_count = asked_for = 0;
}

}  // namespace llmprof::inject
