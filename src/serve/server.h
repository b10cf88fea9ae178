// HTTP/1.1 over TCP by Boost.Beast, one thread: accepts, reads a request within limits, asks the handler, writes.
// Answers that take their time are made by kMakersMost threads beside it, while it goes on; kWaitingMost of them wait
// at most, further ones are refused. An answer whose asker has gone, or whose server ends, is given up. Headers have
// kHeaderBytesMost, bodies are not read, and kConnectionsMost are open at a time: more are closed at once.
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
constexpr size_t kMakersMost = 2;
constexpr size_t kWaitingMost = 8;  // those that are being made among them

struct Limits {
  int read_ms = 15'000;    // for the header of a request to come whole, and for the next one on a connection to begin
  int write_ms = 120'000;  // for an answer to go whole
};

using Handler = std::function<Answer(const Request&)>;

class Server {
 public:
  // Bound and listening; address.port 0: a free port. Errors: the port is in use, the address is none of this
  // machine's.
  static Result<Server> listen(const Address& address, Limits limits = {});
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
