#include "import/memory_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "import/serving_walk.h"
#include "trace/trace_builder.h"

namespace llmprof::memory_stats {
namespace {

using serving::JsonStream;
using Token = JsonStream::Token;

constexpr size_t kFiguresMax = 10'000;  // of a GPU; PyTorch has about 170
constexpr int32_t kStatsDevicesMax = 1024;
constexpr size_t kNameMax = 200;

// The GPU that a key of an object of several stands for: "1", "cuda:1"; -1 for names of figures.
int32_t device_named(std::string_view key) {
  if (key.starts_with("cuda:")) key.remove_prefix(5);
  int32_t device = -1;
  const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), device);
  const bool whole = problem == std::errc() && end == key.data() + key.size();
  return whole && device >= 0 && device < kStatsDevicesMax ? device : -1;
}

class StatsReader : serving::DocumentWalk {
 public:
  StatsReader(InputFile& input, Trace& trace)
      : DocumentWalk(input, trace.diagnostics),
        builder_(trace),
        source_(builder_.text(input.name().substr(input.name().rfind('/') + 1))) {}

  // How many figures there were.
  size_t read() {
    const Token token = document_.next();
    if (token == Token::kObject)
      object("");
    else if (token == Token::kArray)
      list();
    else
      count(DiagnosticId::kMalformedEvent, "neither an object nor a list of them");
    return all_;
  }

 private:
  // [torch.cuda.memory_stats(0), torch.cuda.memory_stats(1)]
  void list() {
    int32_t device = 0;
    entries([&](Token first) {
      const int32_t of = device++;
      if (first != Token::kObject || of >= kStatsDevicesMax) {
        count(of < kStatsDevicesMax ? DiagnosticId::kMalformedEvent : DiagnosticId::kLimitReached,
              "an element of the list");
        return skip(first);
      }
      return of_device(of);
    });
  }
  bool of_device(int32_t device) {
    device_ = device;
    figures_ = 0;
    const bool whole = object("");
    device_ = -1;
    return whole;
  }

  // Names of nested dicts are joined, which gives those of the flat one. JsonStream bounds the nesting.
  bool object(const std::string& path) {
    return members([&](std::string_view key, Token first) {
      if (path.empty() && device_ < 0 && first == Token::kObject && device_named(key) >= 0)
        return of_device(device_named(key));
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
    ++all_;
    builder_.add<AllocatorFigures>({.source = source_, .device = device_, .name = builder_.text(name), .value = value});
  }

  TraceBuilder builder_;
  StringId source_;
  int32_t device_ = -1;  // that the figures are of; -1: the file does not say
  size_t figures_ = 0, all_ = 0;
};

}  // namespace

int sniff(std::string_view head) {
  const size_t at = head.find_first_not_of(" \n\r\t");
  if (at == std::string_view::npos || (head[at] != '{' && head[at] != '[')) return 0;
  const auto has = [&](std::string_view text) { return head.find(text) != std::string_view::npos; };
  if (has("\"allocated_bytes.all.") || has("\"reserved_bytes.all.") || has("\"active_bytes.all.")) return 95;
  return has("\"allocated_bytes\"") && has("\"all\"") && has("\"peak\"") ? 80 : 0;
}

Status import(InputFile& input, Trace& trace) {
  StatsReader reader(input, trace);
  if (reader.read() == 0)
    return fail("expected figures of PyTorch's allocator, for example allocated_bytes.all.current, found none",
                input.name(),
                "write them with json.dump(torch.cuda.memory_stats(), open(\"stats.json\", \"w\")), of several GPUs a "
                "list of torch.cuda.memory_stats(d)");
  return {};
}

}  // namespace llmprof::memory_stats
