#pragma once

#include <string>

#include "shardwise/order/resume.h"

namespace shardwise::tools {

/// Reads a resume token: from a token's file, from a checkpoint, or from the text itself.
/// Errors: those of reading a token or a checkpoint; NotFound if the argument is neither a file nor
/// a token.
ResumeToken read_token(const std::string& file_or_text);

}  // namespace shardwise::tools
