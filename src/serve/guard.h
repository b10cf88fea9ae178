// Who may ask. A page of any site can make a browser send requests to this machine, and a name that an attacker owns
// can lead to 127.0.0.1 (DNS rebinding): so a request must name this server in Host, and, as far as the browser says
// where it comes from (Origin, Sec-Fetch-Site: Fetch standard and Fetch Metadata, W3C), it must come from this server's
// own pages. Bound elsewhere than to loopback, it must have the token too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "serve/message.h"

namespace llmprof::serve {

// An IP address and port that a server is bound to.
struct Address {
  std::string ip;  // as inet_ntop writes it: "127.0.0.1", "::1"
  bool is_v6 = false;
  uint16_t port = 0;

  bool is_loopback() const;
  bool is_any() const;  // 0.0.0.0 or ::
  // "http://127.0.0.1:7353", with `[]` around IPv6; what is bound to all is reached by loopback.
  std::string url() const;
};
// `host`: an address, or "localhost". The error says what was expected.
Result<Address> parse_address(const std::string& host, uint16_t port);

// 128 bits of getrandom(2) in hexadecimal.
Result<std::string> random_token();
// Whether a text can be a token: 22 to 200 letters, digits, '-' and '_'. 22 are 128 bits in base64.
bool is_token(std::string_view text);
// Takes as long wherever the two differ (not where their lengths do, which is no secret).
bool equal_in_constant_time(std::string_view a, std::string_view b);

class Guard {
 public:
  // `token` empty: none is asked for. `machine`: the name of this machine, accepted in Host where the address is not
  // loopback; empty: none.
  Guard(Address address, std::string token, std::string machine = {});

  // The answer to a request that must not be served; nothing: go on. With the right token in the target of the page of
  // runs ("/?token=..."), it is a redirection there which sets the cookie.
  std::optional<Response> refuse(const Request& request) const;

  const Address& address() const { return address_; }
  const std::string& token() const { return token_; }
  std::string cookie_name() const;  // with the port: cookies of a host are shared by its ports

 private:
  bool names_us(std::string_view host) const;
  bool has_token(const Request& request) const;

  Address address_;
  std::string token_, machine_;
};

// The one value of a header; nothing where there is none, and "" with `twice` set where there are several.
std::optional<std::string_view> header_of(const Request& request, std::string_view name, bool& twice);

}  // namespace llmprof::serve
