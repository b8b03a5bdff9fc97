#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "loader/buffer_pool.h"
#include "loader/engine.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// Returns the function that completes the batches of an epoch after their rows are made: it packs
/// and mixes them, and names their groups. It is empty if nothing is left to do.
/// @param groups  the groups, with batches by group; otherwise empty. Must outlive the function.
[[nodiscard]] std::function<void(Batch&, const BatchPlan&)> batch_finisher(
    const Loader::Options& options, std::span<const Loader::ByGroup::Group> groups,
    std::uint64_t epoch, const std::shared_ptr<BufferPool>& pool);

}  // namespace shardwise::detail
