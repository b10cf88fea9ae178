#include "import/memory_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "import/serving_walk.h"
#include "trace/trace_builder.h"

namespace llmprof::memory_stats {
namespace {

using serving::JsonStream;
using Token = JsonStream::Token;

constexpr size_t kFiguresMax = 10'000;  // PyTorch has about 170
constexpr size_t kNameMax = 200;

class StatsReader : serving::DocumentWalk {
 public:
  StatsReader(InputFile& input, Trace& trace)
      : DocumentWalk(input, trace.diagnostics),
        builder_(trace),
        source_(builder_.text(input.name().substr(input.name().rfind('/') + 1))) {}

  // How many figures there were.
  size_t read() {
    const Token token = json_.next();
    if (token == Token::kObject)
      object("");
    else
      count(DiagnosticId::kMalformedEvent, "no object");
    return figures_;
  }

 private:
  // Names of nested dicts are joined, which gives those of the flat one. JsonStream bounds the nesting.
  bool object(const std::string& path) {
    return members([&](std::string_view key, Token first) {
      const std::string name = path + std::string(key.substr(0, kNameMax - std::min(kNameMax, path.size())));
      if (first == Token::kObject) return object(name + ".");
      if (first == Token::kNumber) add(name, first);
      return skip(first);
    });
  }
  void add(const std::string& name, Token token) {
    if (figures_ >= kFiguresMax) return count(DiagnosticId::kLimitReached, "figures");
    const double value = number(token, name);
    if (!std::isfinite(value)) return;
    ++figures_;
    builder_.add<AllocatorFigures>({.source = source_, .device = -1, .name = builder_.text(name), .value = value});
  }

  TraceBuilder builder_;
  StringId source_;
  size_t figures_ = 0;
};

}  // namespace

int sniff(std::string_view head) {
  const size_t at = head.find_first_not_of(" \n\r\t");
  if (at == std::string_view::npos || head[at] != '{') return 0;
  const auto has = [&](std::string_view text) { return head.find(text) != std::string_view::npos; };
  if (has("\"allocated_bytes.all.") || has("\"reserved_bytes.all.") || has("\"active_bytes.all.")) return 95;
  return has("\"allocated_bytes\"") && has("\"all\"") && has("\"peak\"") ? 80 : 0;
}

Status import(InputFile& input, Trace& trace) {
  StatsReader reader(input, trace);
  if (reader.read() == 0)
    return fail("expected figures of PyTorch's allocator, for example allocated_bytes.all.current, found none",
                input.name(), "write them with json.dump(torch.cuda.memory_stats(), open(\"stats.json\", \"w\"))");
  return {};
}

}  // namespace llmprof::memory_stats
