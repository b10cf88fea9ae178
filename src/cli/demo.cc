// `llmprof demo`: the main job on two real recordings that are compiled into the program, with a word on what to look
// at.
#include <cstdio>

#include "cli/command.h"
#include "cli/pipeline.h"

// The recordings (data/demo), placed by the assembler: compilers are slow with megabytes of literals.
#define LLMPROF_EMBED_BYTES(symbol, path)                                                                            \
  asm(".section .rodata\n.global " #symbol "\n" #symbol ":\n.incbin \"" path "\"\n.global " #symbol "_end\n" #symbol \
      "_end:\n.byte 0\n.previous\n");                                                                                \
  extern "C" const char symbol[], symbol##_end[];

LLMPROF_EMBED_BYTES(llmprof_demo_eager, LLMPROF_DEMO_FOLDER "/kineto_llama-3.1-8b_unlabelled.json.gz")
LLMPROF_EMBED_BYTES(llmprof_demo_graph, LLMPROF_DEMO_FOLDER "/kineto_qwen2.5-0.5b_cuda_graph.json.gz")

namespace llmprof::cli {
namespace {

struct Recording {
  const char* name;
  std::string_view bytes;
  const char* model;  // given to the analysis where the recording holds no shapes
  int64_t context;    // likewise
  const char* before;
  const char* after;
};

std::vector<Recording> recordings() {
  const auto bytes = [](const char* from, const char* to) {
    return std::string_view(from, static_cast<size_t>(to - from));
  };
  return {
      {"kineto_llama-3.1-8b_unlabelled.json.gz", bytes(llmprof_demo_eager, llmprof_demo_eager_end), "", 0,
       "1 of 2  Llama-3.1-8B as a first script runs it: Hugging Face, eager, batch 1, recorded with torch.profiler on "
       "an H200.\n"
       "        Nothing in the recording says what is prefill and what is decode; llmprof finds the steps itself.\n",
       "Look at: the stage table. Decode waits for the host most of the time (busy share), so a faster GPU would "
       "change\n"
       "nothing; the bound under the first finding says what a CUDA graph could give at most. The idle table says "
       "where\n"
       "the host was meanwhile.\n"},
      {"kineto_qwen2.5-0.5b_cuda_graph.json.gz", bytes(llmprof_demo_graph, llmprof_demo_graph_end), "qwen2.5-0.5b", 512,
       "2 of 2  Qwen2.5-0.5B with one CUDA graph per decode step, batch 1, context 512. A replayed graph records no "
       "shapes,\n"
       "        so FLOPs and bytes come from the model's configuration (--model qwen2.5-0.5b --batch 1 --context "
       "512).\n",
       "Look at: the same stage with launching solved. What the GPU still waits for are the pauses between the nodes "
       "of the\n"
       "graph (graph-internal), and most of its time goes to kernels too short to use it; fusing them is the next "
       "step.\n"},
  };
}

int run(const OutputOptions& output) {
  const bool text = output.effective_format() == "text";
  for (const Recording& recording : recordings()) {
    if (text && !output.quiet) {
      const Status status = write_output(std::string("\n") + recording.before + "\n", {});
      if (!status) return report_error(status.error());
    }
    Result<InputFile> input = InputFile::from_memory(recording.bytes, recording.name);
    if (!input) return report_error(input.error());
    Trace trace;
    if (Status status = import_input(*input, trace); !status) return report_error(status.error());
    finish_import(trace);
    AnalyzeOptions options;
    options.model = recording.model;
    if (recording.context != 0) {
      options.batch = 1;
      options.context = recording.context;
    }
    options.top = 8;
    options.measured = kept_ceilings();
    const int code = analyze_and_print(trace, {}, options, output);
    if (code != 0) return code;
    if (!text) return 0;  // one document: the first recording
    if (!output.quiet)
      if (Status status = write_output(std::string(recording.after) + "\n", {}); !status)
        return report_error(status.error());
  }
  if (!output.quiet)
    std::fputs("Your own: record with torch.profiler (record_shapes=True), then  llmprof analyze trace.json.gz\n",
               stdout);
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  const std::shared_ptr<OutputOptions> options = std::make_shared<OutputOptions>();
  CLI::App* command =
      app.add_subcommand("demo", "the whole of it on two recordings that ship with llmprof; needs no GPU");
  add_output_options(*command, *options);
  command->footer("Example:  llmprof demo");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace llmprof::cli
