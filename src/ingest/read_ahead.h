#pragma once

#include <cstdint>
#include <string_view>

namespace shardwise {

/// Decides whether the kernel reads ahead in a mapped shard of which only the headers are needed.
/// At first it does not, so that a scan reads one page of each large member, not gigabytes. Where
/// members turn out to be so small that reading them all costs no more than jumping over them, it
/// does. One thread.
class ReadAhead {
 public:
  ReadAhead() = default;
  /// @param mapped  page-aligned: a whole mapped file.
  explicit ReadAhead(std::string_view mapped);

  /// To be told where each member begins.
  void at(std::uint64_t offset) noexcept;
  /// From now on all is read, from front to back.
  void read_all() noexcept;

 private:
  void advise(bool ahead) noexcept;

  std::string_view mapped_;
  bool ahead_ = false;
  bool decided_ = false;
  std::uint64_t last_ = 0;
  unsigned num_passed_ = 0;
  std::uint64_t mean_bytes_ = 0;  // of the last few
};

}  // namespace shardwise
