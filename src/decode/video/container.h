#pragma once

#include <cstdint>

#include "decode/video/libav.h"
#include "decode/video/media_view.h"

// Reads the first bytes, the structure and the last bytes of containers. All functions also throw
// the errors of reading the bytes.

namespace shardwise::detail {

/// Determines the container from the first bytes.
/// Errors: DecodeFailure if the container is not supported.
Container container_of(MediaView bytes);

/// True if opening a file of this container reads most of its bytes, because it has no table of its
/// packets.
/// Errors: only those of reading the bytes.
bool is_read_whole(MediaView bytes);

/// Checks claims of a container that libav does not verify. The boxes, elements or chunks must be
/// complete. libav's index of the stated samples must not take far more memory than the bytes.
/// Returns the bytes without trailing tags, text or zeros of other programs, if libav would
/// read those as media. Copies nothing.
/// Errors: DecodeFailure.
MediaView plausible_part(Container container, MediaView bytes);

/// Checks that the Ogg page at `at` is complete and its checksum is right, because libav skips
/// damaged pages silently. Returns the offset of the next page. After the last page, returns the
/// size of `ogg`, even if other bytes follow.
/// Errors: DecodeFailure.
std::size_t end_of_ogg_page(MediaView ogg, std::size_t at);

/// Returns the bytes without leading ID3v2 tags, which some programs write before FLAC, WAV and
/// Ogg. In an MP3 the tags are removed only if more zeros follow than the tag states. Copies
/// nothing.
MediaView behind_tags(MediaView bytes);

/// True if a WAV states the size of its samples. A WAV that was written to a pipe does not state
/// it; its samples extend to the end.
/// Errors: DecodeFailure if it has no samples.
bool knows_size_of_wav(MediaView bytes);

}  // namespace shardwise::detail
