// Renderers: a Report in, files out. They know units and nothing of analyses. One file each, listed in registry.cc.
// Adding one: docs/howto/add-a-report-format.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyze/report_data.h"
#include "base/page.h"
#include "base/result.h"

namespace llmprof {

struct RenderOptions : TextStyle {  // of text
  size_t top = 12;                  // text: rows per table; the others always give all that the Report holds
};

struct RenderedFile {
  std::string name;  // "report.json", "stages.csv"
  std::string content;
};

struct Renderer {
  std::string_view name;  // "text"
  std::string_view description;
  bool folder;  // several files, to be written into a folder
  std::vector<RenderedFile> (*render)(const Report&, const RenderOptions&);
};

std::span<const Renderer> renderers();
const Renderer* find_renderer(std::string_view name);

// Writes the files into `folder`, which is made if it does not exist. Errors name the file.
Status write_files(const std::string& folder, const std::vector<RenderedFile>& files);

std::string render_text(const Report& report, const RenderOptions& options);
// Schema llmprof.report/1; every key is always there, unknown values are null.
std::string render_json(const Report& report);
std::vector<RenderedFile> render_csv(const Report& report);

}  // namespace llmprof
