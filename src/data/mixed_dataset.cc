#include "shardwise/data/mixed_dataset.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "order/spec.h"

namespace shardwise {

MixedDataset::MixedDataset(std::vector<Dataset> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) {
    throw InvalidArgument("the mixture has no data set", {}, "give at least one data set");
  }
  Hasher128 hasher;
  first_.push_back(0);
  for (const Dataset& part : parts_) {
    if (part.size() > kMaxSamples - first_.back()) {
      throw InvalidArgument("the mixture has too many samples", {},
                            "choose data sets with at most 2^62 samples");
    }
    first_.push_back(first_.back() + part.size());
    hasher.update_u64(part.fingerprint().low);
    hasher.update_u64(part.fingerprint().high);
  }
  fingerprint_ = parts_.size() == 1 ? parts_.front().fingerprint() : hasher.digest();
}

std::uint64_t MixedDataset::first_sample(std::size_t i) const {
  SHARDWISE_ASSERT(i < first_.size());
  return first_[i];
}

std::size_t MixedDataset::part_of(std::uint64_t number) const {
  detail::require_sample(number, size());
  const auto after = std::upper_bound(first_.begin(), first_.end(), number);
  return static_cast<std::size_t>(after - first_.begin()) - 1;
}

Sample MixedDataset::operator[](std::uint64_t number) const {
  if (parts_.size() == 1) return parts_.front()[number];
  const std::size_t part = part_of(number);
  return parts_[part][number - first_[part]];
}

Mixture MixedDataset::mixture(std::span<const double> weights,
                              const std::variant<Chunked, Sharded, Sequential>& kind,
                              std::vector<Mixture::Change> schedule) const {
  if (weights.size() != parts_.size()) {
    throw InvalidArgument(
        counted(weights.size(), "weight") + " for " + counted(parts_.size(), "data set"), {},
        "give one weight for each data set");
  }
  Mixture mixture;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    mixture.parts.push_back({parts_[i].size(), weights[i], kind});
  }
  mixture.schedule = std::move(schedule);
  return mixture;
}

std::vector<std::uint64_t> MixedDataset::shard_starts() const {
  std::vector<std::uint64_t> starts{0};
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::vector<std::uint64_t> part = parts_[i].shard_starts();
    for (std::size_t shard = 1; shard < part.size(); ++shard) {
      starts.push_back(first_[i] + part[shard]);
    }
  }
  return starts;
}

std::function<std::uint64_t(std::uint64_t)> MixedDataset::sample_bytes() const {
  if (parts_.size() == 1) return parts_.front().sample_bytes();
  std::vector<std::function<std::uint64_t(std::uint64_t)>> bytes;
  for (const Dataset& part : parts_) bytes.push_back(part.sample_bytes());
  return [bytes = std::move(bytes), data = *this](std::uint64_t number) {
    const std::size_t part = data.part_of(number);
    return bytes[part](number - data.first_sample(part));
  };
}

std::vector<double> MixedDataset::numbers(const std::string& column) const {
  std::vector<double> all;
  for (const Dataset& part : parts_) {
    const std::vector<double> numbers = part.numbers(column);
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

}  // namespace shardwise
