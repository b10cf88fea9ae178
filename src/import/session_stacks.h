// Call stacks of launch sites as text. The recorder wrote modules and offsets; names come from the modules' files,
// which are read when the spool is, so on the machine of the recording and while its libraries are there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/spool/records.h"
#include "import/module_symbols.h"

namespace llmprof::session_importer {

// The qualified name of a function without return type, template arguments and parameters: "at::_ops::mm::call". What
// is not mangled stays as it is.
std::string short_function(std::string_view symbol);

// "module!function", "module!0x1f20" for a function without a name, "[python]" for the interpreter, "[unknown]" for
// code of no module (compiled at run time).
std::string frame_line(std::string_view module_path, std::string_view symbol, uint64_t offset);

// Joins lines, innermost first, 48 at most. Those of the recorder, of CUPTI and of the CUDA libraries are left out
// until the first other one; runs of [python] and of [unknown] become one line.
class StackText {
 public:
  void add(std::string_view line);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string_view last_;  // as it was added
  int lines_ = 0;
};

// The modules of a process and the lines of addresses in them.
class Modules {
 public:
  // The module's number.
  size_t add(std::string_view path, std::string_view build_id);
  // Valid as long as the object. What is no number gives "[unknown]".
  std::string_view line(size_t module, uint64_t offset);

 private:
  struct Module {
    std::string path, build_id;
    std::unique_ptr<ModuleSymbols> symbols;  // from its first line on
  };
  std::vector<Module> modules_;
  std::map<std::pair<size_t, uint64_t>, std::string> lines_;
  int files_ = 0;
};

}  // namespace llmprof::session_importer
