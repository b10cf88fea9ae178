// Kernel names for people: `void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous
// namespace)::silu_kernel(...)::{lambda()#1}, std::array<char*, 2ul> >(int, ...)` becomes
// `vectorized_elementwise_kernel<silu_kernel>`. Names without templates stay as they are. The full names are in JSON
// and CSV.
#pragma once

#include <string>
#include <string_view>

namespace llmprof {

std::string short_kernel_name(std::string_view name);

}  // namespace llmprof
