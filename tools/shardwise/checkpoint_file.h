#pragma once

#include <string>
#include <string_view>

#include "shardwise/order/resume.h"

namespace shardwise::tools {

/// The file in which shardwise-train keeps a run: docs/formats/resume-token.md specifies it
/// (version 1). What precedes the payload is text, so that where the run stands can be read without
/// LibTorch.
struct CheckpointFile {
  ResumeToken token;
  std::string payload;
};

std::string to_bytes(const CheckpointFile& checkpoint);
/// `name` is the file, for error texts. Errors: InvalidArgument if it is no such file or damaged;
/// VersionMismatch.
CheckpointFile checkpoint_from(std::string_view bytes, const std::string& name);

/// Reads only what precedes the payload. Errors: as above; those of reading the file.
ResumeToken read_checkpoint_token(const std::string& path);

/// A resume token: a file that holds one, a checkpoint, or the text itself.
/// Errors: as above; NotFound if it is neither a file nor a token.
ResumeToken read_token(const std::string& file_or_text);

}  // namespace shardwise::tools
