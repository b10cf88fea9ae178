#include "capture/spool/reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace llmprof::spool {

bool read_head(std::string_view bytes, FileHead& head) {
  if (bytes.size() < sizeof(FileHead)) return false;
  FileHead found;
  std::memcpy(&found, bytes.data(), sizeof found);
  if (found.magic != kFileMagic || found.version != kVersion) return false;
  head = found;
  return true;
}

std::string_view role_of(const FileHead& head) { return {head.role, strnlen(head.role, sizeof head.role)}; }

BlockScanner::BlockScanner(std::string_view bytes)
    : bytes_(bytes),
      at_(std::min(sizeof(FileHead), bytes.size())),
      hash_budget_(4 * uint64_t{bytes.size()} + 64 * kPayloadBytesMax) {}

BlockScanner::Found BlockScanner::look(size_t at, BlockHead& head) {
  const size_t left = bytes_.size() - at;
  const size_t seen = std::min(left, sizeof head.magic);
  if (std::memcmp(bytes_.data() + at, &kBlockMagic, seen) != 0) return Found::kNothing;
  if (left < sizeof head) return Found::kCut;
  std::memcpy(&head, bytes_.data() + at, sizeof head);
  if (head.payload_bytes > kPayloadBytesMax) return Found::kNothing;
  if (head.payload_bytes > left - sizeof head) return Found::kCut;
  const size_t size = sizeof head - kChecksummedFrom + head.payload_bytes;
  if (size > hash_budget_) return Found::kDamaged;
  hash_budget_ -= size;
  return XXH64(bytes_.data() + at + kChecksummedFrom, size, head.payload_bytes) == head.checksum ? Found::kWhole
                                                                                                 : Found::kDamaged;
}

size_t BlockScanner::next_magic(size_t from) const {
  const std::string_view magic(reinterpret_cast<const char*>(&kBlockMagic), sizeof kBlockMagic);
  const size_t at = from < bytes_.size() ? bytes_.find(magic, from) : std::string_view::npos;
  return at == std::string_view::npos ? bytes_.size() : at;
}

bool BlockScanner::next(BlockHead& head, std::string_view& payload) {
  bool damage = false;  // since the last whole block
  size_t cut_at = bytes_.size();
  while (at_ < bytes_.size()) {
    const Found found = look(at_, head);
    // A block that repeats an earlier number is a copy; believing it would give its records twice.
    if (found == Found::kWhole && head.sequence >= next_sequence_) {
      const uint64_t missing = head.sequence - next_sequence_;
      damaged_ += damage ? std::max<uint64_t>(missing, 1) : missing;
      next_sequence_ = uint64_t{head.sequence} + 1;
      payload = bytes_.substr(at_ + sizeof head, head.payload_bytes);
      at_ += sizeof head + head.payload_bytes;
      return true;
    }
    if (found == Found::kCut && !damage) cut_at = std::min(cut_at, at_);
    if (found != Found::kCut) damage = true;
    // Past a damaged block whose length is right, otherwise to the next thing that looks like the start of one.
    const size_t behind = found == Found::kDamaged ? at_ + sizeof head + head.payload_bytes : bytes_.size();
    at_ = found == Found::kDamaged && next_magic(behind) == behind ? behind : next_magic(at_ + 1);
  }
  // A block that was being written when the process ended is no damage; anything else behind the last whole block is.
  if (damage)
    ++damaged_;
  else if (cut_at < bytes_.size())
    cut_bytes_ = bytes_.size() - cut_at;
  return false;
}

}  // namespace llmprof::spool
