// Whether a text has a part, with both in the message.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace llmprof {

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in:\n" << text;
}

}  // namespace llmprof
