// What the look-alikes of CUDA libraries share: each call appends one line to the file named by LLMPROF_FAKE_LOG, so
// that a test sees with which arguments the hook passed it on.
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// The errno that every fake function leaves behind: the program must find it unchanged.
constexpr int kFakeErrno = 77;

__attribute__((format(printf, 1, 2))) inline void fake_log(const char* format, ...) {
  if (const char* path = getenv("LLMPROF_FAKE_LOG")) {
    if (FILE* file = fopen(path, "a")) {
      va_list arguments;
      va_start(arguments, format);
      vfprintf(file, format, arguments);
      va_end(arguments);
      fputc('\n', file);
      fclose(file);
    }
  }
  errno = kFakeErrno;
}
