#pragma once

/// The headers of the CMake target shardwise::video, which decodes frames of videos and samples of
/// sounds from bytes in memory.
///
///     VideoReader video(sample["mp4"]);             // in place; nothing is decoded yet
///     std::vector<std::uint8_t> frames(8 * video.frame_bytes());
///     video.read({.begin = 100, .end = 116, .step = 2}, frames);   // uint8 [8, H, W, 3]
///
///     AudioReader audio(sample["flac"], {.sample_rate = 16000, .channels = 1});
///     AudioReader::Clip clip = audio.read(1.5, 4.0);               // float32 [1, 40000]

#include "shardwise/decode/audio_reader.h"
#include "shardwise/decode/video_reader.h"
