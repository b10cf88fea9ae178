// Where the calling thread is in its Python program: file, line and function of the frames on its stack, read from the
// interpreter's memory. Nothing of Python's is called but PyGILState_GetThisThreadState, which needs no lock: CUDA is
// called with the interpreter's lock given up, and taking it again would make the program wait for its other threads.
// Reading needs no lock either: the frames of a thread and the code they run stay as they are while it is inside a
// call.
//
// A thread's stack can also be read by another one while it runs, and without its knowing: through GuardedMemory, for
// then nothing stays as it is. What does not fit gives no stack. A frame that returns meanwhile may leave a stack that
// never was; among many samples it is one.
//
// The layouts are those of CPython 3.10, 3.11 and 3.12 (Include/cpython and Include/internal of each). Of every object
// the type is compared before it is read, so an interpreter built otherwise gives no stack rather than a wrong one.
// Other versions, and threads without Python, have none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/inject/python/guarded_memory.h"

namespace llmprof::inject {

// Frames that are looked at, from the innermost; and those of them that make a text.
constexpr int kPythonFramesMost = 64;
constexpr int kPythonTextFramesMost = 12;
constexpr size_t kPythonTextMost = 2000;

struct PythonFrame {
  const char* code = nullptr;  // a PyCodeObject
  int32_t offset = 0;          // of the instruction in it, bytes
};

struct PythonStack {
  const void* thread = nullptr;  // PyThreadState
  int count = 0;
  uint64_t hash = 0;               // equal for equal frames at equal instructions under equal hooks
  const char* tracer = nullptr;    // what sys.settrace was given: called for each line; null: nothing
  const char* profiler = nullptr;  // sys.setprofile: called for each function
  PythonFrame frames[kPythonFramesMost];
};

// False where the calling thread runs no Python, or one of an unknown version. About 5 ns a frame.
bool read_python_stack(PythonStack& stack);

// Which frames make a text: the program's own, or those of installed packages too but PyTorch's and Triton's (models
// are often a package's: transformers). Where there are none of them, the innermost of all.
enum class FramesOf : uint8_t { kProgram, kModels };

// "function (path:line) < function (path:line)", innermost first; where one of these functions was called as a module
// of PyTorch, [nn.Module] stands behind it. Last comes what the interpreter calls for each line or function, where the
// program has set it: "[sys.settrace function (path:line)]", "[sys.setprofile type]". Returns the length.
size_t python_stack_text(const PythonStack& stack, FramesOf frames_of, char* text, size_t size);

// The same of another thread while it runs: `thread` is what the thread found itself to be (PythonStack::thread), and
// may be gone. False, and a length of 0, where something does not fit; 10 us and more.
bool read_python_stack_of(const void* thread, GuardedMemory& memory, PythonStack& stack);
size_t python_stack_text_of(const PythonStack& stack, GuardedMemory& memory, FramesOf frames_of, char* text,
                            size_t size);

}  // namespace llmprof::inject
