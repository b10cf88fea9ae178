// The target of one importer: its file defines use(), which reads the bytes by imported() and says what must be true of
// the rows, and this header the entry that libFuzzer calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "whole_program.h"

namespace llmprof::fuzz {

void use(std::string_view bytes);

// The bytes as a file of that name, read into `trace`; false: the importer refuses them. What its sniff refuses is read
// as well: the reader relies on nothing that sniff has seen.
inline bool imported(std::string_view bytes, const char* name, int (*sniff)(std::string_view),
                     Status (*import)(InputFile&, Trace&), Trace& trace) {
  Result<InputFile> input = InputFile::from_memory(bytes, name);
  if (!input) return false;
  if (const int sure = sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  return static_cast<bool>(import(*input, trace));
}

// Two files in one input, with a line of four dashes between them; nothing where there is no such line.
inline std::optional<std::pair<std::string_view, std::string_view>> two_files(std::string_view bytes) {
  constexpr std::string_view kBetween = "\n----\n";
  const size_t at = bytes.find(kBetween);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(bytes.substr(0, at), bytes.substr(at + kBetween.size()));
}

// Whether `rows` are more than the text can hold, at so many bytes each. Compressed bytes stand for more.
inline bool more_than_text(std::string_view bytes, size_t rows, size_t bytes_each) {
  const Result<InputFile> input = InputFile::from_memory(bytes, "fuzz");
  return input && input->compression() == InputFile::Compression::kNone && rows > bytes.size() / bytes_each;
}

}  // namespace llmprof::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (llmprof::fuzz::kOneThread) llmprof::fuzz::use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
