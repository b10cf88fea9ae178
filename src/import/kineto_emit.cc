#include "import/kineto_emit.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace llmprof::kineto {
namespace {

// Longer names are cut: a name is for people.
constexpr size_t kNameBytesMax = 64 * 1024;

bool same_ignoring_case(std::string_view a, std::string_view lower) {
  if (a.size() != lower.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const char c = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] + 32) : a[i];
    if (c != lower[i]) return false;
  }
  return true;
}

// Three integers in brackets, as grids and blocks are written.
bool parse_triple(std::string_view text, int32_t (&out)[3]) {
  if (text.size() < 2 || text.front() != '[') return false;
  size_t at = 1;
  for (int32_t& value : out) {
    while (at < text.size() && (json::is_space(text[at]) || text[at] == ',')) ++at;
    int64_t number = 0;
    size_t digits = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && digits < 11; ++at, ++digits)
      number = number * 10 + (text[at] - '0');
    if (digits == 0 || number > INT32_MAX) return false;
    value = static_cast<int32_t>(number);
  }
  return true;
}

float float_arg(const Event& event, Arg which) {
  const Field* field = event.arg(which);
  double value = 0;
  if (field == nullptr || !json::parse_double(field->text, value)) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(value);
}

uint64_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

}  // namespace

Emitter::Kind Emitter::kind_of(std::string_view category) {
  struct Entry {
    std::string_view name;
    Kind kind;
  };
  // Old recordings capitalise, hence the comparison without case; "operator", "memcpy" ... are their names.
  static constexpr Entry kEntries[] = {
      {"cpu_op", Kind::kOp},
      {"kernel", Kind::kKernel},
      {"cuda_runtime", Kind::kRuntime},
      {"cuda_driver", Kind::kDriver},
      {"ac2g", Kind::kIgnored},
      {"python_function", Kind::kPython},
      {"gpu_memcpy", Kind::kMemcpy},
      {"gpu_memset", Kind::kMemset},
      {"user_annotation", Kind::kAnnotation},
      {"gpu_user_annotation", Kind::kGpuAnnotation},
      {"cuda_sync", Kind::kSync},
      {"overhead", Kind::kOverhead},
      {"cuda_event", Kind::kIgnored},
      {"fwdbwd", Kind::kIgnored},
      {"trace", Kind::kIgnored},
      {"cuda_profiler_range", Kind::kIgnored},
      {"operator", Kind::kOp},
      {"memcpy", Kind::kMemcpy},
      {"memset", Kind::kMemset},
      {"runtime", Kind::kRuntime},
      {"driver", Kind::kDriver},
  };
  for (const Entry& entry : kEntries)
    if (same_ignoring_case(category, entry.name)) return entry.kind;
  return Kind::kUnknown;
}

void Emitter::problem(DiagnosticId id, const char* at, const char* what) {
  std::string where;
  if (block_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces) {
    where = "byte " + std::to_string(block_.offset + static_cast<uint64_t>(at - block_.bytes.data()));
    if (what != nullptr) where += std::string(", ") + what;
  }
  block_.diagnostics.add(id, std::move(where));
}

StringId Emitter::intern(const Field& field) {
  std::string_view text = field.text;
  if (text.size() > kNameBytesMax) {
    block_.diagnostics.add(DiagnosticId::kLimitReached, "a name of " + std::to_string(text.size()) + " bytes");
    text = text.substr(0, kNameBytesMax);
  }
  if (field.escaped) return block_.strings.intern(json::unescape(text));
  return block_.strings.intern(text);
}

int64_t Emitter::int_arg(const Event& event, Arg which, int64_t absent) {
  const Field* field = event.arg(which);
  int64_t value = 0;
  return field != nullptr && json::parse_int(field->text, value) ? value : absent;
}

uint64_t Emitter::uint_arg(const Event& event, Arg which) {
  const Field* field = event.arg(which);
  uint64_t value = 0;
  return field != nullptr && json::parse_uint(field->text, value) ? value : 0;
}

Row Emitter::thread_of(const Event& event) {
  const std::string_view process = event.process_id.text, thread = event.thread_id.text;
  if (last_thread_row_ != kNoRow && process == last_process_ && thread == last_thread_) return last_thread_row_;
  int64_t process_id = -1, thread_id = -1;
  StringId name = StringId::kEmpty;
  if (!json::parse_int(process, process_id)) process_id = -1;
  if (!json::parse_int(thread, thread_id)) {
    thread_id = -1;
    name = intern(event.thread_id);
  }
  Threads& threads = block_.threads;
  const uint64_t hash =
      mix_hash(mix_hash(static_cast<uint64_t>(process_id), static_cast<uint64_t>(thread_id)), index(name));
  last_thread_row_ = block_.thread_index.find_or_add(
      hash,
      [&](Row row) {
        return threads.process_id[row] == process_id && threads.thread_id[row] == thread_id &&
               threads.name[row] == name;
      },
      [&] {
        threads.process_id.push_back(process_id);
        threads.thread_id.push_back(thread_id);
        threads.name.push_back(name);
        return static_cast<Row>(threads.size() - 1);
      });
  last_process_ = process;
  last_thread_ = thread;
  return last_thread_row_;
}

Row Emitter::stream_of(const Event& event) {
  int64_t device = int_arg(event, Arg::kDevice, -1);
  if (device < 0 && !json::parse_int(event.process_id.text, device)) device = -1;
  int64_t stream = int_arg(event, Arg::kStream, -1);
  if (stream < 0 && !json::parse_int(event.thread_id.text, stream)) stream = -1;
  const int64_t context = int_arg(event, Arg::kContext, -1);
  if (device < 0 || device > INT32_MAX) device = 0;
  if (device == last_stream_key_[0] && context == last_stream_key_[1] && stream == last_stream_key_[2])
    return last_stream_row_;
  Streams& streams = block_.streams;
  const uint64_t hash =
      mix_hash(mix_hash(static_cast<uint64_t>(device), static_cast<uint64_t>(context)), static_cast<uint64_t>(stream));
  last_stream_row_ = block_.stream_index.find_or_add(
      hash,
      [&](Row row) {
        return streams.device[row] == device && streams.context[row] == context && streams.stream[row] == stream;
      },
      [&] {
        streams.device.push_back(static_cast<int32_t>(device));
        streams.context.push_back(context);
        streams.stream.push_back(stream);
        return static_cast<Row>(streams.size() - 1);
      });
  last_stream_key_[0] = device;
  last_stream_key_[1] = context;
  last_stream_key_[2] = stream;
  return last_stream_row_;
}

Row Emitter::signature_of(const Event& event) {
  constexpr Arg kParts[] = {Arg::kDims, Arg::kTypes, Arg::kStrides, Arg::kConcrete};
  std::string_view parts[4];
  const char* low = nullptr;
  const char* high = nullptr;
  for (size_t i = 0; i < 4; ++i) {
    const Field* field = event.arg(kParts[i]);
    if (field == nullptr) continue;
    parts[i] = field->text;
    const char* begin = parts[i].data();
    const char* end = begin + parts[i].size();
    low = low == nullptr || begin < low ? begin : low;
    high = high == nullptr || end > high ? end : high;
  }
  if (low == nullptr) return kNoRow;
  // The recorder writes the four side by side, so one hash over the text from the first to the last covers them.
  const uint64_t hash = XXH3_64bits(low, static_cast<size_t>(high - low));
  Signatures& table = block_.signatures;
  return block_.signature_index.find_or_add(
      hash,
      [&](Row row) {
        return block_.strings[table.dims[row]] == parts[0] && block_.strings[table.types[row]] == parts[1] &&
               block_.strings[table.strides[row]] == parts[2] && block_.strings[table.concrete[row]] == parts[3];
      },
      [&] {
        table.dims.push_back(block_.strings.intern(parts[0]));
        table.types.push_back(block_.strings.intern(parts[1]));
        table.strides.push_back(block_.strings.intern(parts[2]));
        table.concrete.push_back(block_.strings.intern(parts[3]));
        return static_cast<Row>(table.size() - 1);
      });
}

Row Emitter::config_of(const Event& event) {
  int32_t grid[3] = {-1, -1, -1}, block[3] = {-1, -1, -1};
  if (const Field* field = event.arg(Arg::kGrid); field != nullptr && !parse_triple(field->text, grid))
    block_.diagnostics.add(DiagnosticId::kBadMetadata, "grid of a kernel");
  if (const Field* field = event.arg(Arg::kBlock); field != nullptr && !parse_triple(field->text, block))
    block_.diagnostics.add(DiagnosticId::kBadMetadata, "block of a kernel");
  int64_t registers = int_arg(event, Arg::kRegisters, -1);
  if (registers < -1 || registers > INT32_MAX) registers = -1;
  const int64_t shared = int_arg(event, Arg::kSharedMemory, -1);
  const float occupancy = float_arg(event, Arg::kOccupancy) / 100.0F;
  const float blocks = float_arg(event, Arg::kBlocksPerSm), warps = float_arg(event, Arg::kWarpsPerSm);
  uint64_t hash = mix_hash(static_cast<uint64_t>(registers), static_cast<uint64_t>(shared));
  for (int i = 0; i < 3; ++i)
    hash = mix_hash(hash, static_cast<uint64_t>(grid[i]) << 32 | static_cast<uint32_t>(block[i]));
  hash = mix_hash(hash, bits_of(occupancy) << 32 | bits_of(blocks));
  LaunchConfigs& table = block_.launch_configs;
  return block_.config_index.find_or_add(
      hash,
      [&](Row row) {
        return table.grid_x[row] == grid[0] && table.grid_y[row] == grid[1] && table.grid_z[row] == grid[2] &&
               table.block_x[row] == block[0] && table.block_y[row] == block[1] && table.block_z[row] == block[2] &&
               table.registers_per_thread[row] == registers && table.shared_bytes[row] == shared &&
               bits_of(table.occupancy_frac[row]) == bits_of(occupancy) &&
               bits_of(table.blocks_per_sm[row]) == bits_of(blocks);
      },
      [&] {
        table.grid_x.push_back(grid[0]);
        table.grid_y.push_back(grid[1]);
        table.grid_z.push_back(grid[2]);
        table.block_x.push_back(block[0]);
        table.block_y.push_back(block[1]);
        table.block_z.push_back(block[2]);
        table.registers_per_thread.push_back(static_cast<int32_t>(registers));
        table.shared_bytes.push_back(shared);
        table.occupancy_frac.push_back(occupancy);
        table.blocks_per_sm.push_back(blocks);
        table.warps_per_sm.push_back(warps);
        return static_cast<Row>(table.size() - 1);
      });
}

void Emitter::add_op(const Event& event, int64_t start_ns, int64_t dur_ns) {
  Ops& ops = block_.ops;
  ops.start_ns.push_back(start_ns);
  ops.dur_ns.push_back(dur_ns);
  ops.thread.push_back(thread_of(event));
  ops.name.push_back(intern(event.name));
  ops.signature.push_back(signature_of(event));
  ops.external_id.push_back(uint_arg(event, Arg::kExternalId));
  ops.sequence.push_back(int_arg(event, Arg::kSequence, -1));
  double flops = std::numeric_limits<double>::quiet_NaN();
  if (const Field* field = event.arg(Arg::kFlops); field != nullptr && !json::parse_double(field->text, flops))
    flops = std::numeric_limits<double>::quiet_NaN();
  ops.recorded_flops.push_back(flops);
}

void Emitter::add_gpu_op(const Event& event, GpuOpKind kind, int64_t start_ns, int64_t dur_ns) {
  GpuOps& gpu = block_.gpu_ops;
  gpu.start_ns.push_back(start_ns);
  gpu.dur_ns.push_back(dur_ns);
  gpu.stream.push_back(stream_of(event));
  gpu.name.push_back(intern(event.name));
  gpu.config.push_back(kind == GpuOpKind::kKernel ? config_of(event) : kNoRow);
  gpu.correlation.push_back(uint_arg(event, Arg::kCorrelation));
  gpu.external_id.push_back(uint_arg(event, Arg::kExternalId));
  gpu.graph_node.push_back(uint_arg(event, Arg::kGraphNode));
  gpu.bytes.push_back(kind == GpuOpKind::kKernel ? -1 : int_arg(event, Arg::kBytes, -1));
  gpu.kind.push_back(kind);
  const Field* collective = event.arg(Arg::kCollective);
  if (collective == nullptr) return;
  Collectives& table = block_.collectives;
  table.gpu_op.push_back(static_cast<Row>(gpu.size() - 1));
  table.name.push_back(intern(*collective));
  const Field* dtype = event.arg(Arg::kDType);
  table.dtype.push_back(dtype != nullptr ? intern(*dtype) : StringId::kEmpty);
  table.in_elements.push_back(int_arg(event, Arg::kInElements, -1));
  table.out_elements.push_back(int_arg(event, Arg::kOutElements, -1));
  const int64_t group = int_arg(event, Arg::kGroupSize, -1);
  table.group_size.push_back(group > INT32_MAX || group < -1 ? -1 : static_cast<int32_t>(group));
}

void Emitter::add_complete(const Event& event, const char* at) {
  if (event.category.text != last_category_) last_kind_ = kind_of(event.category.text);
  last_category_ = event.category.text;
  const Kind kind = last_kind_;
  if (kind == Kind::kIgnored) return;
  if (kind == Kind::kUnknown) return problem(DiagnosticId::kUnknownCategory, at);
  if (!event.time || !event.name) return problem(DiagnosticId::kMissingField, at, event.name ? "no ts" : "no name");
  int64_t start_ns = 0, dur_ns = 0;
  if (!json::micros_to_ns(event.time.text, start_ns)) return problem(DiagnosticId::kBadNumber, at, "ts");
  if (!event.duration)
    problem(DiagnosticId::kMissingDuration, at);
  else if (!json::micros_to_ns(event.duration.text, dur_ns))
    return problem(DiagnosticId::kBadNumber, at, "dur");
  if (dur_ns < 0) return problem(DiagnosticId::kNegativeDuration, at);
  // Sums of times must not overflow later: 146 years from the epoch are enough.
  constexpr int64_t kTimeMax = INT64_MAX / 2;
  if (start_ns > kTimeMax || start_ns < -kTimeMax || dur_ns > kTimeMax - (start_ns > 0 ? start_ns : 0))
    return problem(DiagnosticId::kBadNumber, at, "time out of range");
  switch (kind) {
    case Kind::kOp:
      return add_op(event, start_ns, dur_ns);
    case Kind::kKernel:
    case Kind::kMemcpy:
    case Kind::kMemset:
      if (start_ns == 0 && dur_ns == 0) return problem(DiagnosticId::kZeroTimestamp, at);
      return add_gpu_op(event,
                        kind == Kind::kKernel   ? GpuOpKind::kKernel
                        : kind == Kind::kMemcpy ? GpuOpKind::kMemcpy
                                                : GpuOpKind::kMemset,
                        start_ns, dur_ns);
    case Kind::kRuntime:
    case Kind::kDriver: {
      ApiCalls& calls = block_.api_calls;
      calls.start_ns.push_back(start_ns);
      calls.dur_ns.push_back(dur_ns);
      calls.thread.push_back(thread_of(event));
      calls.name.push_back(intern(event.name));
      calls.correlation.push_back(uint_arg(event, Arg::kCorrelation));
      calls.external_id.push_back(uint_arg(event, Arg::kExternalId));
      calls.layer.push_back(kind == Kind::kRuntime ? ApiLayer::kRuntime : ApiLayer::kDriver);
      return;
    }
    case Kind::kAnnotation:
    case Kind::kGpuAnnotation: {
      Annotations& table = block_.annotations;
      table.start_ns.push_back(start_ns);
      table.dur_ns.push_back(dur_ns);
      table.thread.push_back(kind == Kind::kAnnotation ? thread_of(event) : kNoRow);
      table.name.push_back(intern(event.name));
      table.domain.push_back(StringId{});
      table.payload.push_back(std::numeric_limits<double>::quiet_NaN());
      table.kind.push_back(kind == Kind::kAnnotation ? AnnotationKind::kUser : AnnotationKind::kGpuUser);
      table.external_id.push_back(uint_arg(event, Arg::kExternalId));
      return;
    }
    case Kind::kPython: {
      PythonCalls& calls = block_.python_calls;
      calls.start_ns.push_back(start_ns);
      calls.dur_ns.push_back(dur_ns);
      calls.thread.push_back(thread_of(event));
      calls.name.push_back(intern(event.name));
      calls.python_id.push_back(int_arg(event, Arg::kPythonId, -1));
      calls.parent_id.push_back(int_arg(event, Arg::kPythonParent, -1));
      return;
    }
    case Kind::kSync: {
      SyncEvents& table = block_.sync_events;
      table.start_ns.push_back(start_ns);
      table.dur_ns.push_back(dur_ns);
      const int64_t device = int_arg(event, Arg::kDevice, -1);
      table.device.push_back(device < 0 || device > INT32_MAX ? -1 : static_cast<int32_t>(device));
      table.stream.push_back(int_arg(event, Arg::kStream, -1));
      table.name.push_back(intern(event.name));
      table.correlation.push_back(uint_arg(event, Arg::kCorrelation));
      return;
    }
    case Kind::kOverhead: {
      Overheads& table = block_.overheads;
      table.start_ns.push_back(start_ns);
      table.dur_ns.push_back(dur_ns);
      // The recorder writes pid -1 for overhead that it cannot place on a thread.
      int64_t process = -1;
      const bool placed = json::parse_int(event.process_id.text, process) && process >= 0;
      table.thread.push_back(placed ? thread_of(event) : kNoRow);
      table.name.push_back(intern(event.name));
      return;
    }
    case Kind::kIgnored:
    case Kind::kUnknown:
      return;
  }
}

void Emitter::add_instant(const Event& event, const char* at) {
  if (event.name.text != "[memory]") return;  // iteration and window marks
  int64_t time_ns = 0;
  if (!event.time) return problem(DiagnosticId::kMissingField, at, "no ts");
  if (!json::micros_to_ns(event.time.text, time_ns) || time_ns > INT64_MAX / 2 || time_ns < -INT64_MAX / 2)
    return problem(DiagnosticId::kBadNumber, at, "ts");
  const Field* bytes = event.arg(Arg::kMemoryBytes);
  if (bytes == nullptr) return problem(DiagnosticId::kMissingField, at, "no Bytes");
  int64_t count = 0;
  if (!json::parse_int(bytes->text, count)) return problem(DiagnosticId::kBadNumber, at, "Bytes");
  // c10::DeviceType: 0 is the CPU, 1 CUDA.
  const bool on_gpu = int_arg(event, Arg::kDeviceType, 1) != 0;
  const int64_t device = int_arg(event, Arg::kDeviceId, 0);
  MemoryEvents& table = block_.memory_events;
  table.time_ns.push_back(time_ns);
  table.thread.push_back(thread_of(event));
  table.device.push_back(!on_gpu ? -1 : device >= 0 && device <= INT32_MAX ? static_cast<int32_t>(device) : 0);
  table.address.push_back(uint_arg(event, Arg::kAddress));
  table.bytes.push_back(count);
  table.allocated_bytes.push_back(int_arg(event, Arg::kTotalAllocated, -1));
  table.reserved_bytes.push_back(int_arg(event, Arg::kTotalReserved, -1));
}

void Emitter::add_metadata(const Event& event) {
  if (event.name.text != "thread_name") return;
  const Field* name = event.arg(Arg::kName);
  Block::ThreadName entry{};
  if (name == nullptr || !json::parse_int(event.process_id.text, entry.process_id) ||
      !json::parse_int(event.thread_id.text, entry.thread_id))
    return;
  entry.name = intern(*name);
  block_.thread_names.push_back(entry);
}

void Emitter::add_counter(const Event& event, const char* at) {
  int64_t time_ns = 0;
  if (!event.time || !event.name || event.args_text.empty())
    return problem(DiagnosticId::kMissingField, at, "counter without ts, name or args");
  if (!json::micros_to_ns(event.time.text, time_ns) || time_ns > INT64_MAX / 2 || time_ns < -INT64_MAX / 2)
    return problem(DiagnosticId::kBadNumber, at, "ts");
  // pid is a number or text such as "GPU 0 Counters"; the first number in it is the device.
  int64_t device = -1;
  for (const char c : event.process_id.text) {
    if (c >= '0' && c <= '9' && device < 1000)
      device = (device < 0 ? 0 : device * 10) + (c - '0');
    else if (device >= 0)
      break;
  }
  const std::string base =
      event.name.escaped ? json::unescape(event.name.text) : std::string(event.name.text.substr(0, kNameBytesMax));
  // args was scanned before, so this walk over "key": number pairs cannot fail half way.
  const char* p = event.args_text.data() + 1;
  const char* end = event.args_text.data() + event.args_text.size();
  while (p < end) {
    p = json::skip_space(p);
    if (*p == ',') {
      ++p;
      continue;
    }
    if (*p != '"') break;
    Field key, value;
    if (scan_field(p, end, key) != json::Outcome::kOk) break;
    p = json::skip_space(p);
    if (*p != ':') break;
    p = json::skip_space(p + 1);
    if (scan_field(p, end, value) != json::Outcome::kOk) break;
    double number = 0;
    if (!json::parse_double(value.text, number)) {
      problem(DiagnosticId::kBadNumber, at, "counter");
      continue;
    }
    Counters& table = block_.counters;
    table.time_ns.push_back(time_ns);
    table.device.push_back(static_cast<int32_t>(device));
    table.name.push_back(block_.strings.intern(base + "." + std::string(key.text.substr(0, kNameBytesMax))));
    table.value.push_back(number);
  }
}

void Emitter::add(const Event& event, const char* at) {
  switch (event.phase) {
    case 'X':
      return add_complete(event, at);
    case 'i':
    case 'I':
      return add_instant(event, at);
    case 'M':
      return add_metadata(event);
    case 'C':
      return add_counter(event, at);
    case 's':
    case 't':
    case 'f':
      return;  // flow arrows repeat what correlation ids say
    case 'B':
    case 'E':
      return problem(DiagnosticId::kUnfinishedRange, at, "begin/end pairs are not part of this format");
    case '\0':
      return problem(DiagnosticId::kMissingField, at, "no ph");
    default:
      return problem(DiagnosticId::kUnknownCategory, at);
  }
}

}  // namespace llmprof::kineto
