// Data files that were compiled into the program by llmprof_embed (cmake/embed.cmake). The views live as long as the
// program and are valid in static initialisation.
#pragma once

#include <span>
#include <string_view>

namespace llmprof {

struct EmbeddedFile {
  std::string_view name;  // file name without folders, for example "gpus.csv"
  std::string_view text;
};

}  // namespace llmprof
