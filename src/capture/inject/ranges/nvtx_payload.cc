#include "capture/inject/ranges/nvtx_payload.h"

#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "capture/inject/threads/reentry_guard.h"

namespace llmprof::inject {

namespace {

struct Schema {
  std::atomic<uint64_t> id;  // 0: free. Published last
  const void* domain;
  PayloadField field;
  const NvtxName* name;
};
constexpr uint32_t kSchemaPlaces = 2048;
constexpr uint32_t kSchemasMax = 1024;
Schema schemas[kSchemaPlaces];
uint32_t schema_count = 0;
uint64_t next_id = nvtx::kSchemaIdDynamic;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Bytes of a type, 0 where it depends on data. Alignment equals size for all of them.
uint64_t type_size(uint64_t type) {
  using namespace nvtx;
  switch (type) {
    case kTypeChar:
    case kTypeUchar:
    case kTypeInt8:
    case kTypeUint8:
    case kTypeByte:
      return 1;
    case kTypeShort:
    case kTypeUshort:
    case kTypeInt16:
    case kTypeUint16:
      return 2;
    case kTypeInt:
    case kTypeUint:
    case kTypeInt32:
    case kTypeUint32:
    case kTypeFloat:
    case kTypeFloat32:
      return 4;
    case kTypeLong:
    case kTypeUlong:
    case kTypeLonglong:
    case kTypeUlonglong:
    case kTypeInt64:
    case kTypeUint64:
    case kTypeDouble:
    case kTypeFloat64:
    case kTypeSize:
    case kTypeAddress:
    case kTypeRegisteredString:
      return 8;
    default:
      return 0;
  }
}

PayloadKind type_kind(uint64_t type) {
  using namespace nvtx;
  switch (type) {
    case kTypeShort:
    case kTypeInt:
    case kTypeLong:
    case kTypeLonglong:
    case kTypeInt16:
    case kTypeInt32:
    case kTypeInt64:
      return PayloadKind::kSigned;
    case kTypeUshort:
    case kTypeUint:
    case kTypeUlong:
    case kTypeUlonglong:
    case kTypeUint16:
    case kTypeUint32:
    case kTypeUint64:
    case kTypeSize:
      return PayloadKind::kUnsigned;
    case kTypeFloat:
    case kTypeDouble:
    case kTypeFloat32:
    case kTypeFloat64:
      return PayloadKind::kDouble;
    default:
      return PayloadKind::kNone;
  }
}

bool speaks_of_bytes(const char* name) {
  if (name == nullptr) return false;
  return strcasestr(name, "byte") != nullptr || strcasestr(name, "message size") != nullptr;
}

template <typename T>
T load(const char* at) {
  T value;
  memcpy(&value, at, sizeof(T));
  return value;
}

double read_number(uint64_t type, const char* at) {
  PayloadKind kind = type_kind(type);
  uint64_t size = type_size(type);
  if (kind == PayloadKind::kDouble) return size == 4 ? static_cast<double>(load<float>(at)) : load<double>(at);
  if (kind == PayloadKind::kSigned) {
    if (size == 2) return static_cast<double>(load<int16_t>(at));
    return size == 4 ? static_cast<double>(load<int32_t>(at)) : static_cast<double>(load<int64_t>(at));
  }
  if (size == 2) return static_cast<double>(load<uint16_t>(at));
  return size == 4 ? static_cast<double>(load<uint32_t>(at)) : static_cast<double>(load<uint64_t>(at));
}

uint32_t first_place(const void* domain, uint64_t id) {
  uint64_t mixed = (id ^ reinterpret_cast<uintptr_t>(domain)) * 0x9E3779B97F4A7C15ULL;
  return static_cast<uint32_t>(mixed >> 53) % kSchemaPlaces;
}

const Schema* find_schema(const void* domain, uint64_t id) {
  for (uint32_t place = first_place(domain, id), n = 0; n < kSchemaPlaces; ++n) {
    const Schema& schema = schemas[place];
    uint64_t found = schema.id.load(std::memory_order_acquire);
    if (found == 0) return nullptr;
    if (found == id && schema.domain == domain) return &schema;
    place = (place + 1) % kSchemaPlaces;
  }
  return nullptr;
}

}  // namespace

PayloadField payload_field(const nvtx::SchemaAttributes& schema) {
  PayloadField only, bytes;
  uint64_t message_offset = 0;
  bool has_message = false;
  int numbers = 0;
  bool placed = true;  // false once an offset can no longer be known
  uint64_t end = 0;
  if ((schema.fields & nvtx::kSchemaEntries) == 0 || (schema.fields & nvtx::kSchemaEntryCount) == 0) return {};
  uint64_t pack = (schema.fields & nvtx::kSchemaPackAlign) != 0 ? schema.pack_align : 0;
  for (size_t i = 0; i < schema.entry_count; ++i) {
    const nvtx::SchemaEntry& entry = schema.entries[i];
    bool direct = (entry.flags & nvtx::kEntryIndirect) == 0;
    uint64_t size = direct ? type_size(entry.type) : 0;
    if (i > 0 && entry.offset == 0 && !placed) continue;
    uint64_t offset = entry.offset;
    if (offset == 0 && size > 0) {
      uint64_t align = pack > 0 && pack < size ? pack : size;
      offset = (end + align - 1) / align * align;
    }
    placed = size > 0;
    end = offset + size;
    if (size == 0) continue;
    if (entry.type == nvtx::kTypeRegisteredString && (entry.flags & nvtx::kEntryEventMessage) != 0) {
      has_message = true;
      message_offset = offset;
    }
    PayloadKind kind = type_kind(entry.type);
    if (kind == PayloadKind::kNone) continue;
    ++numbers;
    only = {offset, entry.type, kind};
    if (bytes.kind == PayloadKind::kNone && kind != PayloadKind::kDouble && speaks_of_bytes(entry.name)) {
      bytes = {offset, entry.type, PayloadKind::kBytes};
    }
  }
  PayloadField field = bytes.kind != PayloadKind::kNone ? bytes : numbers == 1 ? only : PayloadField{};
  field.has_message = has_message;
  field.message_offset = message_offset;
  return field;
}

uint64_t register_schema(const void* domain, const nvtx::SchemaAttributes& attributes) {
  PayloadField field = payload_field(attributes);
  const NvtxName* name = nullptr;
  if ((attributes.fields & nvtx::kSchemaName) != 0 && attributes.name != nullptr) {
    name = registered_handle(domain, attributes.name);
  }
  ReentryGuard guard;
  if (guard.nested()) return 0;
  pthread_mutex_lock(&mutex);
  bool given = (attributes.fields & nvtx::kSchemaId) != 0 && attributes.schema != 0;
  uint64_t id = given ? attributes.schema : next_id++;
  if (schema_count < kSchemasMax && find_schema(domain, id) == nullptr) {
    uint32_t place = first_place(domain, id);
    while (schemas[place].id.load(std::memory_order_relaxed) != 0) place = (place + 1) % kSchemaPlaces;
    schemas[place].domain = domain;
    schemas[place].field = field;
    schemas[place].name = name;
    schemas[place].id.store(id, std::memory_order_release);
    ++schema_count;
  }
  pthread_mutex_unlock(&mutex);
  return id;
}

uint64_t register_enum(const nvtx::EnumAttributes& attributes) {
  if ((attributes.fields & nvtx::kEnumSchemaId) != 0 && attributes.schema != 0) return attributes.schema;
  ReentryGuard guard;
  pthread_mutex_lock(&mutex);
  uint64_t id = next_id++;
  pthread_mutex_unlock(&mutex);
  return id;
}

SchemaValue read_payloads(const void* domain, const nvtx::PayloadData* data, size_t count) {
  SchemaValue value;
  if (data == nullptr) return value;
  for (size_t i = 0; i < count && value.payload.kind == PayloadKind::kNone; ++i) {
    const Schema* schema = data[i].payload != nullptr ? find_schema(domain, data[i].schema) : nullptr;
    if (schema == nullptr) continue;
    const char* base = static_cast<const char*>(data[i].payload);
    const PayloadField& field = schema->field;
    if (field.kind != PayloadKind::kNone && field.offset + type_size(field.type) <= data[i].size) {
      value.payload = {field.kind, read_number(field.type, base + field.offset)};
    }
    if (field.has_message && field.message_offset + sizeof(void*) <= data[i].size) {
      value.name = load<const NvtxName*>(base + field.message_offset);
    } else if (value.name == nullptr) {
      value.name = schema->name;
    }
  }
  return value;
}

Payload event_payload(const void* domain, const nvtx::EventAttributes& event) {
  switch (event.payload_type) {
    case nvtx::kPayloadUint64:
      return {PayloadKind::kUnsigned, static_cast<double>(event.payload.u64)};
    case nvtx::kPayloadInt64:
      return {PayloadKind::kSigned, static_cast<double>(event.payload.i64)};
    case nvtx::kPayloadDouble:
      return {PayloadKind::kDouble, event.payload.f64};
    case nvtx::kPayloadUint32:
      return {PayloadKind::kUnsigned, static_cast<double>(event.payload.u32)};
    case nvtx::kPayloadInt32:
      return {PayloadKind::kSigned, static_cast<double>(event.payload.i32)};
    case nvtx::kPayloadFloat:
      return {PayloadKind::kDouble, static_cast<double>(event.payload.f32)};
    case nvtx::kPayloadExtended: {
      const void* data = reinterpret_cast<const void*>(event.payload.u64);
      size_t count = event.payload_count > 0 ? static_cast<size_t>(event.payload_count) : 0;
      return read_payloads(domain, static_cast<const nvtx::PayloadData*>(data), count).payload;
    }
    default:
      return {};
  }
}

void abandon_nvtx_schemas() { pthread_mutex_init(&mutex, nullptr); }

}  // namespace llmprof::inject
