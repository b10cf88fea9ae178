// Operations on the CPU held against their references.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "device/cpu/cpu_device.h"
#include "kernels/op.h"

namespace llmprof::kernels {

using Prepare = Result<std::unique_ptr<PreparedOp>> (*)(Device&, const OpParams&);

inline std::string shape_text(const OpParams& params) {
  std::string text(dtype_name(params.dtype));
  for (const auto& [axis, value] : params.axes) text += " " + std::string(axis) + "=" + std::to_string(value);
  return text + " " + params.variant;
}

// Every candidate is right, twice: what the work changes in place is as it was for each check. One that writes nothing
// is wrong. Returns how many candidates there are.
inline size_t expect_all_right(Device& device, Prepare prepare, const OpParams& params) {
  Result<std::unique_ptr<PreparedOp>> op = prepare(device, params);
  EXPECT_TRUE(op) << shape_text(params) << ": " << (op ? "" : op.error().text());
  if (!op) return 0;
  EXPECT_GT((*op)->bytes_per_set(), 0U);
  EXPECT_TRUE((*op)->prepare_sets(2));
  for (size_t i = 0; i < (*op)->candidates().size(); ++i) {
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_TRUE((*op)->candidates()[i].enqueue(1));
      const Result<Check> check = (*op)->check(i);
      EXPECT_TRUE(check) << (check ? "" : check.error().text());
      if (!check) return 0;
      EXPECT_EQ(check->status, CheckStatus::kPassed)
          << shape_text(params) << ", " << (*op)->candidates()[i].backend << ": " << check->note;
      EXPECT_GT(check->compared, 0);
    }
  }
  (*op)->candidates()[0].enqueue = [](int) { return Status(); };
  const Result<Check> nothing = (*op)->check(0);
  EXPECT_TRUE(nothing && nothing->status == CheckStatus::kFailed) << shape_text(params);
  return (*op)->candidates().size();
}

}  // namespace llmprof::kernels
