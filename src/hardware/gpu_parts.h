// Parts of a GPU that its owner has divided (MIG, Multi-Instance GPU). Inside the hardware room only.
#pragma once

#include <string>
#include <string_view>

#include "hardware/hardware.h"

namespace llmprof {

// "NVIDIA A100-SXM4-80GB MIG 3g.40gb", the name that CUDA gives a part, in two: the GPU's name and the profile. The
// profile is empty where the name is a whole GPU's.
struct PartName {
  std::string_view gpu, profile;
};
PartName part_name(std::string_view device_name);

// What the table says of the part called `profile` ("3g.40gb", "1c.3g.40gb", "1g.10gb+me") of a whole GPU; facts are
// those of the part. Arithmetic is the GPU's times the part's SMs over all of them. Memory, its bandwidth and the L2
// cache are divided into eight slices, of which the part has those that its memory is (NVIDIA MIG User Guide,
// "Supported MIG Profiles": 3g.40gb of 80 GB has 4/8); compute instances of one part ("1c.3g.40gb") share them, so for
// each it is a bound. Power is the whole GPU's, and parts have no links to other GPUs: both are absent. An error says
// what contradicts.
Result<Gpu> part_of(const Gpu& whole, std::string_view profile, const DeviceFacts& facts);

}  // namespace llmprof
