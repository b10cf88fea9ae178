// Ceilings that `llmprof peaks` measured on a device, kept in a file for later reports: one file per device, found
// again by its key (the GPU's uuid and driver; a CPU's name and threads).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hardware/hardware.h"
#include "results/ceilings.h"

namespace llmprof {

// The memory ceiling that reports hold kernels against: the highest of read, write, copy and triad. Empty if none.
std::optional<MeasuredRate> memory_ceiling(const MeasuredCeilings& ceilings);
// What memory gives to a mix of reads and writes, GB/s; `write_frac` of the bytes are written: linear between read (0),
// triad (1/3), copy (1/2) and write (1), as far as they were measured; beyond the ends, the nearest. Turning the bus
// round costs: a copy reaches less than reads or writes alone. A disturbed rate says only that so much can be
// reached: the highest of all stands for it. Empty if none was measured.
std::optional<double> memory_ceiling_for(const std::map<std::string, MeasuredRate>& bandwidth_gbs, double write_frac);
// "fp32, read: the measured ceilings may be too low (measured while disturbed: repeat `llmprof peaks`)"; empty where
// no ceiling of arithmetic or bandwidth was disturbed.
std::optional<std::string> disturbed_remark(const MeasuredCeilings& ceilings);
// Whether there is a rate among them, and not only what recording costs.
bool has_rates(const MeasuredCeilings& ceilings);
// FLOP/B from which arithmetic of the type is the limit; empty if either part is unknown.
std::optional<double> measured_ridge(const MeasuredCeilings& ceilings, std::string_view dtype);

// What is to be kept of two measurements of one device: the rates of `now`, but those of `before` (of the same driver)
// where `now` has none, or only a quick one in place of a full one. A ceiling is the most that can be reached, and
// other programs can only keep a CPU from it: of a CPU a better rate replaces any, and one that is worse and was
// disturbed replaces none. (What a GPU does in a short look is not what it keeps up under its power limit.)
struct MergedCeilings {
  MeasuredCeilings ceilings;
  int fuller = 0;  // rates of `before` that a quick one of `now` did not replace
  int better = 0;  // rates of `before` that a disturbed one of `now` did not reach
};
MergedCeilings merge_ceilings(const MeasuredCeilings& before, const MeasuredCeilings& now);

// ${LLMPROF_HOME:-${XDG_STATE_HOME:-~/.local/state}/llmprof}/ceilings/KEY.json
std::string ceilings_path(std::string_view device_key);
Result<MeasuredCeilings> read_ceilings(const std::string& path);
// The same of text; `path` is for errors only.
Result<MeasuredCeilings> parse_ceilings(std::string_view text, const std::string& path);
// As write_ceilings writes it.
std::string ceilings_text(const MeasuredCeilings& ceilings);
// All that are in a folder, at most 64, in the order of their files' names; files that are damaged are left out.
std::vector<MeasuredCeilings> ceilings_in(const std::string& folder);
// Those that are kept here.
std::vector<MeasuredCeilings> kept_ceilings();
// Where a recording holds those of its GPUs, so that it says the same wherever it is read.
std::string ceilings_folder_of(const std::string& recording);
// Makes the folders, writes beside and renames.
Status write_ceilings(const std::string& path, const MeasuredCeilings& ceilings);

}  // namespace llmprof
