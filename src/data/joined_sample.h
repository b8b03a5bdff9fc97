#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// The new names of those fields of a joined dataset whose names the first dataset has, too.
class RenamedFields {
 public:
  void add(std::string original, std::string shown) {
    names_.emplace_back(std::move(original), std::move(shown));
  }
  [[nodiscard]] bool empty() const noexcept { return names_.empty(); }
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
  std::vector<std::pair<std::string, std::string>> names_;
};

/// The sample of a joined dataset, in a list that the sample of the first dataset owns.
struct JoinedSample {
  explicit JoinedSample(std::shared_ptr<const RenamedFields> names) noexcept
      : renamed(std::move(names)) {}
  JoinedSample(const JoinedSample& other)
      : renamed(other.renamed), sample(other.sample), next(copy_of(other.next)) {}
  JoinedSample& operator=(const JoinedSample&) = delete;

  /// Copies a list; null if it is empty.
  [[nodiscard]] static std::unique_ptr<JoinedSample> copy_of(
      const std::unique_ptr<JoinedSample>& list) {
    return list ? std::make_unique<JoinedSample>(*list) : nullptr;
  }

  std::shared_ptr<const RenamedFields> renamed;  // null if no field is renamed
  Sample sample;                                 // has no shard and no fields if there is no match
  std::unique_ptr<JoinedSample> next;
};

}  // namespace shardwise::detail
