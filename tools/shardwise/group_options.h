#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "order_options.h"
#include "shardwise/order/sampler.h"

namespace shardwise::tools {

/// The options of batches by group, as in Loader::ByGroup.
struct GroupArguments {
  std::string expression;
  std::vector<std::string> groups;  ///< "KEY=BATCH" each
  std::uint64_t window = 0;         ///< 0 means the library's default
  std::string leftovers = "hold_over";

  [[nodiscard]] bool is_on() const noexcept { return !expression.empty(); }
};

/// Adds --group-by and the options that belong to it. `arguments` must outlive `command`.
void add_group_options(CLI::App& command, GroupArguments& arguments);

/// A group and its batch size, parsed from KEY=BATCH.
struct GroupSize {
  std::string key;
  std::uint64_t batch_size = 0;
};
/// Parses the values of --group. Errors: CLI::ValidationError.
std::vector<GroupSize> parse_groups(const std::vector<std::string>& groups);

/// The batch of a rank in a step.
struct GroupedStep {
  Sampler::RankStep step;
  std::string group;  ///< key of the group; empty without groups
};

/// Returns what each rank has in a step of batches by group, from the run's position on.
/// @param batch_size  batch size of groups that do not set one.
/// Errors: OutOfRange if there is no such step; those of Loader's constructor and restore().
///   Unsupported in a program built without the loader.
std::vector<GroupedStep> explain_groups(const GroupArguments& arguments, const Run& run,
                                        std::uint64_t batch_size, std::uint64_t step);

}  // namespace shardwise::tools
