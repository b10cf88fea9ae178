#include <gtest/gtest.h>

#include <set>

#include "serve/guard.h"

namespace llmprof::serve {
namespace {

constexpr uint16_t kGuardedPort = 7353;
const std::string kToken = "0123456789abcdef0123456789abcdef";

Guard guard_at(const std::string& host, const std::string& token = {}, const std::string& machine = {}) {
  return Guard(*parse_address(host, kGuardedPort), token, machine);
}

Request get(std::vector<Header> headers, const std::string& target = "/") {
  Request out;
  out.method = "GET";
  out.target = target;
  out.headers = std::move(headers);
  return out;
}

// 0: served.
int code_of(const Guard& guard, const Request& request) {
  const std::optional<Response> refused = guard.refuse(request);
  return refused ? static_cast<int>(refused->code) : 0;
}
int code_of_host(const Guard& guard, const std::string& host) { return code_of(guard, get({{"Host", host}})); }

TEST(Guard, host_must_be_the_address_or_its_name) {
  const Guard guard = guard_at("127.0.0.1");
  for (const char* host : {"127.0.0.1:7353", "localhost:7353", "LOCALHOST:7353"})
    EXPECT_EQ(code_of_host(guard, host), 0);
  for (const char* host : {"",
                           "127.0.0.1",
                           "localhost",
                           "127.0.0.1:80",
                           "127.0.0.1:73530",
                           "127.0.0.1:07353x",
                           "127.0.0.1:07353",
                           "127.0.0.1:",
                           "evil.com",
                           "evil.com:7353",
                           "127.0.0.1.evil.com:7353",
                           "localhost.evil.com:7353",
                           "localhost.:7353",
                           "127.0.0.2:7353",
                           "0.0.0.0:7353",
                           "[::1]:7353",
                           "[127.0.0.1]:7353",
                           "2130706433:7353",
                           "127.1:7353",
                           "0x7f.0.0.1:7353",
                           "user@127.0.0.1:7353",
                           "127.0.0.1:7353/",
                           "127.0.0.1:7353,evil.com",
                           "127.0.0.1 :7353",
                           "[::ffff:127.0.0.1]:7353"})
    EXPECT_EQ(code_of_host(guard, host), 403) << host;
  EXPECT_EQ(code_of(guard, get({})), 403) << "without Host";
  EXPECT_EQ(code_of(guard, get({{"Host", "127.0.0.1:7353"}, {"hOST", "127.0.0.1:7353"}})), 403) << "twice";
  EXPECT_EQ(code_of_host(guard, std::string("127.0.0.1\0:7353", 15)), 403);
}

TEST(Guard, ipv6_stands_in_brackets) {
  const Guard guard = guard_at("::1");
  EXPECT_EQ(code_of_host(guard, "[::1]:7353"), 0);
  EXPECT_EQ(code_of_host(guard, "[0:0:0:0:0:0:0:1]:7353"), 0);
  EXPECT_EQ(code_of_host(guard, "localhost:7353"), 0);
  for (const char* host :
       {"::1:7353", "[::1]", "[::1:7353", "[::2]:7353", "127.0.0.1:7353", "[localhost]:7353", "[]:7353"})
    EXPECT_EQ(code_of_host(guard, host), 403) << host;
  EXPECT_EQ(guard.address().url(), "http://[::1]:7353");
}

TEST(Guard, only_port_80_needs_no_port) {
  const Guard guard(*parse_address("127.0.0.1", 80), "");
  EXPECT_EQ(code_of_host(guard, "127.0.0.1"), 0);
  EXPECT_EQ(code_of_host(guard, "127.0.0.1:80"), 0);
  EXPECT_EQ(code_of_host(guard, "127.0.0.1:7353"), 403);
}

TEST(Guard, origin_must_be_this_server) {
  const Guard guard = guard_at("127.0.0.1");
  const auto with = [&](const std::string& origin) {
    return code_of(guard, get({{"Host", "localhost:7353"}, {"Origin", origin}}));
  };
  EXPECT_EQ(with("http://localhost:7353"), 0);
  for (const char* origin :
       {"null", "", "http://evil.com", "https://localhost:7353", "http://localhost", "http://localhost:7354",
        "http://127.0.0.1:7353", "http://localhost:7353/", "http://localhost:7353.evil.com"})
    EXPECT_EQ(with(origin), 403) << origin;
}

TEST(Guard, requests_of_other_pages_are_refused) {
  const Guard guard = guard_at("127.0.0.1");
  const auto with = [&](const std::string& site) {
    return code_of(guard, get({{"Host", "localhost:7353"}, {"Sec-Fetch-Site", site}}));
  };
  EXPECT_EQ(with("none"), 0);
  EXPECT_EQ(with("same-origin"), 0);
  for (const char* site : {"cross-site", "same-site", "", "None"}) EXPECT_EQ(with(site), 403) << site;
}

TEST(Guard, bound_elsewhere_the_machine_is_named_by_address_or_its_own_name) {
  const Guard any = guard_at("0.0.0.0", kToken, "gpu-box");
  const auto with = [&](const Guard& guard, const std::string& host) {
    return code_of(guard, get({{"Host", host}, {"Authorization", "Bearer " + kToken}}));
  };
  for (const char* host : {"10.0.0.5:7353", "127.0.0.1:7353", "localhost:7353", "gpu-box:7353", "[fe80::1]:7353"})
    EXPECT_EQ(with(any, host), 0) << host;
  EXPECT_EQ(with(any, "evil.com:7353"), 403);
  const Guard one = guard_at("10.0.0.5", kToken, "gpu-box");
  EXPECT_EQ(with(one, "10.0.0.5:7353"), 0);
  EXPECT_EQ(with(one, "gpu-box:7353"), 0);
  EXPECT_EQ(with(one, "10.0.0.6:7353"), 403);
  EXPECT_EQ(with(one, "localhost:7353"), 403);
}

TEST(Guard, the_token_opens_by_address_cookie_or_header) {
  const Guard guard = guard_at("0.0.0.0", kToken);
  const Header host = {"Host", "10.0.0.5:7353"};
  EXPECT_EQ(code_of(guard, get({host})), 401);
  EXPECT_EQ(code_of(guard, get({host}, "/?token=" + kToken + "0")), 401);
  EXPECT_EQ(code_of(guard, get({host}, "/runs/1?token=" + kToken)), 401);
  EXPECT_EQ(code_of(guard, get({host, {"Authorization", "Bearer " + kToken}})), 0);
  EXPECT_EQ(code_of(guard, get({host, {"Authorization", kToken}})), 401);
  EXPECT_EQ(code_of(guard, get({host, {"Cookie", "a=b; llmprof_7353=" + kToken + "; c"}})), 0);
  EXPECT_EQ(code_of(guard, get({host, {"Cookie", "llmprof_7354=" + kToken}})), 401);
  EXPECT_EQ(code_of(guard, get({host, {"Cookie", "llmprof_7353=" + kToken.substr(1)}})), 401);
  EXPECT_EQ(code_of(guard, get({host, {"Cookie", "llmprof_7353="}})), 401);
  EXPECT_EQ(code_of(guard, get({host, {"Cookie", "llmprof_7353=" + kToken}, {"Cookie", "llmprof_7353=" + kToken}})),
            401);
  const std::optional<Response> opened = guard.refuse(get({host}, "/?token=" + kToken));
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->code, Code::kSeeOther);
  ASSERT_EQ(opened->headers.size(), 2U);
  EXPECT_EQ(opened->headers[0].value, "/");
  EXPECT_EQ(opened->headers[1].value, "llmprof_7353=" + kToken + "; HttpOnly; SameSite=Strict; Path=/");
  // The right token does not help who comes from another page, or by another name.
  EXPECT_EQ(code_of(guard, get({host, {"Sec-Fetch-Site", "cross-site"}}, "/?token=" + kToken)), 403);
  EXPECT_EQ(code_of(guard, get({{"Host", "evil.com:7353"}}, "/?token=" + kToken)), 403);
}

TEST(Guard, tokens_are_random_and_compared) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const Result<std::string> token = random_token();
    ASSERT_TRUE(token);
    EXPECT_EQ(token->size(), 32U);
    EXPECT_TRUE(is_token(*token));
    seen.insert(*token);
  }
  EXPECT_EQ(seen.size(), 100U);
  EXPECT_FALSE(is_token("short"));
  EXPECT_FALSE(is_token(std::string(201, 'a')));
  EXPECT_FALSE(is_token("0123456789abcdef0123456789 bcdef"));
  EXPECT_FALSE(is_token("0123456789abcdef0123456789;bcdef"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("ab", "ab"));
  for (const char* other : {"", "a", "abc", "aB", "bb"}) EXPECT_FALSE(equal_in_constant_time("ab", other));
}

TEST(Guard, addresses_are_of_this_machine) {
  for (const char* host : {"127.0.0.1", "127.0.0.53", "::1", "localhost"})
    EXPECT_TRUE(parse_address(host, 1)->is_loopback()) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "fe80::1", "::ffff:127.0.0.1"})
    EXPECT_FALSE(parse_address(host, 1)->is_loopback()) << host;
  for (const char* host : {"", "example.com", "127.1", "256.0.0.1", "[::1]", "127.0.0.1:80", "127.0.0.1 "})
    EXPECT_FALSE(parse_address(host, 1)) << host;
}

}  // namespace
}  // namespace llmprof::serve
