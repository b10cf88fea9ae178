// What NVTX hands out handles for: domains and registered strings. A handle is a pointer to the struct here; it lives
// as long as the process, because the program may use it at any time. The same name gives the same handle.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

struct NvtxName {
  std::atomic<Id> id;  // of the text in the spool, 0 until it is first used
  const void* domain;  // null for domains
  uint64_t hash;
  uint32_t size;
  char text[1];  // size bytes

  std::string_view view() const { return {text, size}; }
};

// Null where there is no memory, and beyond 65536 names of each sort.
const NvtxName* domain_handle(std::string_view name);
const NvtxName* registered_handle(const void* domain, std::string_view text);

Id name_id(const NvtxName* name);  // 0 for null

void abandon_nvtx_names();  // after fork, in the child: handles stay valid

// UTF-8 of a wide string, cut after spool::kTextMax bytes. What is no character becomes U+FFFD.
class WideText {
 public:
  explicit WideText(const wchar_t* text);
  std::string_view view() const { return {bytes_, size_}; }

 private:
  size_t size_ = 0;
  char bytes_[spool::kTextMax];
};

}  // namespace llmprof::inject
