#include "import/memory_snapshot_places.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace llmprof::memory_snapshot {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr StringId kUnsearched{0xFFFFFFFFU};

bool is_python_file(std::string_view file) { return file.ends_with(".py") || file.starts_with('<'); }

// What follows the folder of installed packages; all of it where there is none.
std::string_view below_packages(std::string_view file) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = file.rfind(folder); at != std::string_view::npos) return file.substr(at + folder.size());
  return file;
}

bool is_of_torch(std::string_view file) {
  const std::string_view name = below_packages(file);
  return (name.size() != file.size() && (name.starts_with("torch/") || name.starts_with("functorch/"))) ||
         file.find("/pytorch/torch/") != std::string_view::npos;
}

}  // namespace

Places::Places(const pickle::Document& document, const std::vector<Key>& keys, TraceBuilder& builder)
    : document_(document),
      keys_(keys),
      builder_(builder),
      files_(document.text_count(), File::kUnjudged),
      lists_(document.container_count(), kUnsearched) {}

StringId Places::of(Value frames) {
  if (frames.kind() != Kind::kList && frames.kind() != Kind::kTuple) return StringId::kEmpty;
  StringId& known = lists_[frames.index()];
  if (known == kUnsearched) known = search(frames);
  return known;
}

StringId Places::search(Value frames) {
  std::optional<Frame> own, torch;
  document_.each(frames, [&](Value item) {
    const Frame frame = read(item);
    const File file = judge(frame.file);
    if (file == File::kOwn) own = frame;
    if (file == File::kTorch && !torch) torch = frame;
    return !own;
  });
  return own ? named(*own) : torch ? named(*torch) : StringId::kEmpty;
}

Places::Frame Places::read(Value item) const {
  Frame frame;
  const auto take = [&](Value key, Value value) {
    const Key meant = key.kind() == Kind::kText ? keys_[key.index()] : Key::kUnknown;
    if (meant == Key::kFile) frame.file = value;
    if (meant == Key::kLine) frame.line = value;
    if (meant == Key::kName) frame.name = value;
  };
  document_.members(item, take, kFieldsMax);
  return frame;
}

Places::File Places::judge(Value file) {
  if (file.kind() != Kind::kText) return File::kNoPython;
  File& known = files_[file.index()];
  if (known == File::kUnjudged) {
    const std::string_view name = document_.text(file);
    known = !is_python_file(name) ? File::kNoPython : is_of_torch(name) ? File::kTorch : File::kOwn;
  }
  return known;
}

StringId Places::named(const Frame& frame) {
  return builder_.text(fmt::format("{}:{} {}", below_packages(document_.text(frame.file)),
                                   document_.integer(frame.line).value_or(0), document_.text(frame.name)));
}

}  // namespace llmprof::memory_snapshot
