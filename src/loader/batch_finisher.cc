#include "loader/batch_finisher.h"

#include <optional>

#include "loader/batch_builder.h"
#include "loader/batch_mixer.h"
#include "loader/packing.h"

namespace shardwise::detail {

std::function<void(Batch&, const BatchPlan&)> batch_finisher(
    const Loader::Options& options, std::span<const Loader::ByGroup::Group> groups,
    std::uint64_t epoch, const std::shared_ptr<BufferPool>& pool) {
  std::optional<Packer> packer;
  if (const auto& rule = options.by_length; rule && rule->pack_to != 0) {
    packer.emplace(rule->pack, options.batch_size, rule->pack_to, rule->padding);
  }
  std::optional<BatchMixer> mixer;
  if (options.mix) mixer.emplace(*options.mix, options.columns, options.order.seed);
  if (!packer && !mixer && groups.empty()) return {};
  return [pool, packer, mixer, epoch, groups](Batch& batch, const BatchPlan& rows) {
    if (!groups.empty() && !batch.empty()) {
      BatchBuilder::set_group(batch, groups[rows.group].key);
    }
    if (packer) packer->pack(batch, rows.positions, rows.starts, rows.lengths, *pool);
    if (mixer) mixer->mix(batch, epoch, *pool);
  };
}

}  // namespace shardwise::detail
