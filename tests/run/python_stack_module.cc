// What python_stack_test.py calls: the reader of the injection library, in a library that Python can load.
#include "capture/inject/python/python_stack.h"

extern "C" __attribute__((visibility("default"))) int64_t python_stack(char* text, int64_t size, uint64_t* hash,
                                                                       int32_t of_models) {
  using namespace llmprof::inject;
  PythonStack stack;
  if (!read_python_stack(stack)) return -1;
  *hash = stack.hash;
  return static_cast<int64_t>(python_stack_text(stack, of_models != 0 ? FramesOf::kModels : FramesOf::kProgram, text,
                                                static_cast<size_t>(size)));
}

// What the calling thread is to the reader; and the stack of such a thread while it runs, read by another one.
extern "C" __attribute__((visibility("default"))) const void* python_thread() {
  llmprof::inject::PythonStack stack;
  return read_python_stack(stack) ? stack.thread : nullptr;
}

extern "C" __attribute__((visibility("default"))) int64_t python_stack_of(const void* thread, char* text,
                                                                          int64_t size) {
  using namespace llmprof::inject;
  static GuardedMemory memory;  // of one reading thread
  memory.begin();
  PythonStack stack;
  if (!read_python_stack_of(thread, memory, stack)) return -1;
  const size_t length = python_stack_text_of(stack, memory, FramesOf::kProgram, text, static_cast<size_t>(size));
  return length == 0 ? -1 : static_cast<int64_t>(length);
}
