#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "shardwise/base/cancel.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// Computes the MD5 of bytes that arrive in pieces, for file formats that need it.
/// Threads: one.
/// Errors: Unsupported if the system's libcrypto has MD5 disabled.
class Md5 {
 public:
  Md5();
  ~Md5();
  Md5(const Md5&) = delete;
  Md5& operator=(const Md5&) = delete;

  void update(std::string_view bytes);
  /// Returns the MD5 as 32 lower-case hexadecimal digits. This must be the last call.
  std::string digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the MD5 of a local shard's file.
/// @param bytes_done  called after each piece with the number of bytes read so far.
/// Memory: O(1).
/// Errors: NotFound; kIo; StaleIndex if the shard changed since it was indexed; Cancelled if
///   `cancel` is set during the call; as Md5.
std::string local_md5(const Index::Shard& shard,
                      const std::function<void(std::uint64_t)>& bytes_done,
                      const CancelToken& cancel);

}  // namespace shardwise
