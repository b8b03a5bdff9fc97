#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// The policy for a member that breaks a rule.
enum class OnBad : std::uint8_t {
  kError,  ///< throw, naming shard, offset and member; no index is made
  kSkip,   ///< leave it out, and record in the catalogue what was left out and why
  kKeep    ///< take it as it is; for `repeated_key` only
};

/// The policy for a link whose name has a field, so that without it a sample would lack that field.
enum class OnLink : std::uint8_t {
  kError,   ///< throw, naming shard, offset, member and target; no index is made
  kSkip,    ///< leave it out, as webdataset does
  kResolve  ///< give a hard link the bytes of the last earlier member that its target names, which
            ///< costs nothing in an index; an error if there is none. Symbolic links are never
            ///< followed: an error
};

/// The policy for each kind of defect. Strict unless told otherwise.
struct SHARDWISE_EXPORT BadPolicies {
  /// Headers that are malformed, truncated or contradictory, sparse members, malformed JSON
  /// where a column is taken from it. kSkip leaves out the sparse member, or what follows the
  /// damage, or leaves the column's value null.
  OnBad damage = OnBad::kError;
  /// Names that give no key and field: no dot in the basename, or nothing before it. The Python
  /// webdataset leaves them out silently.
  OnBad no_field = OnBad::kError;
  /// A field that comes twice in a sample. kSkip takes the first.
  OnBad duplicate_field = OnBad::kError;
  /// A key that comes in two places of a shard. kSkip takes the first sample; kKeep takes all, as
  /// the Python webdataset does, and find() returns the first.
  OnBad repeated_key = OnBad::kError;
  /// A link named like a member. One whose name has no field is left out under any policy.
  OnLink link = OnLink::kError;

  /// One policy for all kinds. REQUIRES: not kKeep.
  static BadPolicies all(OnBad policy) noexcept {
    const OnLink link = policy == OnBad::kSkip ? OnLink::kSkip : OnLink::kError;
    return {policy, policy, policy, policy, link};
  }

  friend bool operator==(const BadPolicies&, const BadPolicies&) = default;
};

/// "error" or "skip" if all are the same, else as "damage=error,no-field=skip,...", with
/// ",link=..." at its end unless that is an error.
SHARDWISE_EXPORT std::string to_string(const BadPolicies& policies);
/// Parses what to_string() returns. Errors: InvalidArgument.
SHARDWISE_EXPORT BadPolicies parse_bad_policies(std::string_view text);
/// "error", "skip", "keep". Errors: InvalidArgument.
SHARDWISE_EXPORT OnBad parse_on_bad(std::string_view text);
/// "error", "skip", "resolve". Errors: InvalidArgument.
SHARDWISE_EXPORT OnLink parse_on_link(std::string_view text);

}  // namespace shardwise
