#include "capture/inject/libraries/library_logs.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "capture/blas_log/blas_log.h"
#include "capture/inject/libraries/library_calls.h"
#include "capture/inject/real_symbol.h"
#include "capture/inject/recording.h"
#include "capture/inject/threads/reentry_guard.h"

namespace llmprof::inject {

namespace {

// cuBLASLt's mask for one line a product, and the level under which that line comes.
constexpr int kTraceMask = 2;
constexpr int kTraceLevel = 2;
constexpr size_t kTextMost = 8192;  // of one message; the longest real one has 900 bytes

// When this many products of cuBLAS were seen and this part at most did not come by cuBLASLt, the latter suffices.
constexpr uint64_t kProductsSeen = 2000;
constexpr uint64_t kOnePartIn = 100;

using LtCallback = void (*)(int level, const char* function, const char* message);
using CublasCallback = void (*)(const char* message);

// One loaded copy of a library. Written under logs_lock.
struct Logger {
  void* handle = nullptr;
  bool lt = false;
  bool on = false;
  bool prepared = false;
  char path[512] = {};
};
constexpr size_t kLoggersMost = 4;

pthread_mutex_t logs_lock = PTHREAD_MUTEX_INITIALIZER;
Logger loggers[kLoggersMost];
size_t logger_count = 0;
unsigned long long objects_seen = 0;  // how many libraries had been loaded when we last looked
bool asked_front = false, hooks_in_front = false;
bool cublas_given_up = false;

std::atomic<int32_t> captures{0};
// Counts the times that cuBLAS's log was switched: what a thread last read of it holds for one of them. And how many
// copies of cuBLAS have it on. A line that was under way when the log was switched off comes afterwards, and the last
// one of a thread must not be taken for a product that the thread is in from then on.
std::atomic<uint32_t> cublas_period{0};
std::atomic<int32_t> cublas_logs_on{0};
std::atomic<uint64_t> cublas_products{0}, cublas_alone{0};

// What a thread's log lines have told so far. Allocated at its first line, freed when the thread ends.
struct LoggedThread {
  blas_log::CublasRecord record;
  int64_t record_start_ns = 0;
  Id definition = 0;
  int64_t end_ns = 0;
  bool open = false;       // thread_state.call is this call
  bool launched = false;   // a kernel of it was seen
  bool expects = false;    // the next launch is its own, whatever its name
  bool launching = false;  // the thread is inside that launch
  bool in_cublas = false;  // the last product came from cuBLAS, which has not been left as far as we know
  bool by_lt = false;      // and went on into cuBLASLt
  uint32_t period = 0;     // of cuBLAS's log, when in_cublas was set

  bool inside_cublas() const { return in_cublas && period == cublas_period.load(std::memory_order_relaxed); }
};
thread_local constinit LoggedThread* logged_thread = nullptr;

pthread_key_t thread_key;
pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
bool thread_key_made = false;

void thread_ends(void* value) {
  close_logged_call();
  logged_thread = nullptr;
  delete static_cast<LoggedThread*>(value);
}

LoggedThread* own_thread() {
  if (logged_thread != nullptr) return logged_thread;
  pthread_once(&thread_key_once, [] { thread_key_made = pthread_key_create(&thread_key, thread_ends) == 0; });
  if (!thread_key_made) return nullptr;
  LoggedThread* const made = new (std::nothrow) LoggedThread();
  if (made == nullptr) return nullptr;
  if (pthread_setspecific(thread_key, made) != 0) {
    delete made;
    return nullptr;
  }
  logged_thread = made;
  return made;
}

bool wants_logs() { return records_kernels() || captures.load(std::memory_order_relaxed) > 0; }

void open_call(LoggedThread& thread, const blas_log::Gemm& gemm, int64_t start_ns) {
  close_logged_call();
  ThreadLog* const log = thread_log();
  if (log == nullptr) return;
  CallShape shape;
  shape.function = gemm.function;
  shape.kind = kWorkGemm;
  shape.m = gemm.m;
  shape.n = gemm.n;
  shape.k = gemm.k;
  shape.batch = gemm.batch;
  shape.type_a = gemm.type_a;
  shape.type_b = gemm.type_b;
  shape.type_d = gemm.type_d;
  shape.compute_type = gemm.compute_type;
  shape.epilogue = gemm.epilogue;
  shape.scale_a = gemm.scale_a;
  shape.scale_b = gemm.scale_b;
  shape.groups = gemm.groups;
  shape.transpose_a = gemm.transpose_a;
  shape.transpose_b = gemm.transpose_b;
  shape.row_major = gemm.row_major;
  shape.gemv = gemm.gemv;
  thread.definition = call_definition(*log, shape);
  if (thread.definition == 0) return;
  thread.open = thread.expects = true;
  thread.launched = thread.launching = false;
  thread.end_ns = start_ns;
  thread_state.call_asked = false;
  thread_state.call_start_ns = start_ns;
  thread_state.call = next_handle(*log);
}

void on_lt_line(int level, const char* function, const char* message) {
  if (level != kTraceLevel || function == nullptr || message == nullptr) return;
  if (thread_state.inside || !wants_logs()) return;
  const int error = errno;
  LoggedThread* const thread = own_thread();
  if (thread != nullptr) {
    const std::string_view name(function, strnlen(function, 64));
    const bool by_cublas = name != blas_log::kPublicMatmul;
    blas_log::Gemm gemm;
    if (by_cublas && thread->inside_cublas()) {
      // The product that cuBLAS's record told of, or a part of it.
      thread->by_lt = true;
      thread->expects = thread->open;
    } else if (blas_log::parse_matmul(name, {message, strnlen(message, kTextMost)}, gemm)) {
      thread->in_cublas = false;
      open_call(*thread, gemm, now_ns());
    }
  }
  errno = error;
}

void on_cublas_text(const char* text) {
  if (text == nullptr || thread_state.inside || !wants_logs()) return;
  const int error = errno;
  if (LoggedThread* const thread = own_thread()) {
    const bool began_before = thread->record.inside_gemm();
    const blas_log::CublasRecord::Event event = thread->record.feed({text, strnlen(text, kTextMost)});
    if (event == blas_log::CublasRecord::Event::kCall) {
      close_logged_call();
      thread->in_cublas = false;
      thread->record_start_ns = now_ns();
    } else if (event == blas_log::CublasRecord::Event::kGemm) {
      open_call(*thread, thread->record.gemm(), began_before ? thread->record_start_ns : now_ns());
      thread->by_lt = false;
      // In this order: whoever sees the period of a log that is off sees that it is off.
      thread->period = cublas_period.load(std::memory_order_acquire);
      thread->in_cublas = cublas_logs_on.load(std::memory_order_relaxed) > 0;
    }
  }
  errno = error;
}

// ---- finding and switching; with logs_lock held ----

template <typename Function>
Function* symbol(const Logger& logger, const char* name) {
  return reinterpret_cast<Function*>(dlsym(logger.handle, name));
}

const char* file_name(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

void say(const char* format, const char* subject) {
  char text[1024];
  std::snprintf(text, sizeof text, format, subject);
  note("recorder-note", text);
}

// The variable of the user's that asks for this library's log; null if there is none.
const char* users_own(bool lt) {
  for (const char* name : {"CUBLASLT_LOG_LEVEL", "CUBLASLT_LOG_MASK", "CUBLASLT_LOG_FILE"})
    if (lt && std::getenv(name) != nullptr) return name;
  for (const char* name : {"CUBLAS_LOGINFO_DBG", "CUBLAS_LOGDEST_DBG"})
    if (!lt && std::getenv(name) != nullptr) return name;
  return nullptr;
}

// Once for each library: may its log be read?
bool prepare(const Logger& logger) {
  if (const char* name = users_own(logger.lt)) {
    say(logger.lt ? "%s is set: the log of cuBLASLt was left as it is, and GEMM shapes are not read from it"
                  : "%s is set: the log of cuBLAS was left as it is, and GEMM shapes are not read from it",
        name);
    return false;
  }
  if (logger.lt) {
    auto* const set_file = symbol<int(FILE*)>(logger, "cublasLtLoggerSetFile");
    auto* const set_callback = symbol<int(LtCallback)>(logger, "cublasLtLoggerSetCallback");
    auto* const set_mask = symbol<int(int)>(logger, "cublasLtLoggerSetMask");
    // With a callback alone the lines would go to the standard output as well.
    if (set_file == nullptr || set_callback == nullptr || set_mask == nullptr || set_file(nullptr) != 0 ||
        set_callback(on_lt_line) != 0) {
      say("%s has no log callback: GEMM shapes are not read from it", logger.path);
      return false;
    }
  } else {
    auto* const get_callback = symbol<int(CublasCallback*)>(logger, "cublasGetLoggerCallback");
    CublasCallback before = nullptr;
    if (get_callback == nullptr || symbol<int(CublasCallback)>(logger, "cublasSetLoggerCallback") == nullptr ||
        symbol<int(int, int, int, const char*)>(logger, "cublasLoggerConfigure") == nullptr ||
        get_callback(&before) != 0) {
      say("%s has no log callback: GEMM shapes are not read from it", logger.path);
      return false;
    }
    if (before != nullptr) {
      say("the program has a log callback of its own in %s: it was left as it is, and GEMM shapes are not read from it",
          logger.path);
      return false;
    }
  }
  say("GEMM shapes come from the log of %s, because the recorder was not preloaded", logger.path);
  return true;
}

void switch_log(Logger& logger, bool on) {
  if (logger.on == on) return;
  logger.on = on;
  if (logger.lt) {
    symbol<int(int)>(logger, "cublasLtLoggerSetMask")(on ? kTraceMask : 0);
    return;
  }
  cublas_logs_on.fetch_add(on ? 1 : -1, std::memory_order_relaxed);
  cublas_period.fetch_add(1, std::memory_order_release);
  if (on) {
    symbol<int(CublasCallback)>(logger, "cublasSetLoggerCallback")(on_cublas_text);
    symbol<int(int, int, int, const char*)>(logger, "cublasLoggerConfigure")(1, 0, 0, nullptr);
  } else {
    // Without a callback the texts would still be made.
    symbol<int(int, int, int, const char*)>(logger, "cublasLoggerConfigure")(0, 0, 0, nullptr);
  }
}

struct Found {
  char paths[kLoggersMost][512];
  size_t count = 0;
  unsigned long long objects = 0;
};

int look_at(dl_phdr_info* info, size_t size, void* data) {
  Found& found = *static_cast<Found*>(data);
  if (size >= offsetof(dl_phdr_info, dlpi_subs)) {
    found.objects = info->dlpi_adds;
    if (found.objects == objects_seen) return 1;  // nothing was loaded since
  }
  if (info->dlpi_name == nullptr || found.count == kLoggersMost) return 0;
  const char* const file = file_name(info->dlpi_name);
  const bool wanted = std::strncmp(file, "libcublasLt.so", 14) == 0 || std::strncmp(file, "libcublas.so", 12) == 0;
  if (wanted && std::strlen(info->dlpi_name) < sizeof found.paths[0])
    std::strcpy(found.paths[found.count++], info->dlpi_name);
  return 0;
}

bool known(const char* path) {
  for (size_t i = 0; i < logger_count; ++i)
    if (std::strcmp(loggers[i].path, path) == 0) return true;
  return false;
}

void look_for_libraries() {
  Found found;
  dl_iterate_phdr(look_at, &found);
  if (found.objects == objects_seen && found.objects != 0) return;
  objects_seen = found.objects;
  for (size_t i = 0; i < found.count && logger_count < kLoggersMost; ++i) {
    if (known(found.paths[i])) continue;
    Logger& logger = loggers[logger_count];
    logger = Logger();
    // The reference is kept: the library must not go away under its log.
    logger.handle = dlopen(found.paths[i], RTLD_LAZY | RTLD_NOLOAD);
    if (logger.handle == nullptr) {
      dlerror();
      continue;
    }
    std::strcpy(logger.path, found.paths[i]);
    logger.lt = std::strncmp(file_name(logger.path), "libcublasLt", 11) == 0;
    logger.prepared = prepare(logger);
    if (logger.prepared) switches.reads_library_logs.store(true, std::memory_order_relaxed);
    ++logger_count;
  }
}

// cuBLAS's own log is worth its price only where products bypass cuBLASLt.
bool cublas_needed() {
  if (cublas_given_up) return false;
  const uint64_t seen = cublas_products.load(std::memory_order_relaxed);
  if (seen < kProductsSeen || cublas_alone.load(std::memory_order_relaxed) * kOnePartIn > seen) return true;
  cublas_given_up = true;
  note(
      "recorder-note",
      "The log of cuBLAS was switched off after some time, because its products appear in the cheaper one of cuBLASLt");
  return false;
}

}  // namespace

void follow_library_logs() {
  if (deepest_level() < Level::kDefault || (asked_front && hooks_in_front)) return;
  ReentryGuard guard;
  if (guard.nested() || pthread_mutex_trylock(&logs_lock) != 0) return;
  if (!asked_front) {
    asked_front = true;
    hooks_in_front = stands_in_front("cublasLtMatmul");
  }
  if (!hooks_in_front) {
    const bool on = wants_logs();
    // Nothing is looked for before anything is recorded: the loggers of a program that is only waited for stay alone.
    if (on) look_for_libraries();
    for (size_t i = 0; i < logger_count; ++i)
      if (loggers[i].prepared) switch_log(loggers[i], on && (loggers[i].lt || cublas_needed()));
  }
  pthread_mutex_unlock(&logs_lock);
}

void logged_step_begins(LoggedStep step, const char* kernel) {
  if (step == LoggedStep::kCaptureBegins && captures.fetch_add(1, std::memory_order_relaxed) == 0 && !records_kernels())
    follow_library_logs();
  LoggedThread* const thread = logged_thread;
  if (thread == nullptr || !thread->open) return;
  bool over = step >= LoggedStep::kGraphLaunch;
  if (step == LoggedStep::kCopy) over = thread->launched;
  if (step == LoggedStep::kLaunch) {
    const bool follows = kernel != nullptr &&
                         (std::strstr(kernel, "splitKreduce") != nullptr || std::strstr(kernel, "cublas") != nullptr);
    over = !thread->expects && !follows;
  }
  if (over) {
    close_logged_call();
  } else if (step == LoggedStep::kLaunch) {
    thread->launching = true;
    thread->expects = false;
  }
}

void logged_step_ends(LoggedStep step, int64_t end_ns) {
  if (step == LoggedStep::kCaptureEnds) {
    int32_t open = captures.load(std::memory_order_relaxed);
    while (open > 0 && !captures.compare_exchange_weak(open, open - 1, std::memory_order_relaxed)) {
    }
  }
  LoggedThread* const thread = logged_thread;
  if (thread == nullptr || !thread->open || !thread->launching) return;
  thread->launching = false;
  thread->launched = true;
  thread->end_ns = end_ns;
}

void close_logged_call() {
  LoggedThread* const thread = logged_thread;
  if (thread == nullptr || !thread->open) return;
  thread->open = thread->expects = false;
  ThreadState& state = thread_state;
  ThreadLog* const log = thread_log();
  if (log != nullptr && (state.call_asked || (thread->launched && records_ranges()))) {
    Event event;
    event.kind = EventKind::kLibraryCall;
    event.handle = state.call;
    event.definition = thread->definition;
    event.start_ns = state.call_start_ns;
    event.end_ns = thread->end_ns;
    append(*log, event);
    if (thread->in_cublas) {
      cublas_products.fetch_add(1, std::memory_order_relaxed);
      if (!thread->by_lt) cublas_alone.fetch_add(1, std::memory_order_relaxed);
    }
  }
  state.call = 0;
}

void abandon_library_logs() {
  pthread_mutex_init(&logs_lock, nullptr);
  captures.store(0, std::memory_order_relaxed);
  if (logged_thread != nullptr) logged_thread->open = false;
}

}  // namespace llmprof::inject
