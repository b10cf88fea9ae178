// One CSV file per list of records, header row first, the names and units of the declarations. Records inside a row are
// columns of it, under their name; texts inside it are one column, the last; the two ends of an interval are one; lists
// inside it are files of their own, whose rows begin with the keys of this one. Whatever is known of a result, the same
// files have the same columns.
#include "base/csv.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "report/render.h"

namespace llmprof {
namespace {

std::string csv_text(const Scalar& value) {
  if (const std::string_view* text = std::get_if<std::string_view>(&value)) return std::string(*text);
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const int64_t* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  const double* number = std::get_if<double>(&value);
  return number != nullptr && std::isfinite(*number) ? fmt::format("{}", *number) : std::string();
}

using Cells = std::vector<std::pair<std::string, std::string>>;  // column and value

class CsvVisitor : public RecordVisitor {
 public:
  void value(const FieldInfo& field, const Scalar& value) override { add(field.name, csv_text(value)); }
  void key(const FieldInfo& field, std::string_view text) override {
    add(field.name, std::string(text));
    if (Frame* row = this->row()) row->keys.emplace_back(field.name, text);
  }

  void enter(Nest nest, const FieldInfo& field, const RecordShape& shape) override {
    const Frame* const outside = frames_.empty() ? nullptr : &frames_.back();
    Frame frame;
    frame.nest = nest;
    frame.table = shape.info.name;
    if (outside != nullptr) frame.prefix = outside->prefix, frame.keys = outside->keys;
    const bool in_row = row() != nullptr;
    if (nest == Nest::kRecord && in_row) frame.prefix += std::string(field.name) + "_";
    if (nest == Nest::kRecord && outside != nullptr && outside->nest == Nest::kRows) begin_row(outside->table, frame);
    if (nest == Nest::kOneRow) begin_row(shape.info.name, frame);
    if (nest == Nest::kNamedRow && outside != nullptr) {
      begin_row(outside->table, frame);
      frame.cells.emplace_back("metric", field.name);
    }
    if (nest == Nest::kTexts) frame.text_column = field.name;
    if (nest == Nest::kNumbers) frame.text_column = frame.prefix + std::string(field.name);
    frames_.push_back(std::move(frame));
    if (nest == Nest::kRows) declare(shape);
  }

  void leave() override {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (frame.nest == Nest::kTexts) {
      if (Frame* row = this->row()) row->texts.emplace_back(frame.text_column, frame.joined);
    } else if (frame.nest == Nest::kNumbers) {
      // An interval that may be unknown is a column; lists of samples are none, and the header has no place for them.
      Frame* const row = this->row();
      if (row != nullptr && columns_[std::string(row->table)].count(frame.text_column) > 0)
        row->cells.emplace_back(frame.text_column, frame.joined);
    } else if (frame.is_row) {
      frame.cells.insert(frame.cells.end(), frame.texts.begin(), frame.texts.end());
      finish_row(frame);
    }
  }

  void unknown(Nest nest, const FieldInfo& field, const RecordShape& shape) override {
    without_values(nest, field, shape);
  }
  void left_out(Nest nest, const FieldInfo& field, const RecordShape& shape) override {
    if (shape.visit_empty != nullptr) return without_values(nest, field, shape);
    value(field, std::monostate());
  }

  std::vector<RenderedFile> take() {
    std::vector<RenderedFile> files;
    for (const std::string& name : order_) files.push_back({name + ".csv", std::move(tables_[name])});
    return files;
  }

 private:
  struct Frame {
    Nest nest = Nest::kRecord;
    std::string_view table;  // of a record, its name; of rows, where they go
    std::string prefix, text_column, joined;
    Cells cells, texts, keys;
    bool is_row = false;
  };

  void begin_row(std::string_view table, Frame& frame) {
    frame.table = table;
    frame.is_row = true;
    frame.prefix.clear();
    frame.cells = frame.keys;
  }

  // The row that values belong to: of the innermost record in a list, or none.
  Frame* row() {
    for (size_t i = frames_.size(); i-- > 0;) {
      if (frames_[i].is_row) return &frames_[i];
      if (frames_[i].nest == Nest::kRows || frames_[i].nest == Nest::kNamed) return nullptr;
    }
    return nullptr;
  }

  void add(std::string_view name, std::string text) {
    if (!frames_.empty() && (frames_.back().nest == Nest::kTexts || frames_.back().nest == Nest::kNumbers)) {
      std::string& joined = frames_.back().joined;
      joined += (joined.empty() ? "" : " ") + text;
      return;
    }
    if (Frame* row = this->row()) row->cells.emplace_back(frames_.back().prefix + std::string(name), std::move(text));
  }

  void finish_row(const Frame& frame) {
    const std::string name(frame.table);
    std::vector<std::string> cells;
    const auto [table, fresh] = tables_.try_emplace(name);
    if (fresh) {
      order_.push_back(name);
      for (const auto& [column, text] : frame.cells) cells.push_back(column), columns_[name].insert(column);
      append_csv_row(table->second, cells);
      cells.clear();
    }
    if (headers_only_ > 0) return;
    for (const auto& [column, text] : frame.cells) cells.push_back(text);
    append_csv_row(table->second, cells);
  }

  // The header of a list that may have no rows.
  void declare(const RecordShape& rows) {
    if (tables_.find(std::string(rows.info.name)) != tables_.end()) return;
    ++headers_only_;
    enter(Nest::kRecord, {}, rows);
    rows.visit_empty(*this);
    leave();
    --headers_only_;
  }

  // Columns and files of what is not known are there all the same.
  void without_values(Nest nest, const FieldInfo& field, const RecordShape& shape) {
    const bool in_row = row() != nullptr && nest == Nest::kRecord;
    const size_t before = in_row ? row()->cells.size() : 0;
    headers_only_ += !in_row;
    enter(nest, field, shape);
    if (nest != Nest::kRows) shape.visit_empty(*this);
    leave();
    headers_only_ -= !in_row;
    if (in_row)
      for (size_t i = before; i < row()->cells.size(); ++i) row()->cells[i].second.clear();
  }

  std::vector<Frame> frames_;
  std::map<std::string, std::string> tables_;
  std::map<std::string, std::set<std::string>> columns_;  // by table
  std::vector<std::string> order_;
  int headers_only_ = 0;
};

}  // namespace

std::vector<RenderedFile> render_csv(const AnyResult& result) {
  CsvVisitor visitor;
  std::string_view wanted;
  result.visit([&](const auto& record) {
    wanted = result_info(record).one_table;
    visit(record, visitor);
  });
  std::vector<RenderedFile> files = visitor.take();
  if (!wanted.empty())
    std::erase_if(files, [wanted](const RenderedFile& file) { return file.name != std::string(wanted) + ".csv"; });
  return files;
}

}  // namespace llmprof
