#include "decode/video/container.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/counted.h"
#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

constexpr const char* kEndsEarly = "the data ends early";

template <class Bytes>
std::uint64_t big_endian(const Bytes& bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

std::uint32_t little_endian_32(MediaView bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

std::uint64_t little_endian_64(MediaView bytes, std::size_t at) {
  return std::uint64_t{little_endian_32(bytes, at + 4)} << 32 | little_endian_32(bytes, at);
}

// ----------------------------------------------------------------- tags and text of other programs

/// Returns `bytes` without leading ID3v2 tags.
MediaView behind_id3v2(MediaView bytes) {
  constexpr std::size_t kHeader = 10;
  while (bytes.size() >= kHeader && bytes.starts_with("ID3")) {
    // Each byte has 7 bits of the size; a flag means that a footer repeats the header.
    std::size_t size = kHeader;
    for (std::size_t i = 6, shift = 21; i < 10; ++i, shift -= 7) {
      size += std::size_t{static_cast<unsigned char>(bytes[i]) & 0x7Fu} << shift;
    }
    if ((static_cast<unsigned char>(bytes[5]) & 0x10u) != 0) size += kHeader;
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  return bytes;
}

/// Returns `bytes` without one trailing tag: ID3v1, APEv2 or Lyrics3.
MediaView before_tag(MediaView bytes) {
  constexpr std::size_t kId3v1 = 128;
  const auto without_last = [&](std::size_t size) { return bytes.substr(0, bytes.size() - size); };
  if (bytes.size() >= kId3v1 && bytes.has(bytes.size() - kId3v1, "TAG")) {
    return without_last(kId3v1);
  }
  constexpr std::size_t kApeFooter = 32;
  constexpr std::string_view kApe = "APETAGEX";
  if (bytes.size() >= kApeFooter && bytes.has(bytes.size() - kApeFooter, kApe)) {
    // The stated size includes the tag's content and this footer, but not the optional header.
    std::size_t size = little_endian_32(bytes, bytes.size() - kApeFooter + 12);
    if (size < kApeFooter || size > bytes.size()) return bytes;
    if (bytes.size() - size >= kApeFooter && bytes.has(bytes.size() - size - kApeFooter, kApe)) {
      size += kApeFooter;
    }
    return without_last(size);
  }
  if (bytes.ends_with("LYRICS200") || bytes.ends_with("LYRICSEND")) {
    return bytes.substr(0, std::min(bytes.rfind("LYRICSBEGIN"), bytes.size()));
  }
  return bytes;
}

bool is_text(char c) noexcept {
  return c == 0 || c == '\t' || c == '\r' || c == '\n' || (c >= ' ' && c <= '~');
}

/// True if `bytes` contain only additions of other programs (tags, text, zeros) and no media.
bool is_tail(MediaView bytes) {
  while (!bytes.all_of(is_text)) {
    const MediaView shorter = before_tag(bytes);
    if (shorter.size() == bytes.size()) return bytes.starts_with("APETAGEX");
    bytes = shorter;
  }
  return true;
}

// ------------------------------------------------------------------------------------- MP4 and MOV

/// Counts that an MP4's tables state: samples of all tracks, and edits of all edit lists.
struct Mp4Promise {
  std::uint64_t samples = 0;
  std::uint64_t edits = 0;
};

/// Adds up the counts of all boxes of this type. Searches the whole header, so it finds nested
/// boxes wherever libav would look for them.
void add_counts(std::string_view header, std::string_view type, std::size_t count_at,
                std::uint64_t& sum) {
  for (std::size_t at = header.find(type); at != header.npos; at = header.find(type, at + 1)) {
    if (header.size() - at >= count_at + 4) sum += big_endian(header, at + count_at, 4);
  }
}

/// Returns how many of the samples in `header` are sound samples without separate index entries. In
/// QuickTime, a sample of compressed sound is a point in time, not a piece of data. libav makes one
/// entry for many of them.
std::uint64_t count_moments(std::string_view header) {
  std::uint64_t sum = 0;
  std::size_t next = 4;  // continue after each track, so that every byte is read only once
  for (std::size_t at; (at = header.find("trak", next)) != header.npos;) {
    const std::string_view track = header.substr(at, big_endian(header, at - 4, 4));
    next = at + std::max<std::size_t>(track.size(), 4);
    const std::size_t times = track.find("stts"), sizes = track.find("stsz");
    if (track.find("soun") == track.npos || track.find("vide") != track.npos) continue;
    if (times == track.npos || track.size() - times < 20 || big_endian(track, times + 8, 4) != 1 ||
        big_endian(track, times + 16, 4) != 1) {
      continue;  // some samples take more than one unit of time
    }
    if (sizes == track.npos || track.size() - sizes < 16) continue;
    if (big_endian(track, sizes + 8, 4) == 1) sum += big_endian(track, sizes + 12, 4);
  }
  return sum;
}

/// Returns the number of packets that libav makes of the chunks of sound. Each packet has up to
/// 1,024 samples.
std::uint64_t count_packets(std::string_view header) {
  std::uint64_t chunks = 0;
  for (const std::string_view type : {"stco", "co64"}) {
    for (std::size_t at = header.find(type); at != header.npos; at = header.find(type, at + 1)) {
      if (header.size() - at >= 12) chunks = std::max(chunks, big_endian(header, at + 8, 4));
    }
  }
  constexpr std::uint64_t kMax = std::uint64_t{1} << 40;
  std::uint64_t sum = 0;
  std::size_t left = header.size();  // limit on the entries read; correct tables have fewer
  for (std::size_t at = header.find("stsc"); at != header.npos; at = header.find("stsc", at + 1)) {
    const std::uint64_t count = header.size() - at < 12 ? 0 : big_endian(header, at + 8, 4);
    const std::size_t room = count == 0 ? 0 : (header.size() - at - 12) / 12;
    for (std::size_t i = 0; i < std::min<std::uint64_t>(count, room); ++i) {
      if (left-- == 0) return kMax;
      // Fields: first chunk, samples per chunk, description.
      const std::size_t entry = at + 12 + 12 * i;
      const std::uint64_t first = big_endian(header, entry, 4);
      const std::uint64_t next = i + 1 < room ? big_endian(header, entry + 12, 4) : chunks + 1;
      const std::uint64_t end = i + 1 < count ? next : chunks + 1;
      const std::uint64_t num_chunks = end > first ? std::min(end - first, chunks) : 0;
      sum = std::min(sum + num_chunks * (big_endian(header, entry + 4, 4) / 1024), kMax);
    }
  }
  return sum;
}

/// Adds the counts that one box states.
/// @param header  a complete top-level box that does not contain media.
void add_promise(std::string_view header, Mp4Promise& promise) {
  if (header.find("cmov") != header.npos) {
    throw DecodeFailure("MP4: the header is compressed");
  }
  add_counts(header, "stsz", 12, promise.samples);
  promise.samples -= std::min(promise.samples, count_moments(header));
  promise.samples += count_packets(header);
  add_counts(header, "stz2", 12, promise.samples);
  add_counts(header, "trun", 8, promise.samples);
  add_counts(header, "elst", 8, promise.edits);
}

/// Returns the size of the box at the start of `bytes`; nullopt if they do not begin with a box.
std::optional<std::uint64_t> box_size(MediaView bytes) {
  if (bytes.size() < 8) return std::nullopt;
  std::uint64_t size = big_endian(bytes, 0, 4);
  if (size == 1 && bytes.size() < 16) return std::nullopt;
  if (size == 1) size = big_endian(bytes, 8, 8);
  // Size 0 means that the box extends to the end.
  if (size == 0 && big_endian(bytes, 4, 4) != 0) size = bytes.size();
  if (size < 8 || size > bytes.size()) return std::nullopt;
  return size;
}

/// True if each part of an MP4 has a table of its own packets, and no table has all of them.
bool is_fragmented(MediaView mp4) {
  while (const auto size = box_size(mp4)) {
    if (mp4.has(4, "moof")) return true;
    if (mp4.has(4, "mdat")) return false;
    mp4.remove_prefix(*size);
  }
  return false;
}

/// Returns why `bytes` do not begin with a box.
const char* why_no_box(MediaView bytes) {
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  const bool is_cut = bytes.size() < 8 || bytes.substr(4, 4).all_of(is_printable);
  return is_cut ? kEndsEarly : "MP4: a box is damaged, or the data after the last box is not a tag";
}

MediaView plausible_mp4(MediaView bytes) {
  Mp4Promise promise;
  bool has_header = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const MediaView rest = bytes.substr(at);
    const auto size = box_size(rest);
    if (!size && has_header && is_tail(rest)) {
      bytes = bytes.substr(0, at);
      break;
    }
    if (!size) throw DecodeFailure(why_no_box(rest));
    const auto is = [&](std::string_view type) { return rest.has(4, type); };
    has_header = has_header || is("moov");
    if (!is("mdat") && !is("free") && !is("skip") && !is("wide")) {
      add_promise(rest.substr(0, *size).view(), promise);
    }
    at += *size;
  }
  // libav makes an index entry of about 24 bytes per sample, and each edit may repeat all of them.
  // A sample has at least one byte, so a count above the number of bytes is false.
  const std::uint64_t most = bytes.size() + (1u << 16);
  const std::uint64_t edits = std::max<std::uint64_t>(promise.edits, 1);
  if (promise.samples > most || promise.samples * 8 > 64 * most / edits) {
    throw DecodeFailure("MP4: the header claims " + counted(promise.samples, "sample") + " in " +
                        counted(bytes.size(), "byte"));
  }
  return bytes;
}

// ---------------------------------------------------------------------------------------- Matroska

/// Reads an EBML number of 1 to 8 bytes. The first byte's leading zeros give the length. If
/// `keep_marker`, the marker bit is kept, as in identifiers; otherwise a number of all ones means
/// "unknown".
std::uint64_t ebml_number(MediaView bytes, std::size_t& at, bool keep_marker) {
  if (at >= bytes.size()) throw DecodeFailure(kEndsEarly);
  const auto first = static_cast<unsigned char>(bytes[at]);
  std::size_t length = 1;
  while (length <= 8 && (first & (0x100u >> length)) == 0) ++length;
  if (length > 8) throw DecodeFailure("Matroska: an invalid number");
  if (bytes.size() - at < length) throw DecodeFailure(kEndsEarly);
  std::uint64_t value = big_endian(bytes, at, length);
  at += length;
  if (keep_marker) return value;
  const std::uint64_t marker = std::uint64_t{1} << (7 * length);
  value -= marker;
  return value == marker - 1 ? UINT64_MAX : value;
}

constexpr std::uint64_t kEbml = 0x1A45DFA3;
constexpr std::uint64_t kSegment = 0x18538067;
constexpr std::uint64_t kCluster = 0x1F43B675;

/// True for the elements that may be children of a segment: SeekHead, Info, Tracks, Cluster, Cues,
/// Attachments, Chapters, Tags, Void and CRC-32.
bool is_in_segment(std::uint64_t id) noexcept {
  constexpr std::array<std::uint64_t, 10> kAll = {0x114D9B74, 0x1549A966, 0x1654AE6B, kCluster,
                                                  0x1C53BB6B, 0x1941A469, 0x1043A770, 0x1254C367,
                                                  0xEC,       0xBF};
  return std::ranges::find(kAll, id) != kAll.end();
}

/// True for the elements that may be children of a cluster: numbers of at most 8 bytes (Timestamp,
/// Position, PrevSize), SimpleBlock, BlockGroup, SilentTracks, EncryptedBlock, Void and CRC-32.
bool is_in_cluster(std::uint64_t id, std::uint64_t size) noexcept {
  if (id == 0xE7 || id == 0xA7 || id == 0xAB) return size <= 8;
  return id == 0xA3 || id == 0xA0 || id == 0x5854 || id == 0xAF || id == 0xEC || id == 0xBF;
}

/// Returns the segment's size in bytes, without a second segment or a tail after it. Rejects
/// unknown or too large elements: libav would skip to the next cluster, and silently lose the
/// frames in between.
std::size_t size_of_segment(MediaView segment, bool knows_size) {
  const auto size_within = [](std::uint64_t size, std::size_t left) {
    if (size > left) throw DecodeFailure(kEndsEarly);
    return static_cast<std::size_t>(size);
  };
  std::size_t cluster_end = 0;  // end of the current cluster
  bool knows_cluster_size = true;
  // Moves past the element at `at`. Returns false if it begins another segment.
  const auto step = [&](std::size_t& at) {
    const std::size_t begin = at;
    const std::uint64_t id = ebml_number(segment, at, true);
    const std::uint64_t size = ebml_number(segment, at, false);
    const bool is_inside = begin < cluster_end && is_in_cluster(id, size);
    const bool ends_cluster = begin >= cluster_end || !knows_cluster_size;
    if (is_inside) {
      if (at > cluster_end) throw DecodeFailure(kEndsEarly);
      at += size_within(size, cluster_end - at);
    } else if (ends_cluster && id == kCluster) {
      knows_cluster_size = size != UINT64_MAX;
      cluster_end =
          knows_cluster_size ? at + size_within(size, segment.size() - at) : segment.size();
    } else if (ends_cluster && is_in_segment(id)) {
      cluster_end = 0;
      at += size_within(size, segment.size() - at);
    } else if (ends_cluster && !knows_size && (id == kEbml || id == kSegment)) {
      return false;  // stop here, because libav reads only the first segment
    } else {
      throw DecodeFailure("Matroska: an element is damaged");
    }
    return true;
  };
  for (std::size_t begin = 0; begin < segment.size();) {
    std::size_t at = begin;
    try {
      if (!step(at)) return begin;
    } catch (const DecodeFailure&) {
      const bool may_end = begin >= cluster_end || !knows_cluster_size;
      if (knows_size || !may_end || !is_tail(segment.substr(begin))) throw;
      return begin;
    }
    begin = at;
  }
  return segment.size();
}

MediaView plausible_matroska(MediaView bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::uint64_t id = ebml_number(bytes, at, true);
    const std::uint64_t size = ebml_number(bytes, at, false);
    // A live stream has no size, and extends to the end.
    const bool knows_size = size != UINT64_MAX;
    if (knows_size && size > bytes.size() - at) throw DecodeFailure(kEndsEarly);
    if (id == kSegment || !knows_size) {
      // Use only the first segment.
      const MediaView segment = bytes.substr(at, knows_size ? size : MediaView::npos);
      return bytes.substr(0, at + size_of_segment(segment, knows_size));
    }
    at += size;
  }
  throw DecodeFailure("Matroska: the file has no segment");
}

// --------------------------------------------------------------------------------------------- WAV

/// Returns the offset of the chunk that contains the samples.
/// Errors: DecodeFailure if there is no such chunk.
std::size_t data_chunk_of(MediaView wav) {
  for (std::size_t at = 12; wav.size() - at >= 8;) {
    if (wav.has(at, "data")) return at;
    const std::uint32_t size = little_endian_32(wav, at + 4);
    const std::uint64_t whole = 8 + std::uint64_t{size} + size % 2;
    if (whole > wav.size() - at) break;
    at += whole;
  }
  throw DecodeFailure(kEndsEarly);
}

/// True if `bytes` consist only of chunks.
bool are_chunks(MediaView bytes) {
  while (bytes.size() >= 8) {
    const bool has_name = bytes.substr(0, 4).all_of([](char c) { return c >= ' ' && c <= '~'; });
    const std::uint64_t size = little_endian_32(bytes, 4);
    if (!has_name || size > bytes.size() - 8) return false;
    bytes.remove_prefix(std::min<std::uint64_t>(8 + size + size % 2, bytes.size()));
  }
  return bytes.empty();
}

/// True for RF64 and BW64, whose first chunk contains sizes of more than 32 bits.
bool is_rf64(MediaView wav) {
  return (wav.starts_with("RF64") || wav.starts_with("BW64")) && wav.size() >= 44 &&
         wav.has(12, "ds64");
}

/// Returns the stated size of a WAV's samples in bytes; nullopt if it is unknown. A program that
/// writes to a pipe does not know the size. It writes all ones, zero, or (SoX) a size near 2 GiB as
/// a placeholder. Zero is the true size if the file's own size is right, or if other chunks follow
/// instead of samples.
std::optional<std::uint64_t> size_of_data(MediaView wav, std::size_t data_chunk) {
  constexpr std::uint32_t kUnknown = 0xFFFFFFFF, kFirstOfPipes = 0x7FFFF000;
  const std::uint32_t size = little_endian_32(wav, data_chunk + 4);
  const std::size_t left = wav.size() - data_chunk - 8;
  if (size == kUnknown && is_rf64(wav)) return little_endian_64(wav, 28);
  if (size == kUnknown || (size >= kFirstOfPipes && size > left)) return std::nullopt;
  if (size != 0) return size;
  const bool is_meant =
      little_endian_32(wav, 4) == wav.size() - 8 || are_chunks(wav.substr(data_chunk + 8));
  return is_meant ? std::optional<std::uint64_t>(0) : std::nullopt;
}

void require_plausible_wav(MediaView bytes) {
  const std::size_t at = data_chunk_of(bytes);
  const auto size = size_of_data(bytes, at);
  if (!size) return;
  if (*size == 0) throw DecodeFailure("the file has no samples");
  if (*size > bytes.size() - at - 8) throw DecodeFailure(kEndsEarly);
}

// -------------------------------------------------------------------------------------------- MP3

/// Returns the size of the MPEG frame at the start of `bytes`; 0 if they do not begin with a frame,
/// or if the frame's bit rate is free.
std::size_t mpeg_frame_size(MediaView bytes) {
  if (bytes.size() < 4) return 0;
  const auto head = static_cast<std::uint32_t>(big_endian(bytes, 0, 4));
  const std::uint32_t version = head >> 19 & 3, layer = 4 - (head >> 17 & 3);
  const std::uint32_t rate = head >> 12 & 15, frequency = head >> 10 & 3, padding = head >> 9 & 1;
  if (head >> 21 != 0x7FF || version == 1 || layer == 4 || rate == 0 || rate == 15 ||
      frequency == 3) {
    return 0;
  }
  constexpr int kKilobits[5][14] = {
      {32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
      {32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
      {32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
      {32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
      {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}};
  constexpr std::size_t kHertz[3] = {44100, 48000, 32000};
  // The sampling rates of MPEG 1. MPEG 2 has half of these rates, MPEG 2.5 has a quarter of them.
  const bool is_first = version == 3;
  const std::size_t row = is_first ? layer - 1 : layer == 1 ? 3 : 4;
  const auto bits = static_cast<std::size_t>(kKilobits[row][rate - 1]) * 1000;
  const std::size_t hertz = kHertz[frequency] >> (is_first ? 0 : version == 2 ? 1 : 2);
  if (layer == 1) return (12 * bits / hertz + padding) * 4;
  return (layer == 3 && !is_first ? 72 : 144) * bits / hertz + padding;
}

/// Returns `mp3` without trailing bytes that are not frames, because libav would search them for
/// frames.
MediaView before_tail_of_mp3(MediaView mp3) {
  std::size_t at = mp3.size() - behind_id3v2(mp3).size();
  while (at < mp3.size()) {
    const std::size_t size = mpeg_frame_size(mp3.substr(at));
    if (size == 0 || size > mp3.size() - at) break;
    at += size;
  }
  return is_tail(mp3.substr(at)) ? mp3.substr(0, at) : mp3;
}

// -------------------------------------------------------------------------------------------- FLAC

/// Adds one byte to a CRC of `bits` bits with this polynomial, highest bit first.
std::uint32_t next_crc(std::uint32_t crc, char c, int bits, std::uint32_t polynomial) noexcept {
  crc ^= std::uint32_t{static_cast<unsigned char>(c)} << (bits - 8);
  for (int i = 0; i < 8; ++i) crc = crc << 1 ^ ((crc >> (bits - 1) & 1) != 0 ? polynomial : 0);
  return crc & ((1u << bits) - 1);
}

/// True if a FLAC frame begins here. Verifies the checksum of the frame's header.
bool is_flac_frame(MediaView bytes) {
  if (bytes.size() < 16) return false;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (at(0) != 0xFF || (at(1) & 0xFE) != 0xF8 || (at(3) & 1) != 0) return false;
  // After the first 5 bytes come the rest of the frame's number, the block's size and the sampling
  // rate.
  std::size_t size = 5;
  for (unsigned bit = 0x40; (at(4) & 0x80) != 0 && (at(4) & bit) != 0; bit >>= 1) ++size;
  const unsigned block = at(2) >> 4, rate = at(2) & 15u;
  size += block == 6 ? 1 : block == 7 ? 2 : 0;
  size += rate == 12 ? 1 : rate == 13 || rate == 14 ? 2 : 0;
  std::uint32_t crc = 0;
  for (const char c : bytes.substr(0, std::min(size + 1, bytes.size())).view()) {
    crc = next_crc(crc, c, 8, 0x07);
  }
  return crc == 0;
}

/// Returns `flac` without trailing tags, text and zeros, because libav would read them as part of
/// the last frame. That frame ends where its checksum matches.
MediaView before_tail_of_flac(MediaView flac) {
  constexpr std::size_t kMaxFrame = std::size_t{1} << 20, kMaxText = std::size_t{1} << 16;
  constexpr std::size_t kChecksum = 2;
  while (before_tag(flac).size() < flac.size()) flac = before_tag(flac);
  std::size_t text = flac.size();
  while (text > 0 && is_text(flac[text - 1])) --text;
  if (text == flac.size()) return flac;
  const std::size_t last = std::min(flac.size(), text + kMaxText);
  int tries = 8;
  for (std::size_t at = text; at-- > 0 && text - at < kMaxFrame && tries > 0;) {
    if (flac[at] != '\xFF' || !is_flac_frame(flac.substr(at))) continue;
    --tries;
    std::size_t end = 0;  // first position at which the checksum matches
    std::uint32_t crc = 0;
    for (std::size_t i = at; i < last; ++i) {
      crc = next_crc(crc, flac[i], 16, 0x8005);
      if (crc == 0 && i + 1 >= text && end == 0) end = i + 1;
    }
    if (end == 0) continue;
    // If the checksum is zero, it also matches before its own bytes. Keeping a few bytes too many
    // is harmless.
    const bool is_whole =
        crc == 0 && last == flac.size() && flac.find_first_not_of('\0', end) != MediaView::npos;
    return is_whole ? flac : flac.substr(0, std::min(end + kChecksum, flac.size()));
  }
  return flac;
}

// --------------------------------------------------------------------------------------------- Ogg

constexpr std::size_t kOggHeader = 27;  // the sizes of the page's segments follow

/// Lookup table of the CRC-32 with polynomial 04C11DB7, highest bit first.
constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte << 24;
    for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ (crc >> 31 != 0 ? 0x04C11DB7u : 0u);
    table[byte] = crc;
  }
  return table;
}

std::uint32_t crc_of(std::string_view bytes, std::uint32_t crc) noexcept {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  for (const char c : bytes) crc = crc << 8 ^ kTable[crc >> 24 ^ static_cast<unsigned char>(c)];
  return crc;
}

}  // namespace

std::size_t end_of_ogg_page(MediaView ogg, std::size_t at) {
  constexpr std::string_view kBegin = "OggS";
  const MediaView rest = ogg.substr(at);
  const bool begins = kBegin.starts_with(rest.substr(0, kBegin.size()).view());
  if (!begins && rest.find(kBegin) == MediaView::npos) return ogg.size();  // only tags or zeros
  if (!begins) throw DecodeFailure("Ogg: the file is damaged between two pages");
  if (rest.size() < kOggHeader) throw DecodeFailure(kEndsEarly);
  std::size_t size = kOggHeader + static_cast<unsigned char>(rest[26]);
  if (rest.size() < size) throw DecodeFailure(kEndsEarly);
  for (const char segment : rest.substr(kOggHeader, size - kOggHeader).view()) {
    size += static_cast<unsigned char>(segment);
  }
  if (rest.size() < size) throw DecodeFailure(kEndsEarly);
  const std::string_view page = rest.substr(0, size).view();  // less than 64 KiB
  // The checksum is computed with zeros in place of the checksum itself.
  std::uint32_t crc = crc_of(page.substr(0, 22), 0);
  crc = crc_of(std::string_view("\0\0\0\0", 4), crc);
  crc = crc_of(page.substr(26), crc);
  if (crc != little_endian_32(page, 22)) throw DecodeFailure("Ogg: a page is damaged");
  return at + size;
}

Container container_of(MediaView bytes) {
  const auto has = [&](std::size_t at, std::string_view magic) { return bytes.has(at, magic); };
  if (bytes.empty()) throw DecodeFailure("the data is empty");
  for (const char* type : {"ftyp", "moov", "mdat", "free", "skip", "wide", "styp"}) {
    if (has(4, type)) return Container::kMp4;
  }
  if (has(0, "\x1A\x45\xDF\xA3")) return Container::kMatroska;
  if ((has(0, "RIFF") || has(0, "RF64") || has(0, "BW64")) && has(8, "WAVE")) {
    return Container::kWav;
  }
  if (has(0, "fLaC")) return Container::kFlac;
  if (has(0, "OggS")) return Container::kOgg;
  // The sync word of a frame header, with a layer that is not reserved.
  const bool is_frame = bytes.size() >= 2 && bytes[0] == '\xFF' &&
                        (static_cast<unsigned char>(bytes[1]) & 0xE0) == 0xE0 &&
                        (static_cast<unsigned char>(bytes[1]) & 0x06) != 0;
  if (has(0, "ID3") || is_frame) return Container::kMp3;
  throw DecodeFailure("the first bytes are not those of MP4, Matroska, WAV, FLAC, MP3 or Ogg");
}

bool is_read_whole(MediaView bytes) {
  try {
    const MediaView media = behind_tags(bytes);
    const Container container = container_of(media);
    return container == Container::kMp4 ? is_fragmented(media) : container != Container::kWav;
  } catch (const DecodeFailure&) {
    return false;  // nothing more is read
  }
}

MediaView plausible_part(Container container, MediaView bytes) {
  switch (container) {
    case Container::kMp4:
      return plausible_mp4(bytes);
    case Container::kMatroska:
      return plausible_matroska(bytes);
    case Container::kWav:
      require_plausible_wav(bytes);
      return bytes;
    case Container::kFlac:
      return before_tail_of_flac(bytes);
    case Container::kMp3:
      return before_tail_of_mp3(bytes);
    case Container::kOgg:
      return bytes;
  }
  return bytes;
}

MediaView behind_tags(MediaView bytes) {
  MediaView media = behind_id3v2(bytes);
  for (const char* magic : {"fLaC", "RIFF", "RF64", "BW64", "OggS"}) {
    if (media.starts_with(magic)) return media;
  }
  // Some MP3 tags are followed by more zeros than they state. In that case libav would not find the
  // number of samples to skip, which is in the first frame.
  if (media.size() == bytes.size()) return bytes;
  media.remove_prefix(std::min(media.find_first_not_of('\0'), media.size()));
  return mpeg_frame_size(media) > 0 ? media : bytes;
}

bool knows_size_of_wav(MediaView bytes) {
  return size_of_data(bytes, data_chunk_of(bytes)).has_value();
}

}  // namespace shardwise::detail
