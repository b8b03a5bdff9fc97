#pragma once

#include <cstdint>

namespace shardwise::test {

// What power_loss_shim.cc writes and power_loss_test.cc reads: the operations that a process made
// on the files of one directory, in order. Each is a header, then name, other name and data.

enum class Operation : std::uint32_t {
  kCreate,  ///< name
  kWrite,   ///< data at offset
  kResize,  ///< to offset bytes
  kSyncFile,
  kSyncDirectory,
  kRename,  ///< name to other name
  kUnlink,  ///< name
};

struct OperationHeader {
  Operation operation;
  std::uint32_t name_bytes;
  std::uint32_t other_name_bytes;
  std::uint32_t data_bytes;
  std::uint64_t inode;  ///< of the file that is created, written, resized or synced
  std::uint64_t offset;
};
static_assert(sizeof(OperationHeader) == 32);

/// The environment of a process that is recorded: which directory, and the log to append to.
inline constexpr const char* kRecordedDirectory = "SHARDWISE_RECORDED_DIRECTORY";
inline constexpr const char* kOperationLog = "SHARDWISE_OPERATION_LOG";

}  // namespace shardwise::test
