#include <gtest/gtest.h>
#include <zlib.h>

#include <array>

#include "workload/bundle.h"
#include "workload/image.h"
#include "workload/png.h"

namespace llmprof::workload {
namespace {

using Bytes = std::vector<uint8_t>;

void append_number(Bytes& to, uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) to.push_back(static_cast<uint8_t>(number >> shift));
}

void append_chunk(Bytes& to, const char* type, const Bytes& content) {
  append_number(to, static_cast<uint32_t>(content.size()));
  Bytes body(type, type + 4);
  body.insert(body.end(), content.begin(), content.end());
  to.insert(to.end(), body.begin(), body.end());
  append_number(to, static_cast<uint32_t>(crc32(0, body.data(), static_cast<uInt>(body.size()))));
}

// Rows as they are, each behind its filter.
Bytes png(uint32_t width, uint32_t height, uint8_t depth, uint8_t colour, uint8_t interlace, const Bytes& rows) {
  Bytes out = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, header;
  append_number(header, width);
  append_number(header, height);
  for (const uint8_t value : {depth, colour, uint8_t{0}, uint8_t{0}, interlace}) header.push_back(value);
  append_chunk(out, "IHDR", header);
  Bytes packed(compressBound(rows.size()));
  uLongf size = packed.size();
  compress(packed.data(), &size, rows.data(), rows.size());
  packed.resize(size);
  append_chunk(out, "IDAT", packed);
  append_chunk(out, "IEND", {});
  return out;
}

std::string error_of(const Bytes& bytes) {
  const Result<Image> image = decode_png(bytes, "here");
  return image ? "" : image.error().text();
}

TEST(Png, EveryFilter) {
  // 2 x 5 grey: rows of 10 and 20 by every filter, worked out by hand.
  const Bytes rows = {
      0, 10, 20,   // as it is
      1, 10, 10,   // minus the left one
      2, 0,  0,    // minus the one above
      3, 5,  5,    // minus half of left (0, 10) and above (10, 20)
      4, 0,  10};  // minus the nearest: above 10; of left 10, above 20, corner 10: left + up - corner is
                   // 20, so above, and 10 is added
  const Result<Image> image = decode_png(png(2, 5, 8, 0, 0, rows), "here");
  ASSERT_TRUE(image) << image.error().text();
  const Bytes expected = {10, 20, 10, 20, 10, 20, 10, 20, 10, 30};
  ASSERT_EQ(image->rgb.size(), 30U);
  for (size_t i = 0; i < expected.size(); ++i)
    for (size_t c = 0; c < 3; ++c) EXPECT_EQ(image->rgb[3 * i + c], expected[i]) << i;
}

TEST(Png, ColourTypes) {
  const Result<Image> rgba = decode_png(png(1, 1, 8, 6, 0, {0, 1, 2, 3, 4}), "here");
  ASSERT_TRUE(rgba);
  EXPECT_EQ(rgba->rgb, (Bytes{1, 2, 3}));
  const Result<Image> grey_alpha = decode_png(png(1, 1, 8, 4, 0, {0, 9, 4}), "here");
  ASSERT_TRUE(grey_alpha);
  EXPECT_EQ(grey_alpha->rgb, (Bytes{9, 9, 9}));
}

TEST(Png, WhatIsNotReadIsSaid) {
  EXPECT_NE(error_of(png(1, 1, 16, 2, 0, {0, 1, 2, 3, 4, 5, 6})).find("depth 16"), std::string::npos);
  EXPECT_NE(error_of(png(1, 1, 8, 3, 0, {0, 1})).find("colour type 3"), std::string::npos);
  EXPECT_NE(error_of(png(1, 1, 8, 0, 1, {0, 1})).find("interlace 1"), std::string::npos);
  EXPECT_NE(error_of(png(0, 1, 8, 0, 0, {0})).find("0 x 1 pixels"), std::string::npos);
  EXPECT_NE(error_of(png(16384, 16384, 8, 0, 0, {0})).find("16384 x 16384 pixels"), std::string::npos);
  EXPECT_NE(error_of(png(1, 1, 8, 0, 0, {5, 1})).find("filter 5 of row 0"), std::string::npos);
  EXPECT_NE(error_of(png(2, 1, 8, 0, 0, {0, 1})).find("does not unpack to the 3 bytes"), std::string::npos);
  EXPECT_NE(error_of(png(1, 1, 8, 0, 0, {0, 1, 2})).find("does not unpack to the 2 bytes"), std::string::npos);
  EXPECT_NE(error_of({1, 2, 3}).find("other bytes at its beginning"), std::string::npos);
}

// Every byte of a small picture changed in three ways, and every length cut: an error that says where, or, never, a
// picture that differs.
TEST(Png, EveryDamageIsSeen) {
  const Bytes good = png(3, 4, 8, 2, 0, Bytes(4 * 10, 2));
  const Result<Image> image = decode_png(good, "here");
  ASSERT_TRUE(image);
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int change : {1, 32, 255}) {
      Bytes bad = good;
      bad[at] = static_cast<uint8_t>(bad[at] ^ change);
      EXPECT_NE(error_of(bad), "") << at;
    }
    EXPECT_NE(error_of(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(at))), "") << at;
  }
}

TEST(Png, ShippedPicture) {
  const Result<Image> image = decode_png(bundle_image(), "image.png");
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_EQ(image->width, 640);
  EXPECT_EQ(image->height, 480);
  const auto pixel = [&](size_t x, size_t y) {
    const uint8_t* const at = &image->rgb[(y * 640 + x) * 3];
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
