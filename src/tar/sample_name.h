#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A member's name taken apart by WebDataset's rule.
struct SampleName {
  std::string_view key;  ///< view into the name: directories and the basename up to its first dot
  std::string_view
      field;  ///< view into the name: what follows that dot, in its own case; may be ""

  friend bool operator==(const SampleName&, const SampleName&) = default;
};

/// Splits a member's name into key and field. Returns nothing if the name belongs to no sample: no
/// dot in the basename, or nothing before it. Source: base_plus_ext of webdataset 1.0.2,
/// `^((?:.*/|)[^.]+)[.]([^/]*)$`, taken for bytes and to the letter (`s.` has the field ""), but
/// for hidden files in folders: it gives `d/.x` the key "d/", here it has none, like `.x`.
SHARDWISE_EXPORT std::optional<SampleName> split_sample_name(std::string_view name) noexcept;

/// True if the basename begins with a dot: ".DS_Store", "d/._0001.jpg".
SHARDWISE_EXPORT bool is_hidden_name(std::string_view name) noexcept;

/// True if a member of this name is the field `field` (in lower case) of the sample `key`, also in
/// an index that has samples of hidden files.
SHARDWISE_EXPORT bool is_name_of(std::string_view name, std::string_view key,
                                 std::string_view field) noexcept;

/// True for the names that webdataset 1.0.2 reserves and gives to no sample: those whose
/// first component begins and ends with two underscores, such as `__meta__/x.json` and
/// `__info.json__`.
SHARDWISE_EXPORT bool is_meta_name(std::string_view name) noexcept;

/// True if `name`, in its own case, is the field `lower`, which is in lower case (ASCII).
SHARDWISE_EXPORT bool same_field(std::string_view lower, std::string_view name) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::is_hidden_name;
using detail::is_meta_name;
using detail::is_name_of;
using detail::same_field;
using detail::SampleName;
using detail::split_sample_name;
}  // namespace shardwise
