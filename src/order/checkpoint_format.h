#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/resume.h"

namespace shardwise::detail {

// The bytes of a checkpoint: docs/formats/checkpoint.md specifies them. What precedes
// the values is text, so that where the run stands can be read without LibTorch.

inline constexpr int kCheckpointVersion = 2;

/// One named value.
struct CheckpointPart {
  std::string name;
  std::string type;  ///< of its elements, as "float32"; "text"
  std::vector<std::int64_t> shape;
  std::string_view bytes;
};

struct CheckpointContent {
  ResumeToken token;
  std::string writer;  ///< who wrote it, with versions
  std::vector<CheckpointPart> parts;
};

inline constexpr std::string_view kCheckpointFirstWords = "shardwise checkpoint ";

/// Errors: InvalidArgument if a part cannot have this name.
SHARDWISE_EXPORT void require_part_name(std::string_view name);

/// What precedes the parts' bytes, which follow one after another.
/// REQUIRES: the parts' names are valid, and differ.
SHARDWISE_EXPORT std::string checkpoint_front(const CheckpointContent& content);

/// Reads a checkpoint, and holds all of it against its hashes. The parts point into `bytes`.
/// `path` is for error texts. Errors: InvalidArgument if it is none, cut or damaged;
/// VersionMismatch.
SHARDWISE_EXPORT CheckpointContent parse_checkpoint(std::string_view bytes,
                                                    const std::string& path);

/// The token of a checkpoint. Of the values only the length is checked.
/// Errors: as above; those of reading the file.
SHARDWISE_EXPORT ResumeToken read_checkpoint_token(const std::string& path);

}  // namespace shardwise::detail

namespace shardwise {
using detail::kCheckpointVersion;
using detail::read_checkpoint_token;
}  // namespace shardwise
