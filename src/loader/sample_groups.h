#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// The groups of a data set's samples. Immutable; safe from any thread.
class SampleGroups {
 public:
  /// @param batch_size  batch size of groups that do not set one.
  /// Errors: InvalidArgument if the rule is not valid, or if a sample belongs to no group; those of
  /// Query.
  SampleGroups(const MixedDataset& data, const Loader::ByGroup& rule, std::uint64_t batch_size);

  /// Sets groups[i] to the number of the group of samples[i].
  void of(std::span<const std::uint64_t> samples, std::span<std::uint16_t> groups) const;
  /// The groups, each with its batch size.
  [[nodiscard]] const std::vector<Loader::ByGroup::Group>& groups() const noexcept {
    return groups_;
  }
  /// Returns a text for tokens. Different assignments of samples to groups have different texts.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  std::vector<Loader::ByGroup::Group> groups_;
  std::vector<std::uint16_t> numbers_;  // by sample
};

/// Returns the columns of each group: those with sizes by group have the group's size.
/// @param groups  empty for batches that are not by group; the result then has one element.
/// Errors: InvalidArgument if a column needs a size that its group lacks.
[[nodiscard]] std::vector<std::vector<Column>> columns_by_group(
    const std::vector<Column>& columns, std::span<const Loader::ByGroup::Group> groups);

/// Throws InvalidArgument if the size of the column's rows depends on a batch's group. A single
/// sample has no group.
SHARDWISE_EXPORT void require_size(const Column& column);

}  // namespace shardwise::detail
