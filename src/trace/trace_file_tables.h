// What a trace file holds beside the tables of tables.h, declared the same way so that writing and reading treat it
// like any other table: strings, metadata, source, windows, diagnostics. Their texts are handles into a pool of their
// own
// ("texts"), so that the handles of Trace::strings come back unchanged. Internal to src/trace.
#pragma once

#include <cstdint>

#include "trace/trace.h"

namespace llmprof {

#define LLMPROF_FILE_STRING_COLUMNS(C) \
  C(uint64_t, length_bytes, "bytes", "Length; handle 0, the empty string, is left out")
LLMPROF_TABLE(FileStrings, "file_strings", "Strings in the order of their handles", LLMPROF_FILE_STRING_COLUMNS)
#define LLMPROF_FILE_STRING_BYTE_COLUMNS(C) C(uint8_t, byte, "", "UTF-8, one string after the other")
LLMPROF_TABLE(FileStringBytes, "file_string_bytes", "The text of all strings", LLMPROF_FILE_STRING_BYTE_COLUMNS)
LLMPROF_TABLE(FileTexts, "file_texts", "Texts of the file_ tables in the order of their handles",
              LLMPROF_FILE_STRING_COLUMNS)
LLMPROF_TABLE(FileTextBytes, "file_text_bytes", "The text of all texts", LLMPROF_FILE_STRING_BYTE_COLUMNS)

#define LLMPROF_FILE_FACT_COLUMNS(C)       \
  C(StringId, key, "", "Name of the fact") \
  C(StringId, value, "", "Its value, as text")
LLMPROF_TABLE(FileMetadata, "file_metadata", "Trace::metadata", LLMPROF_FILE_FACT_COLUMNS)

#define LLMPROF_FILE_SOURCE_COLUMNS(C)                                   \
  C(StringId, kind, "", "Importer that read the recording")              \
  C(uint64_t, content_bytes, "bytes", "Size of the recording, unpacked") \
  C(TimeNs, base_unix_ns, "ns", "Epoch of all times, 0 if unknown")
LLMPROF_TABLE(FileSource, "file_source", "Trace::source, one row", LLMPROF_FILE_SOURCE_COLUMNS)
#define LLMPROF_FILE_NAME_COLUMNS(C) C(StringId, file, "", "As the user named it")
LLMPROF_TABLE(FileNames, "file_names", "Files the recording was read from", LLMPROF_FILE_NAME_COLUMNS)

#define LLMPROF_FILE_WINDOW_COLUMNS(C)          \
  C(int32_t, device, "", "CUDA device ordinal") \
  C(TimeNs, start_ns, "ns", "Start")            \
  C(TimeNs, end_ns, "ns", "End")
LLMPROF_TABLE(FileWindows, "file_windows", "Trace::windows", LLMPROF_FILE_WINDOW_COLUMNS)

#define LLMPROF_FILE_DIAGNOSTIC_COLUMNS(C)              \
  C(StringId, key, "", "As `llmprof list diagnostics`") \
  C(uint64_t, count, "", "How often")
LLMPROF_TABLE(FileDiagnostics, "file_diagnostics", "Trace::diagnostics, counts", LLMPROF_FILE_DIAGNOSTIC_COLUMNS)
#define LLMPROF_FILE_PLACE_COLUMNS(C)                   \
  C(StringId, key, "", "As `llmprof list diagnostics`") \
  C(StringId, place, "", "Where one of the first was seen")
LLMPROF_TABLE(FilePlaces, "file_places", "Trace::diagnostics, places", LLMPROF_FILE_PLACE_COLUMNS)

// What versions 1 and 2 have in the table signatures.
#define LLMPROF_FILE_SIGNATURE_COLUMNS(C)             \
  C(StringId, dims, "", "Texts of trace/signature.h") \
  C(StringId, types, "", "")                          \
  C(StringId, strides, "", "")                        \
  C(StringId, concrete, "", "")
LLMPROF_TABLE(FileSignatureTexts, "signatures", "", LLMPROF_FILE_SIGNATURE_COLUMNS)

// Texts and strings stand first, so that a file cut later keeps its names.
#define LLMPROF_FILE_TABLES(T)    \
  T(FileTexts, texts)             \
  T(FileTextBytes, text_bytes)    \
  T(FileSource, source)           \
  T(FileNames, names)             \
  T(FileMetadata, metadata)       \
  T(FileDiagnostics, diagnostics) \
  T(FilePlaces, places)           \
  T(FileWindows, windows)         \
  T(FileStrings, strings)         \
  T(FileStringBytes, string_bytes)

struct TraceFileTables {
#define LLMPROF_MEMBER(Type, name) Type name;
  LLMPROF_FILE_TABLES(LLMPROF_MEMBER)
#undef LLMPROF_MEMBER
  template <class V>
  void for_each_table(V&& visitor) {
#define LLMPROF_VISIT(Type, name) visitor(name);
    LLMPROF_FILE_TABLES(LLMPROF_VISIT)
#undef LLMPROF_VISIT
  }
};

}  // namespace llmprof
