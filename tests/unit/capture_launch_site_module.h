// Functions with names for capture_launch_sites_test: each calls the next, the last one calls back.
#pragma once

namespace at::_ops {

class __attribute__((visibility("default"))) silu {
 public:
  static int call(int (*launch)());
};

}  // namespace at::_ops

extern "C" __attribute__((visibility("default"))) int plain_c_entry(int (*launch)());
extern "C" __attribute__((visibility("default"))) int deep_entry(int depth, int (*launch)());
