// Runs of benchmarks of a server: where their texts are kept. client_figures holds numbers only; that a run was of a
// model, a backend, is in the recording's metadata.
#pragma once

#include <string>
#include <string_view>

namespace llmprof {

// `what`: format, backend or model; `source` as in client_figures and client_requests.
inline std::string client_text_key(std::string_view what, std::string_view source) {
  std::string key = "client.";
  key.append(what).append(".").append(source);
  return key;
}

}  // namespace llmprof
