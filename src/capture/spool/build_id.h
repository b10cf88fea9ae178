// The build id among the notes of an ELF file, for the recorder, which finds them in memory, and for the importer,
// which finds them in the file.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace llmprof::spool {

// Its bytes, usually 20; empty if there is none. `alignment` is that of the segment or section.
inline std::string_view build_id_among(std::string_view notes, size_t alignment) {
  if (alignment != 8) alignment = 4;
  const auto padded = [&](size_t size) { return (size + alignment - 1) / alignment * alignment; };
  Elf64_Nhdr note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t at = padded(sizeof note + note.n_namesz);
    if (at > notes.size() || note.n_descsz > notes.size() - at) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note, note.n_namesz) == std::string_view("GNU", 4))
      return notes.substr(at, note.n_descsz);
    const size_t next = padded(at + note.n_descsz);
    notes.remove_prefix(next < notes.size() ? next : notes.size());
  }
  return {};
}

}  // namespace llmprof::spool
