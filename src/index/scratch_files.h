#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shardwise/base/cancel.h"

namespace shardwise::sqlite {

/// The temporary files of one connection, in which SQLite sorts and stores intermediate results.
/// They are unnamed files in SQLite's usual folder, with a limit on their total bytes.
/// Lifetime: must outlive the connection.
/// Threads: one.
class ScratchFiles {
 public:
  explicit ScratchFiles(std::uint64_t max_bytes);
  ~ScratchFiles();
  ScratchFiles(const ScratchFiles&) = delete;
  ScratchFiles& operator=(const ScratchFiles&) = delete;

  /// The name of the file system for sqlite3_open_v2().
  const std::string& vfs_name() const noexcept;
  /// Makes writes fail with SQLITE_INTERRUPT once `cancel` is cancelled. Without this, a query
  /// could not be cancelled while SQLite merges sorted data, because the merge is a single step.
  /// @param cancel  must outlive this object.
  void stop_if_cancelled(const CancelToken& cancel) noexcept;
  /// True if a statement failed with SQLITE_FULL because of the limit.
  bool were_too_small() const noexcept;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::sqlite
