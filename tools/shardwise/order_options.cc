#include "order_options.h"

#include <utility>
#include <vector>

#include "options.h"
#include "shardwise/base/error.h"
#include "shardwise/order/make_sampler.h"

namespace shardwise::tools {

void add_ordered_arguments(CLI::App& command, OrderedArguments& arguments) {
  CLI::Option* index =
      command.add_option("INDEX", arguments.index, "the samples of an index")->type_name("");
  command.add_option("--size", arguments.size, "or so many samples")
      ->check(kWholeNumber)
      ->excludes(index)
      ->type_name("N");
}

OrderedThing open_ordered(const OrderedArguments& arguments) {
  if (arguments.size) return {.index = nullptr, .size = *arguments.size};
  if (arguments.index.empty()) throw CLI::RequiredError("INDEX or --size");
  return ordered(Dataset::open(arguments.index));
}

OrderedThing ordered(const Dataset& data) {
  return {data.shared_index(), data.size(),
          std::make_shared<const std::vector<std::uint64_t>>(data.shard_starts()),
          data.sample_bytes()};
}

void add_order_options(CLI::App& command, OrderArguments& arguments) {
  OrderOptions& options = arguments.options;
  constexpr const char* kGroup = "ORDER";
  command.add_option("--sampler", arguments.sampler, "how samples are ordered")
      ->check(CLI::IsMember({"chunked", "sharded", "sequential", "resampled", "wids"}))
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
  number("--chunk", options.chunk_size, "samples in a chunk (chunked, wids)");
  number("--window", options.window, "chunks, or shards, mixed together (chunked, sharded)");
  number("--streams", options.streams, "runs of the order that are read side by side");
  command
      .add_option("--tail", arguments.tail, "what becomes of samples that do not fill all ranks")
      ->check(CLI::IsMember({"exact", "drop", "pad"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--no-shuffle", arguments.no_shuffle, "in order: 0, 1, 2 ...")->group(kGroup);
  command
      .add_flag("--balance-bytes", options.balance_bytes,
                "deal out the samples of each step so that ranks get near-equal bytes")
      ->group(kGroup);
  command
      .add_flag("--shufflefirst", options.shufflefirst, "also permute the chunks of epoch 0 (wids)")
      ->group(kGroup);
}

std::unique_ptr<Sampler> sampler_for(const OrderArguments& arguments, const OrderedThing& thing) {
  OrderOptions options = arguments.options;
  options.sampler = parse_sampler(arguments.sampler);
  options.tail = parse_tail(arguments.tail);
  options.rank = arguments.rank.value_or(0);
  options.shuffle = !arguments.no_shuffle;
  try {
    return shardwise::make_sampler(thing.size, options, thing.offsets, thing.bytes);
  } catch (const InvalidArgument& e) {
    throw CLI::ValidationError(e.what(), CLI::ExitCodes::ValidationError);
  }
}

}  // namespace shardwise::tools
