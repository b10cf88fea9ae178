#include "trace/trace_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmprof {
namespace {

int32_t moved_device(int32_t ordinal, const Joining& joining) {
  return ordinal < 0 || !joining.device ? ordinal : joining.device(ordinal);
}

}  // namespace

ThreadId TraceBuilder::thread(int64_t process_id, int64_t thread_id, StringId name) {
  Threads& threads = trace_.threads;
  const bool by_name = thread_id == -1;
  const uint64_t hash = mix_hash(mix_hash(static_cast<uint64_t>(process_id), static_cast<uint64_t>(thread_id)),
                                 by_name ? index(name) : 0);
  const ThreadId row = threads_.find_or_add(
      hash,
      [&](Row other) {
        return threads.process_id[other] == process_id && threads.thread_id[other] == thread_id &&
               (!by_name || threads.name[other] == name);
      },
      [&] { return add<Threads>({.process_id = process_id, .thread_id = thread_id, .name = name}); });
  if (name != StringId::kEmpty) threads.name[row] = name;
  return row;
}

StreamId TraceBuilder::stream(int32_t device, int64_t context, int64_t stream) {
  return streams_.find_or_append(trace_.streams, {.device = device, .context = context, .stream = stream});
}

LaunchConfigId TraceBuilder::launch_config(const LaunchConfigs::Values& config) {
  return launch_configs_.find_or_append(trace_.launch_configs, config);
}

// fill(row) adds the inputs of a new one.
template <class Fill>
SignatureId TraceBuilder::signature(StringId dims, uint64_t rest, Fill&& fill) {
  const Signatures& table = trace_.signatures;
  return signatures_.find_or_add(
      mix_hash(rest, index(dims)), [&](Row row) { return table.dims[row] == dims && table.rest[row] == rest; },
      [&] {
        const SignatureId row = add<Signatures>({.dims = dims, .rest = rest});
        fill(row);
        return row;
      });
}

SignatureId TraceBuilder::signature(const SignatureText& described) {
  return signature(text(described.dims), described.hash_without_dims(),
                   [&](SignatureId row) { read_inputs(described, trace_, row); });
}

// ---- appending a trace ---------------------------------------------------------------------------------------------

// Strings, devices, times and row ids of a column, from row `from` on.
template <class T>
void TraceBuilder::translate(const FieldInfo& field, std::vector<T>& column, size_t from, const Joining& joining) {
  if constexpr (std::is_same_v<T, StringId>) {
    if (strings_.empty()) return;
    for (size_t i = from; i < column.size(); ++i) column[i] = moved(column[i]);
  } else if constexpr (is_row_id<T>) {
    const Moved& moved = moves_.of<typename T::Target>();
    if (moved.base == 0 && moved.rows.empty()) return;
    for (size_t i = from; i < column.size(); ++i) column[i] = moved.at(column[i]);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (field.role != ColumnRole::kMoment || joining.clock_offset_ns == 0) return;
    for (size_t i = from; i < column.size(); ++i) column[i] += joining.clock_offset_ns;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if (field.role != ColumnRole::kDevice || !joining.device) return;
    int32_t last = -1, number = -1;  // most rows have the device of the row before
    for (size_t i = from; i < column.size(); ++i) {
      if (column[i] != last) number = moved_device(column[i], joining);
      last = column[i];
      column[i] = number;
    }
  }
}

template <class Table>
void TraceBuilder::append_rows(const Table& part, Table* memory, const Joining& joining) {
  if (part.empty()) return;
  Table& to = trace_.table<Table>();
  if (to.size() + part.size() >= kNoRow) {  // rows are 32-bit handles
    trace_.diagnostics.add(DiagnosticId::kLimitReached, fmt::format("{} has 2^32 rows", Table::info().name),
                           part.size());
    return;
  }
  const size_t from = to.size();
  if (from == 0 && memory != nullptr)
    to = std::move(*memory);
  else
    to.append_rows(part);
  to.for_each_column([&](const FieldInfo& field, auto& column) { translate(field, column, from, joining); });
}

void TraceBuilder::share_rows(const Trace& part, const Joining& joining) {
  for (size_t i = 0; i < part.threads.size(); ++i)
    moves_.threads.rows.push_back(
        thread(part.threads.process_id[i], part.threads.thread_id[i], moved(part.threads.name[i])));
  for (size_t i = 0; i < part.streams.size(); ++i)
    moves_.streams.rows.push_back(
        stream(moved_device(part.streams.device[i], joining), part.streams.context[i], part.streams.stream[i]));
  for (size_t i = 0; i < part.launch_configs.size(); ++i)
    moves_.launch_configs.rows.push_back(launch_config(part.launch_configs.row(i)));
  for (SignatureId i = 0; i < part.signatures.size(); ++i)
    moves_.signatures.rows.push_back(signature(moved(part.signatures.dims[i]), part.signatures.rest[i],
                                               [&](SignatureId row) { copy_inputs(part, i, row); }));
}

void TraceBuilder::copy_inputs(const Trace& part, SignatureId from, SignatureId to) {
  const int32_t count = part.signatures.input_count[from];
  const auto [first, end] = row_range(part.signatures.first_input[from], count, part.inputs.size());
  trace_.signatures.input_count[to] = count;
  for (Row i = first; i < end; ++i) {
    Inputs::Values input = part.inputs.row(i);
    const auto [number, last] = row_range(input.first_number, input.number_count, part.input_numbers.size());
    input.text = moved(input.text);
    input.first_number = kNoRow;
    for (Row n = number; n < last; ++n) {
      const InputNumberId copy = add<InputNumbers>(part.input_numbers.row(n));
      if (n == number) input.first_number = copy;
    }
    const InputId copy = add<Inputs>(input);
    if (i == first) trace_.signatures.first_input[to] = copy;
  }
}

void TraceBuilder::append_devices(const Devices& part, const Joining& joining) {
  for (size_t i = 0; i < part.size(); ++i) {
    Devices::Values device = part.row(i);
    if (joining.device) device.device = joining.device(device.device);
    const std::vector<int32_t>& known = trace_.devices.device;
    if (std::find(known.begin(), known.end(), device.device) != known.end()) continue;
    device.name = moved(device.name);
    device.uuid = moved(device.uuid);
    device.whole_uuid = moved(device.whole_uuid);
    add<Devices>(device);
  }
}

// `memory`: the part again if its memory may be taken, else null.
void TraceBuilder::append_part(const Trace& part, Trace* memory, const Joining& joining) {
  const bool take_strings = memory != nullptr && trace_.strings.size() == 1;  // only the empty one: handles stay
  strings_.clear();
  if (!take_strings) {
    strings_.resize(part.strings.size());
    for (uint32_t id = 0; id < strings_.size(); ++id) strings_[id] = text(part.strings[static_cast<StringId>(id)]);
  }
#define LLMPROF_PLACE(Type, name)                          \
  moves_.name.base = static_cast<Row>(trace_.name.size()); \
  moves_.name.rows.clear();
  LLMPROF_IMPORTED_TABLES(LLMPROF_PLACE)
#undef LLMPROF_PLACE
  append_devices(part.devices, joining);
  if (joining.share) share_rows(part, joining);
  const auto append_table = [&]<class Table>(const Table& table, Table* own) {
    constexpr bool kShared = std::is_same_v<Table, Threads> || std::is_same_v<Table, Streams> ||
                             std::is_same_v<Table, LaunchConfigs> || std::is_same_v<Table, Signatures> ||
                             std::is_same_v<Table, Inputs> || std::is_same_v<Table, InputNumbers>;
    if (std::is_same_v<Table, Devices> || (kShared && joining.share)) return;
    append_rows(table, own, joining);
  };
#define LLMPROF_APPEND(Type, name) append_table(part.name, memory == nullptr ? nullptr : &memory->name);
  LLMPROF_IMPORTED_TABLES(LLMPROF_APPEND)
#undef LLMPROF_APPEND
  trace_.diagnostics.merge(part.diagnostics);
  if (take_strings) trace_.strings = std::move(memory->strings);
}

void TraceBuilder::append(const Trace& part, const Joining& joining) { append_part(part, nullptr, joining); }

void TraceBuilder::append(Trace&& part, const Joining& joining) {
  append_part(part, &part, joining);
  part = Trace();
}

void TraceBuilder::clear() {
  trace_.strings.clear();
  // resize(0), not clear(): the memory is used again.
  trace_.for_each_table([](auto& table) { table.resize(0); });
  trace_.diagnostics = {};
  for (RowIndex* rows : {&threads_, &streams_, &launch_configs_, &signatures_}) rows->clear();
}

}  // namespace llmprof
