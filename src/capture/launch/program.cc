#include "capture/launch/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace llmprof::launch {
namespace {

constexpr ExitCode kNotFound = static_cast<ExitCode>(kExitNotFound);
constexpr ExitCode kNotExecutable = static_cast<ExitCode>(kExitNotExecutable);

// Bytes of the file read for the ELF header, the program headers and the loader's name, or a script's first line.
constexpr size_t kHeadBytes = 16384;

std::string read_head(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string head(kHeadBytes, '\0');
  const ssize_t got = read(fd, head.data(), head.size());
  close(fd);
  head.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return head;
}

Linkage linkage_of_elf(std::string_view head) {
  if (head.size() < sizeof(Elf64_Ehdr) || head[EI_CLASS] != ELFCLASS64) return Linkage::kForeign;
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
#if defined(__x86_64__)
  constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr int kMachine = EM_AARCH64;
#else
#error "llmprof run knows x86-64 and AArch64"
#endif
  if (header.e_machine != kMachine) return Linkage::kForeign;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const uint64_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
    if (header.e_phoff > head.size() || at + sizeof(Elf64_Phdr) > head.size()) return Linkage::kUnknown;
    Elf64_Phdr part;
    std::memcpy(&part, head.data() + at, sizeof part);
    if (part.p_type != PT_INTERP) continue;
    if (part.p_offset > head.size() || part.p_filesz > head.size() - part.p_offset) return Linkage::kUnknown;
    const std::string_view loader = head.substr(part.p_offset, part.p_filesz);
    return loader.find("ld-musl") != std::string_view::npos ? Linkage::kMusl : Linkage::kGlibc;
  }
  return Linkage::kStatic;
}

Linkage linkage_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && geteuid() != 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0)
    return Linkage::kPrivileged;
  std::string head = read_head(path);
  if (head.starts_with("#!")) {  // one level, as the kernel does for the usual script
    const size_t from = head.find_first_not_of(" \t", 2);
    if (from == std::string::npos) return Linkage::kUnknown;
    head = read_head(head.substr(from, head.find_first_of(" \t\r\n", from) - from));
  }
  return head.starts_with(ELFMAG) ? linkage_of_elf(head) : Linkage::kUnknown;
}

bool exists_here(const std::string& name) { return access(name.c_str(), F_OK) == 0; }

Error cannot_run(const std::string& name, const std::string& path, int error) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    return {"expected a program behind --, found a folder", path, "name the program inside it", kNotExecutable};
  if (error == ENOENT || error == ENOTDIR) return {"no such program: " + name, path, "check the path", kNotFound};
  std::string advice = "check the permissions (chmod +x)";
  if (name.ends_with(".py")) advice = "llmprof run -- python3 " + name;
  if (name.ends_with(".sh")) advice = "llmprof run -- sh " + name;
  return {std::string("the program cannot be executed: ") + std::strerror(error), path, advice, kNotExecutable};
}

}  // namespace

Result<Program> find_program(const std::string& name, const char* path_variable) {
  const auto found = [](std::string path) { return Program{path, linkage_of(path)}; };
  const auto runnable = [](const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return errno;
    if (!S_ISREG(status.st_mode)) return EACCES;
    return access(path.c_str(), X_OK) == 0 ? 0 : errno;
  };
  if (name.empty())
    return fail("expected a program behind --, found an empty word", {}, "llmprof run -- python3 generate.py",
                kNotFound);
  if (name.find('/') != std::string::npos) {
    if (const int error = runnable(name); error != 0) return tl::unexpected<Error>(cannot_run(name, name, error));
    return found(name);
  }
  std::string_view folders = path_variable != nullptr ? path_variable : "/bin:/usr/bin";
  std::string refused;  // found, but not executable
  int refusal = 0;
  while (true) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const std::string folder(folders.substr(0, end));
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    const int error = runnable(path);
    if (error == 0) return found(path);
    if (error == EACCES && refused.empty()) {
      refused = path;
      refusal = error;
    }
    if (end == folders.size()) break;
    folders.remove_prefix(end + 1);
  }
  if (!refused.empty()) return tl::unexpected<Error>(cannot_run(name, refused, refusal));
  std::string advice = "check the spelling, or give the path: llmprof run -- ./program";
  if (exists_here(name)) advice = "llmprof run -- ./" + name;
  if (name.ends_with(".py")) advice = "llmprof run -- python3 " + name;
  return fail("no such program: " + name, "the folders of PATH", advice, kNotFound);
}

std::string short_name(const std::vector<std::string>& command) {
  const auto base = [](std::string_view path) { return path.substr(path.find_last_of('/') + 1); };
  std::string_view name = command.empty() ? "" : base(command.front());
  if (name.starts_with("python") || name == "torchrun") {
    for (size_t i = 1; i < command.size(); ++i) {
      const std::string_view word = command[i];
      if (word == "-m" && i + 1 < command.size()) {
        const std::string_view module = command[i + 1];
        name = module.substr(module.find_last_of('.') + 1);
        break;
      }
      if (word.ends_with(".py")) {
        name = base(word);
        name.remove_suffix(3);
        break;
      }
    }
  }
  std::string out;
  for (const char c : name.substr(0, 40)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += plain || c == '.' || c == '_' || c == '-' ? c : '_';
  }
  while (out.starts_with('.') || out.starts_with('-')) out.erase(0, 1);
  return out.empty() ? "program" : out;
}

std::string linkage_notice(const Program& program) {
  switch (program.linkage) {
    case Linkage::kGlibc:
    case Linkage::kUnknown:
      return {};
    case Linkage::kStatic:
      return program.path +
             " is statically linked: library calls (GEMM shapes) of this process cannot be seen; its children are "
             "watched";
    case Linkage::kMusl:
      return program.path + " uses musl: the injection library needs glibc, so this program is not watched from inside";
    case Linkage::kForeign:
      return program.path + " is built for another architecture: it is not watched from inside";
    case Linkage::kPrivileged:
      return program.path + " is setuid or setgid: the loader ignores LD_PRELOAD, so library calls cannot be seen";
  }
  return {};
}

}  // namespace llmprof::launch
