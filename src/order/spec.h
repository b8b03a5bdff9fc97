#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/order.h"
#include "shardwise/order/resume.h"

namespace shardwise::detail {

/// The hash of the shard lengths that a resume token stores.
std::uint64_t layout_hash(const std::vector<std::uint64_t>& offsets);
/// Returns *offsets. Errors: InvalidArgument if they are not a valid list of shard offsets.
const std::vector<std::uint64_t>& checked(const ShardOffsets& offsets);

/// Errors: OutOfRange unless sample < num_samples.
SHARDWISE_EXPORT void require_sample(std::uint64_t sample, std::uint64_t num_samples);

/// Returns the spec of `order` over `samples`, without its layout. Options without effect get their
/// defaults, so that two specs are equal if and only if the orders are equal.
/// Errors: InvalidArgument, naming the options, if options exclude each other.
ResumeToken::OrderSpec make_spec(const SampleSet& samples, const Order& order,
                                 const RankOptions& ranks);

/// Converts a position in an epoch to a position in the run, which also counts all positions of the
/// earlier epochs. At most kMaxSamples.
std::uint64_t position_in_run(const ResumeToken::OrderSpec& spec, SkipList::Point point);

/// Returns `here` with the weights of `there` before `position` of the run, if the orders differ
/// only in the weights of a mixture. Returns `here` otherwise.
/// Errors: InvalidArgument if the mixture of `there` is not valid.
ResumeToken::OrderSpec continued(const ResumeToken::OrderSpec& here,
                                 const ResumeToken::OrderSpec& there, std::uint64_t position);

/// Returns the progress that a change of the order at the beginning of `epoch` would lose. For each
/// unfinished pass over the data it has a text, e.g. "398 of 787 samples of data set 1". The result
/// is empty if epochs are whole passes, or consist of independent draws.
std::vector<std::string> open_passes(const ResumeToken::OrderSpec& spec, std::uint64_t epoch);

/// Returns ResumeToken::progress() at a point of a run. Errors: InvalidArgument if the order is not
/// valid.
std::vector<ResumeToken::Progress> progress_of(const ResumeToken::OrderSpec& spec,
                                               SkipList::Point point);

/// True if several chunks or shards are shuffled together, so that a smaller window is possible.
SHARDWISE_EXPORT bool has_smaller_window(const Order& order);

/// Returns `ranks`. Errors: InvalidArgument if the rank does not exist, or the number of replicas
/// does not divide the number of ranks.
const RankOptions& checked(const RankOptions& ranks);

}  // namespace shardwise::detail
