#include "data/range_ahead.h"

#include <algorithm>
#include <utility>

#include "base/error_types.h"
#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "data/sample_access.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

std::optional<Sample> RangeAhead::take(std::span<const std::uint64_t> coming) {
  const std::uint64_t number = data_.number_in_index(coming.front());
  if (!arrived_.contains(number)) {
    auto& impl = DatasetAccess::impl(data_);
    if (coming.size() == 1 || !impl.is_ranged(data_.index().shard_of(number))) return std::nullopt;
    // This sample was requested by the last fetch, but did not arrive. The caller now reads it
    // alone. Forget the other missing samples, so that the next fetch requests them again.
    if (requested_.contains(number)) {
      requested_.clear();
      return std::nullopt;
    }
    fetch(coming);
  }
  const auto found = arrived_.find(number);
  if (found == arrived_.end()) {
    requested_.clear();
    return std::nullopt;
  }
  std::optional<Sample> sample(found->second);
  SampleAccess::set_index(*sample, coming.front());
  return sample;
}

std::vector<RangedSample> RangeAhead::plan(std::span<const std::uint64_t> coming) {
  auto& impl = DatasetAccess::impl(data_);
  const Index& index = data_.index();
  std::unordered_map<std::uint64_t, bool> is_ranged;
  std::vector<std::uint64_t> numbers, ranged;
  requested_.clear();
  for (const std::uint64_t sample : coming.first(std::min(coming.size(), kMaxSamples))) {
    if (sample >= data_.size()) continue;
    const std::uint64_t number = data_.number_in_index(sample);
    const std::uint64_t shard = index.shard_of(number);
    const auto [place, is_new] = is_ranged.try_emplace(shard);
    if (is_new && (place->second = impl.is_ranged(shard))) ranged.push_back(shard);
    if (place->second && requested_.insert(number).second) numbers.push_back(number);
  }
  std::erase_if(arrived_, [&](const auto& entry) { return !requested_.contains(entry.first); });
  impl.ranges.check_first_blocks(ranged);
  std::vector<RangedSample> samples;
  samples.reserve(numbers.size());
  std::uint64_t bytes = 0;
  bool is_over = false;  // true: leave the other samples to later calls
  for (const std::uint64_t number : numbers) {
    if (const auto old = arrived_.find(number); old != arrived_.end()) {
      bytes += SampleAccess::bytes_in_memory(old->second);
      continue;
    }
    if (is_over) {
      requested_.erase(number);
      continue;
    }
    try {
      auto opened = impl.pool.get(index.shard_of(number));
      if (opened->data != nullptr) continue;  // it is in the cache by now
      samples.push_back(
          RangeReader::prepare(SampleAccess::make(std::move(opened), number), in_parts_));
      bytes += samples.back().memory.size_bytes;
    } catch (const Cancelled&) {
      throw;
    } catch (const Error&) {
      // The caller gets the error when it reads the sample. Stop here, because the shards of the
      // other samples might fail as slowly.
      is_over = true;
    }
    is_over = is_over || bytes >= kMaxBytes;
  }
  return samples;
}

void RangeAhead::fetch(std::span<const std::uint64_t> coming) {
  std::vector<RangedSample> samples = plan(coming);
  DatasetAccess::impl(data_).ranges.read_many(samples);
  for (RangedSample& ranged : samples) {
    if (!ranged.is_here) continue;
    const std::uint64_t number = ranged.sample.number_in_index();
    SampleAccess::set_bytes(ranged.sample, std::move(ranged.memory.bytes));
    arrived_.insert_or_assign(number, std::move(ranged.sample));
  }
}

}  // namespace shardwise::detail
