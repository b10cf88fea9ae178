// "Did you mean": the names of a list that look most like what a user typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmprof {

// Lower case letters and digits only, so that "H100 SXM5 80GB", "h100-sxm5-80gb" and "H100_SXM5_80GB" are one name.
std::string fold_name(std::string_view name);

// At most `count` of `names` that may well be meant, the most alike first: those that contain the wanted name, then by
// slips of the keyboard, an ending that was left out counting nothing (both compared after fold_name). None if what was
// typed is another word than all of them: a suggestion that is nonsense is worse than none. Only the first 128
// characters count, which bounds the cost.
std::vector<std::string> nearest_names(std::string_view wanted, const std::vector<std::string>& names, size_t count);

// The nearest of a few words, or all of them where none is near: "light", "light, default or deep".
std::string nearest_or_all(std::string_view wanted, const std::vector<std::string>& names);

// "did you mean a or b? ", or nothing if there is none.
std::string did_you_mean(const std::vector<std::string>& names);

// "a, b or c"
std::string join_or(const std::vector<std::string>& names);

}  // namespace llmprof
