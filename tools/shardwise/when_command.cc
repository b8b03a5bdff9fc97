#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "commands.h"
#include "options.h"
#include "order_options.h"
#include "shardwise/base/error.h"
#include "shardwise/order/explain.h"

namespace shardwise::tools {
namespace {

struct WhenOptions {
  RunArguments run;
  StepSize batch = {.batch_size = 0};
  std::optional<std::uint64_t> sample;
  std::optional<std::string> key;
  bool json = false;
};

std::uint64_t sample_asked_for(const WhenOptions& options, const Run& run) {
  if (options.sample) return *options.sample;
  if (!options.key) throw CLI::RequiredError("--sample or --key");
  if (!run.data) throw CLI::ValidationError("--key", "needs INDEX; give INDEX instead of --size");
  for (std::size_t part = 0; part < run.data->num_parts(); ++part) {
    if (const auto sample = run.data->part(part).find(*options.key)) {
      return run.data->first_sample(part) + sample->index();
    }
  }
  throw NotFound("no sample has the key " + in_quotes(*options.key),
                 in_quotes(run.data->part(0).index().path()), "`shardwise ls` shows the keys");
}

void run(const WhenOptions& options, Output& out) {
  const Run run = open_run(options.run, checked(options.batch));
  const std::uint64_t sample = sample_asked_for(options, run);
  bool found = false;
  for (const Sampler::SampleTime& time : when_sample(*run.sampler, sample)) {
    if (options.run.rank && *options.run.rank != time.rank) continue;
    found = true;
    if (options.json) {
      out.print("{{\"rank\":{},\"step\":{},\"place\":{},\"position\":{}}}\n", time.rank, time.step,
                time.place, time.position);
    } else {
      out.print("rank {}, step {}, place {}\n", time.rank, time.step, time.place);
    }
  }
  if (found) return;
  throw NotFound(
      fmt::format("sample {} is not read", sample),
      fmt::format("epoch {}{}", run.sampler->epoch(),
                  options.run.rank ? fmt::format(", rank {}", *options.run.rank) : ""),
      fmt::format("check --tail drop, --skip, --epoch-size and the weights of --mix, which leave "
                  "samples out, and --token, which skips the samples read before{}",
                  options.run.rank ? "; leave out --rank to search all ranks" : ""));
}

}  // namespace

void add_when_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "when",
      "Print which rank reads a sample, in which step and at which place of the batch, all from 0");
  const auto options = std::make_shared<WhenOptions>();
  add_step_size(*command, options->batch);
  CLI::Option* sample = command->add_option("--sample", options->sample, "sample number, from 0")
                            ->transform(kWholeNumber)
                            ->type_name("N");
  command->add_option("--key", options->key, "key of the sample, instead of --sample")
      ->excludes(sample)
      ->type_name("KEY");
  command->add_flag("--json", options->json, "print one JSON object per line");
  add_run_options(*command, options->run, /*with_size=*/true);
  mark_common(*command, {"--sample", "--key", "--batch", "--sampler", "--seed", "--epoch",
                         "--world", "--checkpoint", "--json"});
  command->footer(
      "Example:\n  shardwise when train.idx --epoch 3 --world 8 --batch 64 --sample 123456");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
