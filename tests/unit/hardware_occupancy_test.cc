// Theoretical occupancy: CUDA's rules by hand, and what Nsight Compute and cuda_occupancy.h give for real launches.
#include <gtest/gtest.h>

#include "hardware/occupancy.h"

namespace llmprof {
namespace {

int64_t blocks(int64_t major, int64_t minor, const BlockResources& block) {
  const std::optional<SmLimits> sm = sm_limits(major, minor);
  return sm ? resident_blocks(*sm, block).value_or(-1) : -2;
}

TEST(Occupancy, AsNsightComputeGivesItForKernelsOfAnH200) {
  // Block size, registers and shared memory; "Theoretical Active Warps per SM" over warps of a block.
  EXPECT_EQ(blocks(9, 0, {256, 32, 0}), 64 / 8);
  EXPECT_EQ(blocks(9, 0, {64, 16, 0}), 64 / 2);
  EXPECT_EQ(blocks(9, 0, {128, 38, 0}), 48 / 4) << "1,280 registers a warp: 12 warps in a quarter of the SM";
  EXPECT_EQ(blocks(9, 0, {128, 32, 0}), 64 / 4);
  EXPECT_EQ(blocks(9, 0, {128, 80, 25'600}), 24 / 4);
  EXPECT_EQ(blocks(9, 0, {512, 29, 0}), 64 / 16);
}

TEST(Occupancy, RegistersAreHandedOutInsideAQuarterOfTheSm) {
  EXPECT_EQ(blocks(12, 0, {64, 128, 0}), 8) << "4 warps of 4,096 registers in each of 4 quarters";
  EXPECT_EQ(blocks(8, 9, {64, 200, 16'888}), 4) << "6,400 a warp: 2 in a quarter, though the SM's total would hold 10";
  EXPECT_EQ(blocks(8, 9, {64, 168, 16'888}), 5) << "and now shared memory is the limit";
  EXPECT_EQ(blocks(9, 0, {384, 168, 164'308}), 1);
  EXPECT_EQ(blocks(9, 0, {1024, 64, 0}), 1);
  EXPECT_EQ(blocks(9, 0, {1024, 65, 0}), -1) << "such a launch fails";
}

TEST(Occupancy, SharedMemoryHasAPartOfTheDriverFromAmpereOn) {
  EXPECT_EQ(blocks(8, 0, {32, 16, 20 * 1024}), 164 / 21);
  EXPECT_EQ(blocks(7, 0, {32, 16, 24 * 1024}), 96 / 24) << "Volta has none";
  EXPECT_EQ(blocks(7, 0, {32, 16, 0}), 32);
  EXPECT_EQ(blocks(7, 5, {32, 16, 0}), 16);
  EXPECT_EQ(blocks(8, 6, {32, 16, 0}), 16);
  EXPECT_EQ(blocks(8, 9, {32, 16, 0}), 24);
  EXPECT_EQ(blocks(10, 0, {32, 16, 0}), 32);
  EXPECT_EQ(blocks(9, 0, {128, 32, 227 * 1024}), 1) << "227 KiB and the driver's";
}

TEST(Occupancy, WhatCannotBeALaunchHasNone) {
  EXPECT_EQ(blocks(6, 1, {128, 32, 0}), -2);
  for (const BlockResources& block : {BlockResources{0, 32, 0}, BlockResources{1025, 32, 0}, BlockResources{32, -1, 0},
                                      BlockResources{32, 32, -1}, BlockResources{32, 32, int64_t{1} << 62}})
    EXPECT_EQ(blocks(9, 0, block), -1);
}

}  // namespace
}  // namespace llmprof
