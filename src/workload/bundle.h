// The input that every run of the workload has: data/workload, compiled into the program.
#pragma once

#include <cstdint>
#include <vector>

#include "workload/image.h"

namespace llmprof::workload {

Image bundle_image();                  // image.rgb.zlib, 640 x 480
std::vector<int32_t> bundle_prompt();  // prompt.txt: 512 token ids under 2^15
// `count` ids of the prompt for sequence `sequence`, modulo the vocabulary: each sequence begins one id later, and a
// prompt that is longer than the bundle's begins it again.
std::vector<int32_t> prompt_of(int sequence, int64_t count, int64_t vocabulary);

}  // namespace llmprof::workload
