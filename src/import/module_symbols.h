// The functions of a module (program or shared library) by their place in its file, from the file's symbol table: the
// whole one where it was not stripped, otherwise that of the dynamic linker.
#pragma once

#include <elf.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmprof::session_importer {

// Has no functions unless `path` is an absolute path to a file with that build id (hexadecimal, not empty): another
// version of a library would give wrong names. The file may hold anything. It stays mapped as long as the object lives.
class ModuleSymbols {
 public:
  ModuleSymbols(const std::string& path, std::string_view build_id);
  ~ModuleSymbols();
  ModuleSymbols(const ModuleSymbols&) = delete;
  ModuleSymbols& operator=(const ModuleSymbols&) = delete;

  // As the linker has it (mangled); empty where there is none. `offset` counts as symbols do: address less load bias.
  std::string_view function_at(uint64_t offset) const;

 private:
  template <class T>
  std::span<const T> table(uint64_t at, uint64_t bytes) const;
  bool map(const std::string& path);

  std::string_view file_, names_;
  std::vector<const Elf64_Sym*> functions_;  // in the order of their places
};

}  // namespace llmprof::session_importer
