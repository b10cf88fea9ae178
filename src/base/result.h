// Result<T>: a value or an Error that tells the user what was expected, what was found, where, and what to do.
// Bad *data* is not an Error: it is counted in Diagnostics and everything readable is kept. An Error means that the
// command cannot answer at all.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace llmprof {

// Exit codes of every command; scripts depend on them.
enum class ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kInputErrors = 3, kGateTripped = 4 };

struct Error {
  std::string what;    // one sentence: what was expected and what was found instead
  std::string where;   // file, offset, option, or empty
  std::string advice;  // what the user can do about it, or empty
  ExitCode exit_code = ExitCode::kFailed;

  // "what (where)\n  advice", the form in which the command line prints it.
  std::string text() const {
    std::string out = what;
    if (!where.empty()) out += "\n  where: " + where;
    if (!advice.empty()) out += "\n  try:   " + advice;
    return out;
  }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

inline tl::unexpected<Error> fail(std::string what, std::string where = {}, std::string advice = {},
                                  ExitCode code = ExitCode::kFailed) {
  return tl::unexpected<Error>(Error{std::move(what), std::move(where), std::move(advice), code});
}

}  // namespace llmprof

// Return the error of `expr` from the enclosing function, or bind its value to `decl`.
#define LLMPROF_CONCAT_(a, b) a##b
#define LLMPROF_CONCAT(a, b) LLMPROF_CONCAT_(a, b)
#define LLMPROF_ASSIGN_(tmp, decl, expr)                                     \
  auto tmp = (expr);                                                         \
  if (!tmp) return tl::unexpected<::llmprof::Error>(std::move(tmp.error())); \
  decl = std::move(*tmp)
#define LLMPROF_ASSIGN(decl, expr) LLMPROF_ASSIGN_(LLMPROF_CONCAT(result_, __LINE__), decl, expr)
#define LLMPROF_CHECK(expr)                                                                \
  if (auto LLMPROF_CONCAT(status_, __LINE__) = (expr); !LLMPROF_CONCAT(status_, __LINE__)) \
  return tl::unexpected<::llmprof::Error>(std::move(LLMPROF_CONCAT(status_, __LINE__).error()))
