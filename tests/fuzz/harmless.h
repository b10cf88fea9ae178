// What a rendered file may hold, whatever the names in it are: no control character for a terminal, nothing that a
// spreadsheet computes, no tag for a browser.
#pragma once

#include <string_view>

namespace llmprof::fuzz {

bool is_harmless(std::string_view format, std::string_view content);

}  // namespace llmprof::fuzz
