// The program to be watched, looked at before it is started: whether it exists and can run, and whether an injection
// library can get into it at all.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace llmprof::launch {

// Exit codes that shells use for a program that could not be started.
constexpr int kExitNotFound = 127;
constexpr int kExitNotExecutable = 126;

enum class Linkage {
  kGlibc,      // dynamic, the usual case
  kStatic,     // no dynamic loader: LD_PRELOAD has no effect, CUDA_INJECTION64_PATH may still have
  kMusl,       // musl's loader: a library built for glibc must not be preloaded, it would stop the program
  kForeign,    // another architecture or word size
  kUnknown,    // a script or something else without an ELF header; its interpreter decides
  kPrivileged  // setuid or setgid: the loader ignores LD_PRELOAD
};

struct Program {
  std::string path;  // as execvp would choose it; has a slash
  Linkage linkage = Linkage::kUnknown;
};

// Finds `name` as execvp does: by itself if it has a slash, else along PATH. The error's exit code is 127 or 126.
Result<Program> find_program(const std::string& name, const char* path_variable);

// "gen" for {"python3", "-u", "dir/gen.py"}, "module" for {"python", "-m", "pkg.module"}, else the program's own name.
// Letters, digits, '.', '_' and '-' only, at most 40.
std::string short_name(const std::vector<std::string>& command);

// What to tell about a linkage that limits what can be seen; empty for the usual one.
std::string linkage_notice(const Program& program);

}  // namespace llmprof::launch
