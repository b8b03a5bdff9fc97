#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "shardwise/data/dataset.h"
#include "shardwise/index/index.h"
#include "shardwise/order/balanced_sampler.h"
#include "shardwise/order/sampler.h"

namespace shardwise::tools {

/// ORDER: the options that decide which sample comes when. The same for every command that takes
/// them, and the same names as the library's OrderOptions.
struct OrderArguments {
  OrderOptions options;
  std::string sampler = "chunked";
  std::string tail = "exact";
  std::optional<std::uint64_t> rank;
  bool no_shuffle = false;
};

/// Adds the ORDER options to `command`. `arguments` must live as long as it does.
void add_order_options(CLI::App& command, OrderArguments& arguments);

/// What is to be ordered: the samples of an index, or `size` samples of nothing in particular.
struct OrderedThing {
  std::shared_ptr<const Index> index;  ///< for its keys
  std::uint64_t size = 0;
  ShardOffsets offsets = nullptr;
  SampleBytes bytes = nullptr;
};

/// INDEX or --size N, for commands that need no more than a number of samples.
struct OrderedArguments {
  std::string index;
  std::optional<std::uint64_t> size;
};
void add_ordered_arguments(CLI::App& command, OrderedArguments& arguments);
OrderedThing ordered(const Dataset& data);
/// Errors: CLI::RequiredError if neither was given; as Index::open.
OrderedThing open_ordered(const OrderedArguments& arguments);

/// The order of rank `arguments.rank`, or of rank 0 if none was given.
/// Errors: CLI::ValidationError for options that do not go together.
std::unique_ptr<Sampler> sampler_for(const OrderArguments& arguments, const OrderedThing& thing);

}  // namespace shardwise::tools
