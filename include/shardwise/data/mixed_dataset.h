#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"
#include "shardwise/order/order.h"

namespace shardwise {

/// Several data sets with one numbering of their samples, which a Mixture uses: sample s of data
/// set d has the number first_sample(d) + s. A single data set keeps its numbers.
///
///     MixedDataset data({web, books});
///     auto order = make_sampler(data, {.seed = 17, .kind = data.mixture(std::array{0.7, 0.3})});
///     while (auto sample = order->next()) use(data[*sample]);
///
/// A handle, with the same rules for threads and fork() as Dataset.
class SHARDWISE_EXPORT MixedDataset {
 public:
  MixedDataset(Dataset data) : MixedDataset(std::vector<Dataset>{std::move(data)}) {}
  /// Errors: InvalidArgument if `parts` is empty, or the total number of samples is too large.
  explicit MixedDataset(std::vector<Dataset> parts);

  [[nodiscard]] std::uint64_t size() const noexcept { return first_.back(); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// Errors: see Dataset::operator[].
  [[nodiscard]] Sample operator[](std::uint64_t number) const;

  [[nodiscard]] std::size_t num_parts() const noexcept { return parts_.size(); }
  [[nodiscard]] const Dataset& part(std::size_t i) const { return parts_[i]; }
  /// The first number of part `i`, or size() for num_parts(). REQUIRES: i <= num_parts().
  [[nodiscard]] std::uint64_t first_sample(std::size_t i) const;
  /// The part that contains a sample. Errors: OutOfRange.
  [[nodiscard]] std::size_t part_of(std::uint64_t number) const;

  /// Returns the order kind Mixture of these parts with these weights. Each part is read in the
  /// order `kind`.
  /// @param schedule  changes of the weights at later positions of the run, see Mixture::schedule.
  /// Errors: InvalidArgument unless there is one weight for each part.
  [[nodiscard]] Mixture mixture(std::span<const double> weights,
                                const std::variant<Chunked, Sharded, Sequential>& kind = Chunked{},
                                std::vector<Mixture::Change> schedule = {}) const;

  // These functions work as in Dataset, over all parts.
  [[nodiscard]] const Hash128& fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] std::vector<std::uint64_t> shard_starts() const;
  std::function<std::uint64_t(std::uint64_t sample)> sample_bytes() const;
  [[nodiscard]] std::vector<double> numbers(const std::string& column) const;

 private:
  std::vector<Dataset> parts_;
  std::vector<std::uint64_t> first_;  ///< first number of each part, then the number of samples
  Hash128 fingerprint_;
};

}  // namespace shardwise
