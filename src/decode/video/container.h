#pragma once

#include <cstdint>
#include <string_view>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Told by the first bytes. Errors: DecodeFailure: none of those we read.
Container container_of(std::string_view bytes);

/// Checks what libav would forgive or believe: that the bytes do not end before the boxes, elements
/// or chunks that hold them, and that tables do not promise so many samples that an index of them
/// outgrows the bytes. Returns the bytes without the tags, text or zeros that other programs put
/// behind them, where libav would take these for media. No copy. Errors: DecodeFailure.
std::string_view plausible_part(Container container, std::string_view bytes);

/// Checks the page of an Ogg that begins at `at`, where libav would leave out what is damaged: its
/// checksum, and that it is whole. Returns where the next one begins; the size of `ogg` at the end,
/// also where bytes follow that are no pages. Errors: DecodeFailure.
std::size_t end_of_ogg_page(std::string_view ogg, std::size_t at);

/// The bytes without the ID3v2 tags that some programs put before FLAC, WAV and Ogg, and before MP3
/// if zeros follow that the tag does not count. No copy.
std::string_view behind_tags(std::string_view bytes) noexcept;

/// Whether a WAV says how many bytes of samples it has. What was written to a pipe does not, and
/// then they go on to the end. Errors: DecodeFailure: it has no samples.
bool knows_size_of_wav(std::string_view bytes);

}  // namespace shardwise::detail
