// Runs a fuzz target over files instead of under libFuzzer: every file of the folders given, the empty input, and for
// each file a fixed number of mutations (cut, flipped, doubled, overwritten), the same ones in every run.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutations = 60;
constexpr size_t kMutatedBytesMax = 256 * 1024;

void run(const std::string& bytes) {
  // A copy of exactly this size, so that AddressSanitizer sees a read of one byte too many.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::string mutate(std::string bytes, std::mt19937& random) {
  const auto below = [&random](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  static constexpr const char* kPieces[] = {"\"", "{", "}", "[", "]", ",", "-", "1e999", "NaN", "\\u0000", "\xff"};
  for (size_t edits = 1 + below(3); edits != 0 && !bytes.empty(); --edits) {
    const size_t at = below(bytes.size());
    const size_t length = 1 + below(std::min<size_t>(bytes.size() - at, 200));
    switch (below(5)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default:
        bytes.insert(at, kPieces[below(std::size(kPieces))]);
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(argv[i]))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "expected files to replay, found none\n");
    return 1;
  }
  run({});
  std::mt19937 random(1);
  size_t runs = 1;
  for (const std::filesystem::path& path : files) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      return 1;
    }
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    run(bytes);
    ++runs;
    for (int i = 0; i < kMutations && bytes.size() <= kMutatedBytesMax; ++i, ++runs) run(mutate(bytes, random));
  }
  std::printf("%zu inputs from %zu files\n", runs, files.size());
  return 0;
}
