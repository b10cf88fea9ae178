// What the parts of an export share: its texts and its GPUs.
#include <fmt/format.h>

#include <algorithm>

#include "import/nsys_tables.h"

namespace llmprof::nsys {

// Names are cut at this length.
constexpr size_t kTextBytesMax = 64 * 1024;

void Strings::read(Connection& connection, const TableInfo& table, uint64_t bytes_max, Diagnostics& diagnostics) {
  // Exports number their texts through.
  const size_t places_max = std::min(size_t{16} << 20, static_cast<size_t>(table.rows_max) * 4 + 1024);
  Rows rows(connection, table, {"id", "value"}, {INT64_MIN, INT64_MAX, table.rows_max});
  while (rows.next()) {
    const int64_t id = rows.integer(0, -1);
    const std::string_view text = rows.text(1);
    if (id < 0) continue;
    const uint32_t place = static_cast<uint32_t>(ends_.size());
    // A longer text is no name: a log that the program wrote, its environment. One byte more shows that it is longer.
    if (bytes_.size() + text.size() > bytes_max) {
      diagnostics.add(DiagnosticId::kDamagedTable, table.name + ": more text than fits into the file");
      break;
    }
    bytes_ += text.substr(0, kTextBytesMax + 1);
    ends_.push_back(bytes_.size());
    if (const size_t at = static_cast<size_t>(id); at < places_max) {
      if (at >= places_.size()) places_.resize(std::max(at + 1, places_.size() * 2), UINT32_MAX);
      places_[at] = place;
    } else {
      rest_[id] = place;
    }
  }
  if (!rows.error().empty())
    diagnostics.add(DiagnosticId::kDamagedTable, fmt::format("{}: {}", table.name, rows.error()));
}

size_t Strings::place(int64_t id) const {
  if (id >= 0 && static_cast<size_t>(id) < places_.size()) {
    const uint32_t place = places_[static_cast<size_t>(id)];
    return place == UINT32_MAX ? kNone : place;
  }
  const auto found = rest_.find(id);
  return found == rest_.end() ? kNone : found->second;
}

std::string_view Strings::get(int64_t id) const {
  const size_t at = place(id);
  if (at == kNone) return {};
  const uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(bytes_).substr(begin, ends_[at] - begin);
}

void Gpus::add(int64_t process, int64_t cuda_ordinal, int64_t gpu) {
  constexpr size_t kGpusMax = 1024;
  if (cuda_ordinal < 0 || cuda_ordinal > INT32_MAX || ordinals_.size() >= kGpusMax * 16 || by_gpu_.size() >= kGpusMax)
    return;
  const auto [at, fresh] = by_gpu_.try_emplace(gpu, static_cast<int32_t>(cuda_ordinal));
  if (fresh) {
    int32_t free = 0;
    while (!taken_.try_emplace(at->second, gpu).second) at->second = free++;
  }
  ordinals_.try_emplace({process, cuda_ordinal}, at->second);
}

int32_t Gpus::of(int64_t process, int64_t cuda_ordinal) const {
  const auto found = ordinals_.find({process, cuda_ordinal});
  if (found != ordinals_.end()) return found->second;
  return cuda_ordinal >= 0 && cuda_ordinal <= INT32_MAX ? static_cast<int32_t>(cuda_ordinal) : -1;
}

int32_t Gpus::of_gpu(int64_t gpu) const {
  const auto found = by_gpu_.find(gpu);
  if (found != by_gpu_.end()) return found->second;
  return is_known() || gpu < 0 || gpu > INT32_MAX ? -1 : static_cast<int32_t>(gpu);
}

}  // namespace llmprof::nsys
