#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "options.h"
#include "order_options.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "shardwise/order/explain.h"

namespace shardwise::tools {
namespace {

struct WhenOptions {
  OrderedArguments samples;
  OrderArguments order;
  std::uint64_t batch = 0;
  std::optional<std::uint64_t> sample;
  std::optional<std::string> key;
};

std::uint64_t sample_asked_for(const WhenOptions& options, const OrderedThing& thing) {
  if (options.sample) return *options.sample;
  if (!options.key) throw CLI::RequiredError("--sample or --key");
  if (!thing.index) throw CLI::ValidationError("--key", "needs an index, not --size");
  const std::optional<std::uint64_t> sample = thing.index->find(*options.key);
  if (!sample) {
    throw NotFound("no sample has the key " + in_quotes(*options.key),
                   in_quotes(thing.index->path()), "`shardwise ls` shows the keys");
  }
  return *sample;
}

void run(const WhenOptions& options, Output& out) {
  const OrderedThing thing = open_ordered(options.samples);
  const std::unique_ptr<Sampler> sampler = sampler_for(options.order, thing);
  const std::uint64_t sample = sample_asked_for(options, thing);
  bool found = false;
  for (const SampleTime& time : when_sample(*sampler, sample, options.batch)) {
    if (options.order.rank && *options.order.rank != time.rank) continue;
    out.print("rank {}, step {}, place {}\n", time.rank, time.step, time.place);
    found = true;
  }
  if (found) return;
  throw NotFound(fmt::format("sample {} does not come", sample),
                 fmt::format("epoch {}{}", sampler->epoch(),
                             options.order.rank ? fmt::format(", rank {}", sampler->rank()) : ""),
                 "--tail drop leaves samples out; without --rank all ranks are searched");
}

}  // namespace

void add_when_command(CLI::App& program, Output& out) {
  CLI::App* command =
      program.add_subcommand("when",
                             "Print which rank gets a sample, in which step of the epoch, "
                             "and at which place of its batch; all from 0");
  const auto options = std::make_shared<WhenOptions>();
  add_ordered_arguments(*command, options->samples);
  command->add_option("--batch", options->batch, "samples a step on each rank")
      ->required()
      ->check(CLI::PositiveNumber)
      ->check(kWholeNumber)
      ->type_name("B");
  CLI::Option* sample = command->add_option("--sample", options->sample, "the sample's number")
                            ->check(kWholeNumber)
                            ->type_name("N");
  command->add_option("--key", options->key, "or its key")->excludes(sample)->type_name("K");
  add_order_options(*command, options->order);
  command->footer(
      "Example:\n  shardwise when train.idx --epoch 3 --world 8 --batch 64 --sample 123456");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
