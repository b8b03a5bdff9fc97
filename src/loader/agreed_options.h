#pragma once

#include <string>

#include "base/agreement.h"
#include "shardwise/base/export.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/image_transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"

namespace shardwise::detail {

/// Returns the options that must be equal on all ranks, as pairs of name and value. These options
/// decide what a batch contains, or which samples are bad. Omits the order. Every call returns the
/// same names.
[[nodiscard]] SHARDWISE_EXPORT Record agreed_options(const Loader::Options& options);

// Returns the options that differ from their defaults as text, e.g. "{horizontal_flip=0.5,
// resize=224x224}". Different options give different texts.
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const ImageTransform& transform);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const ImageDecoding& decoding);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const Column::VideoClip& clip);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const Column::AudioClip& clip);

}  // namespace shardwise::detail
