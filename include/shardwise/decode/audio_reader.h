#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise {

/// Decodes a sound in memory to samples. Formats: WAV, FLAC, MP3, Ogg (Vorbis, Opus, FLAC), and the
/// sound of a video (MP4, MOV, Matroska, WebM).
///
/// Samples are float32 in [-1, 1], [channels, samples], as in torchaudio and torchcodec. Lossy
/// codecs may slightly exceed that range. Times are the container's timestamps, in seconds.
/// VideoReader uses the same time line.
///
/// Streams: if a file has several audio streams, its default stream is read, else the first. A WAV
///   whose header states no size, as ffmpeg and SoX write into pipes, is read to its end. RF64 and
///   BW64 are supported. Tags before a sound (ID3v2) are skipped. ID3v1, APEv2, Lyrics3, text and
///   zeros after a sound are also skipped.
///
/// Times: a jump in the timestamps is real if it exceeds 8 ms, persists for the next 16 frames, and
///   is absent from the 16 frames before. A real jump forward is a gap, which is read as zeros. A
///   real jump back is an error when it is decoded. Any other jump is drift or jitter of the clock:
///   samples follow each other without zeros. A clip then begins at the requested time to within 8
///   ms and the jitter.
///
/// FLAC: frames have numbers, so a gap in a FLAC file is an error. A gap in FLAC within another
/// container is read as zeros. If a file contains several FLAC streams in turn, their samples are
/// joined without a gap.
///
/// Threads: one at a time; different readers may run at once. A reader starts no threads.
/// Lifetime: `bytes` must outlive the reader.
/// Effects: see VideoReader.
/// Errors: BadField if the bytes are not a sound of these formats, are truncated or damaged, or
///   exceed a limit. In two cases truncation is not detected. An MP3 does not state its length, so
///   a truncated MP3 is read as a shorter sound. An Ogg file that ends after a whole page is valid,
///   because recorded streams end like this.
class SHARDWISE_EXPORT AudioReader {
 public:
  struct Options {
    /// Name of the bytes for error texts: a shard and sample, or a path.
    std::string where = {};
    /// Sample rate of the result in Hz, resampled by libswresample. 0 means the stored rate.
    int sample_rate = 0;
    /// Channels of the result. 0 means the stored number. libswresample mixes them with its
    /// standard coefficients, scaled so that the result never exceeds full scale. E.g. stereo mixed
    /// to one channel is the mean of both.
    int channels = 0;
    /// Largest number of samples in a clip, over all channels. Larger clips are refused.
    std::uint64_t max_samples = std::uint64_t{1} << 28;
  };

  struct Info {
    int sample_rate = 0;  ///< in Hz, as stored
    int channels = 0;     ///< as stored
    /// Duration that the container states; 0 if it states none. For MP3 it may be inaccurate.
    double duration_seconds = 0;
    std::string codec = {};  ///< libav's name of the codec, e.g. "flac"
  };

  struct Clip {
    std::vector<float> samples;  ///< [channels, num_samples]
    int channels = 0;
    std::int64_t num_samples = 0;  ///< per channel
    int sample_rate = 0;
    double begin_seconds = 0;  ///< time of the first sample
  };

  /// Reads the container's header.
  /// Cost: O(header).
  /// Errors: BadField. InvalidArgument for an impossible rate or number of channels.
  explicit AudioReader(std::string_view bytes);
  AudioReader(std::string_view bytes, Options options);
  ~AudioReader();
  AudioReader(AudioReader&&) noexcept;
  AudioReader& operator=(AudioReader&&) noexcept;

  [[nodiscard]] const Info& info() const noexcept;

  /// Reads the whole sound. Errors: BadField.
  [[nodiscard]] Clip read();
  /// Reads exactly the samples whose times are in [begin, end). Sample i has the time of the first
  /// sample plus i / sample_rate. The clip is empty if the range contains no samples. If the sample
  /// rate changes, the range is first cut and then resampled, without the samples around it.
  /// Cost: O(end - begin). For MP3, Ogg and WAV without PCM it is O(end), because these are decoded
  ///   from their start. A FLAC file is scanned once for further FLAC streams.
  /// Exactness: codecs with state (AAC, Opus, Vorbis) are decoded from half a second before
  ///   `begin`. The samples then equal those of the whole sound, except for rounding and the noise
  ///   that AAC and AC-3 decoders generate. Times in Matroska are whole milliseconds.
  /// Errors: BadField. InvalidArgument if end < begin.
  [[nodiscard]] Clip read(double begin_seconds, double end_seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
