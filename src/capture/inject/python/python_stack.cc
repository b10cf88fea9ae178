#include "capture/inject/python/python_stack.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace llmprof::inject {
namespace {

constexpr int kNone = -1;

// Offsets in the structs of one version, bytes.
struct Layout {
  int minor;              // of Python 3
  int thread_frame;       // PyThreadState: the innermost frame, or what holds it
  int thread_hooks;       // c_profilefunc, c_tracefunc, c_profileobj, c_traceobj: 0 where there is none
  int holder_frame;       // _PyCFrame::current_frame; kNone: the thread state has the frame itself
  int frame_code;         // the frame's code
  int frame_back;         // the frame that called it
  int frame_instruction;  // pointer to the instruction; where it is kNone, frame_index is the instruction's number
  int frame_index;
  int frame_owner;  // one byte; kNone: there is none
  int code_first_line;
  int code_file;
  int code_name;
  int code_lines;         // bytes object with the lines of instructions
  int code_instructions;  // the first one; kNone where frame_index counts
  int text_ascii;         // str: where its characters are, all ASCII
  int text_other;         // and where they are not
};

constexpr Layout kLayouts[] = {
    {10, 24, 56, kNone, 32, 24, kNone, 96, kNone, 40, 104, 112, 120, kNone, 48, 72},
    {11, 56, 64, 8, 32, 48, 56, kNone, 69, 72, 112, 128, 136, 184, 48, 72},
    {12, 56, 64, 0, 0, 8, 56, kNone, 70, 68, 112, 128, 136, 192, 40, 56},
};
constexpr int kTypeAt = 8;             // of every object
constexpr int kTypeNameAt = 24;        // of a type: C characters
constexpr int kMethodFunctionAt = 16;  // of a bound method
constexpr int kFunctionCodeAt = 48;    // of a function
constexpr int kSizeAt = 16;            // of str and bytes
constexpr int kTextStateAt = 32;       // of str
constexpr int kBytesAt = 32;           // where the content of a bytes object begins
constexpr uint8_t kOwnedByGenerator = 1;
constexpr uint8_t kOwnedByCStack = 3;  // a frame of the interpreter itself, without code
constexpr int kReadsMost = 4;          // of a thread that runs on, until its stack fits together

struct Python {
  const Layout* layout = nullptr;
  void* (*this_thread)() = nullptr;
  const void* code_type = nullptr;
  const void* text_type = nullptr;
  const void* bytes_type = nullptr;
  const void* type_type = nullptr;
  const void* function_type = nullptr;  // this and the next may be missing: what is called then has no name
  const void* method_type = nullptr;
};
enum State : uint8_t { kUnknown, kLooking, kAbsent, kReady };
std::atomic<uint8_t> state;
Python python;

// What the calling thread's own frames hold, which stay as they are; in place of a GuardedMemory.
class OwnMemory {
 public:
  static constexpr bool kGuarded = false;
  static bool failed() { return false; }
  static void fail() {}
  template <class T>
  static T at(const char* object, int64_t offset) {
    T value;
    std::memcpy(&value, object + offset, sizeof value);
    return value;
  }
  static const uint8_t* bytes(const char* from, int64_t) { return reinterpret_cast<const uint8_t*>(from); }
};

template <class Memory>
bool has_type(Memory& memory, const char* object, const void* type) {
  return object != nullptr && memory.template at<const void*>(object, kTypeAt) == type;
}

const Layout* layout_of(const char* version) {
  if (version == nullptr || version[0] != '3' || version[1] != '.') return nullptr;
  const int minor = std::atoi(version + 2);
  for (const Layout& layout : kLayouts)
    if (layout.minor == minor) return &layout;
  return nullptr;
}

// The interpreter of this process: it is there when the first Python code calls CUDA, or it is not looked for again.
void look_for_python() {
  uint8_t expected = kUnknown;
  if (!state.compare_exchange_strong(expected, kLooking, std::memory_order_acquire)) return;
  const auto symbol = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
  using Version = const char*();
  Version* const version = reinterpret_cast<Version*>(symbol("Py_GetVersion"));
  Python found;
  if (version != nullptr) found.layout = layout_of(version());
  found.this_thread = reinterpret_cast<void* (*)()>(symbol("PyGILState_GetThisThreadState"));
  found.code_type = symbol("PyCode_Type");
  found.text_type = symbol("PyUnicode_Type");
  found.bytes_type = symbol("PyBytes_Type");
  found.type_type = symbol("PyType_Type");
  found.function_type = symbol("PyFunction_Type");
  found.method_type = symbol("PyMethod_Type");
  const bool whole = found.layout != nullptr && found.this_thread != nullptr && found.code_type != nullptr &&
                     found.text_type != nullptr && found.bytes_type != nullptr;
  if (whole) python = found;
  state.store(whole ? kReady : kAbsent, std::memory_order_release);
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29);
}

// ---- lines ---------------------------------------------------------------------------------------------------------

// Six bits a byte, the lowest first.
uint32_t number(const uint8_t*& at, const uint8_t* end) {
  uint32_t value = 0;
  for (int shift = 0; at != end && shift < 32; shift += 6) {
    const uint8_t byte = *at++;
    value |= static_cast<uint32_t>(byte & 0x3F) << shift;
    if ((byte & 0x40) == 0) break;
  }
  return value;
}

int32_t signed_number(const uint8_t*& at, const uint8_t* end) {
  const uint32_t value = number(at, end);
  const int32_t half = static_cast<int32_t>(value >> 1);
  return (value & 1) != 0 ? -half : half;
}

// The table of 3.11 and later (Objects/locations.md): entries of a head with kind and length in instructions of two
// bytes, then the line's difference, then columns.
int32_t line_by_locations(const uint8_t* at, const uint8_t* end, int32_t line, int32_t offset) {
  constexpr int kOneLine = 10, kNoColumns = 13, kLong = 14;  // 15, without a location, keeps the line before it
  int32_t here = 0;
  while (at != end) {
    const int kind = (*at >> 3) & 15;
    const int32_t length = 2 * ((*at & 7) + 1);
    ++at;
    if (kind >= kOneLine && kind < kNoColumns) line += kind - kOneLine;
    if (kind == kNoColumns || kind == kLong) line += signed_number(at, end);
    if (offset < here + length) return line;
    here += length;
    while (at != end && (*at & 0x80) == 0) ++at;  // only heads have the highest bit
  }
  return line;
}

// The table of 3.10: pairs of a length in bytes and the line's difference, -128 for none.
int32_t line_by_pairs(const uint8_t* at, const uint8_t* end, int32_t line, int32_t offset) {
  int32_t here = 0;
  for (; end - at >= 2; at += 2) {
    const int8_t change = static_cast<int8_t>(at[1]);
    if (change != -128) line += change;
    here += at[0];
    if (offset < here) return line;
  }
  return line;
}

template <class Memory>
int32_t line_of(Memory& memory, const PythonFrame& frame) {
  const Layout& layout = *python.layout;
  const int32_t first = memory.template at<int32_t>(frame.code, layout.code_first_line);
  const char* const lines = memory.template at<const char*>(frame.code, layout.code_lines);
  if (!has_type(memory, lines, python.bytes_type) || frame.offset < 0) return first;
  const int64_t size = memory.template at<int64_t>(lines, kSizeAt);
  const uint8_t* const begin = memory.bytes(lines + kBytesAt, size);
  if (begin == nullptr) return first;
  const uint8_t* const end = begin + size;
  return layout.minor == 10 ? line_by_pairs(begin, end, first, frame.offset)
                            : line_by_locations(begin, end, first, frame.offset);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

class Text {
 public:
  Text(char* text, size_t size) : text_(text), size_(size) {}
  void add(char c) {
    if (used_ < size_) text_[used_++] = c;
  }
  void add(std::string_view part) {
    for (const char c : part) add(c);
  }
  void add_number(int32_t value) {
    char digits[12];
    int count = 0;
    for (uint32_t rest = static_cast<uint32_t>(std::max(value, 0)); rest > 0 || count == 0; rest /= 10)
      digits[count++] = static_cast<char>('0' + rest % 10);
    while (count > 0) add(digits[--count]);
  }
  void add_code_point(uint32_t c) {
    const auto more = [&](int shift) { add(static_cast<char>(0x80 | ((c >> shift) & 0x3F))); };
    if (c < 0x80) {
      add(static_cast<char>(c));
    } else if (c < 0x800) {
      add(static_cast<char>(0xC0 | (c >> 6)));
      more(0);
    } else if (c < 0x10000) {
      add(static_cast<char>(0xE0 | (c >> 12)));
      more(6);
      more(0);
    } else {
      add(static_cast<char>(0xF0 | ((c >> 18) & 7)));
      more(12);
      more(6);
      more(0);
    }
  }
  // A Python str; longer ones lose their beginning, for the end of a path says more.
  template <class Memory>
  void add_string(Memory& memory, const char* string, int64_t most) {
    if (!has_type(memory, string, python.text_type)) return add_unreadable(memory);
    const uint32_t text_state = memory.template at<uint32_t>(string, kTextStateAt);
    const int64_t width = (text_state >> 2) & 7;
    const bool compact = (text_state & 0x20) != 0, ascii = (text_state & 0x40) != 0;
    const int64_t length = memory.template at<int64_t>(string, kSizeAt);
    if (!compact || (width != 1 && width != 2 && width != 4) || length < 0 || length > kStringMost)
      return add_unreadable(memory);
    const int64_t first = std::max<int64_t>(0, length - most);
    const uint8_t* const data =
        memory.bytes(string + (ascii ? python.layout->text_ascii : python.layout->text_other) + first * width,
                     (length - first) * width);
    if (data == nullptr) return;
    for (int64_t i = 0; i < length - first; ++i) {
      uint32_t code_point = 0;
      std::memcpy(&code_point, data + i * width,
                  static_cast<size_t>(width));  // little endian, as all that CUDA runs on
      add_code_point(code_point);
    }
  }
  size_t used() const { return used_; }
  void skip(size_t written) { used_ = written; }

 private:
  static constexpr int64_t kStringMost = 1 << 24;
  template <class Memory>
  void add_unreadable(Memory& memory) {
    memory.fail();
    add('?');
  }
  char* text_;
  size_t size_;
  size_t used_ = 0;
};

constexpr std::string_view kModuleFile = "/torch/nn/modules/module.py";
constexpr std::string_view kOwnHookFile = "/llmprof_frames.py";  // what --torch adds to a program
constexpr size_t kHookTextMost = 1000;                           // of both

// Whether a frame is left out.
bool is_other(std::string_view path, FramesOf frames_of) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = path.find(folder);
    if (at == std::string_view::npos) continue;
    const std::string_view package = path.substr(at + folder.size());
    return frames_of == FramesOf::kProgram || package.starts_with("torch/") || package.starts_with("triton/");
  }
  return path.find("/lib/python3") != std::string_view::npos || path.starts_with("<");
}

// The frame's instruction, bytes from the first one of its code; -2 before that has run. False where it has none.
template <class Memory>
bool read_offset(Memory& memory, const char* frame, PythonFrame& out) {
  const Layout& layout = *python.layout;
  constexpr int64_t kCodeMost = 1 << 28;
  if (layout.frame_index != kNone) {
    out.offset = 2 * memory.template at<int32_t>(frame, layout.frame_index);
    return true;
  }
  const char* const instruction = memory.template at<const char*>(frame, layout.frame_instruction);
  const int64_t offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(instruction) -
                                              reinterpret_cast<uintptr_t>(out.code + layout.code_instructions));
  out.offset = static_cast<int32_t>(offset);
  if (!Memory::kGuarded) return true;
  const int64_t instructions = memory.template at<int64_t>(out.code, kSizeAt);
  return offset >= -2 && offset < kCodeMost && offset / 2 < instructions;
}

// By what a code object holds: of other threads it may have given way to another one at its address.
template <class Memory>
uint64_t mixed_code(Memory& memory, uint64_t hash, const char* code) {
  hash = mixed(hash, reinterpret_cast<uintptr_t>(code));
  if (!Memory::kGuarded) return hash;
  const Layout& layout = *python.layout;
  hash = mixed(hash, memory.template at<uint32_t>(code, layout.code_first_line));
  for (const int part : {layout.code_file, layout.code_name, layout.code_lines})
    hash = mixed(hash, memory.template at<uint64_t>(code, part));
  return hash;
}

// The object that sys.settrace or sys.setprofile was given, or what C code set in their place; null where there is
// none, or where it is no object that such a field holds.
template <class Memory>
const char* hook_object(Memory& memory, const char* thread, bool profile) {
  const int at = python.layout->thread_hooks + (profile ? 0 : 8);
  if (python.type_type == nullptr || memory.template at<const char*>(thread, at) == nullptr) return nullptr;
  const char* const object = memory.template at<const char*>(thread, at + 16);
  if (object == nullptr) return nullptr;
  const char* const type = memory.template at<const char*>(object, kTypeAt);
  return has_type(memory, type, python.type_type) ? object : nullptr;
}

// Sets `suspended` where the frames end at a generator: one that runs has a caller. It has given its value since its
// thread was read, and its caller runs again.
template <class Memory>
bool read_frames(Memory& memory, PythonStack& stack, bool& suspended) {
  const Layout& layout = *python.layout;
  stack.count = 0;
  suspended = false;
  const char* const thread = static_cast<const char*>(stack.thread);
  stack.tracer = hook_object(memory, thread, false);
  stack.profiler = hook_object(memory, thread, true);
  const char* frame = memory.template at<const char*>(thread, layout.thread_frame);
  if (layout.holder_frame != kNone && frame != nullptr)
    frame = memory.template at<const char*>(frame, layout.holder_frame);
  uint64_t hash = 0;
  for (const char* const hook : {stack.tracer, stack.profiler})
    if (hook != nullptr) hash = mixed(hash, reinterpret_cast<uintptr_t>(hook));
  const int most = 4 * kPythonFramesMost;  // with those of the interpreter, and where changing frames make a circle
  for (int seen = 0; frame != nullptr && stack.count < kPythonFramesMost && seen < most; ++seen) {
    const uint8_t owner = layout.frame_owner == kNone ? 0 : memory.template at<uint8_t>(frame, layout.frame_owner);
    if (owner != kOwnedByCStack) {
      PythonFrame& out = stack.frames[stack.count];
      out.code = memory.template at<const char*>(frame, layout.frame_code);
      if (!has_type(memory, out.code, python.code_type) || !read_offset(memory, frame, out)) {
        memory.fail();
        break;
      }
      hash = mixed(mixed_code(memory, hash, out.code), static_cast<uint32_t>(out.offset));
      ++stack.count;
    }
    frame = memory.template at<const char*>(frame, layout.frame_back);
    suspended = owner == kOwnedByGenerator && frame == nullptr;
  }
  stack.hash = hash;
  return stack.count > 0 && !memory.failed();
}

// What is called for each line or function: the function itself, or the type of an object of C.
template <class Memory>
void add_hook(Memory& memory, std::string_view what, const char* object, Text& out) {
  constexpr int64_t kPathMost = 120, kNameMost = 60;
  if (has_type(memory, object, python.method_type)) object = memory.template at<const char*>(object, kMethodFunctionAt);
  const char* const code = has_type(memory, object, python.function_type)
                               ? memory.template at<const char*>(object, kFunctionCodeAt)
                               : nullptr;
  if (has_type(memory, code, python.code_type)) {
    char path[4 * kPathMost];
    Text path_text(path, sizeof path);
    path_text.add_string(memory, memory.template at<const char*>(code, python.layout->code_file), kPathMost);
    const std::string_view file(path, path_text.used());
    if (file.ends_with(kOwnHookFile)) return;
    out.add(what);
    out.add_string(memory, memory.template at<const char*>(code, python.layout->code_name), kNameMost);
    out.add(" (");
    out.add(file);
    out.add(':');
    out.add_number(memory.template at<int32_t>(code, python.layout->code_first_line));
    out.add(")]");
    return;
  }
  out.add(what);
  const char* const type = memory.template at<const char*>(object, kTypeAt);
  const char* const name =
      has_type(memory, type, python.type_type) ? memory.template at<const char*>(type, kTypeNameAt) : nullptr;
  for (int64_t i = 0; name != nullptr && i < kNameMost && !memory.failed(); ++i) {
    const char c = memory.template at<char>(name, i);
    if (c == 0) break;
    out.add(c >= ' ' && c < 0x7f ? c : '?');
  }
  out.add(']');
}

template <class Memory>
size_t frames_text(Memory& memory, const PythonStack& stack, FramesOf frames_of, char* text, size_t size) {
  constexpr int64_t kPathMost = 200, kNameMost = 80;
  const bool hooked = stack.tracer != nullptr || stack.profiler != nullptr;
  Text out(text, hooked && size > kHookTextMost ? size - kHookTextMost : size);
  const auto add_frame = [&](const PythonFrame& frame) {
    out.add_string(memory, memory.template at<const char*>(frame.code, python.layout->code_name), kNameMost);
    out.add(" (");
    out.add_string(memory, memory.template at<const char*>(frame.code, python.layout->code_file), kPathMost);
    out.add(':');
    out.add_number(line_of(memory, frame));
    out.add(')');
  };
  int frames = 0;
  bool in_module = false;  // a module was called between the last two functions
  for (int i = 0; i < stack.count && frames < kPythonTextFramesMost && !memory.failed(); ++i) {
    char path[4 * kPathMost];
    Text path_text(path, sizeof path);
    path_text.add_string(memory, memory.template at<const char*>(stack.frames[i].code, python.layout->code_file),
                         kPathMost);
    if (const std::string_view file(path, path_text.used()); is_other(file, frames_of)) {
      in_module |= frames > 0 && file.ends_with(kModuleFile);
      continue;
    }
    if (in_module) out.add(" < [nn.Module]");
    in_module = false;
    if (frames++ > 0) out.add(" < ");
    add_frame(stack.frames[i]);
  }
  if (frames == 0 && stack.count > 0) add_frame(stack.frames[0]);
  Text whole(text, size);
  whole.skip(out.used());
  if (stack.tracer != nullptr) add_hook(memory, " < [sys.settrace ", stack.tracer, whole);
  if (stack.profiler != nullptr) add_hook(memory, " < [sys.setprofile ", stack.profiler, whole);
  return memory.failed() ? 0 : whole.used();
}

}  // namespace

bool read_python_stack(PythonStack& stack) {
  stack.count = 0;
  const uint8_t known = state.load(std::memory_order_acquire);
  if (known != kReady) {
    if (known == kUnknown) look_for_python();
    if (state.load(std::memory_order_acquire) != kReady) return false;
  }
  stack.thread = python.this_thread();
  OwnMemory memory;
  bool suspended = false;
  return stack.thread != nullptr && read_frames(memory, stack, suspended);
}

size_t python_stack_text(const PythonStack& stack, FramesOf frames_of, char* text, size_t size) {
  OwnMemory memory;
  return frames_text(memory, stack, frames_of, text, size);
}

bool read_python_stack_of(const void* thread, GuardedMemory& memory, PythonStack& stack) {
  stack.count = 0;
  if (thread == nullptr || state.load(std::memory_order_acquire) != kReady) return false;
  stack.thread = thread;
  for (int reads = 1;; ++reads) {
    bool suspended = false;
    const bool fits = read_frames(memory, stack, suspended);
    if (!suspended || !fits || reads == kReadsMost) return fits;
    memory.begin();
  }
}

size_t python_stack_text_of(const PythonStack& stack, GuardedMemory& memory, FramesOf frames_of, char* text,
                            size_t size) {
  return frames_text(memory, stack, frames_of, text, size);
}

}  // namespace llmprof::inject
