#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "tar/tar_scanner.h"

namespace shardwise {

/// The members that a scan of a shard has passed so far, as possible targets of hard links. Names
/// are compared bytewise.
/// Memory: proportional to all names.
/// Threads: one.
class EarlierMembers {
 public:
  void add(const TarMember& member) {
    places_.insert_or_assign(std::string(member.name),
                             Place{member.data_offset, member.size_bytes});
  }

  /// If `link` is a hard link, returns it as a member with the bytes of its target, and adds that
  /// member. If several earlier members have the target's name, the last one is the target. Returns
  /// nullopt if there is no target, or if `link` is not a hard link.
  std::optional<TarMember> resolve(const TarOther& link) {
    if (link.type != TarOther::Type::kHardLink) return std::nullopt;
    const auto found = places_.find(std::string(link.target));
    if (found == places_.end()) return std::nullopt;
    const TarMember member{.name = link.name,
                           .header_offset = link.header_offset,
                           .data_offset = found->second.data_offset,
                           .size_bytes = found->second.size_bytes};
    add(member);
    return member;
  }

 private:
  struct Place {
    std::uint64_t data_offset;
    std::uint64_t size_bytes;
  };
  std::unordered_map<std::string, Place> places_;
};

}  // namespace shardwise
