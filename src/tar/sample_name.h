#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A member's name, split by WebDataset's rule.
struct SampleName {
  std::string_view key;  ///< a view into the name: the directories, and the basename up to its
                         ///< first dot
  std::string_view
      field;  ///< a view into the name: everything after that dot, in its original case; may be ""

  friend bool operator==(const SampleName&, const SampleName&) = default;
};

/// Splits a member's name into key and field. Returns nothing if the basename has no dot, or begins
/// with a dot.
/// Source: base_plus_ext of webdataset 1.0.2, `^((?:.*/|)[^.]+)[.]([^/]*)$`, applied to bytes; `s.`
///   has the field "". One difference: in webdataset `d/.x` has the key "d/". Here a hidden file
///   has no key, in any folder.
SHARDWISE_EXPORT std::optional<SampleName> split_sample_name(std::string_view name) noexcept;

/// True if the basename begins with a dot: ".DS_Store", "d/._0001.jpg".
SHARDWISE_EXPORT bool is_hidden_name(std::string_view name) noexcept;

/// True if a member of this name is the field `field` (in lower case) of the sample `key`. Hidden
/// files are also recognised, because some indexes contain them as samples.
SHARDWISE_EXPORT bool is_name_of(std::string_view name, std::string_view key,
                                 std::string_view field) noexcept;

/// True for names that webdataset 1.0.2 reserves, and does not assign to a sample: names whose
/// first component begins and ends with two underscores, e.g. `__meta__/x.json` and
/// `__info.json__`.
SHARDWISE_EXPORT bool is_meta_name(std::string_view name) noexcept;

/// True if `name` equals `lower`, ignoring the case of ASCII letters. REQUIRES: `lower` is in lower
/// case.
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
