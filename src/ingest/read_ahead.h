#pragma once

#include <cstdint>
#include <string_view>

namespace shardwise {

/// Decides whether the kernel reads ahead in a mapped shard, when a scan needs only its headers. At
/// first read-ahead is off, so that a scan reads one page per large member. It is switched on if
/// members are so small that reading everything costs no more than skipping their data.
/// Threads: one.
class ReadAhead {
 public:
  ReadAhead() = default;
  /// @param mapped  a whole mapped file, page-aligned.
  explicit ReadAhead(std::string_view mapped);

  /// Call this for each member with the offset of its data.
  void at(std::uint64_t offset) noexcept;
  /// Call this before reading all bytes from front to back.
  void read_all() noexcept;

 private:
  void advise(bool ahead) noexcept;

  std::string_view mapped_;
  bool ahead_ = false;
  bool decided_ = false;
  std::uint64_t last_ = 0;
  unsigned num_passed_ = 0;
  std::uint64_t mean_bytes_ = 0;  // mean distance between the last few members
};

}  // namespace shardwise
