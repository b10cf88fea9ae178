// `llmprof demo`: the main job, first on a run that is recorded here and now, then on two real recordings of a GPU that
// are compiled into the program, each with a word on what to look at.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/embed_bytes.h"
#include "base/text_table.h"
#include "bench/peak_rows.h"
#include "bench/peaks.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/measuring.h"
#include "cli/pipeline.h"
#include "cli/reference_run.h"
#include "cli/run_program.h"
#include "cli/temporary_folder.h"
#include "kernels/op.h"
#include "workload/cpu_backend.h"
#include "workload/cuda_backend.h"

// The recordings (data/demo).
LLMPROF_EMBED_BYTES(llmprof_demo_eager, LLMPROF_DEMO_FOLDER "/kineto_llama-3.1-8b_unlabelled.json.gz")
LLMPROF_EMBED_BYTES(llmprof_demo_graph, LLMPROF_DEMO_FOLDER "/kineto_qwen2.5-0.5b_cuda_graph.json.gz")

namespace llmprof::cli {
namespace {

struct Recording {
  const char* name;
  std::string_view bytes;
  const char* model;  // given to the analysis where the recording holds no shapes
  int64_t context;    // likewise
  const char* label;
  const char* before;
  const char* after;
};

std::vector<Recording> recordings() {
  const auto bytes = [](const char* from, const char* to) {
    return std::string_view(from, static_cast<size_t>(to - from));
  };
  return {
      {"kineto_llama-3.1-8b_unlabelled.json.gz", bytes(llmprof_demo_eager, llmprof_demo_eager_end), "", 0, "1 of 2",
       "Llama-3.1-8B as a first script runs it: Hugging Face, eager, batch 1, recorded with torch.profiler on an H200. "
       "Nothing in the recording says what is prefill and what is decode; llmprof finds the steps itself.",
       "Look at: the stages. Decode waits for the host most of the time (GPU idle), so a faster GPU would "
       "change nothing; the line below what to change first says what a CUDA graph could give at most. The rows of "
       "idle "
       "time say what the GPU waited for."},
      {"kineto_qwen2.5-0.5b_cuda_graph.json.gz", bytes(llmprof_demo_graph, llmprof_demo_graph_end), "qwen2.5-0.5b", 512,
       "2 of 2",
       "Qwen2.5-0.5B with one CUDA graph per decode step, batch 1, context 512. A replayed graph records no shapes, so "
       "FLOPs and bytes come from the model's configuration (--model qwen2.5-0.5b --batch 1 --context 512).",
       "Look at: the same stage with launching solved. What the GPU still waits for are the pauses between the nodes "
       "of the graph (graph-internal), and most of its time goes to kernels too short to use it; fusing them is the "
       "next step."},
  };
}

// Paragraphs: what it says between the reports.
class Guide {
 public:
  explicit Guide(const OutputOptions& output) : style_(output.style()) {}

  // A label and, beside it, a text; what follows the line feeds in it begins a line.
  Status begin(const std::string& label, const std::string& text) const {
    std::string out = "\n";
    constexpr size_t kBeside = 8;
    std::string first = label;
    first.resize(kBeside, ' ');
    for (const std::string& line : lines_of(text)) {
      out += wrap_text(line, width(), first, std::string(kBeside, ' '));
      first.assign(kBeside, ' ');
    }
    return write_page(out + "\n", style_);
  }
  Status say(const std::string& text) const { return write_page(wrap_text(text, width(), "", ""), style_); }

 private:
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return lines;
  }
  size_t width() const { return style_.fit ? style_.width : kUsualWidth; }

  static constexpr size_t kUsualWidth = 120;
  TextStyle style_;
};

// On a GPU the smaller sizes are over before there is much to see; the first is a second, in 3 GB.
constexpr std::string_view kGpuSizes[] = {"base", "small", "tiny"};

// Shorter than `llmprof peaks --quick`: a demo should begin with what it is about.
constexpr double kCeilingsTimeFactor = 0.5;

// The ceilings of this CPU that are kept from before, else a quick run, which is not kept.
Result<std::vector<MeasuredCeilings>> ceilings_here(device::Device& device, DType dtype, const std::atomic<bool>& stop,
                                                    ProgressLine& progress) {
  std::vector<MeasuredCeilings> kept = kept_ceilings();
  for (const MeasuredCeilings& one : kept)
    if (one.device_key == device.identity().key) return kept;
  bench::PeaksOptions options;
  options.operations = kernels::operations();
  options.quick = true;
  options.time_factor = kCeilingsTimeFactor;
  options.dtypes = {DType::kFp32};
  if (dtype != DType::kFp32) options.dtypes.push_back(dtype);
  options.begin = [&](const std::string& what) { progress.show("what this CPU can do at most: " + what); };
  const Result<bench::Peaks> peaks = bench::measure_peaks(device, options, stop, [](const bench::PeakRow&) {});
  progress.clear();
  if (!peaks) return tl::unexpected<Error>(peaks.error());
  if (peaks->interrupted) return fail("interrupted");
  kept.push_back(bench::ceilings_of(*peaks));
  return kept;
}

struct UsableGpu {
  std::string name, size;  // of the GPU, and of the workload that fits it
};
// The GPU that the workload would run on; the error is why there is none.
Result<UsableGpu> usable_gpu(const OutputOptions& output) {
  LLMPROF_ASSIGN(const std::unique_ptr<device::Device> gpu, device::open_device({"cuda:0", 0}));
  LLMPROF_CHECK(workload::check_cuda_libraries(*gpu));
  LLMPROF_CHECK(refuse_if_busy(*gpu, true, output.quiet));
  for (const std::string_view size : kGpuSizes)
    if (fits_gpu(*workload::find_size(size), gpu->free_bytes()))
      return UsableGpu{gpu->identity().name, std::string(size)};
  return fail(fmt::format("only {} of GPU memory are free", format_bytes(static_cast<double>(gpu->free_bytes()))));
}

// The reference workload on the GPU, as `llmprof run -- llmprof workload --device cuda:0` records it.
Status live_on_gpu(const UsableGpu& gpu, const OutputOptions& output, const Guide& guide) {
  if (!output.quiet)
    LLMPROF_CHECK(guide.begin(
        "live", fmt::format("A small vision-language model with random weights on this machine's GPU ({}), recorded "
                            "while it runs:\nllmprof run -- llmprof workload --device cuda:0 --size {}",
                            printable(gpu.name), gpu.size)));
  const TemporaryFolder folder;
  if (folder.path().empty()) return fail("no folder for temporary files can be made", {}, "set TMPDIR to one");
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail("this program's own path is not known: " + error.message(), "/proc/self/exe");
  ProgramRun what;
  what.words = {self.string(), "workload", "--device", "cuda:0", "--size", gpu.size};
  what.folder = folder.path() + "/session";
  what.output = output;
  LLMPROF_ASSIGN(const int code, record_and_report(what));
  if (code != 0) return fail(fmt::format("the workload ended with {} on the GPU", code));
  if (output.quiet) return {};
  return guide.say(
      "Look at: TTFT and TPOT beside the workload's own above. Prefill multiplies many tokens with each weight; a step "
      "of decode reads every weight for one token, and is one CUDA graph (launched one by one:  --decode eager).");
}

// The reference workload on this machine's CPU, recorded and analysed. An error is why that could not be done.
Status live_on_cpu(const std::string& why_no_gpu, const OutputOptions& output, const Guide& guide,
                   const std::atomic<bool>& stop) {
  if (!output.quiet)
    LLMPROF_CHECK(guide.begin("live",
                              "A small vision-language model with random weights (llmprof workload --size small) on "
                              "this machine's CPU, recorded while it ran.\n" +
                                  fmt::format("(Not on a GPU: {})", printable(why_no_gpu))));
  ProgressLine progress(output.quiet);
  AnalyzeOptions options;
  options.top = 8;
  {
    LLMPROF_ASSIGN(const std::unique_ptr<device::Device> cpu, device::open_device({"cpu", 0}));
    LLMPROF_CHECK(refuse_if_busy(*cpu, true, output.quiet));
    LLMPROF_ASSIGN(options.measured, ceilings_here(*cpu, workload::cpu_dtype(), stop, progress));
  }
  ReferenceRunOptions reference;
  reference.device = "cpu";
  reference.size = workload::find_size(reference.size_name);
  reference.record = true;
  LLMPROF_ASSIGN(ReferenceRun done,
                 run_reference(reference, {}, stop, [&](const std::string& what) { progress.show(what); }));
  progress.clear();
  if (done.result.interrupted) return fail("interrupted");
  done.trace->source.files = {"the reference workload"};
  if (analyze_and_print(*done.trace, {}, options, output) != 0) return fail("its recording could not be analysed");
  if (output.quiet) return {};
  const std::optional<workload::RunResult::Steady> steady = done.result.steady();
  const std::string cold = steady && steady->cold > 0
                               ? fmt::format("without {} cold first step{}", steady->cold, steady->cold == 1 ? "" : "s")
                               : "the median of its steps";
  return guide.say(
      fmt::format("By its own clock: TTFT {}, TPOT {} ({}, as above). Look at: what bounds prefill, which multiplies "
                  "many tokens with "
                  "each weight, and decode, which reads every weight for one token, as shares of ceilings measured on "
                  "this machine. Where other programs keep it busy, threads that wait for each other show as overhead.",
                  format_ms(done.result.ttft_ms()), format_ms(steady ? steady->median_ms : 0), cold));
}

// In the folder where it was started; the first report that there is, the live one if it can be.
constexpr const char* kPage = "llmprof-demo.html";

bool page_is_written() {
  std::error_code none;
  return std::filesystem::exists(kPage, none);
}

Status say_where_the_page_is(const Guide& guide) {
  return guide.say(fmt::format("The first report as a page for a browser: {}", kPage));
}

int run(OutputOptions output, bool recorded_only, bool html) {
  const bool text = output.is_text();
  if (html && text && output.path.empty() && !output.quiet) {
    output.page = kPage;
    std::error_code none;
    std::filesystem::remove(kPage, none);
  }
  if (const Status folder = check_folder(output, "llmprof demo --format csv -o report"); !folder)
    return report_error(folder.error());
  const Guide guide(output);
  if (!text && !output.quiet)  // a report is of one recording
    complain(fmt::format("notice: {} is the report of the first recording, {}; as text the demo shows {}",
                         output.effective_format(), recordings().front().name, recordings().size()));
  if (text && !recorded_only && output.path.empty()) {
    std::string why_no_gpu;
    if (const Result<UsableGpu> gpu = usable_gpu(output); !gpu)
      why_no_gpu = gpu.error().what;
    else if (const Status status = live_on_gpu(*gpu, output, guide); !status)
      why_no_gpu = status.error().what;
    const Interrupt interrupt(output.quiet);
    const Status status = why_no_gpu.empty() ? Status() : live_on_cpu(why_no_gpu, output, guide, interrupt.flag());
    if (!status) {
      const Status told =
          write_page(fmt::format("The live part ends here: {}\n", status.error().text()), output.style());
      if (!told) return report_error(told.error());
      if (interrupt.flag().load()) return kInterruptedExit;
    }
  }
  for (const Recording& recording : recordings()) {
    if (html && page_is_written()) output.page.clear();
    if (text && !output.quiet) {
      const Status status = guide.begin(recording.label, recording.before);
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
    if (output.quiet) continue;
    Status status = guide.say(recording.after);
    if (status) status = guide.say("");
    if (!status) return report_error(status.error());
  }
  if (output.quiet) return 0;
  Status status = html && page_is_written() ? say_where_the_page_is(guide) : Status();
  if (status)
    status =
        guide.say("Your own: record with torch.profiler (record_shapes=True), then  llmprof analyze trace.json.gz");
  return status ? 0 : report_error(status.error());
}

}  // namespace

void add_demo(Parser& parser) {
  struct Options {
    OutputOptions output;
    bool recorded = false, no_html = false;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  const Command command = parser.add_command(
      "demo", "the whole of it: a run on this machine, then two recordings that ship with llmprof; needs no GPU");
  command.flag("--recorded", options->recorded, "only the recordings; nothing is run or measured here");
  command.flag("--no-html", options->no_html,
               "no " + std::string(kPage) + ", the first report as a page for a browser");
  add_output_options(command, options->output);
  command.footer("Example:  llmprof demo");
  command.action([options] { return run(options->output, options->recorded, !options->no_html); });
}

}  // namespace llmprof::cli
