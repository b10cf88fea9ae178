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
