#include "capture/inject/cupti/decode.h"

#include <atomic>
#include <cstdio>
#include <cstring>

#include "capture/inject/cupti/api_calls.h"
#include "capture/inject/cupti/attachment.h"
#include "capture/inject/cupti/call_targets.h"
#include "capture/inject/inject.h"

namespace llmprof::inject {
namespace {

std::atomic<uint64_t> kernel_count{0};
std::atomic<uint32_t> correlation_last{0};

// Launched while records were on although none were wanted.
bool unwanted(uint32_t correlation) {
  return correlation > attachment.unwanted_above.load(std::memory_order_relaxed) &&
         correlation <= attachment.unwanted_until.load(std::memory_order_relaxed);
}

// Time in kernels by the time at which they began; with the spool's lock held.
constexpr int64_t kSlotNs = 100'000'000;
constexpr int64_t kSlots = 32, kSlotsAsked = 3;
struct Slot {
  int64_t number = -1;
  int64_t kernel_ns = 0;
};
Slot slots[kSlots];

void count_time(int64_t start_ns, int64_t end_ns) {
  if (start_ns <= 0 || end_ns <= start_ns) return;
  const int64_t number = start_ns / kSlotNs;
  Slot& slot = slots[number % kSlots];
  if (slot.number != number) slot = {number, 0};
  slot.kernel_ns += end_ns - start_ns;
}

int64_t to_ns(uint64_t time) { return static_cast<int64_t>(time); }

spool::Id thread_definition(spool::Writer& writer, uint32_t thread) {
  if (thread == 0) return 0;
  spool::ThreadDef def;
  def.thread_id = thread;
  return writer.define(def);
}

void add_kernel(const nvidia::CuptiLibrary& api, const cupti::KernelActivity& kernel, spool::Writer& writer) {
  kernel_count.fetch_add(1, std::memory_order_relaxed);
  count_time(to_ns(kernel.start), to_ns(kernel.end));
  if (kernel.correlation > correlation_last.load(std::memory_order_relaxed))
    correlation_last.store(kernel.correlation, std::memory_order_relaxed);
  if (unwanted(kernel.correlation)) return;
  spool::KernelDef def;
  def.name = kernel.name == nullptr ? 0 : writer.text(kernel.name);
  def.stream = stream_id(writer, kernel.device, kernel.context, kernel.stream);
  for (int i = 0; i < 3; ++i) {
    def.grid[i] = kernel.grid[i];
    def.block[i] = kernel.block[i];
    if (api.version >= cupti::kVersion11_8) def.cluster[i] = static_cast<int32_t>(kernel.cluster[i]);
  }
  def.registers_per_thread = kernel.registers_per_thread;
  def.static_shared_bytes = kernel.static_shared_bytes;
  def.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
  spool::Kernel record;
  record.def = writer.define(def);
  record.start_ns = to_ns(kernel.start);
  record.end_ns = to_ns(kernel.end);
  record.correlation = written_correlation(kernel.correlation);
  record.graph_node = kernel.graph_node;
  record.graph_id = kernel.graph_id;
  writer.add(record);
}

template <class Source>
void add_copy(const Source& copy, spool::Writer& writer) {
  if (unwanted(copy.correlation)) return;
  spool::Memcpy record;
  record.stream = stream_id(writer, copy.device, copy.context, copy.stream);
  record.copy_kind = copy.copy_kind;
  record.source_kind = copy.source_kind;
  record.dest_kind = copy.dest_kind;
  record.asynchronous = copy.flags & 1;
  record.bytes = static_cast<int64_t>(copy.bytes);
  record.start_ns = to_ns(copy.start);
  record.end_ns = to_ns(copy.end);
  record.correlation = written_correlation(copy.correlation);
  record.graph_node = copy.graph_node;
  writer.add(record);
}

void add_memset(const cupti::MemsetActivity& memset, spool::Writer& writer) {
  if (unwanted(memset.correlation)) return;
  spool::Memset record;
  record.stream = stream_id(writer, memset.device, memset.context, memset.stream);
  record.bytes = static_cast<int64_t>(memset.bytes);
  record.start_ns = to_ns(memset.start);
  record.end_ns = to_ns(memset.end);
  record.correlation = written_correlation(memset.correlation);
  record.graph_node = memset.graph_node;
  writer.add(record);
}

const char* overhead_name(uint32_t kind) {
  switch (kind) {
    case cupti::kOverheadCompiler:
      return "driver compiler";
    case cupti::kOverheadBufferFlush:
      return "activity buffer flush";
    case cupti::kOverheadInstrumentation:
      return "instrumentation";
    case cupti::kOverheadResource:
      return "profiler resources";
    case cupti::kOverheadModuleLoading:
      return "module loading";
    case cupti::kOverheadLazyFunctionLoading:
      return "lazy function loading";
    case cupti::kOverheadCommandBufferFull:
      return "command buffer full";
    case cupti::kOverheadBufferRequest:
      return "activity buffer request";
    case cupti::kOverheadManagedMemoryInit:
      return "managed memory initialisation";
    default:
      return "other";
  }
}

void add_overhead(const cupti::OverheadActivity& overhead, spool::Writer& writer) {
  spool::Overhead record;
  record.name = writer.text(overhead_name(overhead.overhead_kind));
  if (overhead.object_kind == cupti::kObjectThread) record.thread = thread_definition(writer, overhead.object[1]);
  record.start_ns = to_ns(overhead.start);
  record.end_ns = to_ns(overhead.end);
  writer.add(record);
}

void add_memory(const cupti::MemoryActivity& memory, spool::Writer& writer) {
  spool::MemoryEvent record;
  record.time_ns = to_ns(memory.timestamp);
  record.device = static_cast<int32_t>(memory.device);
  record.memory_kind = static_cast<uint8_t>(memory.memory_kind);
  record.address = memory.address;
  record.bytes = memory.operation == 2 ? -static_cast<int64_t>(memory.bytes) : static_cast<int64_t>(memory.bytes);
  record.correlation = written_correlation(memory.correlation);
  writer.add(record);
}

void add_graph(const cupti::GraphActivity& graph, spool::Writer& writer) {
  spool::GraphLaunch record;
  record.stream = stream_id(writer, graph.device, graph.context, graph.stream);
  record.graph_id = graph.graph_id;
  record.start_ns = to_ns(graph.start);
  record.end_ns = to_ns(graph.end);
  record.correlation = written_correlation(graph.correlation);
  writer.add(record);
}

void decode_records(const nvidia::CuptiLibrary& api, uint8_t* buffer, size_t valid_size, spool::Writer& writer) {
  cupti::Activity* record = nullptr;
  while (api.cuptiActivityGetNextRecord(buffer, valid_size, &record) == cupti::kSuccess && record != nullptr) {
    switch (record->kind) {
      case cupti::kConcurrentKernel:
      case cupti::kSerialKernel:
        add_kernel(api, *reinterpret_cast<const cupti::KernelActivity*>(record), writer);
        break;
      case cupti::kMemcpy:
        add_copy(*reinterpret_cast<const cupti::MemcpyActivity*>(record), writer);
        break;
      case cupti::kMemcpy2:
        add_copy(*reinterpret_cast<const cupti::PeerMemcpyActivity*>(record), writer);
        break;
      case cupti::kMemset:
        add_memset(*reinterpret_cast<const cupti::MemsetActivity*>(record), writer);
        break;
      case cupti::kOverhead:
        add_overhead(*reinterpret_cast<const cupti::OverheadActivity*>(record), writer);
        break;
      case cupti::kMemory2:
        add_memory(*reinterpret_cast<const cupti::MemoryActivity*>(record), writer);
        break;
      case cupti::kGraphTrace:
        add_graph(*reinterpret_cast<const cupti::GraphActivity*>(record), writer);
        break;
      default:
        break;
    }
  }
}

}  // namespace

double gpu_busy_before(int64_t time_ns) {
  const SpoolAccess access;
  int64_t kernel_ns = 0;
  for (int64_t number = time_ns / kSlotNs - kSlotsAsked; number < time_ns / kSlotNs; ++number)
    if (const Slot& slot = slots[number % kSlots]; slot.number == number) kernel_ns += slot.kernel_ns;
  return static_cast<double>(kernel_ns) / static_cast<double>(kSlotsAsked * kSlotNs);
}

uint64_t recorded_kernels() { return kernel_count.load(std::memory_order_relaxed); }

uint32_t last_recorded_correlation() { return correlation_last.load(std::memory_order_relaxed); }
void forget_correlations() { correlation_last.store(0, std::memory_order_relaxed); }

void decode_buffer(uint8_t* buffer, size_t valid_size) {
  if (loaded_cupti() == nullptr || valid_size == 0) return;
  SpoolAccess access;
  if (access.writer() == nullptr) return;
  decode_records(*loaded_cupti(), buffer, valid_size, *access.writer());
}

}  // namespace llmprof::inject
