// The modes of hook_client that use NVTX.
#pragma once

namespace client {

int run_nvtx();
int run_threads();
int run_fork(void (*in_child)());

}  // namespace client
