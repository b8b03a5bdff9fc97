#pragma once

#include <torch/types.h>

#include "shardwise/order/resume.h"

namespace shardwise::libtorch::detail {

/// A token's text as uint8 [length], for archives.
torch::Tensor token_to_tensor(const ResumeToken& token);
/// Errors: InvalidArgument, VersionMismatch.
ResumeToken token_from_tensor(const torch::Tensor& tensor);

}  // namespace shardwise::libtorch::detail
