#include "base/string_pool.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace llmprof {
namespace {
constexpr size_t kBlockBytes = 64 * 1024;
uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }
}  // namespace

StringPool::StringPool() : views_(1), hashes_(1), slots_(256) {}

void StringPool::grow() {
  std::vector<uint32_t> bigger(slots_.size() * 2);
  const size_t mask = bigger.size() - 1;
  for (uint32_t id = 1; id < views_.size(); ++id) {
    size_t slot = hashes_[id] & mask;
    while (bigger[slot] != 0) slot = (slot + 1) & mask;
    bigger[slot] = id;
  }
  slots_.swap(bigger);
}

char* StringPool::allocate(size_t size) {
  while (block_ < blocks_.size() && block_used_ + size > block_sizes_[block_]) {
    ++block_;
    block_used_ = 0;
  }
  if (block_ == blocks_.size()) {
    block_sizes_.push_back(std::max(kBlockBytes, size));
    blocks_.push_back(std::make_unique<char[]>(block_sizes_.back()));
    block_used_ = 0;
  }
  char* place = blocks_[block_].get() + block_used_;
  block_used_ += size;
  return place;
}

void StringPool::clear() {
  views_.resize(1);
  hashes_.resize(1);
  std::fill(slots_.begin(), slots_.end(), 0U);
  block_ = block_used_ = bytes_ = 0;
}

void StringPool::rewrite(const std::function<std::string(std::string_view)>& text_of) {
  for (size_t id = 1; id < views_.size(); ++id) {
    const std::string text = text_of(views_[id]);
    if (text == views_[id]) continue;
    char* const place = allocate(text.size());
    std::memcpy(place, text.data(), text.size());
    bytes_ += text.size() - views_[id].size();
    views_[id] = {place, text.size()};
    hashes_[id] = static_cast<uint32_t>(hash_of(text));
  }
  std::fill(slots_.begin(), slots_.end(), 0U);
  const size_t mask = slots_.size() - 1;
  for (uint32_t id = 1; id < views_.size(); ++id) {
    size_t slot = hashes_[id] & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = id;
  }
}

StringId StringPool::find(std::string_view text) const {
  if (text.empty()) return StringId::kEmpty;
  const uint32_t hash = static_cast<uint32_t>(hash_of(text));
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t id = slots_[slot];
    if (hashes_[id] == hash && views_[id] == text) return static_cast<StringId>(id);
  }
  return StringId::kEmpty;
}

StringId StringPool::intern(std::string_view text) {
  if (text.empty()) return StringId::kEmpty;
  const uint32_t hash = static_cast<uint32_t>(hash_of(text));
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t id = slots_[slot];
    if (hashes_[id] == hash && views_[id] == text) return static_cast<StringId>(id);
  }
  if (views_.size() >= UINT32_MAX - 1) return StringId::kEmpty;
  char* place = allocate(text.size());
  std::memcpy(place, text.data(), text.size());
  bytes_ += text.size();
  const uint32_t id = static_cast<uint32_t>(views_.size());
  views_.emplace_back(place, text.size());
  hashes_.push_back(hash);
  slots_[slot] = id;
  if (views_.size() * 2 > slots_.size()) grow();
  return static_cast<StringId>(id);
}

}  // namespace llmprof
