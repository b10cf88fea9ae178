// NVTX, own implementation. Every library of the program that uses NVTX has a copy of its header's state, asks the
// environment for NVTX_INJECTION64_PATH at its first call and lets InitializeInjectionNvtx2 fill in its function table;
// so the entry points here are called many times in a process, from any thread.
#include <string.h>

#include <cstdlib>
#include <cstring>

#include "capture/inject/inject.h"
#include "capture/inject/ranges/nvtx_names.h"
#include "capture/inject/ranges/nvtx_payload.h"
#include "capture/inject/recording.h"
#include "capture/inject/threads/reentry_guard.h"
#include "capture/inject/threads/thread_events.h"
#include "capture/session/control.h"
#include "nvidia/nvtx_abi.h"

namespace llmprof::inject {

namespace {

// What one event says, in whichever form it was given. The text is the caller's memory.
struct Message {
  std::string_view text;
  const NvtxName* registered = nullptr;
};

std::string_view bounded(const char* text) {
  return text != nullptr ? std::string_view(text, strnlen(text, spool::kTextMax)) : std::string_view();
}

bool names_operators() {
  static const bool names = [] {
    const char* torch = std::getenv(session::kEnvTorch);
    return torch != nullptr && *torch == '1';
  }();
  return names;
}

// PyTorch numbers every operator call ("aten::mm, seq = 7, op_id = 12, sizes = [[1, 8], [8, 4]], input_op_ids =
// [...]"): without the numbers a few hundred texts remain instead of millions. Writes into `buffer` if there is
// something to cut.
std::string_view operator_text(std::string_view text, char* buffer, size_t capacity) {
  constexpr std::string_view kSizes = ", sizes = ";
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) return text;
  const std::string_view after = text.substr(comma);
  if (after.substr(0, 8) != ", seq = " && after.substr(0, 10) != ", op_id = " && after.substr(0, 10) != kSizes)
    return text;
  const size_t sizes = text.find(kSizes, comma);
  std::string_view shape = sizes == std::string_view::npos ? std::string_view() : text.substr(sizes);
  shape = shape.substr(0, shape.find(", input_op_ids"));
  if (comma + shape.size() > capacity) return text;
  std::memcpy(buffer, text.data(), comma);
  std::memcpy(buffer + comma, shape.data(), shape.size());
  return {buffer, comma + shape.size()};
}

Id message_id(ThreadLog& log, const Message& message) {
  if (message.registered != nullptr) return name_id(message.registered);
  if (!names_operators()) return text_id(log, message.text);
  char buffer[1024];
  return text_id(log, operator_text(message.text, buffer, sizeof buffer));
}

std::string_view message_text(const Message& message) {
  return message.registered != nullptr ? message.registered->view() : message.text;
}

// Calls `use` with the event's message; only wide ones need memory of our own, on the stack.
template <typename Use>
auto with_message(const nvtx::EventAttributes& event, Use use) {
  switch (event.message_type) {
    case nvtx::kMessageAscii:
      return use(Message{bounded(event.message.ascii)});
    case nvtx::kMessageUnicode:
      return use(Message{WideText(event.message.unicode).view()});
    case nvtx::kMessageRegistered:
      return use(Message{{}, static_cast<const NvtxName*>(event.message.registered)});
    default:
      return use(Message{});
  }
}

// Attributes of another size than ours come from a later or broken header: only what is certain is read.
bool readable(const nvtx::EventAttributes* event) {
  return event != nullptr && event->size >= sizeof(nvtx::EventAttributes);
}

// Fills in what a push and a start have in common. False if the range interests nobody.
bool open_range(ThreadLog& log, const void* domain, const Message& message, NewRange& range) {
  range.domain_key = domain;
  if (watches_ranges()) {
    range.watched = true;
    range.watched_text = message_text(message);
    ReentryGuard guard;
    if (!guard.nested()) range_opened(range.watched_text);
  }
  range.record = records_ranges();  // asked after range_opened, which may have begun the recording
  if (range.record) {
    range.domain = name_id(static_cast<const NvtxName*>(domain));
    range.name = message_id(log, message);
  }
  return range.record || range.watched;
}

int push(const void* domain, const Message& message, const nvtx::EventAttributes* event, Payload payload = {}) {
  if (!watched()) return nvtx::kNoPushPopTracking;
  ThreadLog* log = thread_log();
  if (log == nullptr) return nvtx::kNoPushPopTracking;
  NewRange range;
  const uint32_t depth = log->depth.load(std::memory_order_relaxed);
  if (domain == nullptr && depth <= (names_operators() ? 0U : 1U) && tells_steps()) {
    ReentryGuard guard;
    if (!guard.nested()) range_step_begins(depth, message_text(message));
  }
  open_range(*log, domain, message, range);
  if (range.record) range.payload = event != nullptr ? event_payload(domain, *event) : payload;
  return push_range(*log, range);
}

int pop(const void* domain, Payload payload = {}) {
  if (!watched()) return nvtx::kNoPushPopTracking;
  ThreadLog* log = thread_log();
  if (log == nullptr) return nvtx::kNoPushPopTracking;
  const int level = pop_range(*log, domain, payload);
  const uint32_t depth = log->depth.load(std::memory_order_relaxed);
  if (depth <= 1 && thread_state.steps[depth].key != nullptr) {
    ReentryGuard guard;
    if (!guard.nested()) range_step_ends(depth);
  }
  return level;
}

uint64_t start_range(const void* domain, const Message& message, const nvtx::EventAttributes* event,
                     Payload payload = {}) {
  if (!watched()) return 0;
  ThreadLog* log = thread_log();
  NewRange range;
  if (log == nullptr || !open_range(*log, domain, message, range)) return 0;
  if (range.record) range.payload = event != nullptr ? event_payload(domain, *event) : payload;
  return start_process_range(*log, range);
}

void end_range(uint64_t id, Payload payload = {}) {
  if (id == 0 || !watched()) return;
  ThreadLog* log = thread_log();
  if (log != nullptr) end_process_range(*log, id, payload);
}

void mark(const void* domain, const Message& message, const nvtx::EventAttributes* event, Payload payload = {}) {
  if (!records_ranges() || !watched()) return;
  ThreadLog* log = thread_log();
  if (log == nullptr) return;
  if (event != nullptr) payload = event_payload(domain, *event);
  add_mark(*log, name_id(static_cast<const NvtxName*>(domain)), message_id(*log, message), payload);
}

// ---- callbacks: the signatures are NVTX's -------------------------------------------------------------------------

using nvtx::EventAttributes;

void domain_mark_ex(const void* domain, const EventAttributes* event) {
  if (!readable(event)) return;
  with_message(*event, [&](const Message& message) { mark(domain, message, event); });
}
void mark_ex(const EventAttributes* event) { domain_mark_ex(nullptr, event); }
void mark_a(const char* text) { mark(nullptr, {bounded(text)}, nullptr); }
void mark_w(const wchar_t* text) { mark(nullptr, {WideText(text).view()}, nullptr); }

uint64_t domain_range_start_ex(const void* domain, const EventAttributes* event) {
  if (!readable(event)) return 0;
  return with_message(*event, [&](const Message& message) { return start_range(domain, message, event); });
}
uint64_t range_start_ex(const EventAttributes* event) { return domain_range_start_ex(nullptr, event); }
uint64_t range_start_a(const char* text) { return start_range(nullptr, {bounded(text)}, nullptr); }
uint64_t range_start_w(const wchar_t* text) { return start_range(nullptr, {WideText(text).view()}, nullptr); }
void domain_range_end(const void*, uint64_t id) { end_range(id); }
void range_end(uint64_t id) { end_range(id); }

int domain_range_push_ex(const void* domain, const EventAttributes* event) {
  if (!readable(event)) return push(domain, {}, nullptr);  // its pop will come
  return with_message(*event, [&](const Message& message) { return push(domain, message, event); });
}
int range_push_ex(const EventAttributes* event) { return domain_range_push_ex(nullptr, event); }
int range_push_a(const char* text) { return push(nullptr, {bounded(text)}, nullptr); }
int range_push_w(const wchar_t* text) { return push(nullptr, {WideText(text).view()}, nullptr); }
int domain_range_pop(const void* domain) { return pop(domain); }
int range_pop() { return pop(nullptr); }

void name_os_thread_a(uint32_t thread, const char* name) {
  if (watched()) name_thread(thread, bounded(name));
}
void name_os_thread_w(uint32_t thread, const wchar_t* name) {
  if (watched()) name_thread(thread, WideText(name).view());
}

const void* domain_register_string_a(const void* domain, const char* text) {
  return registered_handle(domain, bounded(text));
}
const void* domain_register_string_w(const void* domain, const wchar_t* text) {
  return registered_handle(domain, WideText(text).view());
}
const void* domain_create_a(const char* name) { return domain_handle(bounded(name)); }
const void* domain_create_w(const wchar_t* name) { return domain_handle(WideText(name).view()); }

// The range, string and domain outlive these calls: other libraries may share them.
void domain_destroy(const void*) {}
void initialize(const void*) {}

// ---- callbacks of the payload extension
// -------------------------------------------------------------------------------

uint64_t payload_schema_register(const void* domain, const nvtx::SchemaAttributes* attributes) {
  return attributes != nullptr ? register_schema(domain, *attributes) : 0;
}
uint64_t payload_enum_register(const void*, const nvtx::EnumAttributes* attributes) {
  return attributes != nullptr ? register_enum(*attributes) : 0;
}
void mark_payload(const void* domain, const nvtx::PayloadData* data, size_t count) {
  SchemaValue value = read_payloads(domain, data, count);
  mark(domain, {{}, value.name}, nullptr, value.payload);
}
int range_push_payload(const void* domain, const nvtx::PayloadData* data, size_t count) {
  SchemaValue value = read_payloads(domain, data, count);
  return push(domain, {{}, value.name}, nullptr, value.payload);
}
int range_pop_payload(const void* domain, const nvtx::PayloadData* data, size_t count) {
  return pop(domain, read_payloads(domain, data, count).payload);
}
uint64_t range_start_payload(const void* domain, const nvtx::PayloadData* data, size_t count) {
  SchemaValue value = read_payloads(domain, data, count);
  return start_range(domain, {{}, value.name}, nullptr, value.payload);
}
void range_end_payload(const void* domain, uint64_t id, const nvtx::PayloadData* data, size_t count) {
  end_range(id, read_payloads(domain, data, count).payload);
}

// ---- tables
// ----------------------------------------------------------------------------------------------------------

struct Slot {
  uint32_t callback;
  nvtx::Function function;
};

template <typename F>
Slot slot(uint32_t callback, F* function) {
  return {callback, reinterpret_cast<nvtx::Function>(function)};
}

void fill_module(const nvtx::ExportCallbacks& callbacks, nvtx::Module module, const Slot* slots, size_t count) {
  nvtx::FunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks.get_module_function_table(module, &table, &size) == 0 || table == nullptr) return;
  for (size_t i = 0; i < count; ++i) {
    if (slots[i].callback < size && table[slots[i].callback] != nullptr) *table[slots[i].callback] = slots[i].function;
  }
}

void fill_core(const nvtx::ExportCallbacks& callbacks) {
  const Slot slots[] = {
      slot(nvtx::kMarkEx, mark_ex),
      slot(nvtx::kMarkA, mark_a),
      slot(nvtx::kMarkW, mark_w),
      slot(nvtx::kRangeStartEx, range_start_ex),
      slot(nvtx::kRangeStartA, range_start_a),
      slot(nvtx::kRangeStartW, range_start_w),
      slot(nvtx::kRangeEnd, range_end),
      slot(nvtx::kRangePushEx, range_push_ex),
      slot(nvtx::kRangePushA, range_push_a),
      slot(nvtx::kRangePushW, range_push_w),
      slot(nvtx::kRangePop, range_pop),
      slot(nvtx::kNameOsThreadA, name_os_thread_a),
      slot(nvtx::kNameOsThreadW, name_os_thread_w),
  };
  fill_module(callbacks, nvtx::kModuleCore, slots, sizeof(slots) / sizeof(slots[0]));
}

void fill_core2(const nvtx::ExportCallbacks& callbacks) {
  const Slot slots[] = {
      slot(nvtx::kDomainMarkEx, domain_mark_ex),
      slot(nvtx::kDomainRangeStartEx, domain_range_start_ex),
      slot(nvtx::kDomainRangeEnd, domain_range_end),
      slot(nvtx::kDomainRangePushEx, domain_range_push_ex),
      slot(nvtx::kDomainRangePop, domain_range_pop),
      slot(nvtx::kDomainRegisterStringA, domain_register_string_a),
      slot(nvtx::kDomainRegisterStringW, domain_register_string_w),
      slot(nvtx::kDomainCreateA, domain_create_a),
      slot(nvtx::kDomainCreateW, domain_create_w),
      slot(nvtx::kDomainDestroy, domain_destroy),
      slot(nvtx::kInitialize, initialize),
  };
  fill_module(callbacks, nvtx::kModuleCore2, slots, sizeof(slots) / sizeof(slots[0]));
}

int attach(nvtx::GetExportTable get_export_table) {
  if (get_export_table == nullptr || !wait_for_watch()) return 0;
  const auto* callbacks = static_cast<const nvtx::ExportCallbacks*>(get_export_table(nvtx::kExportCallbacks));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(nvtx::ExportCallbacks)) return 0;
  if (callbacks->get_module_function_table == nullptr) return 0;
  fill_core(*callbacks);
  fill_core2(*callbacks);
  const auto* version = static_cast<const nvtx::ExportVersionInfo*>(get_export_table(nvtx::kExportVersionInfo));
  if (version != nullptr && version->struct_size >= sizeof(nvtx::ExportVersionInfo) &&
      version->set_injection_version != nullptr) {
    version->set_injection_version(3);
  }
  return 1;
}

int attach_payload(const nvtx::ExtensionModule& module) {
  const Slot slots[] = {
      slot(nvtx::kPayloadSchemaRegister, payload_schema_register),
      slot(nvtx::kPayloadEnumRegister, payload_enum_register),
      slot(nvtx::kMarkPayload, mark_payload),
      slot(nvtx::kRangePushPayload, range_push_payload),
      slot(nvtx::kRangePopPayload, range_pop_payload),
      slot(nvtx::kRangeStartPayload, range_start_payload),
      slot(nvtx::kRangeEndPayload, range_end_payload),
  };
  const nvtx::ExtensionSegment& segment = module.segments[0];
  for (const Slot& entry : slots) {
    if (entry.callback < segment.slot_count) {
      segment.slots[entry.callback] = reinterpret_cast<intptr_t>(entry.function);
    }
  }
  return 1;
}

}  // namespace
}  // namespace llmprof::inject

// Zero tells the program's NVTX that nobody listens: its calls cost nothing from then on.
extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(llmprof::nvtx::GetExportTable get_export_table) {
  return llmprof::inject::attach(get_export_table);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx(llmprof::nvtx::GetExportTable get_export_table) {
  return llmprof::inject::attach(get_export_table);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(llmprof::nvtx::ExtensionModule* module) {
  if (module == nullptr || !llmprof::inject::wait_for_watch()) return 0;
  // Other extensions (memory, counters) find no functions and turn themselves off.
  if (module->module != llmprof::nvtx::kPayloadModule || module->segment_count == 0) return 1;
  return llmprof::inject::attach_payload(*module);
}
}
