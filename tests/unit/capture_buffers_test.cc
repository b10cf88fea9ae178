// Buffers for CUPTI's records come with their pages.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "capture/inject/cupti/buffers.h"

namespace llmprof::inject {
namespace {

struct Buffer {
  uint8_t* memory = nullptr;
  size_t size = 0;
};

Buffer ask() {
  Buffer out;
  size_t records = 1;
  buffer_requested(&out.memory, &out.size, &records);
  EXPECT_NE(out.memory, nullptr);
  EXPECT_EQ(records, 0U) << "as many as fit";
  return out;
}

size_t pages_missing(const Buffer& buffer) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident(buffer.size / page);
  EXPECT_EQ(mincore(buffer.memory, buffer.size, resident.data()), 0);
  size_t missing = 0;
  for (const unsigned char one : resident) missing += (one & 1) == 0 ? 1 : 0;
  return missing;
}

TEST(Buffers, AreThereBeforeALaunchAsksForThem) {
  keep_buffers_ready();
  std::vector<Buffer> taken;
  for (int i = 0; i < 2; ++i) {
    taken.push_back(ask());
    EXPECT_EQ(pages_missing(taken.back()), 0U) << i;
  }
  // More than are kept ready: fresh memory, which the first records bring in.
  taken.push_back(ask());
  EXPECT_GT(pages_missing(taken.back()), 0U);
  // Twice as many as were asked for since.
  keep_buffers_ready();
  for (int i = 0; i < 6; ++i) {
    taken.push_back(ask());
    EXPECT_EQ(pages_missing(taken.back()), 0U) << i;
    EXPECT_EQ(taken.back().memory[taken.back().size - 1], 0);
  }
  for (const Buffer& buffer : taken) buffer_completed(nullptr, 0, buffer.memory, buffer.size, 0);
  decode_completed();
}

}  // namespace
}  // namespace llmprof::inject
