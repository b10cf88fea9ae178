#include "serve/server.h"

#include <fcntl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "serve/routes.h"

namespace llmprof::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Parser = http::request_parser<http::empty_body>;

std::string text_of(boost::beast::string_view text) { return {text.data(), text.size()}; }

void limit(Parser& parser) {
  parser.header_limit(static_cast<std::uint32_t>(kHeaderBytesMost));
  // A body is never read, so it has no limit. (Without one at all, Beast 1.74 refuses every body.)
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
}

Request request_of(const Parser& parser) {
  const auto& message = parser.get();
  Request out;
  out.method = text_of(message.method_string());
  out.target = text_of(message.target());
  for (const auto& field : message) out.headers.push_back({text_of(field.name_string()), text_of(field.value())});
  out.has_body = parser.chunked() || parser.content_length().value_or(0) > 0;
  return out;
}

// The threads that make answers which take their time. All but what they run belongs to the server's thread.
struct Makers {
  Makers(asio::io_context& of, const std::atomic<bool>& is_over) : context(of), ended(is_over) {}
  asio::io_context& context;
  const std::atomic<bool>& ended;
  size_t waiting = 0;
  asio::thread_pool threads{kMakersMost};
};

// A result of hundreds of megabytes may be more than there is memory for.
template <class Made, class Make>
Made made_or_failed(Make&& make) {
  try {
    return make();
  } catch (const std::exception&) {
    return sealed(say(Code::kFailed, "This could not be answered."));
  }
}

// One connection. It lives as long as an operation of it goes on.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const Handler& handler, const Limits& limits, Makers& makers, size_t& open)
      : stream_(std::move(socket)), handler_(handler), limits_(limits), makers_(makers), open_(open) {
    ++open_;
  }
  ~Session() { --open_; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void read() {
    parser_.emplace();
    limit(*parser_);
    stream_.expires_after(std::chrono::milliseconds(limits_.read_ms));
    // The header alone: a body, which nobody has asked for, is not waited for.
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code failed, size_t) { self->answer(failed); });
  }

 private:
  // How an answer is to be written.
  struct Manner {
    bool keep = false, head = false;
    unsigned version = 11;
  };

  void answer(error_code failed) {
    if (failed == http::error::end_of_stream || failed == beast::error::timeout) return close();
    if (failed && failed.category() != http::make_error_code(http::error::bad_target).category()) return;
    if (failed) return write(sealed(say(Code::kBadRequest, "This is no request that can be answered.")), {});
    const Request request = request_of(*parser_);
    const Manner manner{parser_->get().keep_alive() && !request.has_body, request.method == "HEAD",
                        parser_->get().version()};
    Answer answer = made_or_failed<Answer>([&] { return handler_(request); });
    if (Response* at_once = std::get_if<Response>(&answer)) return write(std::move(*at_once), manner);
    make(std::get<1>(std::move(answer)), manner);
  }

  void make(std::function<Response(const Unwanted&)> work, const Manner& manner) {
    if (makers_.waiting >= kWaitingMost)
      return write(sealed(say(Code::kUnavailable, "Others are waiting for such answers: ask again in a minute.")),
                   manner);
    ++makers_.waiting;
    stream_.expires_never();
    const std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
    watch_asker(gone);
    asio::post(makers_.threads, [self = shared_from_this(), work = std::move(work), gone, manner]() mutable {
      const Unwanted unwanted = [&gone, &ended = self->makers_.ended] { return *gone || ended; };
      Response response = made_or_failed<Response>([&] { return work(unwanted); });
      asio::io_context& context = self->makers_.context;
      // The last of this connection may be here: it must go in the server's thread.
      asio::post(context, [self = std::move(self), response = std::move(response), manner]() mutable {
        --self->makers_.waiting;
        error_code ignored;
        self->stream_.socket().cancel(ignored);  // the watch
        self->write(std::move(response), manner);
      });
    });
  }

  // A browser that goes elsewhere closes its connection: it can be read then, and there is nothing in it.
  void watch_asker(const std::shared_ptr<std::atomic<bool>>& gone) {
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(), gone](error_code failed) {
      if (failed) return;
      const size_t there = self->stream_.socket().available(failed);
      if (failed || there == 0) *gone = true;
    });
  }

  void write(Response response, const Manner& manner) {
    http::response<http::string_body>& out = response_.emplace();
    out.version(manner.version);
    out.result(static_cast<unsigned>(response.code));
    for (const Header& header : response.headers) out.set(header.name, header.value);
    const size_t bytes = response.body.size();
    if (response.code != Code::kNoContent) out.set(http::field::content_type, response.type);
    if (!manner.head) out.body() = std::move(response.body);
    // Of HEAD the length that GET would have.
    if (response.code != Code::kNoContent) out.content_length(bytes);
    out.keep_alive(manner.keep);
    stream_.expires_after(std::chrono::milliseconds(limits_.write_ms));
    const auto next = [self = shared_from_this(), keep = manner.keep](error_code failed, size_t) {
      self->serializer_.reset();
      self->response_.reset();
      if (failed || !keep) return self->close();
      self->read();
    };
    serializer_.emplace(out);
    if (manner.head)
      http::async_write_header(stream_, *serializer_, next);
    else
      http::async_write(stream_, *serializer_, next);
  }

  void close() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  const Handler& handler_;
  const Limits& limits_;
  Makers& makers_;
  size_t& open_;
  beast::flat_buffer buffer_{kHeaderBytesMost};
  std::optional<Parser> parser_;
  std::optional<http::response<http::string_body>> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

tl::unexpected<Error> cannot_listen(const Address& address, const error_code& why) {
  const std::string where = address.url();
  if (why == asio::error::address_in_use)
    return fail("expected a free port, found one that is in use", where,
                "llmprof serve --port 0 takes one that is free");
  if (why == asio::error::access_denied)
    return fail("expected a port that may be used, found one that only root may use", where,
                "llmprof serve --port 7353");
  return fail("cannot listen: " + why.message(), where, "llmprof serve --host 127.0.0.1", ExitCode::kUsage);
}

}  // namespace

struct Server::State {
  Address address;
  Limits limits;
  // Before the others: sessions that are still open go with it, and count down.
  size_t open = 0;
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::steady_timer timer{context};
  std::optional<Makers> makers;

  void accept(const Handler& handler) {
    acceptor.async_accept([this, &handler](error_code failed, tcp::socket socket) {
      if (failed == asio::error::operation_aborted) return;
      if (!failed && open < kConnectionsMost)
        std::make_shared<Session>(std::move(socket), handler, limits, *makers, open)->read();
      if (!failed) return accept(handler);
      // No file descriptors, for example: trying at once would only spin.
      constexpr auto kPause = std::chrono::milliseconds(100);
      const auto pause = std::make_shared<asio::steady_timer>(context, kPause);
      pause->async_wait([this, &handler, pause](error_code) { accept(handler); });
    });
  }

  void watch(const std::atomic<bool>& ended) {
    constexpr auto kLook = std::chrono::milliseconds(100);
    timer.expires_after(kLook);
    timer.async_wait([this, &ended](error_code) {
      if (ended) return context.stop();
      watch(ended);
    });
  }
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;
Server::~Server() = default;

const Address& Server::address() const { return state_->address; }

Result<Server> Server::listen(const Address& address, Limits limits) {
  std::unique_ptr<State> state = std::make_unique<State>();
  state->address = address;
  state->limits = limits;
  error_code why;
  const asio::ip::address ip = asio::ip::make_address(address.ip, why);
  if (why) return cannot_listen(address, why);
  const tcp::endpoint endpoint(ip, address.port);
  state->acceptor.open(endpoint.protocol(), why);
  // A browser that is opened must not keep the port.
  if (!why && fcntl(state->acceptor.native_handle(), F_SETFD, FD_CLOEXEC) != 0)
    why = error_code(errno, boost::system::system_category());
  // A server that has just ended must not keep its port from the next one.
  if (!why) state->acceptor.set_option(asio::socket_base::reuse_address(true), why);
  if (!why && address.is_v6) state->acceptor.set_option(asio::ip::v6_only(true), why);
  if (!why) state->acceptor.bind(endpoint, why);
  if (!why) state->acceptor.listen(asio::socket_base::max_listen_connections, why);
  if (why) return cannot_listen(address, why);
  const tcp::endpoint bound = state->acceptor.local_endpoint(why);
  if (why) return cannot_listen(address, why);
  state->address.port = bound.port();
  return Server(std::move(state));
}

void Server::run(const Handler& handler, const std::atomic<bool>& ended) {
  state_->makers.emplace(state_->context, ended);
  state_->accept(handler);
  state_->watch(ended);
  state_->context.run();
  // What is still being made asks whether it is wanted.
  state_->makers->threads.stop();
  state_->makers->threads.join();
}

std::optional<Request> read_request(std::string_view bytes) {
  Parser parser;
  limit(parser);
  error_code failed;
  // As long as it wants more and there is more; `eager` stays off, since only headers are read.
  size_t used = 0;
  while (!parser.is_header_done() && used < bytes.size()) {
    const size_t taken = parser.put(asio::buffer(bytes.data() + used, bytes.size() - used), failed);
    used += taken;
    if (failed || taken == 0) break;
  }
  if (failed || !parser.is_header_done()) return std::nullopt;
  return request_of(parser);
}

}  // namespace llmprof::serve
