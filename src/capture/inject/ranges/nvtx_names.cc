#include "capture/inject/ranges/nvtx_names.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "capture/inject/threads/reentry_guard.h"

namespace llmprof::inject {

namespace {

constexpr uint32_t kNamesMax = 65536;

// Open addressing, at most half full; grows by doubling.
struct NameTable {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  NvtxName** places = nullptr;
  uint32_t place_count = 0;
  uint32_t name_count = 0;
};
NameTable domains;
NameTable strings;

bool grow(NameTable& table) {
  uint32_t count = table.place_count == 0 ? 64 : table.place_count * 2;
  NvtxName** places = static_cast<NvtxName**>(calloc(count, sizeof(NvtxName*)));
  if (places == nullptr) return false;
  for (uint32_t i = 0; i < table.place_count; ++i) {
    NvtxName* name = table.places[i];
    if (name == nullptr) continue;
    uint32_t place = static_cast<uint32_t>(name->hash) & (count - 1);
    while (places[place] != nullptr) place = (place + 1) & (count - 1);
    places[place] = name;
  }
  NvtxName** old = table.places;
  table.places = places;
  table.place_count = count;  // after places: a fork in between sees the larger array with the smaller count
  free(old);
  return true;
}

const NvtxName* find_or_add(NameTable& table, const void* domain, std::string_view text) {
  uint64_t hash = XXH3_64bits_withSeed(text.data(), text.size(), reinterpret_cast<uintptr_t>(domain));
  if (table.name_count * 2 >= table.place_count && table.name_count < kNamesMax && !grow(table)) return nullptr;
  uint32_t mask = table.place_count - 1;
  uint32_t place = static_cast<uint32_t>(hash) & mask;
  while (NvtxName* name = table.places[place]) {
    if (name->hash == hash && name->domain == domain && name->view() == text) return name;
    place = (place + 1) & mask;
  }
  if (table.name_count == kNamesMax) return nullptr;
  NvtxName* name = static_cast<NvtxName*>(calloc(1, sizeof(NvtxName) + text.size()));
  if (name == nullptr) return nullptr;
  name->domain = domain;
  name->hash = hash;
  name->size = static_cast<uint32_t>(text.size());
  if (!text.empty()) memcpy(name->text, text.data(), text.size());
  table.places[place] = name;
  ++table.name_count;
  return name;
}

const NvtxName* handle(NameTable& table, const void* domain, std::string_view text) {
  ReentryGuard guard;
  if (guard.nested()) return nullptr;
  pthread_mutex_lock(&table.mutex);
  const NvtxName* name = find_or_add(table, domain, text.substr(0, spool::kTextMax));
  pthread_mutex_unlock(&table.mutex);
  return name;
}

size_t put_utf8(uint32_t code, char* out) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = 0xFFFD;
  if (code < 0x80) {
    out[0] = static_cast<char>(code);
    return 1;
  }
  if (code < 0x800) {
    out[0] = static_cast<char>(0xC0 | code >> 6);
    out[1] = static_cast<char>(0x80 | (code & 0x3F));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = static_cast<char>(0xE0 | code >> 12);
    out[1] = static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out[2] = static_cast<char>(0x80 | (code & 0x3F));
    return 3;
  }
  out[0] = static_cast<char>(0xF0 | code >> 18);
  out[1] = static_cast<char>(0x80 | (code >> 12 & 0x3F));
  out[2] = static_cast<char>(0x80 | (code >> 6 & 0x3F));
  out[3] = static_cast<char>(0x80 | (code & 0x3F));
  return 4;
}

}  // namespace

const NvtxName* domain_handle(std::string_view name) { return handle(domains, nullptr, name); }
const NvtxName* registered_handle(const void* domain, std::string_view text) { return handle(strings, domain, text); }

Id name_id(const NvtxName* name) {
  if (name == nullptr || name->size == 0) return 0;
  Id id = name->id.load(std::memory_order_relaxed);
  if (id != 0) return id;
  ReentryGuard guard;
  if (guard.nested()) return 0;
  SpoolAccess access;
  if (access.writer() == nullptr) return 0;
  id = access.writer()->text(name->view());
  const_cast<NvtxName*>(name)->id.store(id, std::memory_order_relaxed);
  return id;
}

void abandon_nvtx_names() {
  for (NameTable* table : {&domains, &strings}) {
    pthread_mutex_init(&table->mutex, nullptr);
    // Ids are of the parent's spool. A table that another thread was growing at the fork may lose names here; they are
    // added again.
    for (uint32_t i = 0; i < table->place_count; ++i) {
      if (table->places[i] != nullptr) table->places[i]->id.store(0, std::memory_order_relaxed);
    }
  }
}

WideText::WideText(const wchar_t* text) {
  if (text == nullptr) return;
  for (; *text != 0 && size_ + 4 <= sizeof(bytes_); ++text) {
    size_ += put_utf8(static_cast<uint32_t>(*text), bytes_ + size_);
  }
}

}  // namespace llmprof::inject
