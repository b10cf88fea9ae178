// The end of the process where no exit handler runs: _exit(), which is what Python's os._exit and multiprocessing's
// children use.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/inject/export.h"
#include "capture/inject/process.h"

extern "C" {

LLMPROF_EXPORT void _exit(int status) {  // NOLINT: the name is libc's
  llmprof::inject::end_process(false);
  for (;;) syscall(SYS_exit_group, status);
}

LLMPROF_EXPORT void _Exit(int status) {  // NOLINT
  llmprof::inject::end_process(false);
  for (;;) syscall(SYS_exit_group, status);
}

}  // extern "C"
