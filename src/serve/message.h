// A request and its answer as `llmprof serve` sees them: without sockets and without the library that reads HTTP, so
// that everything behind them is a function that tests can call.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace llmprof::serve {

struct Header {
  std::string name, value;
};

struct Request {
  std::string method;           // "GET", as it was sent
  std::string target;           // "/runs/12", as it was sent
  std::vector<Header> headers;  // as they were sent, also where one stands twice
  bool has_body = false;
};

enum class Code : int {
  kOk = 200,
  kNoContent = 204,
  kSeeOther = 303,
  kBadRequest = 400,
  kUnauthorized = 401,
  kForbidden = 403,
  kNotFound = 404,
  kMethodNotAllowed = 405,
  kConflict = 409,
  kFailed = 500,
  kUnavailable = 503,
};

struct Response {
  Code code = Code::kOk;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<Header> headers;
};

// Asked several times a second: whether nobody waits for an answer any more.
using Unwanted = std::function<bool()>;
// At once, or by a function that takes its time.
using Answer = std::variant<Response, std::function<Response(const Unwanted&)>>;

// One sentence and a line end. `text` is ours: nothing of a request is ever sent back.
inline Response say(Code code, std::string_view text) {
  Response out;
  out.code = code;
  out.body = std::string(text) + "\n";
  return out;
}

}  // namespace llmprof::serve
