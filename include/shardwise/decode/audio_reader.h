#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise {

/// The samples of a sound in memory: WAV, FLAC, MP3, Ogg (Vorbis, Opus, FLAC), or the sound of a
/// video (MP4 and MOV, Matroska and WebM).
///
/// Samples are float32 in [-1, 1], [channels, samples], as torchaudio and torchcodec give them;
/// lossy codecs may exceed that range a little. Times are those of the container, in seconds, the
/// same ones that VideoReader has for the frames beside the sound. Of several sounds in a file the
/// default one is read, else the first. A WAV that does not say its size, as ffmpeg and SoX leave
/// it in pipes, goes on to its end; RF64 and BW64 are read. Tags before a sound (ID3v2) are passed
/// over, and what other programs put behind it: ID3v1, APEv2, Lyrics3, text, zeros.
///
/// A gap of more than 8 ms in a container's times is read as zeros, and times that go back by more
/// than 8 ms are an error where they are decoded: if that lasts for the 16 packets behind, and is
/// new against the 16 before. Otherwise the clock drifts or jitters, and samples follow each
/// other: a clip begins where the times say, to 8 ms and what they jitter, and has no zeros
/// within. A gap in a FLAC file is an error, since its frames are numbered; in FLAC in another
/// container it is zeros, too. Samples of FLAC behind FLAC follow those before.
///
/// Threads: one at a time; different readers may run at once. It starts no threads.
/// Lifetime: `bytes` must outlive the reader.
/// Effects: as VideoReader.
/// Errors: BadField: bytes that are not such a sound, are cut or damaged, or exceed a limit. An MP3
///   does not say how long it is: one that is cut is a shorter one. So is an Ogg that ends where a
///   page does, as recordings of streams do.
class SHARDWISE_EXPORT AudioReader {
 public:
  struct Options {
    /// Names the bytes in errors: a shard and sample, or a path.
    std::string where = {};
    /// Samples a second of what is returned, by libswresample; 0: as stored.
    int sample_rate = 0;
    /// Channels of what is returned, mixed by libswresample's standard coefficients,
    /// scaled so that nothing gets louder than full: 1 is the mean of two. 0: as stored.
    int channels = 0;
    /// A clip with more samples, all channels together, is refused.
    std::uint64_t max_samples = std::uint64_t{1} << 28;
  };

  struct Info {
    int sample_rate = 0;  ///< as stored, in Hz
    int channels = 0;     ///< as stored
    /// As the container says, and 0 if it does not; MP3 files may err.
    double duration_seconds = 0;
    std::string codec = {};  ///< libav's name for it, as "flac"
  };

  struct Clip {
    std::vector<float> samples;  ///< [channels, num_samples]
    int channels = 0;
    std::int64_t num_samples = 0;  ///< of each channel
    int sample_rate = 0;
    double begin_seconds = 0;  ///< the first sample's time
  };

  /// Reads the container's header. Cost: O(header). Errors: BadField; InvalidArgument: a rate or
  ///   number of channels that cannot be.
  explicit AudioReader(std::string_view bytes);
  AudioReader(std::string_view bytes, Options options);
  ~AudioReader();
  AudioReader(AudioReader&&) noexcept;
  AudioReader& operator=(AudioReader&&) noexcept;

  [[nodiscard]] const Info& info() const noexcept;

  /// The whole sound. Errors: BadField.
  [[nodiscard]] Clip read();
  /// The samples whose times lie in [begin, end), to the sample: number i lies at i / sample_rate
  /// after the first one. A range that holds none gives an empty clip. With another sample rate the
  /// range is taken first, and is resampled by itself.
  /// Cost: O(end - begin); of MP3, Ogg and WAV without PCM O(end), as they are decoded from their
  ///   start. A codec that carries state (AAC, Opus, Vorbis) is warmed up for half a second: its
  ///   samples then equal those of the whole but for rounding and the noise that decoders of AAC
  ///   and AC-3 make up. Of FLAC the bytes are looked through once, for another FLAC behind it.
  ///   Matroska's times are whole milliseconds.
  /// Errors: BadField; InvalidArgument: an end before the beginning.
  [[nodiscard]] Clip read(double begin_seconds, double end_seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
