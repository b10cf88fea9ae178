#include "capture/inject/launch_sites/launch_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace llmprof::inject {
namespace {

// ---- names ---------------------------------------------------------------------------------------------------------
std::string_view base_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// libpython3.11.so.1.0, or an interpreter that holds it: python, python3, python3.11.
bool is_interpreter(std::string_view module) {
  if (starts_with(module, "libpython")) return true;
  if (!starts_with(module, "python")) return false;
  for (const char c : module.substr(6))
    if ((c < '0' || c > '9') && c != '.' && c != 't' && c != 'd') return false;  // t and d: free-threaded, debug
  return true;
}

bool below_the_launch(std::string_view line) {
  for (const char* prefix : {"libllmprof_inject", "libcupti", "libcuda.", "libcudart", "libnvperf"})
    if (starts_with(line, prefix)) return true;
  return line.find("!llmprof::inject::") != std::string_view::npos;
}

// Copies text while it fits.
struct Output {
  char* bytes;
  size_t size_max;
  size_t size = 0;
  void put(std::string_view text) {
    const size_t fits = text.size() < size_max - size ? text.size() : size_max - size;
    if (fits != 0) memcpy(bytes + size, text.data(), fits);
    size += fits;
  }
  bool ends_with(std::string_view text) const {
    return size >= text.size() && std::string_view(bytes + size - text.size(), text.size()) == text;
  }
};

// Index behind the bracket that closes the one at `open`. Inside parentheses, < and > may be comparisons: what is still
// open in them ends with them.
size_t behind_bracket(std::string_view text, size_t open) {
  constexpr size_t kDepthMax = 128;
  char awaited[kDepthMax];
  size_t depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '{' || c == '<') {
      if (depth == kDepthMax) return text.size();
      awaited[depth++] = c == '(' ? ')' : c == '{' ? '}' : '>';
      continue;
    }
    if (c == '>' && awaited[depth - 1] != '>') continue;
    if (c != '>' && c != ')' && c != '}') continue;
    while (depth != 0 && awaited[depth - 1] != c) --depth;
    if (depth <= 1) return i + 1;
    --depth;
  }
  return text.size();
}

// The operator's own characters, behind the word `operator` at `i`: "()", "<<", " new".
size_t behind_operator(std::string_view text, size_t i) {
  constexpr std::string_view kWord = "operator";
  i += kWord.size();
  if (starts_with(text.substr(i), "()")) return i + 2;
  if (i < text.size() && text[i] == ' ') {  // a conversion or new
    while (i < text.size() && text[i] != '(' && text[i] != '<') ++i;
    return i;
  }
  while (i < text.size() && std::string_view("<>=-+*/%^&|~!,[]").find(text[i]) != std::string_view::npos) ++i;
  return i;
}

// From "void a::b<int>(long)::{lambda(int)#1}::operator()(int) const" to "a::b::{lambda#1}::operator()".
void put_short(std::string_view text, Output& out) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (starts_with(rest, kAnonymous)) {
      out.put(kAnonymous);
      i += kAnonymous.size();
    } else if (starts_with(rest, "operator") && (i == 0 || text[i - 1] == ':' || text[i - 1] == ' ')) {
      const size_t end = behind_operator(text, i);
      out.put(text.substr(i, end - i));
      i = end;
    } else if (text[i] == '<') {
      i = behind_bracket(text, i);
    } else if (starts_with(rest, "{lambda")) {
      const size_t end = behind_bracket(text, i);
      const size_t number = text.substr(0, end).rfind('#');
      out.put("{lambda");
      out.put(number == std::string_view::npos || number < i ? std::string_view("}")
                                                             : text.substr(number, end - number));
      i = end;
    } else if (text[i] == '(') {
      const bool type = out.ends_with("decltype");
      i = behind_bracket(text, i);
      if (starts_with(text.substr(i), " const::")) i += 6;
      if (!type && !starts_with(text.substr(i), "::")) return;
    } else if (text[i] == ' ') {
      out.size = 0;  // what stood before it was the result's type
      ++i;
    } else {
      out.put(rest.substr(0, 1));
      ++i;
    }
  }
}

// For names too long for the demangler: "_ZN2at6native4gemmI...": the path up to the first template argument.
void put_path(std::string_view mangled, Output& out) {
  size_t i = starts_with(mangled, "_ZN") ? 3 : 2;
  while (i < mangled.size() && (mangled[i] == 'K' || mangled[i] == 'L')) ++i;
  while (i < mangled.size() && mangled[i] >= '0' && mangled[i] <= '9') {
    size_t size = 0;
    for (; i < mangled.size() && mangled[i] >= '0' && mangled[i] <= '9' && size < mangled.size(); ++i)
      size = size * 10 + static_cast<size_t>(mangled[i] - '0');
    const std::string_view part = mangled.substr(i, size);
    if (out.size != 0) out.put("::");
    out.put(starts_with(part, "_GLOBAL__N_") ? std::string_view("(anonymous namespace)") : part);
    i += part.size();
  }
}

// ---- symbols -------------------------------------------------------------------------------------------------------

struct Place {
  uint32_t offset;  // from the module's base
  uint32_t symbol;  // index in its table
};

// The functions of one module, by offset.
struct Module {
  uintptr_t base, start, end;  // load bias and mapped range
  const ElfW(Sym) * symbols;   // in the module, or in the mapped file
  const char* names;
  size_t names_size;
  Place* places;
  size_t count;
  char name[80];
};
constexpr size_t kModulesMax = 256;
Module modules[kModulesMax];
size_t module_count = 0;
size_t symbols_held = 0;
unsigned long long unloads_known = 0;

// The program's own file, for its whole symbol table. Mapped once and for good.
const uint8_t* program_file = nullptr;
size_t program_file_size = 0;

bool is_function(const ElfW(Sym) & symbol) {
  const unsigned type = symbol.st_info & 0xF;
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
         symbol.st_value <= UINT32_MAX;
}

// How many dynamic symbols there are: the hash table alone knows.
size_t symbols_by_gnu_hash(const uint32_t* table) {
  const uint32_t bucket_count = table[0], first_symbol = table[1], bloom_words = table[2];
  const uint32_t* const buckets = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* const chain = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t i = 0; i < bucket_count; ++i) last = std::max(last, buckets[i]);
  if (last < first_symbol) return first_symbol;
  while ((chain[last - first_symbol] & 1) == 0) ++last;
  return size_t{last} + 1;
}

// Fills places from a symbol table. False where there is no memory.
bool index_symbols(Module& module, size_t symbol_count) {
  module.count = 0;
  module.places = nullptr;
  if (symbol_count == 0 || symbol_count > kSymbolsMax) return true;  // then only offsets are known
  if (symbols_held + symbol_count > kSymbolsMax) return false;
  module.places = static_cast<Place*>(malloc(symbol_count * sizeof(Place)));
  if (module.places == nullptr) return true;
  for (size_t i = 0; i < symbol_count; ++i)
    if (is_function(module.symbols[i]))
      module.places[module.count++] = {static_cast<uint32_t>(module.symbols[i].st_value), static_cast<uint32_t>(i)};
  std::sort(module.places, module.places + module.count,
            [](const Place& a, const Place& b) { return a.offset < b.offset; });
  symbols_held += module.count;
  return true;
}

bool index_dynamic_symbols(Module& module, const ElfW(Dyn) * dynamic) {
  const uint32_t *gnu_hash = nullptr, *hash = nullptr;
  // The loader has made addresses of these in place, except in what the kernel maps (the vDSO).
  const auto address = [&](const ElfW(Dyn) & entry) {
    return entry.d_un.d_ptr < module.base ? entry.d_un.d_ptr + module.base : entry.d_un.d_ptr;
  };
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_SYMTAB) module.symbols = reinterpret_cast<const ElfW(Sym)*>(address(*dynamic));
    if (dynamic->d_tag == DT_STRTAB) module.names = reinterpret_cast<const char*>(address(*dynamic));
    if (dynamic->d_tag == DT_STRSZ) module.names_size = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const uint32_t*>(address(*dynamic));
    if (dynamic->d_tag == DT_HASH) hash = reinterpret_cast<const uint32_t*>(address(*dynamic));
  }
  if (module.symbols == nullptr || module.names == nullptr) return true;
  return index_symbols(module, gnu_hash != nullptr ? symbols_by_gnu_hash(gnu_hash) : hash != nullptr ? hash[1] : 0);
}

bool map_program_file() {
  if (program_file != nullptr) return true;
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info {};
  if (fstat(fd, &info) == 0 && info.st_size > static_cast<off_t>(sizeof(ElfW(Ehdr)))) {
    void* const mapped = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped != MAP_FAILED) {
      program_file = static_cast<const uint8_t*>(mapped);
      program_file_size = static_cast<size_t>(info.st_size);
    }
  }
  close(fd);
  return program_file != nullptr;
}

// A section's bytes; empty if it does not lie in the file.
std::string_view section_bytes(const ElfW(Shdr) & section) {
  if (section.sh_offset > program_file_size || section.sh_size > program_file_size - section.sh_offset) return {};
  return {reinterpret_cast<const char*>(program_file) + section.sh_offset, section.sh_size};
}

// True if the program's file has a symbol table of its own; `done` then says whether it could be indexed.
bool index_program_symbols(Module& module, bool& done) {
  if (!map_program_file()) return false;
  const ElfW(Ehdr)& head = *reinterpret_cast<const ElfW(Ehdr)*>(program_file);
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_shentsize != sizeof(ElfW(Shdr))) return false;
  if (head.e_shoff > program_file_size || head.e_shoff % alignof(ElfW(Shdr)) != 0 ||
      size_t{head.e_shnum} * sizeof(ElfW(Shdr)) > program_file_size - head.e_shoff)
    return false;
  const ElfW(Shdr)* const sections = reinterpret_cast<const ElfW(Shdr)*>(program_file + head.e_shoff);
  for (size_t i = 0; i < head.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB || sections[i].sh_link >= head.e_shnum) continue;
    const std::string_view symbols = section_bytes(sections[i]), names = section_bytes(sections[sections[i].sh_link]);
    if (symbols.empty() || names.empty() || sections[i].sh_offset % alignof(ElfW(Sym)) != 0) continue;
    module.symbols = reinterpret_cast<const ElfW(Sym)*>(symbols.data());
    module.names = names.data();
    module.names_size = names.size();
    done = index_symbols(module, symbols.size() / sizeof(ElfW(Sym)));
    return true;
  }
  return false;
}

// False if there was no room for its symbols. With the loader's lock: the module stays where it is.
bool index_module(const dl_phdr_info& info, uintptr_t start, uintptr_t end, bool is_program, Module& module) {
  module = Module{};
  module.base = info.dlpi_addr;
  module.start = start;
  module.end = end;
  char path[512] = {};
  std::string_view name = info.dlpi_name != nullptr ? info.dlpi_name : "";
  if (is_program) {
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    name = {path, length > 0 ? static_cast<size_t>(length) : 0};
  }
  name = base_name(name);
  memcpy(module.name, name.data(), std::min(name.size(), sizeof module.name - 1));
  if (is_interpreter(name)) return true;  // its functions are never named
  bool done = true;
  if (is_program && index_program_symbols(module, done)) return done;
  for (size_t i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC)
      return index_dynamic_symbols(module,
                                   reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr));
  return true;
}

const char* symbol_at(const Module& module, uint64_t offset) {
  const Place* const start = module.places;
  const Place* at = std::upper_bound(start, start + module.count, offset,
                                     [](uint64_t value, const Place& place) { return value < place.offset; });
  // Functions may lie inside others (cold parts, aliases): a few steps back, not to the start.
  for (int steps = 0; steps < 8 && at != start; ++steps) {
    --at;
    const ElfW(Sym)& symbol = module.symbols[at->symbol];
    if (offset - at->offset >= symbol.st_size && !(symbol.st_size == 0 && offset == at->offset)) continue;
    if (symbol.st_name >= module.names_size) continue;
    const char* const name = module.names + symbol.st_name;
    if (memchr(name, '\0', module.names_size - symbol.st_name) != nullptr) return name;
  }
  return nullptr;
}

void forget_symbols() {
  for (size_t i = 0; i < module_count; ++i) free(modules[i].places);
  module_count = symbols_held = 0;
}

struct Lookup {
  uintptr_t address;
  char* out;
  size_t size, written;
  bool first;  // the program comes first
};

int look_up(dl_phdr_info* info, size_t, void* data) {
  Lookup& lookup = *static_cast<Lookup*>(data);
  const bool is_program = lookup.first;
  lookup.first = false;
  if (is_program && info->dlpi_subs != unloads_known) {  // another module may lie now where an indexed one was
    forget_symbols();
    unloads_known = info->dlpi_subs;
  }
  uintptr_t start = UINTPTR_MAX, end = 0;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    start = std::min<uintptr_t>(start, info->dlpi_addr + segment.p_vaddr);
    end = std::max<uintptr_t>(end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
  }
  if (lookup.address < start || lookup.address >= end) return 0;
  Module* module = nullptr;
  for (size_t i = 0; i < module_count && module == nullptr; ++i)
    if (modules[i].start == start && modules[i].end == end) module = &modules[i];
  if (module == nullptr) {
    if (module_count == kModulesMax) forget_symbols();
    Module fresh{};
    if (!index_module(*info, start, end, is_program, fresh)) {
      forget_symbols();
      index_module(*info, start, end, is_program, fresh);
    }
    module = &modules[module_count++];
    *module = fresh;
  }
  const uint64_t offset = lookup.address - module->base;
  lookup.written = frame_line(module->name, symbol_at(*module, offset), offset, lookup.out, lookup.size);
  return 1;
}

}  // namespace

void abandon_symbols(bool torn) {
  if (torn)
    module_count = symbols_held = 0;  // what they hold is lost: it may be half written
  else
    forget_symbols();
}

size_t describe_address(uintptr_t address, char* out, size_t size) {
  Lookup lookup{address, out, size, 0, true};
  if (dl_iterate_phdr(look_up, &lookup) == 0) return frame_line({}, nullptr, 0, out, size);
  return lookup.written;
}

size_t short_function(const char* symbol, char* out, size_t size) {
  // The demangler's own stack grows with the name; the drain thread's has 512 KB.
  constexpr size_t kDemangledMax = 1024;
  Output output{out, size};
  const size_t length = strnlen(symbol, kDemangledMax + 1);
  const bool mangled = symbol[0] == '_' && symbol[1] == 'Z';
  if (mangled && length <= kDemangledMax) {
    int status = 0;
    char* const plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    if (plain != nullptr) put_short(plain, output);
    free(plain);
  }
  if (mangled && output.size == 0) put_path({symbol, length}, output);
  if (output.size == 0) output.put({symbol, length});
  return output.size;
}

size_t frame_line(std::string_view module_path, const char* symbol, uint64_t offset, char* out, size_t size) {
  Output output{out, size};
  const std::string_view module = base_name(module_path);
  if (module.empty() || is_interpreter(module)) {
    output.put(module.empty() ? "[unknown]" : "[python]");
    return output.size;
  }
  output.put(module.substr(0, 80));
  output.put("!");
  if (symbol != nullptr && symbol[0] != '\0') {
    output.size += short_function(symbol, out + output.size, size - output.size);
  } else {
    char number[24];
    const int length = std::snprintf(number, sizeof number, "0x%llx", static_cast<unsigned long long>(offset));
    output.put({number, static_cast<size_t>(length)});
  }
  return output.size;
}

void StackText::add(std::string_view line) {
  if (full_ || line.empty() || (lines_ == 0 && below_the_launch(line))) return;
  if (line == last_ && line.front() == '[') return;
  const size_t needs = line.size() + (lines_ != 0 ? 1 : 0);
  if (lines_ == kFramesMax || size_ + needs > sizeof bytes_) {
    full_ = true;
    return;
  }
  if (lines_ != 0) bytes_[size_++] = '\n';
  memcpy(bytes_ + size_, line.data(), line.size());
  last_ = {bytes_ + size_, line.size()};
  size_ += line.size();
  ++lines_;
}

}  // namespace llmprof::inject
