// Pages of zeros are given back, and nothing that is read changes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/zero_pages.h"

namespace llmprof {
namespace {

// How many pages of the memory are there, by the operating system.
size_t resident_pages(char* first_page, size_t pages) {
  std::vector<unsigned char> there(pages);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(mincore(first_page, pages * page, there.data()), 0);
  size_t count = 0;
  for (const unsigned char one : there) count += one & 1;
  return count;
}

TEST(ZeroPages, AreGivenBackAndStayZero) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  constexpr size_t kPages = 64;
  void* const memory = mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, kPages * page, MADV_NOHUGEPAGE);
  char* const bytes = static_cast<char*>(memory);
  for (size_t i = 0; i < kPages * page; ++i) const_cast<volatile char*>(bytes)[i] = 0;
  bytes[10 * page] = 1;                 // the first byte of a page
  bytes[21 * page - 1] = 2;             // the last one
  bytes[30 * page + page / 2 + 3] = 3;  // one between
  ASSERT_EQ(resident_pages(bytes, kPages), kPages);

  EXPECT_EQ(give_back_zero_pages(bytes, kPages * page), (kPages - 3) * page);
  EXPECT_EQ(resident_pages(bytes, kPages), 3U);
  for (size_t i = 0; i < kPages * page; ++i) {
    const char expected = i == 10 * page ? 1 : i == 21 * page - 1 ? 2 : i == 30 * page + page / 2 + 3 ? 3 : 0;
    ASSERT_EQ(bytes[i], expected) << i;
  }
  bytes[5 * page + 7] = 9;
  EXPECT_EQ(bytes[5 * page + 7], 9);
  munmap(memory, kPages * page);
}

TEST(ZeroPages, LeaveWhatSharesAPageAlone) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<char> memory(8 * page, 5);
  const size_t into = reinterpret_cast<uintptr_t>(memory.data()) % page;
  char* const at = memory.data() + (page - into) % page;  // of a page
  // Zeros from the middle of one page to the middle of the next but two.
  std::fill(at + page / 2, at + 3 * page + page / 2, char{0});
  EXPECT_EQ(give_back_zero_pages(at + page / 2, 3 * page), 2 * page);
  for (size_t i = 0; i < 5 * page; ++i) ASSERT_EQ(at[i], i >= page / 2 && i < 3 * page + page / 2 ? 0 : 5) << i;
  EXPECT_EQ(give_back_zero_pages(at + 1, page - 1), 0U);
  EXPECT_EQ(give_back_zero_pages(nullptr, 0), 0U);
}

TEST(ZeroPages, KeepColumnsOfNumbers) {
  std::vector<uint64_t> numbers(1 << 20, 0);
  for (size_t i = 300'000; i < 400'000; ++i) numbers[i] = i;
  const std::vector<uint64_t> copy = numbers;
  EXPECT_GT(give_back_zero_pages(numbers.data(), numbers.size() * sizeof(uint64_t)), size_t{6} << 20);
  EXPECT_EQ(numbers, copy);
}

}  // namespace
}  // namespace llmprof
