// Renderers: a result in, files out. They know units and layout, and decide nothing. One file each, listed in
// registry.cc. Adding one: docs/howto/add-a-report-format.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/page.h"
#include "base/result.h"
#include "results/results.h"

namespace llmprof {

struct RenderOptions : TextStyle {        // of text
  size_t top = 12;                        // text: rows per table; the others always give all that the result holds
  bool one_page = false;                  // text of a report: at most 60 lines, else every table
  const std::string* timeline = nullptr;  // html: packed steps for its timeline; none: it has no such section
  bool profiled = false;                  // one page: with kernels profiled beside the recording, which were asked for
};

struct RenderedFile {
  std::string name;  // "report.json", "stages.csv"
  std::string content;
};

struct Renderer {
  std::string_view name;  // "text"
  std::string_view description;
  bool tables;  // a file for each list of the result, in a folder; one file where the result is one table
  std::vector<RenderedFile> (*render)(const AnyResult&, const RenderOptions&);
};

// What `--format` takes, the first where nothing is said.
std::span<const Renderer> renderers();
const Renderer* find_renderer(std::string_view name);

// Writes the files into `folder`, which is made if it does not exist. Errors name the file.
Status write_files(const std::string& folder, const std::vector<RenderedFile>& files);

std::string render_json(const AnyResult& result, int indent = 2);
std::string render_html(const AnyResult& result, const RenderOptions& options);
// The page of a result that is there as JSON.
struct StoredPage {
  std::string_view kind;           // "report", "bench", "peaks", "diff" or "comparison"
  std::string_view json;           // whatever it is
  std::string_view timeline = {};  // base64, as packed_timeline_in() gives it; empty: none
  // Of `llmprof serve`: it links to "/", the page above it.
  bool served = false;
  // Why there is no timeline, or where one can be had; both empty: nothing is said of it.
  std::string no_timeline = {}, timeline_address = {};
};
std::string render_stored_html(const StoredPage& page);
// The timeline inside a page that render_html() made, by any version of llmprof: base64 and nothing else. Empty: none.
std::string_view packed_timeline_in(std::string_view page);
// The content security policy of these pages: only their own script and style run.
std::string_view page_policy(std::string_view page);
std::string_view report_page_policy();
std::vector<RenderedFile> render_csv(const AnyResult& result);

// Pages, one function per result. Each has gone through finish_page().
std::string render_text(const Report& report, const RenderOptions& options);
std::string render_text(const bench::BenchResult& result, const RenderOptions& options);
std::string render_text(const bench::ComparisonResult& result, const RenderOptions& options);
std::string render_text(const bench::PeaksResult& result, const RenderOptions& options);
std::string render_text(const ModelResult& result, const RenderOptions& options);
std::string render_text(const DiffResult& result, const RenderOptions& options);
std::string render_text(const DoctorResult& result, const RenderOptions& options);
std::string render_text(const RunList& result, const RenderOptions& options);
std::string render_text(const RunShown& result, const RenderOptions& options);
std::string render_text(const PrunedRuns& result, const RenderOptions& options);
std::string render_text(const VerifiedRuns& result, const RenderOptions& options);

}  // namespace llmprof
