// The server on real sockets: what goes over them byte for byte, limits, and its end.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "serve/server.h"
#include "text_contains.h"

namespace llmprof::serve {
namespace {

class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False where the server has closed it.
  bool try_send(const std::string& bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0;
  }
  void send(const std::string& bytes) const { EXPECT_TRUE(try_send(bytes)); }
  // Until `enough` stands in it, or the server closes.
  std::string receive(const std::string& enough = "\r\n\r\nbody") const {
    std::string out;
    char buffer[4096];
    while (out.find(enough) == std::string::npos) {
      const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }
  std::string all() const { return receive("\1never\1"); }
  void be_patient(const timeval& patience) const {
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

 private:
  int socket_;
};

class Serving : public testing::Test {
 protected:
  Serving() : server_(*Server::listen(*parse_address("127.0.0.1", 0))) {
    thread_ = std::thread([this] {
      server_.run(
          [this](const Request& request) -> Answer {
            last_ = request;
            if (request.target == "/slow")
              return [this](const Unwanted& unwanted) {
                ++made_;
                while (!released_ && !unwanted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                given_up_ += released_ ? 0 : 1;
                return say(Code::kOk, "slow body");
              };
            if (request.target == "/slow/throw") return [](const Unwanted&) -> Response { throw std::bad_alloc(); };
            if (request.target == "/throw") throw std::bad_alloc();
            Response out = say(Code::kOk, "body");
            if (request.target == "/large") out.body = std::string(20 << 20, 'x');
            out.headers.push_back({"X-Seen", std::to_string(request.headers.size())});
            return out;
          },
          ended_);
    });
  }
  ~Serving() override {
    ended_ = true;
    thread_.join();
  }
  uint16_t port() const { return server_.address().port; }

  Server server_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
  Request last_;
  std::atomic<int> made_{0}, given_up_{0};
  std::atomic<bool> released_{false};
};

constexpr const char* kSlowly = "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n";

bool comes_true(const std::function<bool()>& what) {
  for (int i = 0; i < 2000 && !what(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return what();
}

TEST_F(Serving, others_are_answered_while_an_answer_is_made) {
  const Client slow(port()), other(port());
  slow.send(kSlowly);
  ASSERT_TRUE(comes_true([&] { return made_ == 1; }));
  other.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(other.receive().starts_with("HTTP/1.1 200 OK"));
  released_ = true;
  EXPECT_TRUE(contains(slow.receive("slow body"), "Content-Length: 10\r\n"));
  // The connection goes on, whether the next request came before the answer or after it.
  slow.send(kSlowly);
  slow.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(contains(slow.receive("\r\n\r\nbody"), "slow body"));
  EXPECT_EQ(given_up_, 0);
}

TEST_F(Serving, an_answer_whose_asker_has_gone_is_given_up) {
  {
    const Client slow(port());
    slow.send(kSlowly);
    ASSERT_TRUE(comes_true([&] { return made_ == 1; }));
  }
  EXPECT_TRUE(comes_true([&] { return given_up_ == 1; }));
  const Client other(port());
  other.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(other.receive().starts_with("HTTP/1.1 200 OK"));
}

TEST_F(Serving, more_answers_than_may_wait_are_refused) {
  std::vector<std::unique_ptr<Client>> askers;
  for (size_t i = 0; i < kWaitingMost; ++i) {
    askers.push_back(std::make_unique<Client>(port()));
    askers.back()->send(kSlowly);
  }
  ASSERT_TRUE(comes_true([&] { return made_ == static_cast<int>(kMakersMost); }));
  // That all of them are taken up is seen by further ones.
  bool refused = false;
  for (int i = 0; i < 100 && !refused; ++i) {
    const Client more(port());
    more.send("HEAD /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    const timeval short_time{0, 100'000};
    more.be_patient(short_time);
    refused = more.receive("\r\n\r\n").starts_with("HTTP/1.1 503 ");
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(made_, static_cast<int>(kMakersMost)) << "no more at a time";
  released_ = true;
  for (const std::unique_ptr<Client>& asker : askers)
    EXPECT_TRUE(contains(asker->receive("slow body"), "HTTP/1.1 200 OK"));
}

TEST_F(Serving, ends_while_answers_are_made) {
  std::vector<std::unique_ptr<Client>> askers;
  for (size_t i = 0; i < kWaitingMost; ++i) {
    askers.push_back(std::make_unique<Client>(port()));
    askers.back()->send(kSlowly);
  }
  EXPECT_TRUE(comes_true([&] { return made_ == static_cast<int>(kMakersMost); }));
  // The destructor of the fixture ends it, and must return.
}

TEST_F(Serving, a_maker_without_memory_is_an_answer) {
  const Client client(port());
  client.send("GET /slow/throw HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.all().starts_with("HTTP/1.1 500 "));
}

TEST_F(Serving, answers_one_request_after_another_on_a_connection) {
  const Client client(port());
  for (int i = 0; i < 3; ++i) {
    client.send("GET /a%20b?c HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\n\r\n");
    const std::string got = client.receive();
    EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n")) << got;
    EXPECT_TRUE(contains(got, "X-Seen: 3\r\n"));
    EXPECT_EQ(last_.target, "/a%20b?c");
  }
}

TEST_F(Serving, head_has_the_length_and_no_body) {
  const Client client(port());
  client.send("HEAD /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string got = client.all();
  EXPECT_TRUE(contains(got, "Content-Length: 20971520\r\n"));
  EXPECT_TRUE(got.ends_with("\r\n\r\n"));
}

TEST_F(Serving, large_answers_come_whole) {
  const Client client(port());
  client.send("GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_GT(client.all().size(), size_t{20} << 20);
}

TEST_F(Serving, what_is_no_request_is_refused_and_closed) {
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02\r\n\r\n"), std::string("GET / HTTP/9\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nno colon\r\n\r\n"), "GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nA: " + std::string(20000, 'a') + "\r\n\r\n"}) {
    const Client client(port());
    client.send(bytes);
    const std::string got = client.all();
    EXPECT_TRUE(got.empty() || got.starts_with("HTTP/1.1 400 ")) << got;
    if (!got.empty()) {
      EXPECT_TRUE(contains(got, "Content-Security-Policy: default-src 'none'"));
      EXPECT_TRUE(contains(got, "Connection: close"));
    }
  }
}

TEST_F(Serving, a_body_is_neither_read_nor_waited_for) {
  const Client client(port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
  EXPECT_TRUE(client.all().starts_with("HTTP/1.1 200 OK"));
  EXPECT_TRUE(last_.has_body);
  const Client chunked(port());
  chunked.send("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_TRUE(chunked.all().starts_with("HTTP/1.1 200 OK"));
  EXPECT_TRUE(last_.has_body);
}

TEST_F(Serving, a_handler_without_memory_is_an_answer) {
  const Client client(port());
  client.send("GET /throw HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.all().starts_with("HTTP/1.1 500 "));
}

TEST_F(Serving, connections_beyond_the_limit_are_closed_and_later_ones_served) {
  {
    std::vector<std::unique_ptr<Client>> idle;
    for (size_t i = 0; i < kConnectionsMost; ++i) idle.push_back(std::make_unique<Client>(port()));
    // That the last of them is taken up is seen by its answer.
    idle.back()->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    ASSERT_TRUE(idle.back()->receive().starts_with("HTTP/1.1 200"));
    const Client more(port());
    more.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(more.all(), "");
  }
  for (int i = 0; i < 100; ++i) {
    const Client later(port());
    later.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    if (later.all().starts_with("HTTP/1.1 200")) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  FAIL() << "the connections that were closed still count";
}

TEST_F(Serving, a_port_that_is_taken_is_said) {
  const Result<Server> second = Server::listen(*parse_address("127.0.0.1", port()));
  ASSERT_FALSE(second);
  EXPECT_TRUE(contains(second.error().text(), "in use"));
  EXPECT_TRUE(contains(second.error().text(), "--port 0"));
  const Result<Server> foreign = Server::listen(*parse_address("192.0.2.1", 0));
  ASSERT_FALSE(foreign);
  EXPECT_FALSE(foreign.error().what.empty());
}

TEST_F(Serving, ends_with_connections_that_are_open) {
  const Client half(port());
  half.send("GET / HT");
  const Client idle(port());
  idle.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_FALSE(idle.receive().empty());
  // The destructor of the fixture ends it, and must return.
}

// Whoever sends a byte now and then, or nothing, or does not take the answer, loses the connection.
TEST(Limits, connections_that_take_their_time_are_closed) {
  Result<Server> server = Server::listen(*parse_address("127.0.0.1", 0), {300, 300});
  ASSERT_TRUE(server);
  std::atomic<bool> ended{false};
  int asked = 0;
  std::thread thread([&] {
    server->run(
        [&](const Request&) {
          ++asked;
          return say(Code::kOk, std::string(64 << 20, 'x'));
        },
        ended);
  });
  const Client nothing(server->address().port), slow(server->address().port), full(server->address().port);
  full.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto began = std::chrono::steady_clock::now();
  // Each byte comes in time; the header does not.
  bool open = true;
  for (int i = 0; i < 100 && open; ++i) {
    open = slow.try_send("G");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_FALSE(open);
  EXPECT_EQ(nothing.all(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(full.all().size(), size_t{64} << 20);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
  ended = true;
  thread.join();
  EXPECT_EQ(asked, 1);
}

TEST(ReadRequest, reads_what_the_server_reads) {
  const std::optional<Request> request = read_request("GET /x HTTP/1.1\r\nHost: a\r\nCookie:  b \r\n\r\nrest");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->method, "GET");
  EXPECT_EQ(request->target, "/x");
  ASSERT_EQ(request->headers.size(), 2U);
  EXPECT_EQ(request->headers[1].value, "b");
  EXPECT_FALSE(request->has_body);
  for (const char* bytes :
       {"", "GET", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n", "GET  / HTTP/1.1\r\n\r\n"})
    EXPECT_FALSE(read_request(bytes)) << bytes;
}

}  // namespace
}  // namespace llmprof::serve
