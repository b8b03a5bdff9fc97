#pragma once

#include <string>

#include "base/agreement.h"
#include "shardwise/base/export.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/image_transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"

namespace shardwise::detail {

/// Returns by name the options that must be equal on all ranks: those that decide what a batch
/// contains, or which samples are bad. The order is not included. Every call returns the same
/// names.
[[nodiscard]] SHARDWISE_EXPORT Record agreed_options(const Loader::Options& options);

// Returns options as text, e.g. "{horizontal_flip=0.5, resize=224x224}", without those that have
// their defaults. Different options give different texts.
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const ImageTransform& transform);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const ImageDecoding& decoding);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const Column::VideoClip& clip);
[[nodiscard]] SHARDWISE_EXPORT std::string text_of(const Column::AudioClip& clip);

}  // namespace shardwise::detail
