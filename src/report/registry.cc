#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "report/render.h"

namespace llmprof {
namespace {

std::vector<RenderedFile> one_file(const AnyResult& result, const char* ending, std::string content) {
  const std::string_view name = result.visit([](const auto& record) { return result_info(record).name; });
  return {{std::string(name) + ending, std::move(content)}};
}
std::vector<RenderedFile> text_file(const AnyResult& result, const RenderOptions& options) {
  return one_file(result, ".txt", result.visit([&](const auto& record) { return render_text(record, options); }));
}
std::vector<RenderedFile> json_file(const AnyResult& result, const RenderOptions&) {
  return one_file(result, ".json", render_json(result));
}
std::vector<RenderedFile> html_file(const AnyResult& result, const RenderOptions& options) {
  return one_file(result, ".html", render_html(result, options));
}
std::vector<RenderedFile> csv_files(const AnyResult& result, const RenderOptions&) { return render_csv(result); }

constexpr Renderer kRenderers[] = {
    {"text", "a page for a terminal: the answer first, then what it rests on", false, text_file},
    {"json", "one document: every key is there, null where a value is not known", false, json_file},
    {"csv", "a file for each table, in a folder: stages.csv, kernels.csv, ...; one file where there is one table", true,
     csv_files},
    {"html", "one page for a browser, offline and in one file: charts, and tables to sort and filter", false,
     html_file},
};

}  // namespace

std::span<const Renderer> renderers() { return kRenderers; }

const Renderer* find_renderer(std::string_view name) {
  for (const Renderer& renderer : kRenderers)
    if (renderer.name == name) return &renderer;
  return nullptr;
}

Status write_files(const std::string& folder, const std::vector<RenderedFile>& files) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // The overload without an error code would throw where even looking is not allowed.
  std::error_code ignored;
  if (error && !std::filesystem::is_directory(folder, ignored))
    return fail("expected a folder to write into, but it cannot be made: " + error.message(), folder,
                "give another path with -o");
  for (const RenderedFile& file : files) {
    const std::string path = (std::filesystem::path(folder) / file.name).string();
    std::FILE* out = std::fopen(path.c_str(), "wb");
    if (out == nullptr)
      return fail(std::string("cannot write: ") + std::strerror(errno), path, "check the folder's permissions");
    const bool whole = std::fwrite(file.content.data(), 1, file.content.size(), out) == file.content.size();
    const bool closed = std::fclose(out) == 0;
    if (!whole || !closed)
      return fail(std::string("could not write all of it: ") + std::strerror(errno), path, "check the free space");
  }
  return {};
}

}  // namespace llmprof
