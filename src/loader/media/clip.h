#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loader/sample_random.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/loader/media_columns.h"

// Which part of a video or sound is shown: docs/formats/transforms.md (Clips) specifies it.

namespace shardwise::detail {

/// Errors: InvalidArgument.
void require_clip(const Column::VideoClip& clip);
void require_clip(const Column::AudioClip& clip);

/// Where a clip of `span` places begins in `size` of them, from 0. A longer one begins with them.
SHARDWISE_EXPORT std::int64_t clip_start(std::int64_t size, std::int64_t span,
                                         Column::ClipStart start, const Hash128& key,
                                         Operation operation) noexcept;

/// The numbers of the frames of a clip, which never descend.
/// @param times  of all frames of the video, ascending.
/// @param key    sample_key() of the sample.
/// Errors: DecodeFailure: there are too few.
SHARDWISE_EXPORT std::vector<std::int64_t> clip_frames(std::span<const double> times,
                                                       const Column::VideoClip& clip,
                                                       const Hash128& key);

}  // namespace shardwise::detail
