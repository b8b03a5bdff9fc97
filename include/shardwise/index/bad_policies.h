#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// What to do with a member that breaks a rule.
enum class OnBad : std::uint8_t {
  kError,  ///< throw, naming shard, offset and member; no index is made
  kSkip,   ///< leave it out, and record in the catalogue what was left out and why
  kKeep    ///< take it as it is; for `repeated_key` only
};

/// What to do with each kind of thing that breaks a rule. Strict unless told otherwise.
struct SHARDWISE_EXPORT BadPolicies {
  /// Headers that are malformed, truncated or contradictory, sparse members, JSON that is none
  /// where a column is taken from it. kSkip leaves out the sparse member, or what follows the
  /// damage, or leaves the column's value null.
  OnBad damage = OnBad::kError;
  /// Names that give no key and field: no dot in the basename, nothing before it or after it. The
  /// Python webdataset leaves them out silently.
  OnBad no_field = OnBad::kError;
  /// The same field twice in a sample. kSkip takes the first.
  OnBad duplicate_field = OnBad::kError;
  /// The same key in two places of a shard. kSkip takes the first sample; kKeep takes all, as the
  /// Python webdataset does, and find() gives the first.
  OnBad repeated_key = OnBad::kError;

  /// One policy for all kinds. REQUIRES: not kKeep.
  static BadPolicies all(OnBad policy) noexcept { return {policy, policy, policy, policy}; }

  friend bool operator==(const BadPolicies&, const BadPolicies&) = default;
};

/// "error" or "skip" if all are the same, else as "damage=error,no-field=skip,...".
SHARDWISE_EXPORT std::string to_string(const BadPolicies& policies);
/// The other way round. Errors: InvalidArgument.
SHARDWISE_EXPORT BadPolicies parse_bad_policies(std::string_view text);
/// "error", "skip", "keep". Errors: InvalidArgument.
SHARDWISE_EXPORT OnBad parse_on_bad(std::string_view text);

}  // namespace shardwise
