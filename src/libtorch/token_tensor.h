#pragma once

#include <torch/types.h>

#include "shardwise/order/resume.h"

namespace shardwise::libtorch::detail {

/// Returns a token's text as uint8 [length], for archives.
torch::Tensor token_to_tensor(const ResumeToken& token);
/// Reads a token back. Errors: InvalidArgument, VersionMismatch.
ResumeToken token_from_tensor(const torch::Tensor& tensor);

}  // namespace shardwise::libtorch::detail
