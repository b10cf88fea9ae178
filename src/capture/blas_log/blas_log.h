// What the logs of cuBLAS and cuBLASLt (11 to 13) say about matrix products: read live, from the callbacks of their
// loggers inside a watched program, and from log files. Allocates nothing, throws nothing, reads no byte beyond the
// text it is given, and takes any text: what is not understood is no product.
//
// cuBLASLt writes one line a product at its level "Trace", with what the descriptors hold:
//   [2026-11-20 23:33:00][cublasLt][5771][Trace][cublasLtTSTMatmul] A=0X7F.. Adesc=[type=R_16BF rows=2048 cols=64
//   ld=2048] B=.. Bdesc=[..] C=.. Cdesc=[..] D=.. Ddesc=[..] computeDesc=[computeType=COMPUTE_32F transa=OP_T]
//   algo=[..] ..
// A callback gets the function and what follows it. Attributes that have their default are left out. Products that
// cuBLAS runs through cuBLASLt have a private function, cublasLtTSTMatmul and its like; not all of them do.
//
// cuBLAS writes a record of many lines for every call of its interface, of which a callback gets the lines one by one,
// the last three at once:
//   I! cuBLAS (v13.1.0) function cublasStatus_t cublasGemmEx(cublasHandle_t, ...) called:
//   i!  m: type=int; val=2048
//   i! Time: 2026-11-20T23:33:00 elapsed from start 0.1 minutes or 10.0 seconds
//   i!Process=5771; Thread=1400032; GPU=0; Handle=POINTER (IN HEX:0x0x46); StreamId=..; MathMode=CUBLAS_DEFAULT_MATH
//   i! COMPILED WITH: ..
// Both forms as libcublas 13.1 writes them, checked against real logs.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof::blas_log {

// A product D[m x n] = A[m x k] B[k x n], `batch` times. -1: the log does not say. Types are cudaDataType_t,
// compute_type is cublasComputeType_t, epilogue cublasLtEpilogue_t (0: none), scales cublasLtMatmulMatrixScale_t,
// transposes cublasOperation_t.
struct Gemm {
  const char* function = nullptr;  // a literal: the name without version suffix; private ones of cuBLASLt too
  int64_t m = -1, n = -1, k = -1, batch = 1;
  int32_t type_a = -1, type_b = -1, type_d = -1;
  int32_t compute_type = -1;
  int32_t epilogue = 0;
  int32_t scale_a = 0, scale_b = 0;
  int32_t groups = 0;  // of a grouped product, whose dimensions the log does not say
  uint8_t transpose_a = 0, transpose_b = 0;
  uint8_t row_major = 0;
  uint8_t gemv = 0;  // a matrix times a vector
};

// One line of a cuBLASLt log file. The parts are views into it.
struct LtLine {
  std::string_view time;  // "2026-11-20 23:33:00"
  int64_t process = -1;
  std::string_view level;  // "Trace", "Api", ...
  std::string_view function;
  std::string_view message;
};
bool split_lt_line(std::string_view line, LtLine& parts);

// The public product of cuBLASLt; every other one is cuBLAS's own way into it.
constexpr std::string_view kPublicMatmul = "cublasLtMatmul";

// True if `message` is the trace line of a product. The API line of the same call, which has addresses in place of the
// descriptors, is none.
bool parse_matmul(std::string_view function, std::string_view message, Gemm& gemm);

// Puts records of a cuBLAS log together. One object a thread, or a file that one thread wrote.
class CublasRecord {
 public:
  enum class Event : uint8_t {
    kNone,
    kCall,  // a record began: an earlier call of this thread is over
    kGemm,  // all of a product is known: see gemm()
  };
  // A line, or several, with or without the newline at their end. Lines are whole.
  Event feed(std::string_view text);

  const Gemm& gemm() const { return gemm_; }
  // A product's record that is not complete yet.
  bool inside_gemm() const { return inside_; }

 private:
  Event feed_line(std::string_view line);
  void begin(std::string_view line);
  void parameter(std::string_view name, std::string_view value);
  Event end(std::string_view line);

  Gemm gemm_;
  int64_t rows_ = -1, cols_ = -1;  // of a matrix that multiplies a vector
  bool inside_ = false;
  bool grouped_ = false;
};

}  // namespace llmprof::blas_log
