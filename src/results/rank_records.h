// Rows about the ranks of one job whose recordings were joined.
#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"
#include "results/values.h"

namespace llmprof {

#define LLMPROF_RANK_FIELDS(F)                                                                                     \
  F(int64_t, rank, "", "Rank in the job")                                                                          \
  F(OptInt, world_size, "", "Ranks of the job")                                                                    \
  F(int64_t, device, "", "CUDA device ordinal in this report, where those of all ranks are numbered together")     \
  F(int64_t, recorded_device, "", "CUDA device ordinal in its own recording")                                      \
  F(OptText, host, "", "Host, where the recording names it")                                                       \
  F(std::string, file, "", "Its recording")                                                                        \
  F(double, shift_us, "us", "Added to all of its times; 0 where its clock may agree with that of the first rank")  \
  F(OptDouble, offset_us, "us", "Clock of the first rank minus its own: median of the ends of common collectives") \
  F(OptDouble, offset_low_us, "us",                                                                                \
    "Least that it can be: no rank leaves a collective before those enter it that it needs")                       \
  F(OptDouble, offset_high_us, "us", "Most that it can be")                                                        \
  F(Milliseconds, window_ms, "ms", "Recorded window of the device")                                                \
  F(Milliseconds, gpu_busy_ms, "ms", "Part of it in which any stream of the device was busy, overlap once")        \
  F(Milliseconds, gpu_idle_ms, "ms", "Part of it in which none was")                                               \
  F(int64_t, collectives, "", "Collectives that it ran")                                                           \
  F(int64_t, joined, "",                                                                                           \
    "Of these, those found in the recordings of all ranks of the group that no rank leaves early")                 \
  F(Milliseconds, collectives_ms, "ms", "Sum of the durations of all of them")                                     \
  F(Milliseconds, waiting_ms, "ms", "Of the joined ones: until the last rank had entered")                         \
  F(Milliseconds, wire_ms, "ms", "Of the same: from then on")                                                      \
  F(int64_t, last, "", "How often it entered last")                                                                \
  F(Milliseconds, late_ms, "ms", "How long after the last but one, over these")
LLMPROF_RECORD(RankRecord, "ranks", "Ranks of one job whose recordings were joined, by device", LLMPROF_RANK_FIELDS)

#define LLMPROF_JOINED_COLLECTIVE_FIELDS(F)                                                                     \
  F(OptText, group, "", "Process group; none where nothing but the kernel's name is known")                     \
  F(OptText, members, "", "Its ranks, as recorded")                                                             \
  F(std::string, name, "", "Collective, or the kernel where the recording does not say more")                   \
  F(OptText, dtype, "", "Element type as recorded")                                                             \
  F(OptDouble, bytes, "bytes", "Size of one, as nccl-tests counts it")                                          \
  F(OptInt, ranks, "", "Ranks of the group")                                                                    \
  F(int64_t, ranks_joined, "", "Of these, those whose recordings are here")                                     \
  F(int64_t, count, "", "Collectives that were found in all of these")                                          \
  F(OptDouble, wait_us, "us",                                                                                   \
    "From its first rank's start to its last one's: median; none where ranks may leave early")                  \
  F(OptDouble, wire_us, "us", "From its last rank's start to its end: median; none where some are left before") \
  F(OptDouble, bus_gbs, "GB/s", "What a link carries in that time, as nccl-tests has it: median")               \
  F(OptInt, last_rank, "", "Rank that entered last most often")                                                 \
  F(int64_t, last_count, "", "How often")                                                                       \
  F(OptDouble, late_us, "us", "How long after the last but one it entered then: median")                        \
  F(int64_t, calls, "", "Parts of single ranks in such collectives")                                            \
  F(int64_t, unmatched, "", "Of these, those without a partner on every rank")
LLMPROF_RECORD(JoinedCollectiveRecord, "joined_collectives",
               "Collectives of one kind and size over the joined ranks, the longest in all first",
               LLMPROF_JOINED_COLLECTIVE_FIELDS)

}  // namespace llmprof
