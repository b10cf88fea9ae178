#include "import/session_stacks.h"

#include <fmt/format.h>

#include <algorithm>

#include "import/session_names.h"

namespace llmprof::session_importer {
namespace {

constexpr int kLinesMax = 48;
constexpr size_t kLineBytesMax = 256, kModuleBytesMax = 80;
constexpr int kFilesMax = 1024;  // a recorder names 256; a spool may hold anything

// libpython3.11.so.1.0, or an interpreter that holds it: python, python3, python3.11.
bool is_interpreter(std::string_view module) {
  if (module.starts_with("libpython")) return true;
  // t and d: free-threaded, debug
  return module.starts_with("python") && module.find_first_not_of("0123456789.td", 6) == std::string_view::npos;
}

bool below_the_launch(std::string_view line) {
  for (const char* prefix : {"libllmprof_inject", "libcupti", "libcuda.", "libcudart", "libnvperf"})
    if (line.starts_with(prefix)) return true;
  return line.find("!llmprof::inject::") != std::string_view::npos;
}

// Index behind the bracket that closes the one at `open`. Inside parentheses, < and > may be comparisons: what is still
// open in them ends with them.
size_t behind_bracket(std::string_view text, size_t open) {
  std::string awaited;
  for (size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' || c == '{' || c == '<') {
      awaited += c == '(' ? ')' : c == '{' ? '}' : '>';
      continue;
    }
    if (c == '>' && awaited.back() != '>') continue;
    if (c != '>' && c != ')' && c != '}') continue;
    while (!awaited.empty() && awaited.back() != c) awaited.pop_back();
    if (awaited.size() <= 1) return i + 1;
    awaited.pop_back();
  }
  return text.size();
}

// The operator's own characters, behind the word `operator` at `i`: "()", "<<", " new".
size_t behind_operator(std::string_view text, size_t i) {
  i += std::string_view("operator").size();
  if (text.substr(i).starts_with("()")) return i + 2;
  const bool word = text.substr(i).starts_with(' ');  // a conversion or new
  return std::min(word ? text.find_first_of("(<", i) : text.find_first_not_of("<>=-+*/%^&|~!,[]", i), text.size());
}

// From "void a::b<int>(long)::{lambda(int)#1}::operator()(int) const" to "a::b::{lambda#1}::operator()".
std::string without_types(std::string_view text) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with(kAnonymous)) {
      out += kAnonymous;
      i += kAnonymous.size();
    } else if (rest.starts_with("operator") && (i == 0 || text[i - 1] == ':' || text[i - 1] == ' ')) {
      const size_t end = behind_operator(text, i);
      out += text.substr(i, end - i);
      i = end;
    } else if (text[i] == '<') {
      i = behind_bracket(text, i);
    } else if (rest.starts_with("{lambda")) {
      const size_t end = behind_bracket(text, i);
      const size_t number = text.substr(0, end).rfind('#');
      out += "{lambda";
      out += number == std::string_view::npos || number < i ? "}" : text.substr(number, end - number);
      i = end;
    } else if (text[i] == '(') {
      const bool type = out.ends_with("decltype");
      i = behind_bracket(text, i);
      if (text.substr(i).starts_with(" const::")) i += 6;
      if (!type && !text.substr(i).starts_with("::")) return out;
    } else if (text[i] == ' ') {
      out.clear();  // what stood before it was the result's type
      ++i;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// For names too long for the demangler: "_ZN2at6native4gemmI...": the path up to the first template argument.
std::string path_of(std::string_view mangled) {
  std::string out;
  size_t i = mangled.find_first_not_of("KL", mangled.starts_with("_ZN") ? 3 : 2);
  while (i < mangled.size() && mangled[i] >= '0' && mangled[i] <= '9') {
    size_t size = 0;
    for (; i < mangled.size() && mangled[i] >= '0' && mangled[i] <= '9' && size < mangled.size(); ++i)
      size = size * 10 + static_cast<size_t>(mangled[i] - '0');
    const std::string_view part = mangled.substr(i, size);
    if (!out.empty()) out += "::";
    out += part.starts_with("_GLOBAL__N_") ? "(anonymous namespace)" : part;
    i += part.size();
  }
  return out;
}

}  // namespace

std::string short_function(std::string_view symbol) {
  const std::string plain = demangled(symbol);
  std::string out;
  if (plain != symbol)
    out = without_types(plain);
  else if (symbol.starts_with("_Z"))
    out = path_of(symbol);
  return out.empty() ? plain : out;
}

std::string frame_line(std::string_view module_path, std::string_view symbol, uint64_t offset) {
  const std::string_view module = module_path.substr(module_path.rfind('/') + 1);  // npos + 1 is 0
  if (module.empty()) return "[unknown]";
  if (is_interpreter(module)) return "[python]";
  std::string line = fmt::format("{}!{}", module.substr(0, kModuleBytesMax),
                                 symbol.empty() ? fmt::format("{:#x}", offset) : short_function(symbol));
  line.resize(std::min(line.size(), kLineBytesMax));
  return line;
}

void StackText::add(std::string_view line) {
  if (lines_ == kLinesMax || (lines_ == 0 && below_the_launch(line))) return;
  if (line == last_ && line.starts_with('[')) return;
  if (lines_++ != 0) text_ += '\n';
  text_ += last_ = line;
}

size_t Modules::add(std::string_view path, std::string_view build_id) {
  modules_.push_back({std::string(path), std::string(build_id), nullptr});
  return modules_.size() - 1;
}

std::string_view Modules::line(size_t module, uint64_t offset) {
  const auto [at, fresh] = lines_.try_emplace({module, offset});
  if (!fresh) return at->second;
  if (module >= modules_.size()) return at->second = "[unknown]";
  auto& [path, build_id, symbols] = modules_[module];
  if (symbols == nullptr)
    symbols = std::make_unique<ModuleSymbols>(path, ++files_ <= kFilesMax ? build_id : std::string_view());
  return at->second = frame_line(path, symbols->function_at(offset), offset);
}

}  // namespace llmprof::session_importer
