// Memory of this process that may be freed or changed by other threads while it is read: copied by the system, which
// answers with an error where a pointer leads nowhere, instead of by the processor, which ends the program. Whole pages
// are copied, and what is read again comes from the copy: parts of an object that lie in one page are of one moment.
// Nothing here is a promise that what was read made sense; whoever reads has to check it, and says fail() if it does
// not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace llmprof::inject {

class GuardedMemory {
 public:
  static constexpr bool kGuarded = true;
  static constexpr int64_t kBytesMost = 32 * 1024;  // of one bytes()
  static constexpr int kLoadsMost = 160;            // pages between two begin(), some 0.5 us each

  // Forgets what was read, and that it failed.
  void begin();
  // From the first read that cannot be done on nothing is read, and values are 0.
  bool failed() const { return failed_; }
  void fail() { failed_ = true; }
  // Whether the system lets the process read its memory so; false from the first time on that it did not.
  bool works() const { return way_ != Way::kNone; }

  template <class T>
  T at(const char* object, int64_t offset) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!copy(reinterpret_cast<uintptr_t>(object) + static_cast<uintptr_t>(offset), &value, sizeof value)) value = {};
    return value;
  }
  // A copy that lasts until the next call; null where it cannot be read.
  const uint8_t* bytes(const char* from, int64_t size);

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kPages = 32;
  enum class Way : uint8_t { kCall, kFile, kNone };

  bool copy(uintptr_t from, void* to, size_t size);
  const unsigned char* page(uintptr_t number);
  bool load(uintptr_t number, unsigned char* to);

  Way way_ = Way::kCall;
  bool failed_ = false;
  int loads_ = 0;
  uintptr_t numbers_[kPages] = {};  // 0: nothing here
  alignas(64) unsigned char pages_[kPages][kPageBytes] = {};
  uint8_t bytes_[kBytesMost] = {};
};

}  // namespace llmprof::inject
