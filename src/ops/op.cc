#include "ops/op.h"

#include <cassert>

namespace llmprof::ops {

int64_t OpParams::axis(std::string_view name) const {
  for (const auto& [axis_name, value] : axes)
    if (axis_name == name) return value;
  assert(false && "an axis that the operation's row does not have");
  return 1;
}

}  // namespace llmprof::ops
