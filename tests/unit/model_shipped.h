// A model that llmprof ships, by its name or id.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "model/catalogue.h"
#include "model/config.h"

namespace llmprof {

inline ModelConfig shipped(const std::string& name) {
  Result<ModelConfig> config = find_model(name);
  EXPECT_TRUE(config) << (config ? "" : config.error().text());
  return config ? *std::move(config) : ModelConfig();
}

}  // namespace llmprof
