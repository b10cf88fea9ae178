// One page for a browser, in one file that asks nobody for anything: web/dist/report.html, with the result as JSON
// inside it. What the page shows of it, and how, is decided in web/src/. Names come from anyone's recording, so nothing
// of a result may be read as HTML: JSON is either free of <, > and &, or base64.
#include <zlib.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "base/embedded.h"
#include "base/json_writer.h"
#include "report/render.h"

namespace llmprof {

std::span<const EmbeddedFile> embedded_page();

namespace {

constexpr std::string_view kDataMarker = "<!--llmprof:data-->";
constexpr std::string_view kTimelineStart = "<script type=\"application/octet-stream;base64\" id=\"llmprof-timeline\">";
constexpr std::string_view kBase64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
// Smaller JSON stands in the page as text, where people and programs can find it.
constexpr size_t kPlainMost = size_t{64} << 10;

// Units of fields by their path, which the page cannot see in JSON: {"stages.wall_ms": "ms"}.
class UnitsVisitor : public RecordVisitor {
 public:
  void value(const FieldInfo& field, const Scalar&) override {
    if (field.name.empty() || field.unit.empty()) return;
    const std::string path = prefixes_.back() + std::string(field.name);
    if (seen_.insert(path).second) json_.field(path, field.unit);
  }
  void enter(Nest nest, const FieldInfo& field, const RecordShape& shape) override {
    // Inside lists a record has no name; records by name differ in their names alone.
    const bool named = !field.name.empty() && (nests_.empty() || nests_.back() != Nest::kNamed);
    prefixes_.push_back(prefixes_.back() + (named ? std::string(field.name) + "." : std::string()));
    nests_.push_back(nest);
    if (nest != Nest::kNumbers && nest != Nest::kTexts) return declare(shape);
    if (!field.unit.empty() && named) {
      const std::string path = prefixes_.back().substr(0, prefixes_.back().size() - 1);
      if (seen_.insert(path).second) json_.field(path, field.unit);
    }
  }
  void leave() override {
    prefixes_.pop_back();
    nests_.pop_back();
  }
  void unknown(Nest nest, const FieldInfo& field, const RecordShape& shape) override {
    enter(nest, field, shape);
    leave();
  }
  std::string take() {
    json_.end_object();
    return json_.take();
  }
  UnitsVisitor() { json_.begin_object(); }

 private:
  // The fields of rows, once for each list, also where it has none.
  void declare(const RecordShape& shape) {
    if (shape.visit_empty == nullptr || !declared_.insert(prefixes_.back()).second) return;
    shape.visit_empty(*this);
  }

  JsonWriter json_{0};
  std::vector<std::string> prefixes_{""};
  std::vector<Nest> nests_;
  std::set<std::string> seen_, declared_;
};

// What must not stand in a script element, as JSON's own escapes: they say the same.
std::string harmless_json(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (const char c : json) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Without a time or a name in it: the same bytes give the same bytes. Empty where zlib has no memory.
std::string gzip(std::string_view bytes) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string out;
  char buffer[1 << 16];
  size_t given = 0;
  int state = Z_OK;
  while (state == Z_OK) {
    if (stream.avail_in == 0 && given < bytes.size()) {
      const size_t part = std::min<size_t>(bytes.size() - given, std::numeric_limits<int>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + given));
      stream.avail_in = static_cast<uInt>(part);
      given += part;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof buffer;
    state = deflate(&stream, given == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer, sizeof buffer - stream.avail_out);
  }
  deflateEnd(&stream);
  return state == Z_STREAM_END ? out : std::string();
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string data_element(std::string_view id, std::string_view kind, std::string_view json) {
  std::string out = "<script type=\"application/json\" id=\"" + std::string(id) + "\"";
  if (!kind.empty()) out += " data-kind=\"" + std::string(kind) + "\"";
  const std::string packed = json.size() > kPlainMost ? gzip(json) : std::string();
  if (packed.empty()) return out + ">" + harmless_json(json) + "</script>\n";
  return out + " data-encoding=\"gzip-base64\">" + base64(packed) + "</script>\n";
}

std::string timeline_element(std::string_view base64_text) {
  return std::string(kTimelineStart) + std::string(base64_text) + "</script>\n";
}

template <class Record>
std::string units_of(const Record& record) {
  UnitsVisitor units;
  visit(record, units);
  return units.take();
}

// The page with these elements in the place of its data.
std::string page_with(const std::string& elements) {
  const std::string_view page = embedded_page().front().text;
  const size_t marker = page.find(kDataMarker);
  std::string out;
  out.reserve(page.size() + elements.size());
  out += page.substr(0, marker);
  out += elements;
  return out.append(page.substr(marker + kDataMarker.size()));
}

}  // namespace

std::string render_html(const AnyResult& result, const RenderOptions& options) {
  const std::string_view kind = result.visit([](const auto& record) { return result_info(record).name; });
  std::string data =
      data_element("llmprof-units", {}, result.visit([](const auto& record) { return units_of(record); }));
  data += data_element("llmprof-result", kind, render_json(result, 0));
  if (options.timeline != nullptr) data += timeline_element(base64(gzip(*options.timeline)));
  return page_with(data);
}

std::string render_stored_html(const StoredPage& page) {
  const std::string_view kind = page.kind;
  const std::string units = kind == "bench"        ? units_of(bench::BenchResult())
                            : kind == "peaks"      ? units_of(bench::PeaksResult())
                            : kind == "diff"       ? units_of(DiffResult())
                            : kind == "comparison" ? units_of(bench::ComparisonResult())
                                                   : units_of(Report());
  std::string data = page.served ? "<link rel=\"up\" href=\"/\">\n" : "";
  data += data_element("llmprof-units", {}, units);
  const bool known = kind == "bench" || kind == "peaks" || kind == "diff" || kind == "comparison";
  data += data_element("llmprof-result", known ? kind : "report", page.json);
  if (!page.timeline.empty()) return page_with(data + timeline_element(page.timeline));
  if (page.no_timeline.empty() && page.timeline_address.empty()) return page_with(data);
  JsonWriter missing(0);
  missing.begin_object().field("why", page.no_timeline).field("address", page.timeline_address).end_object();
  return page_with(data + data_element("llmprof-timeline-missing", {}, missing.take()));
}

std::string_view packed_timeline_in(std::string_view page) {
  const size_t start = page.find(kTimelineStart);
  if (start == std::string_view::npos) return {};
  page.remove_prefix(start + kTimelineStart.size());
  const std::string_view text = page.substr(0, page.find('<'));
  return text.find_first_not_of(kBase64Letters) == std::string_view::npos ? text : std::string_view();
}

std::string_view page_policy(std::string_view page) {
  constexpr std::string_view kBefore = "http-equiv=\"Content-Security-Policy\" content=\"";
  const size_t start = page.find(kBefore);
  // A page without one is no page of ours: nothing of it may run.
  if (start == std::string_view::npos) return "default-src 'none'";
  page.remove_prefix(start + kBefore.size());
  return page.substr(0, page.find('"'));
}

std::string_view report_page_policy() { return page_policy(embedded_page().front().text); }

}  // namespace llmprof
