// Interned strings behind u32 handles. Handle 0 is the empty string. A handle is valid for the life of its pool and is
// the same for equal strings, so comparing names is comparing integers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llmprof {

enum class StringId : uint32_t { kEmpty = 0 };

inline uint32_t index(StringId id) { return static_cast<uint32_t>(id); }

class StringPool {
 public:
  StringPool();
  StringPool(StringPool&&) noexcept = default;
  StringPool& operator=(StringPool&&) noexcept = default;
  StringPool(const StringPool&) = delete;
  StringPool& operator=(const StringPool&) = delete;

  // Copies `text` on first sight. At most 2^32-2 distinct strings; beyond that the empty handle is returned.
  StringId intern(std::string_view text);
  // Handle of a string that is already here, or kEmpty. Does not insert.
  StringId find(std::string_view text) const;
  // Out-of-range handles (possible only in a damaged file) read as the empty string.
  std::string_view get(StringId id) const { return index(id) < views_.size() ? views_[index(id)] : std::string_view(); }
  std::string_view operator[](StringId id) const { return get(id); }
  // Number of distinct strings, the empty one included.
  uint32_t size() const { return static_cast<uint32_t>(views_.size()); }
  size_t bytes() const { return bytes_; }
  // Replaces every string by what `text_of` makes of it. Handles stay; different ones may then hold the same string.
  void rewrite(const std::function<std::string(std::string_view)>& text_of);
  // Forgets every string but keeps the memory; all handles become invalid.
  void clear();

 private:
  void grow();
  char* allocate(size_t size);
  std::vector<std::string_view> views_;  // by handle, pointing into blocks_
  std::vector<uint32_t> hashes_;         // by handle, the upper half of the hash
  std::vector<uint32_t> slots_;          // open addressing, handle or 0
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<size_t> block_sizes_;
  size_t block_ = 0, block_used_ = 0, bytes_ = 0;  // the block being filled and how far
};

}  // namespace llmprof
