#include "workload/png.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace llmprof::workload {
namespace {

constexpr uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr size_t kChunkFrame = 12;  // length, type and checksum

uint32_t big_endian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | uint32_t{at[3]};
}

struct Header {
  int width = 0, height = 0, channels = 0;
  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  // Of the filtered rows, each behind the byte that names its filter.
  size_t filtered_bytes() const { return (row_bytes() + 1) * static_cast<size_t>(height); }
};

class Decoder {
 public:
  Decoder(std::span<const uint8_t> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  Result<Image> decode() {
    LLMPROF_CHECK(read_chunks());
    std::vector<uint8_t> filtered(header_.filtered_bytes());
    LLMPROF_CHECK(unpack(filtered));
    LLMPROF_CHECK(remove_filters(filtered));
    return to_rgb(filtered);
  }

 private:
  tl::unexpected<Error> bad(std::string what) const { return fail("expected a PNG picture, found " + what, where_); }

  Status read_chunks() {
    if (bytes_.size() < sizeof kSignature || std::memcmp(bytes_.data(), kSignature, sizeof kSignature) != 0)
      return bad("other bytes at its beginning");
    size_t at = sizeof kSignature;
    bool ended = false;
    while (!ended) {
      if (bytes_.size() - at < kChunkFrame) return bad(fmt::format("its end at byte {}, inside a chunk", at));
      const uint8_t* const chunk = bytes_.data() + at;
      const size_t length = big_endian(chunk);
      if (length > bytes_.size() - at - kChunkFrame)
        return bad(fmt::format("a chunk at byte {} that is longer than the file", at));
      const uLong sum = crc32(crc32(0, nullptr, 0), chunk + 4, static_cast<uInt>(length + 4));
      if (sum != big_endian(chunk + 8 + length)) return bad(fmt::format("a damaged chunk at byte {}", at));
      LLMPROF_CHECK(take(chunk + 4, {chunk + 8, length}, ended));
      at += kChunkFrame + length;
    }
    if (data_.empty()) return bad("no picture data");
    return {};
  }

  // One chunk by its four letters; those that are not needed are passed over if the format says that one may.
  Status take(const uint8_t* type, std::span<const uint8_t> content, bool& ended) {
    const auto is = [&](const char* name) { return std::memcmp(type, name, 4) == 0; };
    if ((header_.channels == 0) != is("IHDR")) return bad("its header missing or twice");
    if (is("IHDR")) return read_header(content);
    if (is("IDAT")) {
      data_.push_back(content);
    } else if (is("IEND")) {
      ended = true;
    } else if ((type[0] & 0x20) == 0) {
      return bad("a chunk that this reader does not know (a palette?)");
    }
    return {};
  }

  Status read_header(std::span<const uint8_t> content) {
    if (content.size() != 13) return bad("a header of another length");
    const uint32_t width = big_endian(content.data()), height = big_endian(content.data() + 4);
    if (width == 0 || height == 0 || width > kPngSideMax || height > kPngSideMax ||
        int64_t{width} * height > kPngPixelsMax)
      return bad(fmt::format("{} x {} pixels; at most {} a side and {} in all are read", width, height, kPngSideMax,
                             kPngPixelsMax));
    const int depth = content[8], colour = content[9], compression = content[10], filter = content[11],
              interlace = content[12];
    const int channels = colour == 0 ? 1 : colour == 2 ? 3 : colour == 4 ? 2 : colour == 6 ? 4 : 0;
    if (depth != 8 || channels == 0 || compression != 0 || filter != 0 || interlace != 0)
      return bad(fmt::format(
          "depth {}, colour type {}, interlace {}; 8-bit grey or RGB, with or without alpha, not interlaced "
          "is read",
          depth, colour, interlace));
    header_ = {static_cast<int>(width), static_cast<int>(height), channels};
    return {};
  }

  // Exactly as many bytes as the header promises; neither fewer nor more.
  Status unpack(std::vector<uint8_t>& out) const {
    z_stream stream{};
    if (inflateInit(&stream) != Z_OK) return fail("zlib could not start", where_);
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(out.size());
    int state = Z_OK;
    for (size_t i = 0; i < data_.size() && state == Z_OK; ++i) {
      stream.next_in = const_cast<uint8_t*>(data_[i].data());  // zlib does not write to it
      stream.avail_in = static_cast<uInt>(data_[i].size());
      while (stream.avail_in > 0 && state == Z_OK) state = inflate(&stream, Z_NO_FLUSH);
      if (state == Z_BUF_ERROR && stream.avail_in == 0) state = Z_OK;  // an empty chunk
    }
    const bool complete = stream.avail_out == 0 && state == Z_STREAM_END;
    const uLong got = stream.total_out;
    inflateEnd(&stream);
    if (complete) return {};
    return bad(fmt::format("packed data that does not unpack to the {} bytes of its rows ({} did)", out.size(), got));
  }

  Status remove_filters(std::vector<uint8_t>& rows) const {
    const size_t row_bytes = header_.row_bytes(), pixel = static_cast<size_t>(header_.channels);
    const std::vector<uint8_t> nothing(row_bytes, 0);
    const uint8_t* above = nothing.data();
    for (int y = 0; y < header_.height; ++y) {
      uint8_t* const row = rows.data() + static_cast<size_t>(y) * (row_bytes + 1) + 1;
      const int kind = row[-1];
      if (kind > 4) return bad(fmt::format("filter {} of row {}, and there are 0 to 4", kind, y));
      for (size_t i = 0; i < row_bytes; ++i) {
        const int left = i >= pixel ? row[i - pixel] : 0, up = above[i], corner = i >= pixel ? above[i - pixel] : 0;
        int guess = 0;
        if (kind == 1) guess = left;
        if (kind == 2) guess = up;
        if (kind == 3) guess = (left + up) / 2;
        if (kind == 4) guess = nearest_of(left, up, corner);
        row[i] = static_cast<uint8_t>(row[i] + guess);
      }
      above = row;
    }
    return {};
  }

  // The neighbour nearest to left + up - corner, in that order where two are as near.
  static int nearest_of(int left, int up, int corner) {
    const int to_left = std::abs(up - corner), to_up = std::abs(left - corner),
              to_corner = std::abs(left + up - 2 * corner);
    if (to_left <= to_up && to_left <= to_corner) return left;
    return to_up <= to_corner ? up : corner;
  }

  Image to_rgb(const std::vector<uint8_t>& rows) const {
    Image image{header_.width, header_.height, {}};
    const size_t width = static_cast<size_t>(header_.width), channels = static_cast<size_t>(header_.channels);
    image.rgb.resize(width * static_cast<size_t>(header_.height) * 3);
    uint8_t* out = image.rgb.data();
    for (int y = 0; y < header_.height; ++y) {
      const uint8_t* in = rows.data() + static_cast<size_t>(y) * (header_.row_bytes() + 1) + 1;
      for (size_t x = 0; x < width; ++x, in += channels, out += 3) {
        out[0] = in[0];
        out[1] = channels < 3 ? in[0] : in[1];
        out[2] = channels < 3 ? in[0] : in[2];
      }
    }
    return image;
  }

  std::span<const uint8_t> bytes_;
  const std::string& where_;
  Header header_;
  std::vector<std::span<const uint8_t>> data_;
};

}  // namespace

Result<Image> decode_png(std::span<const uint8_t> bytes, const std::string& where) {
  return Decoder(bytes, where).decode();
}

}  // namespace llmprof::workload
