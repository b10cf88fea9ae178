// "Did you mean": the names of a list that look most like what a user typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmprof {

// Lower case letters and digits only, so that "H100 SXM5 80GB", "h100-sxm5-80gb" and "H100_SXM5_80GB" are one name.
std::string fold_name(std::string_view name);

// At most `count` of `names`, the most alike first: those that contain the wanted name, then by edit distance, an
// ending that was left out counting little (both compared after fold_name). Cost is bounded: only the first 128
// characters count.
std::vector<std::string> nearest_names(std::string_view wanted, const std::vector<std::string>& names, size_t count);

// "a, b or c"
std::string join_or(const std::vector<std::string>& names);

}  // namespace llmprof
