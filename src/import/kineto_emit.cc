#include "import/kineto_emit.h"

#include "trace/copy_names.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
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
      {"cuda_event", Kind::kEvent},
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
  if (block_.rows.diagnostics.places(id).size() < Diagnostics::kKeptPlaces) {
    where = "byte " + std::to_string(block_.offset + static_cast<uint64_t>(at - block_.bytes.data()));
    if (what != nullptr) where += std::string(", ") + what;
  }
  block_.rows.diagnostics.add(id, std::move(where));
}

StringId Emitter::intern(const Field& field) {
  std::string_view text = field.text;
  if (text.size() > kNameBytesMax) {
    block_.rows.diagnostics.add(DiagnosticId::kLimitReached, "a name of " + std::to_string(text.size()) + " bytes");
    text = text.substr(0, kNameBytesMax);
  }
  if (field.escaped) return block_.builder.text(json::unescape(text));
  return block_.builder.text(text);
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

ThreadId Emitter::thread_of(const Event& event) {
  const std::string_view process = event.process_id.text, thread = event.thread_id.text;
  if (last_thread_row_ != kNoRow && process == last_process_ && thread == last_thread_) return last_thread_row_;
  int64_t process_id = -1, thread_id = -1;
  StringId name = StringId::kEmpty;
  if (!json::parse_int(process, process_id)) process_id = -1;
  if (!json::parse_int(thread, thread_id)) {
    thread_id = -1;
    name = intern(event.thread_id);
  }
  last_thread_row_ = block_.builder.thread(process_id, thread_id, name);
  last_process_ = process;
  last_thread_ = thread;
  return last_thread_row_;
}

StreamId Emitter::stream_of(const Event& event) {
  int64_t device = int_arg(event, Arg::kDevice, -1);
  if (device < 0 && !json::parse_int(event.process_id.text, device)) device = -1;
  int64_t stream = int_arg(event, Arg::kStream, -1);
  if (stream < 0 && !json::parse_int(event.thread_id.text, stream)) stream = -1;
  const int64_t context = int_arg(event, Arg::kContext, -1);
  if (device < 0 || device > INT32_MAX) device = 0;
  if (device == last_stream_key_[0] && context == last_stream_key_[1] && stream == last_stream_key_[2])
    return last_stream_row_;
  last_stream_row_ = block_.builder.stream(static_cast<int32_t>(device), context, stream);
  last_stream_key_[0] = device;
  last_stream_key_[1] = context;
  last_stream_key_[2] = stream;
  return last_stream_row_;
}

SignatureId Emitter::signature_of(const Event& event) {
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
  if (low == nullptr) return {};
  // The recorder writes the four side by side, so one hash over the text from the first to the last covers them. It has
  // 64 bits and stands for what the tables do not hold as text.
  const uint64_t hash = XXH3_64bits(low, static_cast<size_t>(high - low));
  return block_.signature_index.find_or_add(
      hash, [&](Row row) { return block_.rows.text(block_.rows.signatures.dims[row]) == parts[0]; },
      [&] {
        return block_.builder.signature({parts[0], parts[1], parts[2], parts[3]});
      });
}

LaunchConfigId Emitter::config_of(const Event& event) {
  int32_t grid[3] = {-1, -1, -1}, block[3] = {-1, -1, -1};
  if (const Field* field = event.arg(Arg::kGrid); field != nullptr && !parse_triple(field->text, grid))
    block_.rows.diagnostics.add(DiagnosticId::kBadMetadata, "grid of a kernel");
  if (const Field* field = event.arg(Arg::kBlock); field != nullptr && !parse_triple(field->text, block))
    block_.rows.diagnostics.add(DiagnosticId::kBadMetadata, "block of a kernel");
  int64_t registers = int_arg(event, Arg::kRegisters, -1);
  if (registers < -1 || registers > INT32_MAX) registers = -1;
  const int64_t shared = int_arg(event, Arg::kSharedMemory, -1);
  return block_.builder.launch_config({.grid_x = grid[0],
                                       .grid_y = grid[1],
                                       .grid_z = grid[2],
                                       .block_x = block[0],
                                       .block_y = block[1],
                                       .block_z = block[2],
                                       .registers_per_thread = static_cast<int32_t>(registers),
                                       .shared_bytes = shared,
                                       .occupancy_frac = float_arg(event, Arg::kOccupancy) / 100.0F});
}

void Emitter::add_op(const Event& event, int64_t start_ns, int64_t dur_ns) {
  double flops = std::numeric_limits<double>::quiet_NaN();
  if (const Field* field = event.arg(Arg::kFlops); field != nullptr && !json::parse_double(field->text, flops))
    flops = std::numeric_limits<double>::quiet_NaN();
  block_.builder.add<Ops>({.start_ns = start_ns,
                           .dur_ns = dur_ns,
                           .thread = thread_of(event),
                           .name = intern(event.name),
                           .signature = signature_of(event),
                           .external_id = uint_arg(event, Arg::kExternalId),
                           .sequence = int_arg(event, Arg::kSequence, -1),
                           .recorded_flops = flops});
}

void Emitter::add_gpu_op(const Event& event, GpuOpKind kind, int64_t start_ns, int64_t dur_ns) {
  const bool kernel = kind == GpuOpKind::kKernel;
  const StreamId stream = stream_of(event);
  const StringId name = intern(event.name);
  const GpuOpId row = block_.builder.add<GpuOps>({.start_ns = start_ns,
                                                  .dur_ns = dur_ns,
                                                  .stream = stream,
                                                  .name = name,
                                                  .config = kernel ? config_of(event) : LaunchConfigId(),
                                                  .correlation = uint_arg(event, Arg::kCorrelation),
                                                  .external_id = uint_arg(event, Arg::kExternalId),
                                                  .graph_node = uint_arg(event, Arg::kGraphNode),
                                                  .bytes = kernel ? -1 : int_arg(event, Arg::kBytes, -1),
                                                  .kind = kind});
  if (kind == GpuOpKind::kMemcpy) {
    GpuOps& gpu = block_.rows.gpu_ops;
    gpu.path.back() = copy_path_of_name(event.name.text);
    gpu.host_memory.back() = host_memory_of_name(event.name.text);
  }
  const Field* collective = event.arg(Arg::kCollective);
  if (collective == nullptr) return;
  const auto text_of = [&](Arg which) {
    const Field* field = event.arg(which);
    return field != nullptr ? intern(*field) : StringId::kEmpty;
  };
  const auto small = [&](Arg which) {
    const int64_t value = int_arg(event, which, -1);
    return value > INT32_MAX || value < -1 ? -1 : static_cast<int32_t>(value);
  };
  block_.builder.add<Collectives>({.gpu_op = row,
                                   .name = intern(*collective),
                                   .dtype = text_of(Arg::kDType),
                                   .in_elements = int_arg(event, Arg::kInElements, -1),
                                   .out_elements = int_arg(event, Arg::kOutElements, -1),
                                   .group_size = small(Arg::kGroupSize),
                                   .group = text_of(Arg::kGroup),
                                   .members = text_of(Arg::kGroupMembers),
                                   .sequence = int_arg(event, Arg::kGroupSequence, -1),
                                   .from_rank = small(Arg::kFromRank),
                                   .to_rank = small(Arg::kToRank)});
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
  TraceBuilder& builder = block_.builder;
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
    case Kind::kDriver:
      builder.add<ApiCalls>({.start_ns = start_ns,
                             .dur_ns = dur_ns,
                             .thread = thread_of(event),
                             .name = intern(event.name),
                             .correlation = uint_arg(event, Arg::kCorrelation),
                             .external_id = uint_arg(event, Arg::kExternalId),
                             .layer = kind == Kind::kRuntime ? ApiLayer::kRuntime : ApiLayer::kDriver});
      return;
    case Kind::kAnnotation:
    case Kind::kGpuAnnotation:
      builder.add<Annotations>({.start_ns = start_ns,
                                .dur_ns = dur_ns,
                                .thread = kind == Kind::kAnnotation ? thread_of(event) : ThreadId(),
                                .name = intern(event.name),
                                .kind = kind == Kind::kAnnotation ? AnnotationKind::kUser : AnnotationKind::kGpuUser,
                                .external_id = uint_arg(event, Arg::kExternalId)});
      return;
    case Kind::kPython:
      builder.add<PythonCalls>(
          {.start_ns = start_ns, .dur_ns = dur_ns, .thread = thread_of(event), .name = intern(event.name)});
      return;
    case Kind::kSync: {
      const int64_t device = int_arg(event, Arg::kDevice, -1);
      builder.add<SyncEvents>(
          {.start_ns = start_ns,
           .dur_ns = dur_ns,
           .device = device < 0 || device > INT32_MAX ? -1 : static_cast<int32_t>(device),
           .stream = int_arg(event, Arg::kStream, -1),
           .name = intern(event.name),
           .correlation = uint_arg(event, Arg::kCorrelation),
           .event_stream = int_arg(event, Arg::kEventStream, -1),
           // -1 where the recording of the event was not seen
           .event_call = static_cast<uint64_t>(std::max<int64_t>(int_arg(event, Arg::kEventCall, 0), 0))});
      return;
    }
    case Kind::kEvent: {
      const int64_t device = int_arg(event, Arg::kDevice, -1);
      builder.add<SyncEvents>({.start_ns = start_ns,
                               .dur_ns = dur_ns,
                               .device = device < 0 || device > INT32_MAX ? -1 : static_cast<int32_t>(device),
                               .name = intern(event.name),
                               .event_stream = int_arg(event, Arg::kStream, -1),
                               .event_call = uint_arg(event, Arg::kCorrelation)});
      return;
    }
    case Kind::kOverhead: {
      // The recorder writes pid -1 for overhead that it cannot place on a thread.
      int64_t process = -1;
      const bool placed = json::parse_int(event.process_id.text, process) && process >= 0;
      builder.add<Overheads>({.start_ns = start_ns,
                              .dur_ns = dur_ns,
                              .thread = placed ? thread_of(event) : ThreadId(),
                              .name = intern(event.name)});
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
  block_.builder.add<MemoryEvents>({.time_ns = time_ns,
                                    .thread = thread_of(event),
                                    .device = !on_gpu                              ? -1
                                              : device >= 0 && device <= INT32_MAX ? static_cast<int32_t>(device)
                                                                                   : 0,
                                    .address = uint_arg(event, Arg::kAddress),
                                    .bytes = count,
                                    .allocated_bytes = int_arg(event, Arg::kTotalAllocated, -1),
                                    .reserved_bytes = int_arg(event, Arg::kTotalReserved, -1)});
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
    block_.builder.add<Counters>(
        {.time_ns = time_ns,
         .device = static_cast<int32_t>(device),
         .name = block_.builder.text(base + "." + std::string(key.text.substr(0, kNameBytesMax))),
         .value = number});
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
