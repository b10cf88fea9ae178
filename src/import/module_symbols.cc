#include "import/module_symbols.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "capture/spool/build_id.h"

namespace llmprof::session_importer {

bool ModuleSymbols::map(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  if (fd < 0) return false;
  struct stat info {};
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    const size_t size = static_cast<size_t>(info.st_size);
    void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped != MAP_FAILED) file_ = {static_cast<const char*>(mapped), size};
  }
  close(fd);
  return !file_.empty();
}

// Empty if it does not lie in the file.
template <class T>
std::span<const T> ModuleSymbols::table(uint64_t at, uint64_t bytes) const {
  if (at > file_.size() || bytes > file_.size() - at || at % alignof(T) != 0) return {};
  return {reinterpret_cast<const T*>(file_.data() + at), bytes / sizeof(T)};
}

ModuleSymbols::ModuleSymbols(const std::string& path, std::string_view build_id) {
  if (build_id.empty() || !path.starts_with('/') || !map(path)) return;
  const std::span<const Elf64_Ehdr> head = table<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr));
  if (head.empty() || std::memcmp(head[0].e_ident, ELFMAG, SELFMAG) != 0 || head[0].e_ident[EI_CLASS] != ELFCLASS64 ||
      head[0].e_ident[EI_DATA] != ELFDATA2LSB)
    return;
  const std::span<const Elf64_Shdr> sections = table<Elf64_Shdr>(head[0].e_shoff, head[0].e_shnum * sizeof(Elf64_Shdr));
  const auto text_of = [&](const Elf64_Shdr& section) {
    const std::span<const char> bytes = table<char>(section.sh_offset, section.sh_size);
    return std::string_view(bytes.data(), bytes.size());
  };
  bool same = false;
  const Elf64_Shdr* symbols = nullptr;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_NOTE) {
      std::string found;
      for (const char byte : spool::build_id_among(text_of(section), section.sh_addralign))
        found += fmt::format("{:02x}", static_cast<uint8_t>(byte));
      same |= found == build_id;
    }
    if (section.sh_link < sections.size() &&
        (section.sh_type == SHT_SYMTAB || (section.sh_type == SHT_DYNSYM && symbols == nullptr)))
      symbols = &section;
  }
  if (!same || symbols == nullptr) return;
  names_ = text_of(sections[symbols->sh_link]);
  for (const Elf64_Sym& symbol : table<Elf64_Sym>(symbols->sh_offset, symbols->sh_size)) {
    const int type = ELF64_ST_TYPE(symbol.st_info);
    if ((type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF && symbol.st_name < names_.size())
      functions_.push_back(&symbol);
  }
  std::stable_sort(functions_.begin(), functions_.end(),
                   [](const Elf64_Sym* a, const Elf64_Sym* b) { return a->st_value < b->st_value; });
}

ModuleSymbols::~ModuleSymbols() {
  if (!file_.empty()) munmap(const_cast<char*>(file_.data()), file_.size());
}

std::string_view ModuleSymbols::function_at(uint64_t offset) const {
  auto at = std::upper_bound(functions_.begin(), functions_.end(), offset,
                             [](uint64_t value, const Elf64_Sym* symbol) { return value < symbol->st_value; });
  // Functions may lie inside others (cold parts, aliases): a few steps back, not to the start.
  for (int steps = 0; steps < 8 && at != functions_.begin(); ++steps) {
    const Elf64_Sym& symbol = **--at;
    if (offset - symbol.st_value >= std::max<uint64_t>(symbol.st_size, 1)) continue;
    const std::string_view name = names_.substr(symbol.st_name);
    return name.substr(0, name.find_first_of(std::string_view("\0@", 2)));  // without a version
  }
  return {};
}

}  // namespace llmprof::session_importer
