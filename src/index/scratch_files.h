#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shardwise/base/cancel.h"

namespace shardwise::sqlite {

/// The temporary files of one connection, in which SQLite sorts and keeps intermediate results:
/// nameless files where SQLite puts them, with a limit on their bytes together. It must outlive the
/// connection. One thread.
class ScratchFiles {
 public:
  explicit ScratchFiles(std::uint64_t max_bytes);
  ~ScratchFiles();
  ScratchFiles(const ScratchFiles&) = delete;
  ScratchFiles& operator=(const ScratchFiles&) = delete;

  /// The name of the file system that sqlite3_open_v2() is to be given.
  const std::string& vfs_name() const noexcept;
  /// From now on writing fails with SQLITE_INTERRUPT once `cancel` says so, which must outlive
  /// this: SQLite merges what it sorts in one step.
  void stop_if_cancelled(const CancelToken& cancel) noexcept;
  /// True if a statement failed (SQLITE_FULL) since it would have needed more.
  bool were_too_small() const noexcept;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::sqlite
