// `llmprof model ID|config.json`: static analysis of a model for one request shape.
#include <fmt/format.h>

#include "base/nearest.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "model/model_report.h"
#include "model/number_format.h"

namespace llmprof::cli {
namespace {

struct ModelArguments {
  ModelOptions model;
  OutputOptions output;
};

// A decode step follows its prompt, and attends to all of it; a prompt that nobody named is of no consequence.
Status check_context(const ModelOptions& model) {
  if (model.context == 0 || model.context >= model.prefix + model.prompt) return {};
  return fail(fmt::format("expected a context of {} or more, the tokens of --prefix and --prompt, found {}",
                          model.prefix + model.prompt, model.context),
              "--context", "leave --context out for the step after the prompt, or name a shorter --prompt",
              ExitCode::kUsage);
}

int run(const ModelArguments& options) {
  if (const Status status = refuse_overwriting("-o", options.output.path, {options.model.model}); !status)
    return report_error(status.error());
  const Result<ModelReport> report = report_model(options.model);
  if (!report) return report_error(report.error());
  const Status status = write_result(model_result(*report), options.output);
  return status ? 0 : report_error(status.error());
}

}  // namespace

void add_model(Parser& parser) {
  const std::shared_ptr<ModelArguments> options = std::make_shared<ModelArguments>();
  ModelOptions& model = options->model;
  const Command command =
      parser.add_command("model", "parameters, FLOPs, bytes, KV cache and memory of a model, from its configuration");
  command
      .option("MODEL", model.model,
              "name of llmprof list models, or of a variant with the shape of one; any other model by its Hugging Face "
              "config.json, a folder with one, or - for standard input")
      .required()
      .type_name("");
  const Check count = whole_number(1, int64_t{1} << 40), or_none = whole_number(0, int64_t{1} << 40);
  command.option("--batch", model.batch, "sequences").check(count).capture_default();
  const Option prompt =
      command.option("--prompt", model.prompt, "new tokens per sequence in a prefill").check(count).capture_default();
  command.option("--prefix", model.prefix, "tokens already cached before them").check(or_none).capture_default();
  command
      .option("--context", model.context,
              "tokens that one decode step attends to, the new one included (default: prefix + prompt + 1)")
      .check(or_none);
  command.option("--new", model.new_tokens, "tokens generated per sequence, for the KV cache")
      .check(or_none)
      .capture_default();
  command.option("--images", model.images, "images per sequence, for models with a vision tower (default: 1)")
      .check(or_none);
  command.option("--image-height", model.image_height, "pixels (default: the model's own)").check(or_none);
  command.option("--image-width", model.image_width, "pixels (default: the model's own)").check(or_none);
  command.option("--dtype", model.dtype,
                 "element type of activations, and of weights unless the config or --weights says otherwise");
  command.option("--weights", model.weights, "weight format: " + join_or(weight_format_names()));
  command
      .option("--activations", model.activations,
              "what inputs of quantised layers are quantised to: --weights fp8 --activations fp8 is W8A8; without "
              "it, weights only (W8A16), unless the config says otherwise")
      .type_name("FORMAT");
  command.option("--gpu", model.gpu, "hold it against this GPU's data sheet: does it fit, least times (a bound)")
      .type_name("NAME");
  command.option("--kv-dtype", model.kv_dtype, "element type of the KV cache");
  add_output_options(command, options->output, CsvOutput::kFile);
  command.footer("Example:  llmprof model llama-3.1-8b --batch 8 --prompt 512 --context 1024 --weights fp8");
  command.action([options, prompt] {
    if (prompt.count() > 0)
      if (const Status status = check_context(options->model); !status) return report_error(status.error());
    return run(*options);
  });
}

}  // namespace llmprof::cli
