#pragma once

#include <cstdint>
#include <string_view>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Detects the container by the first bytes.
/// Errors: DecodeFailure if we do not read it.
Container container_of(std::string_view bytes);

/// Checks claims that libav does not verify. The bytes must not end before the boxes, elements or
/// chunks that hold them do. libav's index of the samples that tables promise must not outgrow the
/// bytes.
/// Returns the bytes without trailing tags, text or zeros of other programs, if libav would read
/// them as media. Copies nothing.
/// Errors: DecodeFailure.
std::string_view plausible_part(Container container, std::string_view bytes);

/// Checks the Ogg page at `at` for completeness and its checksum, since libav skips damaged pages
/// silently. Returns the offset of the next page. Returns the size of `ogg` at the end, even if
/// bytes follow that are not pages.
/// Errors: DecodeFailure.
std::size_t end_of_ogg_page(std::string_view ogg, std::size_t at);

/// Returns the bytes without leading ID3v2 tags, which some programs write before FLAC, WAV and
/// Ogg. Tags before MP3 are removed only if zeros follow that the tag does not count. Copies
/// nothing.
std::string_view behind_tags(std::string_view bytes) noexcept;

/// True if a WAV states the size of its samples. A WAV written to a pipe does not; its samples
/// extend to the end.
/// Errors: DecodeFailure if it has no samples.
bool knows_size_of_wav(std::string_view bytes);

}  // namespace shardwise::detail
