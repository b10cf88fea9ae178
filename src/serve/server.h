// HTTP/1.1 over TCP by Boost.Beast, one thread: accepts, reads a request within limits, asks `answer`, writes. Limits:
// a header of kHeaderBytesMost, no body, kConnectionsMost at a time (more are closed at once), kReadSeconds for a
// request to come whole, kWriteSeconds for an answer to go.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "serve/guard.h"
#include "serve/message.h"

namespace llmprof::serve {

constexpr size_t kHeaderBytesMost = size_t{16} << 10;
constexpr size_t kConnectionsMost = 64;
constexpr int kReadSeconds = 15, kWriteSeconds = 60;

using Handler = std::function<Response(const Request&)>;

class Server {
 public:
  // Bound and listening; address.port 0: a free port. Errors: the port is in use, the address is none of this
  // machine's.
  static Result<Server> listen(const Address& address);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  ~Server();

  const Address& address() const;  // with the port that it got
  // Serves until `ended` is true, looked at ten times a second.
  void run(const Handler& handler, const std::atomic<bool>& ended);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The request in these bytes, read as run() reads it; nothing where they are none within the limits. For tests and
// fuzzing.
std::optional<Request> read_request(std::string_view bytes);

}  // namespace llmprof::serve
