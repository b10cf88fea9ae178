// Any bytes as a request: read as the server reads them, answered from a store whose texts are hostile. Who does not
// name this server gets nothing of it; every answer has its headers in order; and nothing of a request comes back.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "serve/routes.h"
#include "serve/server.h"

namespace {

using namespace llmprof;

constexpr std::string_view kSecret = "of-the-store-alone";
constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

class HostileLibrary : public serve::Library {
 public:
  Result<std::vector<RunRow>> runs() const override {
    std::vector<RunRow> rows(3);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].number = static_cast<int64_t>(i) + 1;
      rows[i].name = "</script><script>alert(1)</script>\x1b[2J\xff" + std::string(kSecret);
      rows[i].command = "=cmd|' /C calc'!A0";
      rows[i].tpot_ms = 20.0;
    }
    return rows;
  }
  Result<RunManifest> manifest(int64_t number) const override {
    if (number > 3) return fail("There is no run with this number.");
    RunManifest out;
    out.number = number;
    out.name = kSecret;
    return out;
  }
  Result<serve::StoredResult> result(int64_t number, bool) const override {
    if (number > 3) return fail("There is no run with this number.");
    return serve::StoredResult{"report", "{\"a\": \"</script><script>alert(1)</script>" + std::string(kSecret) + "\"}",
                               ""};
  }
  Result<serve::Readable> readable(int64_t number) const override {
    if (number > 3) return fail("There is no run with this number.");
    return serve::Readable{std::to_string(number) + "-run", number == 3 ? RunKind::kBench : RunKind::kRun};
  }
};

class NoCommands : public serve::Commands {
 public:
  Result<std::string> output_of(const std::vector<std::string>& words, const serve::Unwanted&) const override {
    // Of a request they have numbers.
    for (const std::string& word : words)
      if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789,-") != std::string::npos) __builtin_trap();
    return "{\"a\": \"</script><script>alert(1)</script>" + std::string(kSecret) + "\"}";
  }
};

serve::Response answer_of(const serve::Request& request, const serve::Guard& guard, const serve::Library& library) {
  static const NoCommands commands;
  serve::Answer answer = serve::answer(request, guard, library, commands);
  if (const serve::Response* at_once = std::get_if<serve::Response>(&answer)) return *at_once;
  return std::get<1>(answer)([] { return false; });
}

void check(bool holds) {
  if (!holds) __builtin_trap();
}

bool is_clean(const std::string& text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const HostileLibrary library;
  static const serve::Guard open(*serve::parse_address("127.0.0.1", 7353), "");
  static const serve::Guard closed(*serve::parse_address("0.0.0.0", 7353), kToken);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::optional<serve::Request> request = serve::read_request(bytes);
  if (!request) return 0;
  bool twice = false;
  const auto host = serve::header_of(*request, "Host", twice);
  for (const serve::Guard* guard : {&open, &closed}) {
    const serve::Response response = answer_of(*request, *guard, library);
    const bool served = response.code == serve::Code::kOk;
    if (served || response.body.find(kSecret) != std::string::npos) {
      check(request->method == "GET" || request->method == "HEAD");
      check(host && !twice && host->ends_with(":7353"));
      if (guard == &open) check(*host == "127.0.0.1:7353" || host->size() == std::string_view("localhost:7353").size());
      if (guard == &closed) check(bytes.find(kToken) != std::string_view::npos);
    }
    if (served && response.type.starts_with("text/html"))
      check(response.body.find("<script>alert") == std::string::npos);
    bool policy = false;
    for (const serve::Header& header : response.headers) {
      check(is_clean(header.name) && is_clean(header.value));
      policy = policy || (header.name == "Content-Security-Policy" && header.value.starts_with("default-src 'none'"));
    }
    check(policy);
  }
  return 0;
}
