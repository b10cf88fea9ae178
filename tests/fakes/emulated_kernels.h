// The kernels of the program by name, to be run on the CPU.
#pragma once

#include <functional>
#include <string>

#include "kernel_host.h"

namespace emulated {

// A kernel bound to the values of a launch; empty if there is none of that source, macros and name.
using Launch = std::function<std::function<void()>(void** parameters)>;
Launch find_kernel(const std::string& source_and_macros, const std::string& name);

// What the clocks say inside a kernel.
void set_time(u64 ns, u64 cycles, int sms);

}  // namespace emulated
