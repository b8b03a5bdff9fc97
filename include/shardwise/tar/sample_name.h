#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// A member's name taken apart by WebDataset's rule.
struct SampleName {
  std::string_view key;    ///< view into the name: directories and the basename up to its first dot
  std::string_view field;  ///< view into the name: what follows that dot, in its own case
};

/// Nothing if the name belongs to no sample: no dot in the basename, nothing before it, or nothing
/// after it. Source: webdataset's base_plus_ext, `^((?:.*/|)[^.]+)[.]([^/]*)$`.
SHARDWISE_EXPORT std::optional<SampleName> split_sample_name(std::string_view name) noexcept;

/// True if `name`, in its own case, is the field `lower`, which is in lower case (ASCII).
SHARDWISE_EXPORT bool same_field(std::string_view lower, std::string_view name) noexcept;

}  // namespace shardwise
