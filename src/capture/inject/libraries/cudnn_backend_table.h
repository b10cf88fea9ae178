// A map from the addresses of descriptors to what is known of them, of fixed size: where it is full, the entry that was
// longest neither added nor used gives way. It allocates nothing; zero-filled memory is a valid, empty table, so that a
// static one costs a process without cuDNN no page. Not synchronised.
#pragma once

#include <cstdint>
#include <new>
#include <type_traits>

namespace llmprof::inject {

template <class Value, uint16_t kSlots>
class AddressTable {
  static_assert(std::is_trivially_destructible_v<Value> && kSlots > 0 && kSlots < 0xFFFF);

 public:
  // Null if it is not there. Found ones are the last to give way.
  Value* find(const void* key) {
    const uint16_t at = slot_of(key);
    if (at == 0) return nullptr;
    if (at != newest_) {
      leave_order(at);
      join_order(at);
    }
    return &value(at);
  }

  // A new value-initialised entry, in the place of one with this key if there is one. `displaced`: another one gave
  // way.
  Value& add(const void* key, bool& displaced) {
    erase(key);
    displaced = free_ == 0 && used_ == kSlots;
    if (displaced) erase(slots_[oldest_].key);
    uint16_t at = free_;
    if (at != 0) {
      free_ = slots_[at].chain;
    } else {
      at = ++used_;
    }
    Slot& slot = slots_[at];
    slot.key = key;
    uint16_t& bucket = buckets_[bucket_of(key)];
    slot.chain = bucket;
    bucket = at;
    join_order(at);
    return *new (slot.bytes) Value();
  }

  void erase(const void* key) {
    for (uint16_t* link = &buckets_[bucket_of(key)]; *link != 0; link = &slots_[*link].chain) {
      const uint16_t at = *link;
      if (slots_[at].key != key) continue;
      *link = slots_[at].chain;
      leave_order(at);
      slots_[at].chain = free_;
      free_ = at;
      return;
    }
  }

  // Forgets everything, whatever state a fork in the middle of a change left.
  void clear() {
    for (uint16_t& bucket : buckets_) bucket = 0;
    oldest_ = newest_ = free_ = used_ = 0;
  }

 private:
  struct Slot {
    const void* key;
    uint16_t chain;  // next of the bucket, or of the free ones; 0 ends it, as everywhere
    uint16_t older, newer;
    alignas(Value) unsigned char bytes[sizeof(Value)];
  };

  static uint32_t bucket_of(const void* key) {
    const uint64_t mixed = (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15ULL;
    return static_cast<uint32_t>((mixed >> 32) % kSlots);
  }
  Value& value(uint16_t at) { return *std::launder(reinterpret_cast<Value*>(slots_[at].bytes)); }
  uint16_t slot_of(const void* key) const {
    uint16_t at = buckets_[bucket_of(key)];
    while (at != 0 && slots_[at].key != key) at = slots_[at].chain;
    return at;
  }
  void join_order(uint16_t at) {
    slots_[at].older = newest_;
    slots_[at].newer = 0;
    (newest_ != 0 ? slots_[newest_].newer : oldest_) = at;
    newest_ = at;
  }
  void leave_order(uint16_t at) {
    const Slot& slot = slots_[at];
    (slot.older != 0 ? slots_[slot.older].newer : oldest_) = slot.newer;
    (slot.newer != 0 ? slots_[slot.newer].older : newest_) = slot.older;
  }

  uint16_t buckets_[kSlots];
  uint16_t oldest_, newest_, free_, used_;
  Slot slots_[kSlots + 1];  // the first is none
};

}  // namespace llmprof::inject
