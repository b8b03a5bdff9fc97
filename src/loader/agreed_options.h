#pragma once

#include <string>

#include "base/agreement.h"
#include "shardwise/base/export.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/image_transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"

namespace shardwise::detail {

/// The options of a loader that all ranks must have alike, by name, but for the order: whatever
/// decides what a batch holds, or which samples are bad. As many names for any options.
[[nodiscard]] SHARDWISE_EXPORT Record agreed_options(const Loader::Options& options);

// Options as text: "{horizontal_flip=0.5, resize=224x224}". Different options are different texts.
// What has its default is left out.
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const ImageTransform& transform);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const ImageDecoding& decoding);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const Column::VideoClip& clip);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const Column::AudioClip& clip);

}  // namespace shardwise::detail
