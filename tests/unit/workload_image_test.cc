#include <gtest/gtest.h>

#include <array>

#include "workload/bundle.h"
#include "workload/image.h"

namespace llmprof::workload {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(Picture, IsTheShippedOne) {
  const Image image = bundle_image();
  ASSERT_EQ(image.rgb.size(), 640U * 480 * 3);
  const auto pixel = [&](size_t x, size_t y) {
    const uint8_t* const at = &image.rgb[(y * 640 + x) * 3];
    return std::array<int, 3>{at[0], at[1], at[2]};
  };
  // As data/workload/make_bundle.py computes them: sky, ground, the disc's middle, the board.
  EXPECT_EQ(pixel(0, 0), (std::array<int, 3>{90, 140, 235}));
  EXPECT_EQ(pixel(639, 479), (std::array<int, 3>{149, 71, 89}));
  EXPECT_EQ(pixel(470, 110), (std::array<int, 3>{250, 190, 90}));
  EXPECT_EQ(pixel(60, 180), (std::array<int, 3>{35, 35, 80}));
}

TEST(Prompt, IdsOfEachSequence) {
  const std::vector<int32_t> all = bundle_prompt();
  ASSERT_EQ(all.size(), 512U);
  for (const int32_t id : all) EXPECT_TRUE(id >= 0 && id < 32768);
  const std::vector<int32_t> second = prompt_of(1, 600, 512);
  ASSERT_EQ(second.size(), 600U);
  EXPECT_EQ(second[0], all[1] % 512);
  EXPECT_EQ(second[511], all[0] % 512);
}

TEST(Resize, KeepsConstantsAndTheSizeItHas) {
  Image flat{7, 5, Bytes(7 * 5 * 3, 77)};
  for (const float value : resize(flat, 4)) EXPECT_NEAR(value, 77, 1e-4);
  Image same{4, 4, {}};
  for (int i = 0; i < 48; ++i) same.rgb.push_back(static_cast<uint8_t>(i * 5));
  const std::vector<float> planes = resize(same, 4);
  for (size_t i = 0; i < 16; ++i)
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(planes[c * 16 + i], same.rgb[3 * i + c], 1e-4) << i;
}

// 4 to 2 in one direction: stretch 2, the kernel at distances 0.25, 0.75 and 1.25 on either side, cut at the edge.
TEST(Resize, WeightsByHand) {
  Image step{4, 4, Bytes(48, 0)};
  for (size_t y = 0; y < 4; ++y)
    for (size_t c = 0; c < 3; ++c) step.rgb[(y * 4 + 0) * 3 + c] = 100;
  const auto kernel = [](double x) {
    return x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2;
  };
  // Output 0 has its centre at 1: inputs at 0.5, 1.5, 2.5, 3.5, so distances 0.25, 0.25, 0.75, 1.25.
  const double share = kernel(0.25) / (2 * kernel(0.25) + kernel(0.75) + kernel(1.25));
  EXPECT_NEAR(resize(step, 2)[0], 100 * share, 1e-3);
}

TEST(Patchify, ChannelThenRowThenColumn) {
  std::vector<float> planes(3 * 4 * 4);
  for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<float>(i);
  const std::vector<float> patches = patchify(planes, 4, 2);
  ASSERT_EQ(patches.size(), planes.size());
  // The second patch, its third channel, second row, first column: plane 2, row 1, column 2.
  EXPECT_FLOAT_EQ(patches[12 + 2 * 4 + 2], ((2 * 16 + 1 * 4 + 2) / 255.0F - 0.5F) / 0.5F);
}

}  // namespace
}  // namespace llmprof::workload
