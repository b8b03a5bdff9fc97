#pragma once

#include <cstdint>

namespace shardwise::test {

// The log that power_loss_shim.cc writes and power_loss_test.cc reads. It lists a process's
// operations on the files of one directory, in order. Each operation is a header, followed by the
// name, the other name and the data.

enum class Operation : std::uint32_t {
  kCreate,  ///< has name
  kWrite,   ///< data at offset
  kResize,  ///< new size is `offset`
  kSyncFile,
  kSyncDirectory,
  kRename,  ///< from name to other name
  kUnlink,  ///< has name
};

struct OperationHeader {
  Operation operation;
  std::uint32_t name_bytes;
  std::uint32_t other_name_bytes;
  std::uint32_t data_bytes;
  std::uint64_t inode;  ///< inode of the file that is created, written, resized or synced
  std::uint64_t offset;
};
static_assert(sizeof(OperationHeader) == 32);

/// Environment variables of a recorded process: the directory to record, and the log to append to.
inline constexpr const char* kRecordedDirectory = "SHARDWISE_RECORDED_DIRECTORY";
inline constexpr const char* kOperationLog = "SHARDWISE_OPERATION_LOG";

}  // namespace shardwise::test
