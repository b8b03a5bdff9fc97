#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// The policy for each kind of defect. All are strict by default.
struct SHARDWISE_EXPORT DefectPolicies {
  /// The policy for a member that breaks a rule.
  enum class OnDefect : std::uint8_t {
    kError,  ///< throw, naming shard, offset and member; no index is made
    kSkip,   ///< leave the member out, and record it and the reason in the catalogue
    kKeep    ///< keep the member as it is; for `repeated_key` only
  };

  /// The policy for a link whose name has a field. Leaving it out leaves a sample without that
  /// field.
  enum class OnLink : std::uint8_t {
    kError,  ///< throw, naming shard, offset, member and target; no index is made
    kSkip,   ///< leave the link out, as webdataset does
    /// Give a hard link the bytes of the last earlier member that its target names, at no cost in
    /// the index. If no such member exists, it is an error. Symbolic links are always an error.
    kResolve
  };

  /// Malformed, truncated or contradictory headers; sparse members; malformed JSON from which a
  /// column is taken. With kSkip a sparse member is left out, everything after a damaged header is
  /// left out, and the column's value is null.
  OnDefect damage = OnDefect::kError;
  /// Names that give no key and field: the basename has no dot, or nothing before it. Python
  /// webdataset silently leaves these out, except hidden files in folders ("d/.x").
  OnDefect no_field = OnDefect::kError;
  /// A field that occurs twice in a sample. kSkip keeps the first.
  OnDefect duplicate_field = OnDefect::kError;
  /// A key that occurs at two places of a shard. With kSkip the first sample is kept. With kKeep
  /// all are kept, as in Python webdataset, and find() returns the first.
  OnDefect repeated_key = OnDefect::kError;
  /// A link with the name of a member. A link whose name has no field is left out under any policy.
  OnLink link = OnLink::kError;

  /// Returns one policy for all kinds. Links become errors unless `policy` is kSkip. REQUIRES: not
  /// kKeep.
  [[nodiscard]] static DefectPolicies all(OnDefect policy) noexcept {
    const OnLink link = policy == OnDefect::kSkip ? OnLink::kSkip : OnLink::kError;
    return {policy, policy, policy, policy, link};
  }

  friend bool operator==(const DefectPolicies&, const DefectPolicies&) = default;
};

/// Returns "error" or "skip" if all policies agree, else e.g. "damage=error,no-field=skip,...". A
/// link policy other than error is appended as ",link=...".
SHARDWISE_EXPORT std::string to_string(const DefectPolicies& policies);
/// Parses a text that to_string() returns. Errors: InvalidArgument.
SHARDWISE_EXPORT DefectPolicies parse_defect_policies(std::string_view text);
/// Parses "error", "skip" or "keep". Errors: InvalidArgument.
SHARDWISE_EXPORT DefectPolicies::OnDefect parse_on_defect(std::string_view text);
/// Parses "error", "skip" or "resolve". Errors: InvalidArgument.
SHARDWISE_EXPORT DefectPolicies::OnLink parse_on_link(std::string_view text);

}  // namespace shardwise
