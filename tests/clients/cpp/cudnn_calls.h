// What programs do with cuDNN's operation graphs, as cudnn-frontend does it.
#pragma once

namespace client {

int run_cudnn();
int run_cudnn_threads();

}  // namespace client
