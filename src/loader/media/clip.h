#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loader/sample_random.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/loader/media_columns.h"

// Chooses the part of a video or sound; docs/formats/transforms.md (Clips) specifies how.

namespace shardwise::detail {

/// Throws InvalidArgument if the clip's options are invalid.
void require_clip(const Column::VideoClip& clip);
void require_clip(const Column::AudioClip& clip);

/// Returns where a clip of length `span` begins in [0, size). A clip longer than `size` begins at
/// 0.
SHARDWISE_EXPORT std::int64_t clip_start(std::int64_t size, std::int64_t span,
                                         Column::ClipStart start, const Hash128& key,
                                         Operation operation) noexcept;

/// Returns the frame numbers of a clip, which never descend.
/// @param times  of all frames of the video, ascending.
/// @param key    sample_key() of the sample.
/// Errors: DecodeFailure if there are too few frames.
SHARDWISE_EXPORT std::vector<std::int64_t> clip_frames(std::span<const double> times,
                                                       const Column::VideoClip& clip,
                                                       const Hash128& key);

}  // namespace shardwise::detail
