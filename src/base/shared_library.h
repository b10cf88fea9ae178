// A shared library opened at run time. Missing functions are null, never an error: older drivers lack some, and callers
// say what is unknown instead.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

namespace llmprof {

struct LibraryVersion {
  std::string name, version, path;  // "cuBLASLt", "13.1.0", "/usr/lib/..."
};

class SharedLibrary {
 public:
  SharedLibrary() = default;
  // RTLD_LOCAL: the library's own dependencies (libnvperf_*) are found next to it, and nothing else sees its symbols.
  explicit SharedLibrary(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      const char* reason = dlerror();
      error_ = reason != nullptr ? reason : "dlopen failed";
    }
  }
  SharedLibrary(SharedLibrary&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), error_(std::move(other.error_)) {}
  SharedLibrary& operator=(SharedLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(error_, other.error_);
    return *this;
  }
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  // Closes; libraries that keep threads or exit handlers must be kept open by their owner instead (keep_open).
  ~SharedLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  void keep_open() { handle_ = nullptr; }

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }  // the loader's words, empty if open

  // Sets `function` to the first of the names that exists; false and null if none does.
  template <class Function, class... Names>
  bool load(Function& function, Names... names) const {
    function = nullptr;
    for (const char* name : {names...}) {
      if (function == nullptr && handle_ != nullptr) function = reinterpret_cast<Function>(dlsym(handle_, name));
    }
    return function != nullptr;
  }
  // The file that was loaded, by the address of one of its functions; empty if unknown.
  template <class Function>
  static std::string file_of(Function function) {
    Dl_info info{};
    if (function == nullptr || dladdr(reinterpret_cast<void*>(function), &info) == 0 || info.dli_fname == nullptr)
      return {};
    return info.dli_fname;
  }

 private:
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace llmprof
