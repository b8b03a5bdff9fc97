#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// The policy for each kind of defect. Strict unless told otherwise.
struct SHARDWISE_EXPORT DefectPolicies {
  /// The policy for a member that breaks a rule.
  enum class OnDefect : std::uint8_t {
    kError,  ///< throw, naming shard, offset and member; no index is made
    kSkip,   ///< leave it out, and record in the catalogue what was left out and why
    kKeep    ///< take it as it is; for `repeated_key` only
  };

  /// The policy for a link whose name has a field, so that without it a sample would lack that
  /// field.
  enum class OnLink : std::uint8_t {
    kError,  ///< throw, naming shard, offset, member and target; no index is made
    kSkip,   ///< leave it out, as webdataset does
    /// Gives a hard link the bytes of the last earlier member that its target names, which costs
    /// nothing in an index; an error if there is none. Symbolic links are never followed: they are
    /// an error.
    kResolve
  };

  /// Headers that are malformed, truncated or contradictory, sparse members, malformed JSON
  /// where a column is taken from it. kSkip leaves out the sparse member, or what follows the
  /// damage, or leaves the column's value null.
  OnDefect damage = OnDefect::kError;
  /// Names that give no key and field: no dot in the basename, or nothing before it. The Python
  /// webdataset leaves them out silently, but for hidden files in folders ("d/.x").
  OnDefect no_field = OnDefect::kError;
  /// A field that comes twice in a sample. kSkip takes the first.
  OnDefect duplicate_field = OnDefect::kError;
  /// A key that comes in two places of a shard. kSkip takes the first sample; kKeep takes all, as
  /// the Python webdataset does, and find() returns the first.
  OnDefect repeated_key = OnDefect::kError;
  /// A link named like a member. One whose name has no field is left out under any policy.
  OnLink link = OnLink::kError;

  /// One policy for all kinds. REQUIRES: not kKeep.
  [[nodiscard]] static DefectPolicies all(OnDefect policy) noexcept {
    const OnLink link = policy == OnDefect::kSkip ? OnLink::kSkip : OnLink::kError;
    return {policy, policy, policy, policy, link};
  }

  friend bool operator==(const DefectPolicies&, const DefectPolicies&) = default;
};

/// "error" or "skip" if all are the same, else as "damage=error,no-field=skip,...", with
/// ",link=..." at its end unless that is an error.
SHARDWISE_EXPORT std::string to_string(const DefectPolicies& policies);
/// Parses what to_string() returns. Errors: InvalidArgument.
SHARDWISE_EXPORT DefectPolicies parse_defect_policies(std::string_view text);
/// "error", "skip", "keep". Errors: InvalidArgument.
SHARDWISE_EXPORT DefectPolicies::OnDefect parse_on_defect(std::string_view text);
/// "error", "skip", "resolve". Errors: InvalidArgument.
SHARDWISE_EXPORT DefectPolicies::OnLink parse_on_link(std::string_view text);

}  // namespace shardwise
