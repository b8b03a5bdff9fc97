#pragma once

#include <string>

#include "shardwise/order/resume.h"

namespace shardwise::tools {

/// A resume token: a file that holds one, a checkpoint, or the text itself.
/// Errors: those of reading a token or a checkpoint; NotFound if it is neither a file nor a token.
ResumeToken read_token(const std::string& file_or_text);

}  // namespace shardwise::tools
