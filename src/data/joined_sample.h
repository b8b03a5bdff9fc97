#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// The names of a joined dataset's fields and columns.
class JoinedNames {
 public:
  /// @param columns  all metadata columns of the joined dataset.
  explicit JoinedNames(std::vector<std::string> columns) : columns_(std::move(columns)) {}
  /// Renames a field whose name a field of the first dataset has already.
  void add(std::string original, std::string shown) {
    names_.emplace_back(std::move(original), std::move(shown));
  }
  [[nodiscard]] bool has_column(std::string_view name) const noexcept {
    return std::ranges::find(columns_, name) != columns_.end();
  }
  /// Returns the name of a field in the join.
  [[nodiscard]] std::string_view shown(std::string_view original) const noexcept {
    for (const auto& [before, after] : names_) {
      if (before == original) return after;
    }
    return original;
  }
  /// Returns the field's own name; nullopt if no field has this name in the join.
  [[nodiscard]] std::optional<std::string_view> original(std::string_view shown) const noexcept {
    for (const auto& [before, after] : names_) {
      if (after == shown) return before;
    }
    for (const auto& [before, after] : names_) {
      if (before == shown) return std::nullopt;
    }
    return shown;
  }

 private:
  // Original and shown name of each renamed field.
  std::vector<std::pair<std::string, std::string>> names_;
  const std::vector<std::string> columns_;
};

/// The sample of a joined dataset, in a list that the sample of the first dataset owns.
struct JoinedSample {
  explicit JoinedSample(std::shared_ptr<const JoinedNames> of_side) noexcept
      : names(std::move(of_side)) {}
  JoinedSample(const JoinedSample& other)
      : names(other.names), sample(other.sample), next(copy_of(other.next)) {}
  JoinedSample& operator=(const JoinedSample&) = delete;

  /// Copies a list; null if it is empty.
  [[nodiscard]] static std::unique_ptr<JoinedSample> copy_of(
      const std::unique_ptr<JoinedSample>& list) {
    return list ? std::make_unique<JoinedSample>(*list) : nullptr;
  }

  std::shared_ptr<const JoinedNames> names;
  Sample sample;  // has no shard and no fields if there is no match
  std::unique_ptr<JoinedSample> next;
};

}  // namespace shardwise::detail
