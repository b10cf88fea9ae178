// Where kernels were seen to be launched from, in deep recordings.
#include <fmt/format.h>

#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/text_parts.h"

namespace llmprof {

std::string text_launch_sites(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.launch_sites.empty()) return {};
  const bool wide = options.width > 100;
  TextTable table({{"kernel", Align::kLeft, wide ? size_t{40} : size_t{26}},
                   {"GPU time", Align::kRight, 0, 1},
                   {"share", Align::kRight, 0, 2},
                   {"stacks", Align::kRight, 0, 3},
                   {"launched from, innermost first", Align::kLeft, wide ? size_t{90} : size_t{60}}});
  size_t kernels = 0, shown = 0;
  const std::string* kernel = nullptr;
  for (const LaunchSiteRecord& row : report.launch_sites) {
    const bool again = kernel != nullptr && *kernel == row.kernel;
    kernel = &row.kernel;
    if (!again) ++kernels;
    if (kernels > options.top) continue;
    shown = kernels;
    const std::string stacks = fmt::format("{} of {}", row.stacks, row.kernel_stacks);
    if (again)
      table.add_row({"", "", "", stacks, row.site});
    else
      table.add_row({short_kernel_name(row.kernel), format_ns(row.kernel_ms.ns),
                     row.share ? format_percent(*row.share) : "-", stacks, row.site});
  }
  std::string out =
      ink.bold("Launch sites") + "  " +
      ink.dim("by call stacks at a kernel's 1st, 2nd, 4th, 8th ... launch: a sample, not a count of launches") + "\n" +
      table.render("  ", options);
  if (kernels > shown) out += ink.dim(fmt::format("  ... {} more (--top, or --format csv)\n", kernels - shown));
  return out + "\n";
}

}  // namespace llmprof
