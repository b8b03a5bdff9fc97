#include "order_options.h"

#include "options.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {
namespace {

std::unique_ptr<Sampler> sampler_of(const OrderOptions& options, const OrderedThing& thing) {
  switch (options.sampler) {
    case SamplerKind::kSequential:
      return std::make_unique<SequentialSampler>(thing.size, options);
    case SamplerKind::kSharded: {
      if (!thing.index) throw InvalidArgument("--sampler sharded needs an index, not --size");
      auto starts = std::make_shared<const std::vector<std::uint64_t>>(thing.index->shard_starts());
      return std::make_unique<ShardedSampler>(std::move(starts), options);
    }
    default:
      return std::make_unique<ChunkedSampler>(thing.size, options);
  }
}

}  // namespace

void add_order_options(CLI::App& command, OrderArguments& arguments) {
  OrderOptions& options = arguments.options;
  constexpr const char* kGroup = "ORDER";
  command.add_option("--sampler", arguments.sampler, "how samples are ordered")
      ->check(CLI::IsMember({"chunked", "sharded", "sequential"}))
      ->capture_default_str()
      ->group(kGroup);
  const auto number = [&](const char* name, auto& value, const char* what) {
    command.add_option(name, value, what)
        ->check(kWholeNumber)
        ->type_name("N")
        ->capture_default_str()
        ->group(kGroup);
  };
  number("--seed", options.seed, "which order, for a whole run");
  number("--epoch", options.epoch, "which order within the run");
  number("--world", options.world_size, "number of ranks");
  number("--rank", arguments.rank, "which of them, from 0");
  number("--chunk", options.chunk_size, "samples in a chunk (chunked)");
  number("--window", options.window, "chunks, or shards, mixed together (chunked, sharded)");
  number("--streams", options.streams, "runs of the order that are read side by side");
  command
      .add_option("--tail", arguments.tail, "what becomes of samples that do not fill all ranks")
      ->check(CLI::IsMember({"exact", "drop", "pad"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--no-shuffle", arguments.no_shuffle, "in order: 0, 1, 2 ...")->group(kGroup);
}

std::unique_ptr<Sampler> make_sampler(const OrderArguments& arguments, const OrderedThing& thing) {
  OrderOptions options = arguments.options;
  options.sampler = parse_sampler(arguments.sampler);
  options.tail = parse_tail(arguments.tail);
  options.rank = arguments.rank.value_or(0);
  options.shuffle = !arguments.no_shuffle;
  try {
    return sampler_of(options, thing);
  } catch (const InvalidArgument& e) {
    throw CLI::ValidationError(e.what(), CLI::ExitCodes::ValidationError);
  }
}

}  // namespace shardwise::tools
