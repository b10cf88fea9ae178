// Payloads of NVTX events: the number that a range or mark carries. Extended payloads are structs of the program's own
// that it describes by schemas; of those, the size in bytes is what a report can use (NCCL: the bytes of a collective),
// or the only number there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "capture/inject/ranges/nvtx_names.h"
#include "capture/inject/threads/thread_events.h"
#include "nvidia/nvtx_abi.h"

namespace llmprof::inject {

// Where the number stands in a struct that follows a schema.
struct PayloadField {
  uint64_t offset = 0;
  uint64_t type = 0;  // nvtx::EntryType
  PayloadKind kind = PayloadKind::kNone;
  bool has_message = false;  // an entry of the struct is the event's text: a registered string at message_offset
  uint64_t message_offset = 0;
};

// The field of a schema: the first number whose name speaks of bytes, else its only number, else kNone.
PayloadField payload_field(const nvtx::SchemaAttributes& schema);

// Keeps the schema; the id under which payloads will refer to it. At most 1024 are kept; payloads of others are
// ignored.
uint64_t register_schema(const void* domain, const nvtx::SchemaAttributes& schema);
uint64_t register_enum(const nvtx::EnumAttributes& attributes);

struct SchemaValue {
  Payload payload;
  const NvtxName* name = nullptr;  // the event's text where the payload carries it, else the schema's name
};
// The first of `count` payloads whose schema is known and has a number.
SchemaValue read_payloads(const void* domain, const nvtx::PayloadData* data, size_t count);

// Of an event in any of its forms.
Payload event_payload(const void* domain, const nvtx::EventAttributes& event);

void abandon_nvtx_schemas();

}  // namespace llmprof::inject
