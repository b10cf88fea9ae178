#include "import/torch_ranges.h"

#include <charconv>
#include <string>

namespace llmprof {
namespace {

constexpr std::string_view kModule = "[module] ";
constexpr std::string_view kPython = "[python] ";
constexpr std::string_view kSequence = ", seq = ";
constexpr std::string_view kSizes = ", sizes = ";
constexpr std::string_view kInputIds = ", input_op_ids = ";  // may stand behind the sizes

int64_t sequence_of(std::string_view text) {
  const size_t at = text.find(kSequence);
  if (at == std::string_view::npos) return -1;
  const char* first = text.data() + at + kSequence.size();
  int64_t sequence = -1;
  const std::from_chars_result read = std::from_chars(first, text.data() + text.size(), sequence);
  return read.ec == std::errc() && sequence >= 0 ? sequence : -1;
}

}  // namespace

// "aten::mm, sizes = [[1, 8], [8, 4]]", "aten::mm, seq = 7, op_id = 9, sizes = [[1, 8]], input_op_ids = [(8,0)]" of
// PyTorch; "[module] LlamaMLP" and "[python] model.py(12): forward" of the hook module.
bool add_torch_range(TraceBuilder& builder, ThreadId thread, std::string_view text, int64_t start_ns, int64_t dur_ns) {
  const bool module = text.starts_with(kModule);
  if (module || text.starts_with(kPython)) {
    builder.add<PythonCalls>({.start_ns = start_ns,
                              .dur_ns = dur_ns,
                              .thread = thread,
                              .name = module ? builder.text("nn.Module: " + std::string(text.substr(kModule.size())))
                                             : builder.text(text.substr(kPython.size()))});
    return true;
  }
  const size_t sizes = text.find(kSizes);
  const std::string_view name = text.substr(0, text.find(','));
  const size_t space = name.find("::");
  const bool named = space != std::string_view::npos && space != 0 && name.find(' ') == std::string_view::npos;
  if (sizes == std::string_view::npos && !named) return false;
  // PyTorch names sizes only; element types come from the library calls inside.
  SignatureId shaped;
  if (sizes != std::string_view::npos) {
    const std::string_view dims = text.substr(sizes + kSizes.size());
    shaped = builder.signature({.dims = dims.substr(0, dims.find(kInputIds))});
  }
  builder.add<Ops>({.start_ns = start_ns,
                    .dur_ns = dur_ns,
                    .thread = thread,
                    .name = builder.text(name),
                    .signature = shaped,
                    .sequence = sequence_of(text)});
  return true;
}

}  // namespace llmprof
