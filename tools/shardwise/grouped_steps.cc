#include <utility>

#include "base/fields.h"
#include "group_options.h"
#include "loader/explain_batches.h"
#include "loader/fields.h"
#include "shardwise/loader/loader.h"

namespace shardwise::tools {

std::vector<GroupedStep> explain_groups(const GroupArguments& arguments, const Run& run,
                                        std::uint64_t batch_size, std::uint64_t step) {
  Loader::ByGroup rule{.expression = arguments.expression};
  if (arguments.window != 0) rule.window = arguments.window;
  rule.leftovers = *detail::find_choice<Loader::ByGroup::Leftovers>(arguments.leftovers);
  for (GroupSize& group : parse_groups(arguments.groups)) {
    rule.groups.push_back({.key = std::move(group.key), .batch_size = group.batch_size});
  }
  const Sampler& sampler = *run.sampler;
  const Loader::Options options{.order = sampler.order(),
                                .batch_size = batch_size,
                                .replicas = sampler.replicas(),
                                .by_group = std::move(rule)};
  ResumeToken token = sampler.token_after(0);
  token.batches = run.batches;
  std::vector<GroupedStep> steps;
  for (detail::RankBatch& rank :
       detail::explain_batches(*run.data, options, sampler.world_size(), token, step)) {
    steps.push_back({std::move(rank.step), std::move(rank.group)});
  }
  return steps;
}

}  // namespace shardwise::tools
