#include "serve/guard.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace llmprof::serve {
namespace {

constexpr size_t kTokenLeast = 22, kTokenMost = 200;
constexpr std::string_view kTokenQuery = "/?token=";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

// As inet_ntop writes it, or nothing: "127.1" and "0x7f.1" are no addresses here, as they are none to inet_pton.
std::optional<Address> address_in(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::array<char, INET6_ADDRSTRLEN> written{};
  for (const int family : {AF_INET, AF_INET6}) {
    if (text.find('\0') != std::string::npos || inet_pton(family, text.c_str(), bytes.data()) != 1) continue;
    if (inet_ntop(family, bytes.data(), written.data(), written.size()) == nullptr) continue;
    return Address{written.data(), family == AF_INET6, 0};
  }
  return std::nullopt;
}

struct HostAndPort {
  std::string host;  // without brackets
  bool bracketed = false;
  uint16_t port = 80;
};

// What stands in a Host header: "localhost:7353", "[::1]:7353". Nothing for anything else.
std::optional<HostAndPort> split_host(std::string_view text) {
  HostAndPort out;
  size_t end = 0;
  if (text.starts_with('[')) {
    end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    out.host = text.substr(1, end - 1);
    out.bracketed = true;
    ++end;
  } else {
    end = std::min(text.find(':'), text.size());
    out.host = text.substr(0, end);
  }
  if (out.host.empty()) return std::nullopt;
  if (end == text.size()) return out;
  const std::string_view digits = text.substr(end + 1);
  if (text[end] != ':' || digits.empty() || digits.front() == '0') return std::nullopt;  // as every browser writes it
  const auto [last, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  if (wrong != std::errc() || last != digits.data() + digits.size()) return std::nullopt;
  return out;
}

// The value of a cookie: "a=1; llmprof_7353=...".
bool has_cookie(std::string_view cookies, std::string_view name, std::string_view value) {
  bool found = false;
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    std::string_view one = cookies.substr(0, end);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      found = equal_in_constant_time(one.substr(name.size() + 1), value) || found;
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
  }
  return found;
}

}  // namespace

bool Address::is_loopback() const { return is_v6 ? ip == "::1" : ip.starts_with("127."); }
bool Address::is_any() const { return ip == (is_v6 ? "::" : "0.0.0.0"); }

std::string Address::url() const {
  const std::string host = is_any() ? (is_v6 ? "::1" : "127.0.0.1") : ip;
  return "http://" + (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Address> parse_address(const std::string& host, uint16_t port) {
  std::optional<Address> address = address_in(host == "localhost" ? "127.0.0.1" : host);
  if (!address)
    return fail("expected localhost or an IP address of this machine, found \"" + host + "\"", "--host",
                "llmprof serve --host 127.0.0.1", ExitCode::kUsage);
  address->port = port;
  return *std::move(address);
}

Result<std::string> random_token() {
  std::array<unsigned char, 16> bytes{};
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = getrandom(bytes.data() + got, bytes.size() - got, 0);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return fail(std::string("expected random bytes of the system, found none: ") + std::strerror(errno));
    got += static_cast<size_t>(more);
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

bool is_token(std::string_view text) {
  return text.size() >= kTokenLeast && text.size() <= kTokenMost && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i)
    differ = static_cast<unsigned char>(differ | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  return differ == 0;
}

std::optional<std::string_view> header_of(const Request& request, std::string_view name, bool& twice) {
  std::optional<std::string_view> out;
  twice = false;
  for (const Header& header : request.headers) {
    if (!equal_ignoring_case(header.name, name)) continue;
    twice = out.has_value();
    out = twice ? std::string_view() : std::string_view(header.value);
    if (twice) break;
  }
  return out;
}

Guard::Guard(Address address, std::string token, std::string machine)
    : address_(std::move(address)), token_(std::move(token)), machine_(std::move(machine)) {}

std::string Guard::cookie_name() const { return "llmprof_" + std::to_string(address_.port); }

bool Guard::names_us(std::string_view text) const {
  const std::optional<HostAndPort> host = split_host(text);
  if (!host || host->port != address_.port) return false;
  if (const std::optional<Address> ip = address_in(host->host)) {
    if (ip->is_v6 != host->bracketed) return false;
    // No name leads to an address that was written as one, so any address of the machine is as good as another.
    return ip->ip == address_.ip || address_.is_any();
  }
  if (host->bracketed) return false;
  if (address_.is_loopback() || address_.is_any())
    if (equal_ignoring_case(host->host, "localhost")) return true;
  return !address_.is_loopback() && !machine_.empty() && equal_ignoring_case(host->host, machine_);
}

bool Guard::has_token(const Request& request) const {
  bool twice = false;
  constexpr std::string_view kBearer = "Bearer ";
  if (const auto given = header_of(request, "Authorization", twice); given && given->starts_with(kBearer))
    if (equal_in_constant_time(given->substr(kBearer.size()), token_)) return true;
  const auto cookies = header_of(request, "Cookie", twice);
  return cookies && has_cookie(*cookies, cookie_name(), token_);
}

std::optional<Response> Guard::refuse(const Request& request) const {
  bool twice = false;
  const auto host = header_of(request, "Host", twice);
  if (!host || twice || !names_us(*host))
    return say(Code::kForbidden,
               "This server answers to its own address and port only; the request named another in Host.");
  const auto origin = header_of(request, "Origin", twice);
  if (origin && (twice || !equal_ignoring_case(*origin, "http://" + std::string(*host))))
    return say(Code::kForbidden, "The request comes from a page of another server (Origin).");
  const auto site = header_of(request, "Sec-Fetch-Site", twice);
  if (site && (twice || (*site != "same-origin" && *site != "none")))
    return say(Code::kForbidden,
               "The request comes from a page of another server (Sec-Fetch-Site). Type the address instead.");
  if (token_.empty()) return std::nullopt;
  if (request.target.starts_with(kTokenQuery) && request.method == "GET" &&
      equal_in_constant_time(std::string_view(request.target).substr(kTokenQuery.size()), token_)) {
    // Away from the address with the token, so that it is neither seen nor copied.
    Response out = say(Code::kSeeOther, "The token is right.");
    out.headers = {{"Location", "/"},
                   {"Set-Cookie", cookie_name() + "=" + token_ + "; HttpOnly; SameSite=Strict; Path=/"}};
    return out;
  }
  if (has_token(request)) return std::nullopt;
  return say(Code::kUnauthorized, "Open the address that llmprof serve has printed: it has the token.");
}

}  // namespace llmprof::serve
