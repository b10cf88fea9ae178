// The supported architectures, one row each, and how each reads its fields. Inside the model room only.
// To add one: a row in kFamilies (architectures.cc) and, where no existing reader fits, one function.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "model/config.h"
#include "model/json_fields.h"

namespace llmprof {

struct Family {
  std::string_view architecture;
  std::string_view model_type;
  std::string_view what;
  // Reads the language model's fields. Required fields are errors when missing.
  Status (*read_text)(const JsonFields& fields, ModelConfig& config);
  // Reads the vision tower off the whole file; null for text models.
  Status (*read_vision)(const JsonFields& root, ModelConfig& config) = nullptr;
  // What absent fields of a nested text_config mean.
  std::span<const FieldDefault> nested_defaults = {};
};

std::span<const Family> families();
const Family* find_family(std::string_view architecture, std::string_view model_type);

// vision_reader.cc
Status read_qwen2_vision(const JsonFields& root, ModelConfig& config);
Status read_qwen25_vision(const JsonFields& root, ModelConfig& config);
Status read_llava_vision(const JsonFields& root, ModelConfig& config);
Status read_gemma3_vision(const JsonFields& root, ModelConfig& config);

}  // namespace llmprof
