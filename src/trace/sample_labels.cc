#include "trace/sample_labels.h"

#include <algorithm>

namespace llmprof {
namespace {

constexpr size_t kLabelsMost = 64;  // the widest samples of known servers have some twenty

bool is_label_name(std::string_view text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') && std::all_of(text.begin(), text.end(), good);
}

// Reads from front to back.
class LabelReader {
 public:
  explicit LabelReader(std::string_view text) : text_(text) {}

  ReadLabels read() {
    while (out_.wrong == nullptr) {
      blanks();
      if (take('}')) break;
      pair();
      blanks();
      if (take(',')) continue;
      if (out_.wrong == nullptr && !at('}')) out_.wrong = "no comma behind a label";
    }
    out_.end = at_;
    return std::move(out_);
  }

 private:
  bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!at(c)) return false;
    ++at_;
    return true;
  }
  void blanks() {
    while (at(' ') || at('\t')) ++at_;
  }

  void pair() {
    SampleLabel label;
    const bool quoted_name = at('"');
    if (quoted_name) {
      quoted(label.name);
    } else {
      const size_t end = std::min(text_.find_first_of("=,}\" \t", at_), text_.size());
      label.name = text_.substr(at_, end - at_);
      at_ = end;
      if (!is_label_name(label.name)) out_.wrong = "a label has no name";
    }
    if (out_.wrong != nullptr) return;
    blanks();
    if (!take('=')) {
      if (quoted_name && out_.name.empty() && !label.name.empty())
        out_.name = std::move(label.name);
      else
        out_.wrong = "a label has no value";
      return;
    }
    blanks();
    if (!at('"')) {
      out_.wrong = "the value of a label has no quotes";
      return;
    }
    quoted(label.value);
    if (out_.wrong == nullptr) add(std::move(label));
  }

  void add(SampleLabel label) {
    if (out_.labels.size() == kLabelsMost)
      out_.wrong = "more than 64 labels";
    else if (std::any_of(out_.labels.begin(), out_.labels.end(),
                         [&](const SampleLabel& known) { return known.name == label.name; }))
      out_.wrong = "a label comes twice";
    else
      out_.labels.push_back(std::move(label));
  }

  void quoted(std::string& out) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return;
      }
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escaped = ++at_ < text_.size() ? text_[at_] : '\0';
      if (escaped != '\\' && escaped != '"' && escaped != 'n') {
        out_.wrong = "an escape other than \\\\, \\\" and \\n";
        return;
      }
      out += escaped == 'n' ? '\n' : escaped;
    }
    out_.wrong = "a quote is not closed";
  }

  std::string_view text_;
  size_t at_ = 0;
  ReadLabels out_;
};

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  out += '"';
}

}  // namespace

ReadLabels read_labels(std::string_view text) { return LabelReader(text).read(); }

std::string labels_text(std::vector<SampleLabel> labels) {
  std::sort(labels.begin(), labels.end(), [](const SampleLabel& a, const SampleLabel& b) { return a.name < b.name; });
  std::string out;
  for (const SampleLabel& label : labels) {
    if (!out.empty()) out += ',';
    if (is_label_name(label.name))
      out += label.name;
    else
      append_quoted(out, label.name);
    out += '=';
    append_quoted(out, label.value);
  }
  return out;
}

std::vector<SampleLabel> labels_of(std::string_view text) {
  ReadLabels read = read_labels(std::string(text) + "}");
  return read.wrong == nullptr ? std::move(read.labels) : std::vector<SampleLabel>();
}

}  // namespace llmprof
