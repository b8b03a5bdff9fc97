#include "shardwise/order/explain.h"

#include <fmt/core.h>

#include <memory>

#include "commands.h"
#include "options.h"
#include "order_options.h"
#include "shardwise/base/text.h"

namespace shardwise::tools {
namespace {

struct ExplainOptions {
  OrderedArguments samples;
  OrderArguments order;
  std::uint64_t step = 0;
  std::uint64_t batch = 0;
};

void run(const ExplainOptions& options, Output& out) {
  const OrderedThing thing = open_ordered(options.samples);
  const std::unique_ptr<Sampler> sampler = sampler_for(options.order, thing);
  for (const RankStep& rank : explain_step(*sampler, options.step, options.batch)) {
    if (options.order.rank && *options.order.rank != rank.rank) continue;
    for (const std::uint64_t sample : rank.samples) {
      out.print("{}\t{}", rank.rank, sample);
      if (thing.index) {
        const std::uint64_t shard = thing.index->shard_of(sample);
        const auto local = static_cast<std::uint32_t>(sample - thing.index->first_sample(shard));
        out.print("\t{}\t{}", escaped(thing.index->segment(shard).key(local)),
                  escaped(without_secrets(thing.index->shard(shard).path)));
      }
      out.print("\n");
    }
  }
}

}  // namespace

void add_explain_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "explain", "Print what every rank, or one, had in a step: rank, sample, key and shard");
  const auto options = std::make_shared<ExplainOptions>();
  add_ordered_arguments(*command, options->samples);
  command->add_option("--step", options->step, "the step of the epoch, from 0")
      ->required()
      ->check(kWholeNumber)
      ->type_name("T");
  command->add_option("--batch", options->batch, "samples a step on each rank")
      ->required()
      ->check(CLI::PositiveNumber)
      ->check(kWholeNumber)
      ->type_name("B");
  add_order_options(*command, options->order);
  command->footer(
      "Example:\n  shardwise explain train.idx --epoch 3 --world 8 --step 1200 --batch 64");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
