#include "import/cublas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "capture/blas_log/blas_log.h"
#include "capture/blas_log/names.h"
#include "import/bounded_lines.h"
#include "import/session_names.h"
#include "nvidia/cublas_abi.h"
#include "trace/trace_builder.h"

namespace llmprof::blas_logs {
namespace {

constexpr size_t kBlasLineMax = 16 * 1024;   // the longest lines of cuBLASLt have some 1,000 bytes
constexpr size_t kParametersMax = 64;        // of a call; the longest has 24
constexpr size_t kBlasTextMax = 400;         // of an algorithm
constexpr size_t kBlasRemarkMax = 300;       // of an error, as it is quoted
constexpr size_t kProductsMax = 10'000'000;  // 1 GB of rows
constexpr std::string_view kCallLine = "I! cuBLAS (v";
constexpr std::string_view kLtMark = "][cublasLt][";

std::string_view after(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + key.size());
}

std::string_view up_to(std::string_view text, std::string_view end) { return text.substr(0, text.find(end)); }

// Of "0X7F51", of "7f51", and of cuBLAS's "0x0x7f51"; "(nil)" and everything else is 0.
uint64_t hexadecimal(std::string_view text) {
  while (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// Of "POINTER (IN HEX:0x0x7f51)".
uint64_t pointer(std::string_view text) { return hexadecimal(after(text, "IN HEX:")); }

// The whole number that a text begins with; -1 without one.
int64_t leading_number(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() && value >= 0 ? value : -1;
}

// Of "2026-11-20 23:33:00", with any character between date and time; -1 if it is none.
int64_t seconds_of(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  if (text.size() < kForm.size()) return -1;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : kForm[i] != ' ' && kForm[i] != text[i]) return -1;
  }
  const auto part = [&](size_t at, size_t size) { return static_cast<int>(leading_number(text.substr(at, size))); };
  const std::chrono::year_month_day date{std::chrono::year(part(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(part(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(part(8, 2)))};
  if (!date.ok()) return -1;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days < 0 ? -1 : days * 86'400 + part(11, 2) * 3'600 + part(14, 2) * 60 + part(17, 2);
}

// What a log says of a product beyond its shape.
struct Beside {
  int64_t unix_s = -1, process = -1, thread = -1;
  int32_t device = -1;
  uint64_t stream = 0;
  uint64_t a = 0, b = 0, d = 0;
  std::string algorithm{};
};

// A record of cuBLAS as far as it was read.
struct OpenRecord {
  bool product = false;
  bool mixed = false;     // it began before the record in front of it had ended
  bool doubtful = false;  // a parameter came twice
  size_t declared = 0;    // parameters of the function
  uint64_t line = 0;      // of its first line
  uint64_t handle = 0;
  std::vector<std::string> parameters{};
  Beside beside{};
  blas_log::CublasRecord shape{};
};

// Parameters in "cublasSgemm_v2(cublasHandle_t, int, const float*) called:".
size_t declared_parameters(std::string_view line) {
  const std::string_view types = up_to(after(line.substr(kCallLine.size()), "("), ")");
  return types.empty() ? 0 : static_cast<size_t>(std::count(types.begin(), types.end(), ',')) + 1;
}

class BlasLogReader {
 public:
  explicit BlasLogReader(Trace& trace) : trace_(trace), builder_(trace) {}

  // `cut`: the file ends in it.
  void line(std::string_view text, bool cut, bool too_long) {
    ++number_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    const bool lt = text.starts_with('[') && text.find(kLtMark) != std::string_view::npos;
    const bool cublas = text.starts_with("I!") || text.starts_with("i!");
    if (!lt && !cublas) return;  // output of the program
    if (too_long) return count(DiagnosticId::kLimitReached, fmt::format("more than {} bytes", kBlasLineMax));
    if (cut) {
      count(DiagnosticId::kTruncatedFile, "no end of line");
      open_ = false;  // the same place
      return;
    }
    if (lt)
      lt_lines(text);
    else
      cublas_line(text);
  }

  void finish() {
    if (open_) count(DiagnosticId::kTruncatedFile, fmt::format("the record of line {} has no end", record_.line));
  }

  // Calls of products of which only the addresses are logged.
  uint64_t calls_without_shapes() const { return bare_calls_; }
  uint64_t calls() const { return calls_; }

 private:
  void count(DiagnosticId id, std::string_view what) {
    const bool kept = trace_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces;
    trace_.diagnostics.add(id, kept ? fmt::format("line {} ({})", number_, what) : std::string());
  }

  // ---- cuBLASLt: a line for each call ----

  // A line that another thread wrote into holds the beginning of a second one.
  void lt_lines(std::string_view text) {
    constexpr size_t kTimeBytes = 20;  // "[2026-11-20 23:33:00" before the mark
    const size_t first = text.find(kLtMark);
    const size_t second = text.find(kLtMark, first + 1);
    if (second == std::string_view::npos) return lt_line(text, true);
    const size_t begin = second >= first + kLtMark.size() + kTimeBytes ? second - kTimeBytes : second;
    if (text[begin] != '[') return lt_line(text.substr(0, second), false);
    lt_line(text.substr(0, begin), false);
    lt_lines(text.substr(begin));
  }

  // `whole`: it ends as lines do.
  void lt_line(std::string_view text, bool whole) {
    blas_log::LtLine parts;
    if (!blas_log::split_lt_line(text, parts)) return;
    ++calls_;
    if (parts.level == "Error") return count(DiagnosticId::kRecorderNote, parts.message.substr(0, kBlasRemarkMax));
    if (blas_log::known_matmul(parts.function) == nullptr) return;
    if (parts.level == "Api") ++bare_calls_;
    if (parts.level != "Trace") return;
    blas_log::Gemm gemm;
    const std::string_view message = parts.message;
    if (!blas_log::parse_matmul(parts.function, message, gemm) || (!whole && after(message, " stream=").empty()))
      return count(DiagnosticId::kCutRecord, parts.function.substr(0, kBlasRemarkMax));
    Beside beside;
    beside.unix_s = seconds_of(parts.time);
    beside.process = parts.process;
    beside.a = message.starts_with("A=") ? hexadecimal(message.substr(2)) : 0;
    beside.b = hexadecimal(after(message, " B="));
    beside.d = hexadecimal(after(message, " D="));
    beside.stream = hexadecimal(after(message, " stream="));
    beside.algorithm = up_to(after(message, " algo=["), "]");
    add(gemm, parts.function, beside);
  }

  // ---- cuBLAS: a record of lines for each call ----

  void cublas_line(std::string_view text) {
    if (text.starts_with(kCallLine)) return begin(text);
    if (!open_) return;
    if (text.starts_with("i!Process=")) return end(text);
    if (text.starts_with("i! Time: ")) {
      record_.beside.unix_s = seconds_of(text.substr(std::string_view("i! Time: ").size()));
    } else if (text.starts_with("i!  ")) {
      parameter(text.substr(std::string_view("i!  ").size()));
      record_.shape.feed(text);
    }
  }

  void begin(std::string_view text) {
    const bool mixed = open_;
    if (open_ && record_.product) count(DiagnosticId::kCutRecord, fmt::format("begins in line {}", record_.line));
    ++calls_;
    record_ = OpenRecord();
    open_ = true;
    record_.mixed = mixed;
    record_.line = number_;
    record_.declared = declared_parameters(text);
    record_.shape.feed(text);
    record_.product = record_.shape.inside_gemm();
    if (trace_.metadata.count("cublas.version") == 0)
      trace_.metadata["cublas.version"] = up_to(text.substr(kCallLine.size()).substr(0, kBlasRemarkMax), ")");
  }

  void parameter(std::string_view text) {
    const std::string_view name = up_to(text, ":");
    std::vector<std::string>& seen = record_.parameters;
    if (seen.size() == kParametersMax || std::find(seen.begin(), seen.end(), name) != seen.end()) {
      record_.doubtful = true;
      return;
    }
    seen.emplace_back(name);
    const std::string_view value = after(text, "; val=");
    Beside& beside = record_.beside;
    if (name == "handle") record_.handle = pointer(value);
    if (name == "A") beside.a = pointer(value);
    if (name == "B" || name == "x") beside.b = pointer(value);
    if (name == "C" || name == "y") beside.d = pointer(value);
    if (name == "algo") beside.algorithm = up_to(value, "(");
  }

  // The record of one thread, and of no other: every parameter once, all of them where another record began before
  // the one in front had ended, and the handle of its parameters again at the end.
  bool is_sound(std::string_view text) const {
    const size_t parameters = record_.parameters.size();
    if (record_.doubtful || parameters > record_.declared) return false;
    if (record_.mixed && parameters != record_.declared) return false;
    const uint64_t handle = pointer(up_to(after(text, "; Handle="), ";"));
    return handle == 0 || record_.handle == 0 || handle == record_.handle;
  }

  void end(std::string_view text) {
    open_ = false;
    const bool complete = record_.shape.feed(text) == blas_log::CublasRecord::Event::kGemm;
    if (!record_.product) return;
    if (!complete || !is_sound(text))
      return count(DiagnosticId::kCutRecord, fmt::format("the record begins in line {}", record_.line));
    Beside& beside = record_.beside;
    beside.process = leading_number(after(text, "Process="));
    beside.thread = leading_number(after(text, "Thread="));
    const int64_t device = leading_number(after(text, "GPU="));
    beside.device = device < 0 || device > 1024 ? -1 : static_cast<int32_t>(device);
    beside.stream = pointer(up_to(after(text, "; StreamId="), ";"));
    add(record_.shape.gemm(), record_.shape.gemm().function, beside);
  }

  // ---- rows ----

  static std::string layout_of(const blas_log::Gemm& gemm) {
    constexpr std::array<const char*, 3> kNames = {"N", "T", "C"};
    const auto name = [&](uint8_t operation) { return kNames[std::min<size_t>(operation, kNames.size() - 1)]; };
    std::string out = name(gemm.transpose_a);
    if (gemm.gemv == 0) out += name(gemm.transpose_b);
    return gemm.row_major != 0 ? out + " row-major" : out;
  }

  void add(const blas_log::Gemm& gemm, std::string_view function, const Beside& beside) {
    if (trace_.logged_products.size() >= kProductsMax)
      return count(DiagnosticId::kLimitReached, fmt::format("more than {} products", kProductsMax));
    // Column-major D[m x n] = A[m x k] * B[k x n] is row-major D'[n x m] = B'[n x k] * A'[k x m]: B is the activation.
    const bool swapped = gemm.row_major == 0;
    const auto operand = [&](int32_t type) { return session_importer::operand_dtype(type, gemm.compute_type); };
    builder_.add<LoggedProducts>(
        {.unix_s = beside.unix_s,
         .process_id = beside.process,
         .thread_id = beside.thread,
         .device = beside.device,
         .stream = beside.stream,
         .function = builder_.text(function.substr(0, kBlasTextMax)),
         .dtype = operand(swapped ? gemm.type_b : gemm.type_a),
         .weight_dtype = operand(swapped ? gemm.type_a : gemm.type_b),
         .out_dtype = session_importer::dtype_of_cuda(gemm.type_d),
         .batch = gemm.batch,
         .m = swapped ? gemm.n : gemm.m,
         .n = swapped ? gemm.m : gemm.n,
         .k = gemm.k,
         .layout = builder_.text(layout_of(gemm)),
         .compute = builder_.text(blas_log::name_of_compute_type(gemm.compute_type)),
         .epilogue = builder_.text(gemm.epilogue > 1 ? blas_log::name_of_epilogue(gemm.epilogue) : ""),
         .algorithm = builder_.text(std::string_view(beside.algorithm).substr(0, kBlasTextMax)),
         .a = beside.a,
         .b = beside.b,
         .d = beside.d});
  }

  Trace& trace_;
  TraceBuilder builder_;
  uint64_t number_ = 0;  // of the line
  uint64_t calls_ = 0, bare_calls_ = 0;
  bool open_ = false;
  OpenRecord record_;
};

}  // namespace

// What the program prints may come first.
int sniff(std::string_view head) {
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find('\n'));
    head.remove_prefix(std::min(line.size() + 1, head.size()));
    blas_log::LtLine parts;
    if (line.starts_with(kCallLine) || blas_log::split_lt_line(line, parts)) return 80;
  }
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  BlasLogReader reader(trace);
  read_bounded_lines(input, kBlasLineMax,
                     [&](const BoundedLine& line) { reader.line(line.text, line.cut, line.too_long); });
  reader.finish();
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (!trace.logged_products.empty()) return {};
  if (reader.calls_without_shapes() > 0)
    return fail(fmt::format("expected a log of cuBLASLt with the shapes of its products (lines of level Trace), found "
                            "{} calls with addresses only",
                            reader.calls_without_shapes()),
                input.name(), "run the program again with CUBLASLT_LOG_LEVEL=2 (or CUBLASLT_LOG_MASK=2)");
  return fail(fmt::format("expected matrix products in a log of cuBLAS or cuBLASLt, found {} calls and no "
                          "complete product",
                          reader.calls()),
              input.name(),
              "log the program while it multiplies: CUBLAS_LOGINFO_DBG=1 CUBLAS_LOGDEST_DBG=cublas.log "
              "CUBLASLT_LOG_LEVEL=2 CUBLASLT_LOG_FILE=cublaslt.log");
}

}  // namespace llmprof::blas_logs
