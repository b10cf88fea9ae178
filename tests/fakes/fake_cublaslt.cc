// libcublasLt.so.13 as far as the hook tests call it: descriptors that keep their attributes, and the product.
#include <stdint.h>
#include <string.h>

#include "fake_log.h"

namespace {

// Eight bytes for each attribute number, as far as they were set.
struct Descriptor {
  bool set[40];
  uint64_t size[40];
  uint64_t value[40];
};

int set_attribute(Descriptor* descriptor, int attribute, const void* value, size_t size) {
  if (attribute < 0 || attribute >= 40 || size > 8) return 7;
  descriptor->set[attribute] = true;
  descriptor->size[attribute] = size;
  memcpy(&descriptor->value[attribute], value, size);
  return 0;
}

int get_attribute(const Descriptor* descriptor, int attribute, void* value, size_t size, size_t* written) {
  if (attribute < 0 || attribute >= 40 || !descriptor->set[attribute]) return 7;
  if (size < descriptor->size[attribute]) return 7;
  memcpy(value, &descriptor->value[attribute], descriptor->size[attribute]);
  *written = descriptor->size[attribute];
  return 0;
}

// The logger, with the real one's traps: lines go to the standard output as well unless its file was taken away, and a
// program can ask for the log by the environment.
using LogCallback = void (*)(int level, const char* function, const char* message);
LogCallback log_callback = nullptr;
FILE* log_file = stdout;
int log_mask = 0;

constexpr int kApi = 5, kTrace = 2;

__attribute__((format(printf, 3, 4))) void write_log(int level, const char* function, const char* format, ...) {
  if ((log_mask & 1 << (level - 1)) == 0) return;
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  const char* name = level == kApi ? "Api" : "Trace";
  if (log_file != nullptr)
    fprintf(log_file, "[2026-11-20 23:33:00][cublasLt][1][%s][%s] %s\n", name, function, message);
  if (log_callback != nullptr) log_callback(level, function, message);
}

const char* type_name(uint64_t type) { return type == 14 ? "R_16BF" : type == 28 ? "R_8F_E4M3" : "R_32F"; }

// "type=R_16BF rows=2048 cols=64 ld=2048", defaults left out.
struct LayoutText {
  char text[160];
  explicit LayoutText(const Descriptor* layout) {
    int length =
        snprintf(text, sizeof(text), "type=%s rows=%llu cols=%llu ld=%llu", type_name(layout->value[0] & 0xFF),
                 static_cast<unsigned long long>(layout->value[2]), static_cast<unsigned long long>(layout->value[3]),
                 static_cast<unsigned long long>(layout->value[4]));
    if ((layout->value[1] & 0xFF) == 1)
      length += snprintf(text + length, sizeof(text) - static_cast<size_t>(length), " order=ORDER_ROW");
    if ((layout->value[5] & 0xFFFF) > 1)
      snprintf(text + length, sizeof(text) - static_cast<size_t>(length), " batchCount=%u stridedBatchOffset=7",
               static_cast<unsigned>(layout->value[5]));
  }
};

void log_product(const char* function, const char* a, const char* b, const char* d, const char* compute) {
  write_log(kApi, function,
            "A=0X1 Adesc=0X2 B=0X3 Bdesc=0X4 C=0X5 Cdesc=0X6 D=0X5 Ddesc=0X6 computeDesc=0X7 stream=0X0");
  write_log(kTrace, function,
            "A=0X7F51C8800000 Adesc=[%s] B=0X7F519D68DA00 Bdesc=[%s] C=0X7F519D64DA00 Cdesc=[%s] D=0X7F519D64DA00 "
            "Ddesc=[%s] computeDesc=[%s] algo=[algoId=66 tile=MATMUL_TILE_24x64 stages=MATMUL_STAGES_64xAUTO] "
            "workSpace=0X0 workSpaceSizeInBytes=0 beta=0 outOfPlace=0 stream=0X0",
            a, b, d, d, compute);
}

}  // namespace

FAKE_EXPORT int cublasLtLoggerSetCallback(LogCallback callback) {
  log_callback = callback;
  return 0;
}
FAKE_EXPORT int cublasLtLoggerSetFile(FILE* file) {
  log_file = file;
  return 0;
}
FAKE_EXPORT int cublasLtLoggerSetMask(int mask) {
  log_mask = mask;
  return 0;
}

FAKE_EXPORT int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  Descriptor* descriptor = static_cast<Descriptor*>(calloc(1, sizeof(Descriptor)));
  int32_t order = 0, batch = 1;
  set_attribute(descriptor, 0, &type, 4);
  set_attribute(descriptor, 1, &order, 4);
  set_attribute(descriptor, 2, &rows, 8);
  set_attribute(descriptor, 3, &cols, 8);
  set_attribute(descriptor, 4, &ld, 8);
  set_attribute(descriptor, 5, &batch, 4);
  *layout = descriptor;
  return 0;
}

FAKE_EXPORT int cublasLtMatmulDescCreate(void** compute, int compute_type, int) {
  Descriptor* descriptor = static_cast<Descriptor*>(calloc(1, sizeof(Descriptor)));
  int32_t none = 0, epilogue = 1;
  set_attribute(descriptor, 0, &compute_type, 4);
  set_attribute(descriptor, 3, &none, 4);
  set_attribute(descriptor, 4, &none, 4);
  set_attribute(descriptor, 7, &epilogue, 4);
  *compute = descriptor;
  return 0;
}

FAKE_EXPORT int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t size) {
  return set_attribute(static_cast<Descriptor*>(layout), attribute, value, size);
}
FAKE_EXPORT int cublasLtMatrixLayoutGetAttribute(const void* layout, int attribute, void* value, size_t size,
                                                 size_t* written) {
  return get_attribute(static_cast<const Descriptor*>(layout), attribute, value, size, written);
}
FAKE_EXPORT int cublasLtMatmulDescSetAttribute(void* compute, int attribute, const void* value, size_t size) {
  return set_attribute(static_cast<Descriptor*>(compute), attribute, value, size);
}
FAKE_EXPORT int cublasLtMatmulDescGetAttribute(const void* compute, int attribute, void* value, size_t size,
                                               size_t* written) {
  return get_attribute(static_cast<const Descriptor*>(compute), attribute, value, size, written);
}

FAKE_EXPORT int cublasLtMatmul(void*, void* compute, const void* alpha, const void*, void* a, const void*, void* b,
                               const void* beta, const void*, void*, void*, void* d, const void*, void*,
                               size_t workspace_bytes, void* stream) {
  if (compute != nullptr) {
    const Descriptor* descriptor = static_cast<const Descriptor*>(compute);
    char text[200];
    snprintf(text, sizeof(text), "computeType=COMPUTE_32F scaleType=R_32F%s%s%s",
             descriptor->value[3] != 0 ? " transa=OP_T" : "",
             (descriptor->value[7] & 0xFF) == 36 ? " epilogue=EPILOGUE_GELU_BIAS" : "",
             descriptor->set[31] ? " aScaleMode=VEC128_32F bScaleMode=VEC128_32F" : "");
    log_product("cublasLtMatmul", LayoutText(static_cast<const Descriptor*>(a)).text,
                LayoutText(static_cast<const Descriptor*>(b)).text, LayoutText(static_cast<const Descriptor*>(d)).text,
                text);
  }
  fake_log("cublasLtMatmul %x %x %zu %x", static_cast<unsigned>(reinterpret_cast<uintptr_t>(alpha)),
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(beta)), workspace_bytes,
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream)));
  return 0;
}

FAKE_EXPORT int cublasLtTSTMatmul(int m) {
  char rows[80];
  snprintf(rows, sizeof(rows), "type=R_16BF rows=%d cols=7 ld=%d", m, m);
  log_product("cublasLtTSTMatmul", "type=R_16BF rows=2048 cols=4096 ld=2048", "type=R_16BF rows=2048 cols=7 ld=2048",
              rows, "computeType=COMPUTE_32F scaleType=R_32F transa=OP_T smCountTarget=132");
  return cublasLtMatmul(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                        nullptr, nullptr, nullptr, nullptr, 0, nullptr);
}
