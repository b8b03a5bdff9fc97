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

  /// The policy for a link whose name gives a field. If the link is left out, its sample lacks that
  /// field.
  enum class OnLink : std::uint8_t {
    kError,  ///< throw, naming shard, offset, member and target; no index is made
    kSkip,   ///< leave the link out, as webdataset does
    /// Give a hard link the bytes of the last earlier member whose name is the link's target. The
    /// index does not grow. If no earlier member has that name, the link is an error. Symbolic
    /// links are always an error.
    kResolve
  };

  /// Malformed, truncated or contradictory headers; sparse members; malformed JSON in a field that
  /// a column reads. With kSkip, a sparse member is left out, all members from a damaged header on
  /// are left out, and the column's value is null.
  OnDefect damage = OnDefect::kError;
  /// Names that give no key and field: the basename has no dot, or nothing before it. Python
  /// webdataset silently leaves these out, except hidden files in folders ("d/.x").
  OnDefect no_field = OnDefect::kError;
  /// A field that occurs twice in a sample. kSkip keeps the first.
  OnDefect duplicate_field = OnDefect::kError;
  /// A key of several samples in one shard. With kSkip the first sample is kept. With kKeep all are
  /// kept, as in Python webdataset, and find() returns the first.
  OnDefect repeated_key = OnDefect::kError;
  /// A link whose name gives a key and a field. Any other link is left out under every policy.
  OnLink link = OnLink::kError;

  /// Returns `policy` for all kinds of defects. Links are errors unless `policy` is kSkip.
  /// REQUIRES: `policy` is not kKeep.
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
