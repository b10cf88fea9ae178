#include "kernels/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"

namespace llmprof::kernels {
namespace {

std::vector<std::string> axis_names(const Operation& operation) {
  std::vector<std::string> names;
  for (const Axis& axis : operation.axes) names.emplace_back(axis.name);
  return names;
}

// As the command line spells them: "--head-dim".
std::string as_options(std::vector<std::string> axes) {
  for (std::string& axis : axes) {
    std::replace(axis.begin(), axis.end(), '_', '-');
    axis.insert(0, "--");
  }
  return join_or(axes);
}

}  // namespace

Result<OpParams> make_params(const Operation& operation, DType dtype, std::string_view variant,
                             const std::vector<std::pair<std::string, int64_t>>& changes) {
  OpParams params;
  for (const Axis& axis : operation.axes) params.axes.emplace_back(axis.name, axis.usual);
  for (const auto& [name, value] : changes) {
    const auto found = std::find_if(params.axes.begin(), params.axes.end(),
                                    [&name = name](const auto& axis) { return axis.first == name; });
    if (found == params.axes.end()) {
      const std::vector<std::string> near = nearest_names(name, axis_names(operation), 2);
      return fail(fmt::format("{} has no axis \"{}\"", operation.name, name), {},
                  as_options(near.empty() ? axis_names(operation) : near), ExitCode::kUsage);
    }
    if (value < 1)
      return fail(fmt::format("expected a {} of 1 or more, found {}", name, value), {}, {}, ExitCode::kUsage);
    found->second = value;
  }
  params.dtype = dtype == DType::kUnknown && !operation.dtypes.empty() ? operation.dtypes[0] : dtype;
  if (std::find(operation.dtypes.begin(), operation.dtypes.end(), params.dtype) == operation.dtypes.end()) {
    std::vector<std::string> names;
    for (const DType one : operation.dtypes) names.emplace_back(dtype_name(one));
    return fail(fmt::format("{} is not measured in {}", operation.name, dtype_name(params.dtype)), {},
                "--dtype " + join_or(names), ExitCode::kUsage);
  }
  params.variant = variant.empty() && !operation.variants.empty() ? operation.variants[0] : variant;
  const auto has = std::find(operation.variants.begin(), operation.variants.end(), params.variant);
  if (has == operation.variants.end() && !params.variant.empty()) {
    const std::vector<std::string> names(operation.variants.begin(), operation.variants.end());
    return fail(fmt::format("{} has no variant \"{}\"", operation.name, params.variant), {},
                names.empty() ? "it has no variants" : "--variant " + join_or(names), ExitCode::kUsage);
  }
  return params;
}

}  // namespace llmprof::kernels
