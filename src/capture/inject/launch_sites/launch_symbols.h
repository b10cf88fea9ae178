// Return addresses as text: the module and the function that an address lies in, and call stacks of such lines. For the
// drain thread: it allocates, and looking at a module for the first time takes the loader's lock for some 10 ms per
// 100,000 symbols. Not thread-safe: one caller at a time.
//
// Names come from the modules' dynamic symbols, and from the whole symbol table of the program's own file where that
// has one. Each module is indexed once, at 8 bytes a symbol, because dladdr() walks all symbols of a module for every
// address: 1 ms in PyTorch's larger libraries. Bound: kSymbolsMax symbols; with more, all indices are made anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "capture/spool/writer.h"

namespace llmprof::inject {

constexpr size_t kFramesMax = 48;                // lines of a stack
constexpr size_t kSymbolsMax = size_t{1} << 20;  // of all modules together

// The line of an address, as frame_line has it. `out` receives at most `size` bytes.
size_t describe_address(uintptr_t address, char* out, size_t size);
// After fork, in the child. `torn`: a thread of the parent was in describe_address at that moment.
void abandon_symbols(bool torn);

// The qualified name of a function without return type, template arguments and parameters: "at::_ops::mm::call". What
// is not mangled stays as it is. `out` receives at most `size` bytes.
size_t short_function(const char* symbol, char* out, size_t size);

// "module!function", "module!0x1f20" for a function without a name, "[python]" for the interpreter, "[unknown]" for
// code of no module (compiled at run time).
size_t frame_line(std::string_view module_path, const char* symbol, uint64_t offset, char* out, size_t size);

// Joins lines, innermost first. Those of the recorder, of CUPTI and of the CUDA libraries are left out until the first
// other one; runs of [python] and of [unknown] become one line.
class StackText {
 public:
  void add(std::string_view line);
  std::string_view view() const { return {bytes_, size_}; }

 private:
  size_t size_ = 0, lines_ = 0;
  bool full_ = false;
  std::string_view last_;
  char bytes_[spool::kTextMax];
};

}  // namespace llmprof::inject
