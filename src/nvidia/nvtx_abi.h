// The binary interface of NVTX version 3 (and of the version 2 library, which shares it), as far as an injection
// library needs it: export tables, callback ids, event attributes, payload schemas. Declared here because nothing of
// the build may need the official headers; tests/unit/nvidia_hooks_abi_test.cc holds it against them where they are
// installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::nvtx {

// ---- export tables -----------------------------------------------------------------------------------------------

enum ExportTable : uint32_t { kExportCallbacks = 1, kExportVersionInfo = 3 };
enum Module : int32_t { kModuleCore = 1, kModuleCore2 = 5 };

using Function = void (*)();
// An array of pointers to the function pointers to fill in.
using FunctionTable = Function**;

struct ExportCallbacks {
  size_t struct_size;
  // `size` is the number of usable entries, the unused entry 0 included. 0 if it does not know the module.
  int (*get_module_function_table)(Module module, FunctionTable* table, unsigned int* size);
};

struct ExportVersionInfo {
  size_t struct_size;
  uint32_t version;
  uint32_t reserved;
  void (*set_injection_version)(uint32_t version);
};

using GetExportTable = const void* (*)(uint32_t export_table);

enum CoreCallback : uint32_t {
  kMarkEx = 1,
  kMarkA = 2,
  kMarkW = 3,
  kRangeStartEx = 4,
  kRangeStartA = 5,
  kRangeStartW = 6,
  kRangeEnd = 7,
  kRangePushEx = 8,
  kRangePushA = 9,
  kRangePushW = 10,
  kRangePop = 11,
  kNameOsThreadA = 14,
  kNameOsThreadW = 15,
};

enum Core2Callback : uint32_t {
  kDomainMarkEx = 1,
  kDomainRangeStartEx = 2,
  kDomainRangeEnd = 3,
  kDomainRangePushEx = 4,
  kDomainRangePop = 5,
  kDomainResourceCreate = 6,
  kDomainResourceDestroy = 7,
  kDomainRegisterStringA = 10,
  kDomainRegisterStringW = 11,
  kDomainCreateA = 12,
  kDomainCreateW = 13,
  kDomainDestroy = 14,
  kInitialize = 15,
};

// What push and pop return where they are not tracked.
constexpr int kNoPushPopTracking = -2;

// ---- events ------------------------------------------------------------------------------------------------------

enum MessageType : int32_t { kMessageUnknown = 0, kMessageAscii = 1, kMessageUnicode = 2, kMessageRegistered = 3 };

enum PayloadType : int32_t {
  kPayloadUnknown = 0,
  kPayloadUint64 = 1,
  kPayloadInt64 = 2,
  kPayloadDouble = 3,
  kPayloadUint32 = 4,
  kPayloadInt32 = 5,
  kPayloadFloat = 6,
  kPayloadExtended = -541261815,  // 0xDFBD0009: payload.address is an array of PayloadData
};

union PayloadValue {
  uint64_t u64;
  int64_t i64;
  double f64;
  uint32_t u32;
  int32_t i32;
  float f32;
};

union MessageValue {
  const char* ascii;
  const wchar_t* unicode;
  const void* registered;  // what DomainRegisterString returned
};

struct EventAttributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t payload_count;  // of extended payloads; reserved in the core header
  PayloadValue payload;
  int32_t message_type;
  MessageValue message;
};

// ---- payload extension -------------------------------------------------------------------------------------------

constexpr uint16_t kPayloadModule = 2;

struct ExtensionSegment {
  size_t segment;
  size_t slot_count;
  intptr_t* slots;
};

struct ExtensionModule {
  uint16_t nvtx_version;
  uint16_t struct_size;
  uint16_t module;
  uint16_t compatibility;
  size_t segment_count;
  ExtensionSegment* segments;
  intptr_t (*get_export)(uint32_t function);
  const void* info;
};

enum PayloadCallback : uint32_t {
  kPayloadSchemaRegister = 0,
  kPayloadEnumRegister = 1,
  kMarkPayload = 2,
  kRangePushPayload = 3,
  kRangePopPayload = 4,
  kRangeStartPayload = 5,
  kRangeEndPayload = 6,
};

struct PayloadData {
  uint64_t schema;
  size_t size;  // SIZE_MAX: as the schema has it
  const void* payload;
};

struct SchemaEntry {
  uint64_t flags;
  uint64_t type;
  const char* name;
  const char* description;
  uint64_t detail;
  uint64_t offset;  // 0 where it follows from the entry before
  const void* semantics;
  const void* reserved;
};

struct SchemaAttributes {
  uint64_t fields;  // which of the members are set: SchemaField
  const char* name;
  uint64_t type;
  uint64_t flags;
  const SchemaEntry* entries;
  size_t entry_count;
  size_t static_size;
  size_t pack_align;
  uint64_t schema;
  void* extension;
};

enum SchemaField : uint64_t {
  kSchemaName = 1 << 1,
  kSchemaEntries = 1 << 4,
  kSchemaEntryCount = 1 << 5,
  kSchemaStaticSize = 1 << 6,
  kSchemaPackAlign = 1 << 7,
  kSchemaId = 1 << 8,
};

struct EnumAttributes {
  uint64_t fields;
  const char* name;
  const void* entries;
  size_t entry_count;
  size_t enum_size;
  uint64_t schema;
  void* extension;
};
constexpr uint64_t kEnumSize = 1 << 4;
constexpr uint64_t kEnumSchemaId = 1 << 5;

// Entry flags that change where or what the value is: pointer, offsets, arrays.
constexpr uint64_t kEntryIndirect = (1 << 1) | (1 << 2) | (1 << 3) | (7 << 4);
constexpr uint64_t kEntryEventMessage = 1 << 10;

enum EntryType : uint64_t {
  kTypeChar = 1,
  kTypeUchar = 2,
  kTypeShort = 3,
  kTypeUshort = 4,
  kTypeInt = 5,
  kTypeUint = 6,
  kTypeLong = 7,
  kTypeUlong = 8,
  kTypeLonglong = 9,
  kTypeUlonglong = 10,
  kTypeInt8 = 11,
  kTypeUint8 = 12,
  kTypeInt16 = 13,
  kTypeUint16 = 14,
  kTypeInt32 = 15,
  kTypeUint32 = 16,
  kTypeInt64 = 17,
  kTypeUint64 = 18,
  kTypeFloat = 19,
  kTypeDouble = 20,
  kTypeSize = 22,
  kTypeAddress = 23,
  kTypeByte = 32,
  kTypeFloat32 = 43,
  kTypeFloat64 = 44,
  kTypeRegisteredString = 80,
};

// Ids that the program chooses itself start at the first, ids that the tool hands out at the second.
constexpr uint64_t kSchemaIdStatic = uint64_t{1} << 24;
constexpr uint64_t kSchemaIdDynamic = uint64_t{1} << 32;

}  // namespace llmprof::nvtx
