#include "derive/step_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace llmprof {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 40;  // larger token counts are not counts
constexpr size_t kTextMax = 512;                 // longer texts are judged by their beginning

// Reads forward through a text; every step says whether it matched, and nothing is consumed when it did not.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool literal(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool number(int64_t* value) {
    const std::from_chars_result result = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *value);
    if (result.ec != std::errc() || *value < 0 || *value > kCountMax) return false;
    rest_.remove_prefix(static_cast<size_t>(result.ptr - rest_.data()));
    return true;
  }
  std::string_view upper_word() {
    size_t n = 0;
    while (n < rest_.size() && ((rest_[n] >= 'A' && rest_[n] <= 'Z') || rest_[n] == '_')) ++n;
    const std::string_view word = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return word;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

std::string lower(std::string_view text) {
  std::string out(text.substr(0, kTextMax));
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Requests, new tokens and attended tokens of one phase of a step; -1 where the text does not say.
struct Phase {
  int64_t requests = -1;
  int64_t tokens = -1;
  int64_t attended = -1;
};

StepName compose(const Phase& context, const Phase& generation) {
  StepName step;
  step.one_step = true;
  const bool prompts = context.requests > 0;
  const bool decodes = generation.requests > 0;
  step.kind = prompts && decodes ? StageKind::kMixed
              : prompts          ? StageKind::kPrefill
              : decodes          ? StageKind::kDecode
                                 : StageKind::kOther;
  step.stage = step.kind == StageKind::kOther ? "empty step" : std::string(name_of(step.kind));
  step.sequences = std::max<int64_t>(context.requests, 0) + std::max<int64_t>(generation.requests, 0);
  const bool tokens_known = (!prompts || context.tokens >= 0) && (!decodes || generation.tokens >= 0);
  if (tokens_known) step.new_tokens = (prompts ? context.tokens : 0) + (decodes ? generation.tokens : 0);
  if (prompts) step.context_tokens = context.tokens;
  if (prompts != decodes) step.attended = prompts ? context.attended : generation.attended;
  if (step.sequences == 1) step.context = prompts ? context.attended : generation.attended;
  // With more tokens than requests the step verifies drafts, and how many it accepted is not in the name.
  if (step.kind == StageKind::kDecode && generation.tokens == generation.requests) {
    step.output_tokens = generation.requests;
  }
  return step;
}

// "9(8192)" or "9(sq8155sk8430sqsq7475785sqsk7671310)".
bool vllm_phase(Scanner& in, Phase* phase) {
  if (!in.number(&phase->requests) || !in.literal("(")) return false;
  if (in.literal("sq")) {
    int64_t skipped = 0;
    if (!in.number(&phase->tokens)) return false;
    if (in.literal("sk") && !in.number(&phase->attended)) return false;
    if (in.literal("sqsq") && !in.number(&skipped)) return false;
    if (in.literal("sqsk") && !in.number(&skipped)) return false;
  } else if (!in.number(&phase->tokens)) {
    return false;
  }
  return in.literal(")");
}

// execute_context_9(8192)_generation_37(37), and with a leading token count execute_8192_context_9(..)_generation_..
std::optional<StepName> parse_vllm(std::string_view text) {
  Scanner in(text);
  if (!in.literal("execute_")) return {};
  int64_t total = -1;
  if (in.number(&total) && !in.literal("_")) return {};
  Phase context, generation;
  if (!in.literal("context_") || !vllm_phase(in, &context)) return {};
  if (!in.literal("_generation_") || !vllm_phase(in, &generation)) return {};
  return compose(context, generation);
}

// The value of " key=" or "[key=" inside a bracketed list.
int64_t keyed(std::string_view list, std::string_view key) {
  for (size_t at = list.find(key); at != std::string_view::npos; at = list.find(key, at + 1)) {
    const bool starts = at == 0 || list[at - 1] == ' ' || list[at - 1] == '[' || list[at - 1] == ',';
    Scanner in(list.substr(at + key.size()));
    int64_t value = -1;
    if (starts && in.literal("=") && in.number(&value)) return value;
  }
  return -1;
}

// step[EXTEND bs=2 toks=12 c_sk=20], step[DECODE bs=2 g_sk=30], step[MIXED bs=2 c=1 g=1 c_sq=5 ..], step[TARGET_VERIFY
// bs=4]; prefill[bs=2 tok=16384], decode[bs=64].
std::optional<StepName> parse_bracketed(std::string_view text) {
  Scanner in(text);
  std::string_view mode;
  if (in.literal("step[")) {
    mode = in.upper_word();
  } else if (in.literal("prefill[") || in.literal("extend[")) {
    mode = "EXTEND";
  } else if (in.literal("decode[")) {
    mode = "DECODE";
  }
  const std::string_view list = in.rest();
  const int64_t batch = keyed(list, "bs");
  if (mode.empty() || batch < 0) return {};
  Phase context, generation;
  if (mode == "EXTEND") {
    context = {batch, std::max(keyed(list, "toks"), keyed(list, "tok")), keyed(list, "c_sk")};
    return compose(context, generation);
  }
  if (mode == "DECODE") {
    generation = {batch, batch, keyed(list, "g_sk")};
    return compose(context, generation);
  }
  if (mode == "MIXED") {
    context = {keyed(list, "c"), keyed(list, "c_sq"), keyed(list, "c_sk")};
    generation = {keyed(list, "g"), keyed(list, "g_sq"), keyed(list, "g_sk")};
    if (context.requests >= 0 && generation.requests >= 0) return compose(context, generation);
    StepName mixed;
    mixed.kind = StageKind::kMixed;
    mixed.stage = name_of(mixed.kind);
    mixed.one_step = true;
    mixed.sequences = batch;
    return mixed;
  }
  // Draft verification, draft extension, idle steps: neither prefill nor decode, and named as the server names them.
  StepName other;
  other.stage = lower(mode);
  other.one_step = true;
  other.sequences = batch;
  other.new_tokens = std::max(keyed(list, "toks"), keyed(list, "tok"));
  return other;
}

// "3 ctx reqs, 512 ctx tokens, 5 gen reqs"; the token count is missing in older versions.
std::optional<StepName> parse_tensorrt(std::string_view text) {
  const size_t at = text.find(" ctx reqs, ");
  if (at == std::string_view::npos) return {};
  size_t begin = at;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  Scanner in(text.substr(begin));
  Phase context, generation;
  if (!in.number(&context.requests) || !in.literal(" ctx reqs, ") || !in.number(&generation.requests)) return {};
  if (in.literal(" ctx tokens, ")) {
    context.tokens = generation.requests;
    if (!in.number(&generation.requests)) return {};
  }
  if (!in.literal(" gen reqs")) return {};
  return compose(context, generation);
}

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

std::vector<std::string_view> letter_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_letter(text[end])) ++end;
    if (end > i) words.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return words;
}

bool begins(std::string_view word, std::string_view stem) { return word.substr(0, stem.size()) == stem; }

template <size_t N>
bool one_of(std::string_view word, const std::array<std::string_view, N>& list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

constexpr std::array<std::string_view, 2> kPrefillWords{"context", "extend"};
constexpr std::array<std::string_view, 3> kDecodeWords{"decoding", "generation", "generations"};
constexpr std::array<std::string_view, 8> kVisionWords{"visual",  "image",    "images",     "vit",
                                                       "patches", "patchify", "preprocess", "preprocessing"};

std::optional<StageKind> kind_of_words(const std::vector<std::string_view>& words) {
  bool prefill = false, decode = false, mixed = false, vision = false, tokenise = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::string_view next = i + 1 < words.size() ? words[i + 1] : std::string_view();
    prefill |= begins(word, "prefill") || one_of(word, kPrefillWords) || (word == "first" && begins(next, "token"));
    // "decoder" names a part of the model, not a stage.
    decode |= (begins(word, "decode") && !begins(word, "decoder")) || one_of(word, kDecodeWords) ||
              (word == "token" && begins(next, "step"));
    mixed |= word == "mixed" && next != "precision";
    vision |= begins(word, "vision") || word == "patch" || one_of(word, kVisionWords);
    tokenise |= begins(word, "tokeniz") || begins(word, "tokenis");
  }
  if (mixed) return StageKind::kMixed;
  if (prefill) return StageKind::kPrefill;
  if (vision) return StageKind::kVision;               // "decode image" is preparing an image
  if (decode && !tokenise) return StageKind::kDecode;  // "tokenizer decode" makes text of tokens
  if (tokenise && !decode) return StageKind::kVision;  // prepares a prompt, as preprocess does
  return {};
}

// "step" beside the word that names the stage: "decode_step", "step 3: decode", not "more context for the step".
bool says_step(const std::vector<std::string_view>& words) {
  const auto names = [](std::string_view word) { return word == "token" || kind_of_words({word}).has_value(); };
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == "step" && ((i > 0 && names(words[i - 1])) || (i + 1 < words.size() && names(words[i + 1]))))
      return true;
  return false;
}

// Ranges that frameworks open themselves; their words do not name a stage.
constexpr std::array<std::string_view, 12> kFrameworkPrefixes{
    "profilerstep",         "optimizer.", "nccl:",     "gloo:",     "c10d::",          "autograd::",
    "enumerate(dataloader", "## call ",   "gpu_model", "nn.module", "torch-compiled ", "pytorch profiler"};

// Counters at the end of a name ("decode_step 17", "decode#3", "prefill(512)") would make each step a stage of its own.
std::string without_counter(std::string_view text) {
  size_t end = std::min(text.size(), kTextMax);
  while (end > 0) {
    const char c = text[end - 1];
    const bool digit = c >= '0' && c <= '9';
    const bool joint = c == ' ' || c == '_' || c == '#' || c == ':' || c == '-' || c == '.' || c == '(' || c == ')' ||
                       c == '[' || c == ']' || c == '=' || c == '/';
    if (!digit && !joint) break;
    --end;
  }
  return std::string(text.substr(0, end));
}

}  // namespace

std::optional<StepName> parse_server_step(std::string_view text) {
  text = text.substr(0, kTextMax);
  if (std::optional<StepName> step = parse_vllm(text)) return step;
  if (std::optional<StepName> step = parse_bracketed(text)) return step;
  return parse_tensorrt(text);
}

std::optional<StepName> parse_stage_words(std::string_view text) {
  if (!may_name_step(text)) return {};
  const std::string small = lower(text);
  const std::vector<std::string_view> words = letter_words(small);
  const std::optional<StageKind> kind = kind_of_words(words);
  if (!kind) return {};
  StepName step;
  step.kind = *kind;
  step.says_step = says_step(words);
  step.stage = without_counter(text);
  return step;
}

bool may_name_step(std::string_view text) {
  const std::string small = lower(text);
  const bool framework = std::any_of(kFrameworkPrefixes.begin(), kFrameworkPrefixes.end(),
                                     [&](std::string_view prefix) { return begins(small, prefix); });
  return !framework && small.substr(0, small.find_first_of(" ,(")).find("::") == std::string::npos;
}

std::string stage_of_text(std::string_view text) {
  text = text.substr(0, kTextMax);
  const size_t number = std::min(text.find_first_of("0123456789"), text.size());
  const std::string small = lower(text.substr(number));
  const std::vector<std::string_view> after = letter_words(small);
  // Letters alone are units and signs: "x", "k".
  if (std::all_of(after.begin(), after.end(), [](std::string_view word) { return word.size() == 1; })) {
    std::string stage = without_counter(text.substr(0, number));
    if (!stage.empty()) return stage;
  }
  std::string stage;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || stage.empty() || stage.back() != '#') stage += digit ? '#' : c;
  }
  return stage;
}

std::optional<StepName> parse_step_name(std::string_view text) {
  if (std::optional<StepName> step = parse_server_step(text)) return step;
  return parse_stage_words(text);
}

StageKind stage_kind_of(std::string_view name) {
  const std::string small = lower(name);
  return kind_of_words(letter_words(small)).value_or(StageKind::kOther);
}

}  // namespace llmprof
