#pragma once

#include <cstdint>
#include <string_view>

namespace shardwise {

/// Decides whether the kernel reads ahead in a mapped shard of which a scan needs only the headers.
/// It starts without read-ahead, so that a scan reads one page of each large member. It switches
/// read-ahead on if members are so small that reading everything costs no more than skipping.
/// Threads: one.
class ReadAhead {
 public:
  ReadAhead() = default;
  /// @param mapped  page-aligned: a whole mapped file.
  explicit ReadAhead(std::string_view mapped);

  /// Call for each member with the offset of its data.
  void at(std::uint64_t offset) noexcept;
  /// Call before all bytes are read, from front to back.
  void read_all() noexcept;

 private:
  void advise(bool ahead) noexcept;

  std::string_view mapped_;
  bool ahead_ = false;
  bool decided_ = false;
  std::uint64_t last_ = 0;
  unsigned num_passed_ = 0;
  std::uint64_t mean_bytes_ = 0;  // between the last few members
};

}  // namespace shardwise
