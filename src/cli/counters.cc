// The hidden command by which `llmprof run` samples the hardware counters of one GPU in a process of its own.
#include "capture/launch/sampling.h"
#include "capture/samplers/pm_sampler.h"
#include "cli/checks.h"
#include "cli/command.h"

namespace llmprof::cli {

void add_counters(Parser& parser) {
  struct Options {
    samplers::CounterSamplerOptions sampler;
    int64_t interval_us = 0;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  const Command command = parser.add_command(launch::kCountersCommand, "sample the hardware counters of one GPU");
  command.hide();
  command.option("--session", options->sampler.folder).required();
  command.option("--gpu", options->sampler.gpu_uuid).required();
  command.option("--program", options->sampler.program);
  command.option("--interval-us", options->interval_us).check(whole_number(0, int64_t{1000000}));
  command.flag("--operations", options->sampler.operations);
  command.option("--ready-fd", options->sampler.ready_fd);
  command.action([options] {
    options->sampler.interval_ns = options->interval_us * 1000;
    return samplers::run_counter_sampler(options->sampler);
  });
}

}  // namespace llmprof::cli
