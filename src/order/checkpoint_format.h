#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/resume.h"

namespace shardwise::detail {

// The bytes of a checkpoint, as specified by docs/formats/checkpoint.md. The file begins with text,
// from which the run's position can be read without LibTorch. The bytes of the values follow.

inline constexpr int kCheckpointVersion = 2;

/// One named value.
struct CheckpointPart {
  std::string name;
  std::string type;  ///< the type of its elements, e.g. "float32", or "text"
  std::vector<std::int64_t> shape;
  std::string_view bytes;
};

struct CheckpointContent {
  ResumeToken token;
  std::string writer;  ///< the program that wrote it, with versions
  std::vector<CheckpointPart> parts;
};

inline constexpr std::string_view kCheckpointFirstWords = "shardwise checkpoint ";

/// Errors: InvalidArgument if a part cannot have this name.
SHARDWISE_EXPORT void require_part_name(std::string_view name);

/// Returns the text at the beginning of a file. The bytes of the parts must follow it, one part
/// after another.
/// REQUIRES: the parts' names are valid and distinct.
SHARDWISE_EXPORT std::string checkpoint_front(const CheckpointContent& content);

/// Reads a checkpoint, and verifies all its hashes. `path` is for error texts.
/// Lifetime: the parts point into `bytes`.
/// Errors: InvalidArgument if the bytes are not a checkpoint, or are truncated or damaged;
///   VersionMismatch.
SHARDWISE_EXPORT CheckpointContent parse_checkpoint(std::string_view bytes,
                                                    const std::string& path);

/// Returns the token of a checkpoint. Only the length of the values is verified.
/// Errors: those of parse_checkpoint(), and of reading the file.
SHARDWISE_EXPORT ResumeToken read_checkpoint_token(const std::string& path);

}  // namespace shardwise::detail

namespace shardwise {
using detail::kCheckpointVersion;
using detail::read_checkpoint_token;
}  // namespace shardwise
