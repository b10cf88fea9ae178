// Reading a Kineto trace of any size: worker threads take turns to cut the next block from the file, parse their blocks
// side by side, and merge them in file order. A block is cut where an event seems to start; the merge knows where the
// block before really ended, and parses a block again in the rare case that the cut was wrong. So the result is the one
// that a single pass would give, memory holds a few blocks, and damage stays where it is.
#include "import/kineto.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/parallel.h"
#include "import/json_scan.h"
#include "import/kineto_merge.h"
#include "import/sync_calls.h"

namespace llmprof::kineto {
namespace {

class Pipeline {
 public:
  Pipeline(InputFile& input, Trace& trace, size_t block_bytes)
      : input_(input), trace_(trace), merger_(trace), block_bytes_(block_bytes) {
    const std::string_view head = input.head();
    const char* p = head.data();
    if (head.starts_with("\xEF\xBB\xBF")) p += 3;
    while (p < head.data() + head.size() && json::is_space(*p)) ++p;
    bare_array_ = p < head.data() + head.size() && *p == '[';
  }

  void run(unsigned workers) {
    blocks_in_flight_max_ = workers + 1;
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < workers; ++i) threads.emplace_back([this] { work(); });
    work();
    threads.clear();
    merger_.finish();
    name_sync_calls(trace_);
  }

 private:
  using BlockPtr = std::unique_ptr<Block>;

  void work() {
    while (true) {
      BlockPtr block = next_block();
      if (block == nullptr) return;
      parse_block(*block, block->index == 0 ? State::kStart : State::kEvents, bare_array_, block->index == last_index_);
      hand_in(std::move(block));
    }
  }

  // Cuts the next block from the input; null at its end.
  BlockPtr next_block() {
    std::unique_lock<std::mutex> lock(read_mutex_);
    room_.wait(lock, [this] { return blocks_in_flight_ < blocks_in_flight_max_; });
    if (at_end_) return nullptr;
    BlockPtr block = take_spare();
    block->index = next_index_++;
    block->offset = read_bytes_ - carry_.size();
    std::vector<char>& bytes = block->bytes;
    if (bytes.size() < block_bytes_ + json::kScanPadding) bytes.resize(block_bytes_ + json::kScanPadding);
    if (bytes.size() < carry_.size() * 2 + json::kScanPadding) bytes.resize(carry_.size() * 2 + json::kScanPadding);
    std::copy(carry_.begin(), carry_.end(), bytes.begin());
    block->size = carry_.size();
    while (true) {
      const size_t room = bytes.size() - json::kScanPadding - block->size;
      const size_t got = input_.read(bytes.data() + block->size, room);
      read_bytes_ += got;
      block->size += got;
      if (got < room) {
        at_end_ = true;
        last_index_ = block->index;
        carry_.clear();
        break;
      }
      const size_t cut = find_last_event_start(std::string_view(bytes.data(), block->size), block->size / 2);
      if (cut != std::string_view::npos) {
        carry_.assign(bytes.data() + cut, bytes.data() + block->size);
        block->size = cut;
        break;
      }
      // No event starts in the last half: an event longer than a block, or no trace at all. Both end at the limit.
      if (block->size >= kUncutBytesMax) {
        carry_.clear();
        break;
      }
      bytes.resize(bytes.size() * 2);
    }
    std::memset(bytes.data() + block->size, 0, json::kScanPadding);
    ++blocks_in_flight_;
    return block;
  }

  void hand_in(BlockPtr block) {
    const std::lock_guard<std::mutex> lock(merge_mutex_);
    const uint64_t index = block->index;
    waiting_.emplace(index, std::move(block));
    while (!waiting_.empty() && waiting_.begin()->first == merged_) {
      BlockPtr next = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      merge(*next);
      ++merged_;
      const std::lock_guard<std::mutex> read_lock(read_mutex_);
      spare_.push_back(std::move(next));
      --blocks_in_flight_;
      room_.notify_all();
    }
  }

  // Merges the next block in file order. If the block before did not end where this one was cut, it is parsed again
  // from the true position with what was left over in front.
  void merge(Block& block) {
    const bool last = block.index == last_index_;
    if (block.index != 0 && (state_ != State::kEvents || !left_over_.empty())) {
      if (state_ == State::kDone) {
        trace_.diagnostics.add(DiagnosticId::kTrailingData, "byte " + std::to_string(block.offset));
        return;
      }
      const size_t extra = left_over_.size();
      std::vector<char> joined(extra + block.size + json::kScanPadding, '\0');
      std::copy(left_over_.begin(), left_over_.end(), joined.begin());
      std::copy_n(block.bytes.begin(), block.size, joined.begin() + static_cast<std::ptrdiff_t>(extra));
      block.bytes.swap(joined);
      block.size += extra;
      block.offset -= extra;
      parse_block(block, state_, bare_array_, last);
    }
    state_ = block.end_state;
    left_over_.assign(block.bytes.data() + block.consumed, block.bytes.data() + block.size);
    merger_.merge(block);
    merged_bytes_ += block.consumed;
    // Once an eighth of a plain file is in, its rows are a fair sample of the rest.
    const uint64_t total = input_.compression() == InputFile::Compression::kNone ? input_.stored_bytes() : 0;
    if (!reserved_ && total > 8 * block_bytes_ && merged_bytes_ >= total / 8) {
      reserved_ = true;
      reserve_tables(trace_, static_cast<double>(total) / static_cast<double>(merged_bytes_) * 1.03);
    }
  }

  BlockPtr take_spare() {
    if (spare_.empty()) return std::make_unique<Block>();
    BlockPtr block = std::move(spare_.back());
    spare_.pop_back();
    return block;
  }

  static constexpr size_t kUncutBytesMax = 32 * 1024 * 1024;

  InputFile& input_;
  Trace& trace_;
  Merger merger_;
  const size_t block_bytes_;
  bool bare_array_ = false;

  std::mutex read_mutex_;  // input_, carry_ and everything down to spare_
  std::condition_variable room_;
  std::vector<char> carry_;  // read, but belongs to the next block
  uint64_t read_bytes_ = 0, next_index_ = 0;
  std::atomic<uint64_t> last_index_{UINT64_MAX};
  bool at_end_ = false;
  unsigned blocks_in_flight_ = 0, blocks_in_flight_max_ = 2;
  std::vector<BlockPtr> spare_;

  std::mutex merge_mutex_;  // trace_, merger_ and everything below
  std::map<uint64_t, BlockPtr> waiting_;
  uint64_t merged_ = 0, merged_bytes_ = 0;
  State state_ = State::kStart;
  std::vector<char> left_over_;
  bool reserved_ = false;
};

}  // namespace

// Whether `key` stands there as a key, and not as a text that some other document has among its values.
bool has_key(std::string_view head, std::string_view key) {
  for (size_t at = head.find(key); at != std::string_view::npos; at = head.find(key, at + 1)) {
    size_t behind = at + key.size();
    while (behind < head.size() && json::is_space(head[behind])) ++behind;
    if (behind < head.size() && head[behind] == ':') return true;
  }
  return false;
}

int sniff(std::string_view head) {
  size_t at = head.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  while (at < head.size() && json::is_space(head[at])) ++at;
  if (at == head.size() || (head[at] != '{' && head[at] != '[')) return 0;
  constexpr std::string_view kMarks[] = {"\"traceEvents\"", "\"schemaVersion\"", "\"deviceProperties\"",
                                         "\"baseTimeNanoseconds\""};
  for (const std::string_view mark : kMarks)
    if (has_key(head, mark)) return 90;
  return has_key(head, "\"ph\"") && has_key(head, "\"ts\"") ? 50 : 0;
}

Status import_in_blocks(InputFile& input, Trace& trace, size_t block_bytes, unsigned workers) {
  Pipeline(input, trace, block_bytes).run(workers);
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  return {};
}

Status import(InputFile& input, Trace& trace) {
  return import_in_blocks(input, trace, kBlockBytes, std::min(worker_count(), 16U));
}

}  // namespace llmprof::kineto
