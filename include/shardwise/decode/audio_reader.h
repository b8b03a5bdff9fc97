#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise {

/// Reads the samples of a sound in memory. Formats: WAV, FLAC, MP3, Ogg (Vorbis, Opus, FLAC), and
/// the sound of a video (MP4, MOV, Matroska, WebM).
///
/// Samples are float32 in [-1, 1], [channels, samples], as in torchaudio and torchcodec. Lossy
/// codecs may slightly exceed that range. Times are those of the container, in seconds, and agree
/// with VideoReader's times of the frames.
///
/// Streams: if a file has several sounds, the default one is read, else the first. A WAV without a
///   size, as ffmpeg and SoX write into pipes, is read to its end. RF64 and BW64 are read. Tags
///   before a sound (ID3v2) are skipped, and so are ID3v1, APEv2, Lyrics3, text and zeros after it.
///
/// Times: a step in the container's times of more than 8 ms counts if it lasts for the next 16
///   frames and the 16 before lack it. A step forward is then a gap, which is read as zeros. A step
///   back is an error where it is decoded. Any other step is drift or jitter of the clock: samples
///   follow each other without zeros. A clip then begins where the times say, to within 8 ms and
///   the jitter.
///
/// FLAC: frames are numbered, so a gap in a FLAC file is an error. In FLAC within another container
/// a gap is read as zeros. If another FLAC stream follows a first one, its samples follow directly.
///
/// Threads: one at a time; different readers may run at once. A reader starts no threads.
/// Lifetime: `bytes` must outlive the reader.
/// Effects: see VideoReader.
/// Errors: BadField if the bytes are not such a sound, are truncated or damaged, or exceed a limit.
///   An MP3 does not state its length, so a truncated one is read as a shorter one. An Ogg that
///   ends at the end of a page, like a recorded stream, is valid, too.
class SHARDWISE_EXPORT AudioReader {
 public:
  struct Options {
    /// Name of the bytes for error texts: a shard and sample, or a path.
    std::string where = {};
    /// Sample rate of the result in Hz, resampled by libswresample. 0 means the stored rate.
    int sample_rate = 0;
    /// Channels of the result. 0 means the stored number. They are mixed by libswresample's
    /// standard coefficients, scaled so that full scale is never exceeded. For example, 1 is the
    /// mean of two.
    int channels = 0;
    /// Largest number of samples in a clip, over all channels. Larger clips are refused.
    std::uint64_t max_samples = std::uint64_t{1} << 28;
  };

  struct Info {
    int sample_rate = 0;  ///< in Hz, as stored
    int channels = 0;     ///< as stored
    /// Duration that the container states, or 0. For MP3 it may be inaccurate.
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
  /// sample plus i / sample_rate. The clip is empty if the range has no samples. With another
  /// sample rate, the range is cut first and then resampled by itself.
  /// Cost: O(end - begin). For MP3, Ogg and WAV without PCM it is O(end), because they are decoded
  ///   from their start. FLAC bytes are scanned once for a following FLAC stream.
  /// Exactness: codecs with state (AAC, Opus, Vorbis) are decoded from half a second earlier. Their
  ///   samples then equal those of the whole, except for rounding and the noise that AAC and AC-3
  ///   decoders generate. Times in Matroska are whole milliseconds.
  /// Errors: BadField. InvalidArgument if end < begin.
  [[nodiscard]] Clip read(double begin_seconds, double end_seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
