// Numbers distinct keys 0, 1, 2, ... in order of first sight: the group-by of the analyses. Open addressing, no
// deletion, one allocation per doubling. Key needs operator== and a member `uint64_t hash() const` that mixes well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llmprof {

// Finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit.
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

template <class Key>
class FlatIndex {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFU;

  uint32_t add(const Key& key) {
    if ((keys_.size() + 1) * 2 > slots_.size()) grow();
    const size_t mask = slots_.size() - 1;
    for (size_t i = key.hash() & mask;; i = (i + 1) & mask) {
      if (slots_[i] == kNone) {
        slots_[i] = static_cast<uint32_t>(keys_.size());
        keys_.push_back(key);
        return slots_[i];
      }
      if (keys_[slots_[i]] == key) return slots_[i];
    }
  }
  const Key& key(uint32_t index) const { return keys_[index]; }
  const std::vector<Key>& keys() const { return keys_; }
  size_t size() const { return keys_.size(); }

 private:
  void grow() {
    const size_t size = slots_.empty() ? 64 : slots_.size() * 2;
    slots_.assign(size, kNone);
    for (uint32_t k = 0; k < keys_.size(); ++k) {
      size_t i = keys_[k].hash() & (size - 1);
      while (slots_[i] != kNone) i = (i + 1) & (size - 1);
      slots_[i] = k;
    }
  }
  std::vector<Key> keys_;
  std::vector<uint32_t> slots_;  // size is a power of two, at most half full
};

}  // namespace llmprof
