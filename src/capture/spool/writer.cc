#include "capture/spool/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "capture/spool/coding.h"
#include "capture/spool/layout.h"
#include "capture/spool/record_fields.h"

namespace llmprof::spool {
namespace {

// No record but a text takes more: 48 metrics of at most 5 bytes or as many ids, or 64 frames of 5 and 10 bytes; and
// further fields of at most 10 bytes, 32 of frequent records and definitions and 8 of a launch site.
constexpr size_t kHotBytesMax = 48 * 5 + 32 * kVarintBytesMax;
constexpr size_t kFieldsBytesMax = kFramesMax * (5 + kVarintBytesMax) + 8 * kVarintBytesMax;
static_assert(kHotBytesMax <= kFieldsBytesMax);
static_assert(kTextMax + kFieldsBytesMax < kPayloadBytesMax);
constexpr size_t kPathBytesMax = 4096;
constexpr int kHighFd = 400;  // out of the way of programs that close or count low descriptors

}  // namespace

// What was already defined, by 128 bits of hash of its content: two different contents with one hash are out of the
// question. At most kSlotsMax slots (6 MiB); a full table is emptied, and what is seen again is defined again.
class SeenIds {
 public:
  SeenIds() = default;
  ~SeenIds() { std::free(slots_); }
  SeenIds(const SeenIds&) = delete;
  SeenIds& operator=(const SeenIds&) = delete;

  // Id of this content, 0 if it is new.
  Id find(XXH128_hash_t hash) const {
    if (slots_ == nullptr) return 0;
    const Slot& slot = slots_[place(hash)];
    return slot.id;
  }
  void insert(XXH128_hash_t hash, Id id) {
    if ((used_ + 1) * 2 > size_ && !grow()) {
      if (slots_ == nullptr) return;  // no memory: everything is defined anew, which costs space only
      clear();
    }
    Slot& slot = slots_[place(hash)];
    if (slot.id == 0) ++used_;
    slot = {hash.low64, hash.high64, id};
  }
  void clear() {
    if (slots_ != nullptr) std::memset(slots_, 0, size_ * sizeof(Slot));
    used_ = 0;
  }

 private:
  struct Slot {
    uint64_t low, high;
    Id id;  // 0: free
  };
  static constexpr size_t kSlotsMin = 1024, kSlotsMax = 256 * 1024;

  size_t place(XXH128_hash_t hash) const {
    size_t i = hash.low64 & (size_ - 1);
    while (slots_[i].id != 0 && (slots_[i].low != hash.low64 || slots_[i].high != hash.high64))
      i = (i + 1) & (size_ - 1);
    return i;
  }
  bool grow() {
    const size_t size = size_ == 0 ? kSlotsMin : size_ * 2;
    if (size > kSlotsMax) return false;
    Slot* const slots = static_cast<Slot*>(std::calloc(size, sizeof(Slot)));
    if (slots == nullptr) return false;
    Slot* const old = slots_;
    const size_t old_size = size_;
    slots_ = slots;
    size_ = size;
    for (size_t i = 0; i < old_size; ++i)
      if (old[i].id != 0) slots_[place({old[i].low, old[i].high})] = old[i];
    std::free(old);
    return true;
  }

  Slot* slots_ = nullptr;
  size_t size_ = 0, used_ = 0;
};

struct Writer::State {
  WriterStatus status;
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
  uint32_t sequence = 0;
  size_t payload_bytes = 0;
  uint64_t block_records = 0;  // in the block being filled
  bool base_set = false;
  Id next_id = 1;
  SeenIds seen;
  BlockState block;
  uint8_t metric_counts[64] = {};  // by id of the set, as far as they fit
  Id metric_sets[64] = {};
  uint32_t metric_set_count = 0;
  char path[kPathBytesMax] = {};
  alignas(16) uint8_t buffer[sizeof(BlockHead) + kPayloadBytesMax];

  uint8_t* payload() { return buffer + sizeof(BlockHead); }
  Encoder encoder() { return {payload() + payload_bytes, block.base_ns, base_set}; }

  // True if a record of this size can be appended now; writes the block if it is full.
  bool make_room(size_t bytes) {
    if (status.open && payload_bytes + bytes > kPayloadBytesMax) write_block();
    if (status.open) return true;
    ++status.lost_records;
    return false;
  }
  void appended(const Encoder& encoder) {
    payload_bytes = static_cast<size_t>(encoder.at() - payload());
    ++block_records;
    ++status.records;
  }

  void start_block() {
    payload_bytes = 0;
    block_records = 0;
    base_set = false;
    block = BlockState();
  }

  // The descriptor may have been closed by the program, and its number may now mean a file of the program: never write
  // to anything but the file that was opened. Opens it again where it is still there.
  bool own_file() {
    struct stat info {};
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_dev == device && info.st_ino == inode) return true;
    fd = ::open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    if (fstat(fd, &info) == 0 && info.st_dev == device && info.st_ino == inode) {
      lift_fd();
      return true;
    }
    ::close(fd);
    fd = -1;
    errno = EBADF;
    return false;
  }
  void lift_fd() {
    const int lifted = fcntl(fd, F_DUPFD_CLOEXEC, kHighFd);
    if (lifted < 0) return;  // the limit on descriptors is low; the low one serves
    ::close(fd);
    fd = lifted;
  }

  // Appends to the file; on failure restores its length and returns the errno.
  int put(const void* bytes, size_t size) {
    if (!own_file()) return errno != 0 ? errno : EBADF;
    // Beyond this limit the kernel would send SIGXFSZ, which ends a program that does not expect it.
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        status.bytes_written + size > limit.rlim_cur)
      return EFBIG;
    const uint8_t* at = static_cast<const uint8_t*>(bytes);
    size_t left = size;
    while (left != 0) {
      const ssize_t done = pwrite(fd, at, left, static_cast<off_t>(status.bytes_written + (size - left)));
      if (done > 0) {
        at += done;
        left -= static_cast<size_t>(done);
      } else if (done == 0 || errno != EINTR) {
        const int error = done == 0 ? EIO : errno;
        // What is left of the block would be skipped by a reader all the same.
        if (ftruncate(fd, static_cast<off_t>(status.bytes_written)) != 0) errno = error;
        return error;
      }
    }
    status.bytes_written += size;
    return 0;
  }

  int put_block() {
    BlockHead head;
    head.payload_bytes = static_cast<uint32_t>(payload_bytes);
    head.sequence = sequence;
    head.base_ns = block.base_ns;
    std::memcpy(buffer, &head, sizeof head);
    head.checksum =
        XXH64(buffer + kChecksummedFrom, sizeof head - kChecksummedFrom + payload_bytes, head.payload_bytes);
    std::memcpy(buffer, &head, sizeof head);
    const int error = put(buffer, sizeof head + payload_bytes);
    if (error == 0) ++sequence;
    return error;
  }

  void write_block() {
    if (payload_bytes == 0) return;
    const int error = put_block();
    if (error != 0) {
      status.open = false;
      status.error = error;
      status.lost_records += block_records;
      status.records -= block_records;
    }
    start_block();
  }

  // Tag, length, id and the fields that lie at `fields`.
  Id write_definition(uint8_t tag, const uint8_t* fields, size_t size) {
    if (!make_room(size + 3 * kVarintBytesMax)) return 0;
    uint8_t id_bytes[kVarintBytesMax];
    Encoder id_encoder(id_bytes, block.base_ns, base_set);
    id_encoder.varint(next_id);
    const size_t id_size = static_cast<size_t>(id_encoder.at() - id_bytes);
    Encoder out = encoder();
    out.rest({reinterpret_cast<const char*>(&tag), 1});
    out.varint(id_size + size);
    out.rest({reinterpret_cast<const char*>(id_bytes), id_size});
    out.rest({reinterpret_cast<const char*>(fields), size});
    appended(out);
    return next_id++;
  }

  template <class Record>
  Id define(const Record& record) {
    if (!status.open) return lost();
    uint8_t fields[kFieldsBytesMax];
    int64_t no_base = 0;
    bool no_base_set = true;
    Encoder encoder(fields, no_base, no_base_set);
    code_one(encoder, record, Record{});
    const size_t size = static_cast<size_t>(encoder.at() - fields);
    return define_bytes(tag_of<Record>(), fields, size);
  }
  Id define_bytes(uint8_t tag, const uint8_t* fields, size_t size) {
    const XXH128_hash_t hash = XXH3_128bits_withSeed(fields, size, tag);
    if (const Id id = seen.find(hash); id != 0) return id;
    const Id id = write_definition(tag, fields, size);
    if (id != 0) seen.insert(hash, id);
    return id;
  }
  Id lost() {
    ++status.lost_records;
    return 0;
  }

  template <class Record>
  void add_hot(const Record& record, uint32_t metric_count = 0) {
    if (!make_room(kHotBytesMax)) return;
    Encoder out = encoder();
    out.begin_hot(tag_of<Record>());
    out.set_metric_count(metric_count);
    Record& last = last_of<Record>(block);
    code_one(out, record, last);
    last = record;
    appended(out);
  }

  template <class Record>
  void add_wide(const Record& record) {
    if (!make_room(kFieldsBytesMax + 2 * kVarintBytesMax)) return;
    uint8_t fields[kFieldsBytesMax];
    Encoder encoded(fields, block.base_ns, base_set);
    Record& last = last_of<Record>(block);
    code_one(encoded, record, last);
    last = record;
    const size_t size = static_cast<size_t>(encoded.at() - fields);
    const uint8_t tag = tag_of<Record>();
    Encoder out = encoder();
    out.rest({reinterpret_cast<const char*>(&tag), 1});
    out.varint(size);
    out.rest({reinterpret_cast<const char*>(fields), size});
    appended(out);
  }

  bool open_file(const char* new_path, std::string_view role) {
    const size_t path_bytes = std::strlen(new_path);
    if (path_bytes >= kPathBytesMax) {
      status.error = ENAMETOOLONG;
      return false;
    }
    std::memcpy(path, new_path, path_bytes + 1);
    fd = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    struct stat info {};
    if (fd < 0 || fstat(fd, &info) != 0) {
      status.error = errno;
      return false;
    }
    device = info.st_dev;
    inode = info.st_ino;
    lift_fd();
    FileHead head;
    head.process_id = getpid();
    head.realtime_ns = realtime_ns();
    head.monotonic_raw_ns = read_clock_ns(CLOCK_MONOTONIC_RAW);
    std::memcpy(head.role, role.data(), role.size() < sizeof head.role ? role.size() : sizeof head.role);
    head.checksum = XXH64(&head, offsetof(FileHead, checksum), 0);
    status.error = put(&head, sizeof head);
    status.open = status.error == 0;
    return status.open;
  }

  // Leaves the end mark, also after an error if there is room for it by now: it carries what was lost.
  void close_file() {
    const bool was_open = status.open;
    write_block();
    if (sequence != 0 || was_open) {
      start_block();
      Closed end;
      end.time_ns = realtime_ns();
      end.error = status.error;
      end.records = status.records;
      end.lost_records = status.lost_records;
      status.open = true;
      add_wide(end);
      --status.records;  // not one of the caller's
      const int error = put_block();
      if (status.error == 0) status.error = error;
    }
    status.open = false;
    drop_fd();
  }
  void drop_fd() {
    struct stat info {};
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_dev == device && info.st_ino == inode) ::close(fd);
    fd = -1;
  }
};

Writer::Writer() = default;
Writer::~Writer() { close(); }

bool Writer::open(const char* path, std::string_view role) {
  close();
  // Not make_unique: without memory there is no spool, and no exception either.
  state_.reset(new (std::nothrow) State);
  return state_ != nullptr && state_->open_file(path, role);
}

Id Writer::text(std::string_view text) {
  if (state_ == nullptr) return 0;
  if (!state_->status.open) return state_->lost();
  if (text.size() > kTextMax) {
    size_t size = kTextMax;
    while (size > kTextMax - 4 && (static_cast<uint8_t>(text[size]) & 0xC0) == 0x80) --size;  // between characters
    text = text.substr(0, size);
  }
  return state_->define_bytes(tag_of<TextDef>(), reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

Id Writer::define(const ThreadDef& def) { return state_ == nullptr ? 0 : state_->define(def); }
Id Writer::define(const StreamDef& def) { return state_ == nullptr ? 0 : state_->define(def); }
Id Writer::define(const KernelDef& def) { return state_ == nullptr ? 0 : state_->define(def); }
Id Writer::define(const ApiDef& def) { return state_ == nullptr ? 0 : state_->define(def); }
Id Writer::define(const LibraryDef& def) { return state_ == nullptr ? 0 : state_->define(def); }
Id Writer::define(const ModuleDef& def) { return state_ == nullptr ? 0 : state_->define(def); }
Id Writer::define(const MetricSetDef& def) {
  if (state_ == nullptr) return 0;
  State& state = *state_;
  const Id id = state.define(def);
  for (uint32_t i = 0; i < state.metric_set_count; ++i)
    if (state.metric_sets[i] == id) return id;
  const int32_t count = def.count < 0 ? 0 : def.count > kMetricsMax ? kMetricsMax : def.count;
  if (id != 0 && state.metric_set_count < sizeof state.metric_counts) {
    state.metric_sets[state.metric_set_count] = id;
    state.metric_counts[state.metric_set_count++] = static_cast<uint8_t>(count);
  }
  return id;
}

void Writer::add(const GpuSample& record) {
  if (state_ == nullptr) return;
  uint32_t count = kMetricsMax;
  for (uint32_t i = 0; i < state_->metric_set_count; ++i)
    if (state_->metric_sets[i] == record.set) count = state_->metric_counts[i];
  state_->add_hot(record, count);
}

#define LLMPROF_SPOOL_ADD_HOT(Record)               \
  void Writer::add(const Record& record) {          \
    if (state_ != nullptr) state_->add_hot(record); \
  }
#define LLMPROF_SPOOL_ADD_WIDE(Record)               \
  void Writer::add(const Record& record) {           \
    if (state_ != nullptr) state_->add_wide(record); \
  }
LLMPROF_SPOOL_ADD_HOT(Kernel)
LLMPROF_SPOOL_ADD_HOT(Memcpy)
LLMPROF_SPOOL_ADD_HOT(Memset)
LLMPROF_SPOOL_ADD_HOT(GraphLaunch)
LLMPROF_SPOOL_ADD_HOT(ApiCall)
LLMPROF_SPOOL_ADD_HOT(Synchronization)
LLMPROF_SPOOL_ADD_HOT(Overhead)
LLMPROF_SPOOL_ADD_HOT(MemoryEvent)
LLMPROF_SPOOL_ADD_HOT(Range)
LLMPROF_SPOOL_ADD_HOT(Mark)
LLMPROF_SPOOL_ADD_HOT(LibraryCall)
LLMPROF_SPOOL_ADD_HOT(GraphNode)
LLMPROF_SPOOL_ADD_HOT(RecurringCall)
LLMPROF_SPOOL_ADD_WIDE(DeviceDef)
LLMPROF_SPOOL_ADD_WIDE(LaunchSite)
LLMPROF_SPOOL_ADD_WIDE(CallTarget)
LLMPROF_SPOOL_ADD_WIDE(Operands)
LLMPROF_SPOOL_ADD_WIDE(GraphEdge)
LLMPROF_SPOOL_ADD_WIDE(NodePlace)
LLMPROF_SPOOL_ADD_WIDE(ProductRows)
LLMPROF_SPOOL_ADD_WIDE(HostPlace)
LLMPROF_SPOOL_ADD_WIDE(CpuReading)
LLMPROF_SPOOL_ADD_WIDE(HostPace)
LLMPROF_SPOOL_ADD_WIDE(RangeOpen)
LLMPROF_SPOOL_ADD_WIDE(ClockReading)
LLMPROF_SPOOL_ADD_WIDE(LevelChange)
LLMPROF_SPOOL_ADD_WIDE(Note)
LLMPROF_SPOOL_ADD_WIDE(Fact)
LLMPROF_SPOOL_ADD_WIDE(NvmlSample)

void Writer::flush() {
  if (state_ != nullptr && state_->status.open) state_->write_block();
}

void Writer::close() {
  if (state_ != nullptr && state_->fd >= 0) state_->close_file();
}

void Writer::abandon() {
  if (state_ == nullptr) return;
  state_->drop_fd();
  state_->start_block();
  state_->status.open = false;
}

WriterStatus Writer::status() const {
  if (state_ != nullptr) return state_->status;
  WriterStatus none;
  return none;
}

}  // namespace llmprof::spool
