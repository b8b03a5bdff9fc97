#include "decode/video/container.h"

#include <algorithm>
#include <array>
#include <string>

#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

constexpr const char* kEndsEarly = "the data ends early";

std::uint64_t big_endian(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

std::uint32_t little_endian_32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// ------------------------------------------------------------------------------------- MP4 and MOV

/// What the tables of an MP4 promise: samples of all tracks, and edits of all edit lists.
struct Mp4Promise {
  std::uint64_t samples = 0;
  std::uint64_t edits = 0;
};

/// Adds the counts of all boxes of this type, wherever in the header libav would look for them:
/// a box nested in another one is found without knowing which boxes nest.
void add_counts(std::string_view header, std::string_view type, std::size_t count_at,
                std::uint64_t& sum) {
  for (std::size_t at = header.find(type); at != header.npos; at = header.find(type, at + 1)) {
    if (header.size() - at >= count_at + 4) sum += big_endian(header, at + count_at, 4);
  }
}

/// `header`: a whole box of the top level, other than those that hold media.
void add_promise(std::string_view header, Mp4Promise& promise) {
  if (header.find("cmov") != header.npos) {
    throw DecodeFailure("MP4: its header is compressed");
  }
  add_counts(header, "stsz", 12, promise.samples);
  add_counts(header, "stz2", 12, promise.samples);
  add_counts(header, "trun", 8, promise.samples);
  add_counts(header, "elst", 8, promise.edits);
}

void require_plausible_mp4(std::string_view bytes) {
  Mp4Promise promise;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t left = bytes.size() - at;
    if (left < 8) throw DecodeFailure(kEndsEarly);
    std::uint64_t size = big_endian(bytes, at, 4);
    if (size == 1) {
      if (left < 16) throw DecodeFailure(kEndsEarly);
      size = big_endian(bytes, at + 8, 8);
    }
    if (size == 0) size = left;
    if (size < 8) throw DecodeFailure("MP4: a box is smaller than its header");
    if (size > left) throw DecodeFailure(kEndsEarly);
    const std::string_view type = bytes.substr(at + 4, 4);
    if (type != "mdat" && type != "free" && type != "skip" && type != "wide") {
      add_promise(bytes.substr(at, size), promise);
    }
    at += size;
  }
  // libav makes an index entry of about 24 bytes for each sample, and each edit may repeat them
  // all. A sample has a byte at least, so that more of them than bytes are a lie.
  const std::uint64_t most = bytes.size() + (1u << 16);
  const std::uint64_t edits = std::max<std::uint64_t>(promise.edits, 1);
  if (promise.samples > most || promise.samples * 8 > 64 * most / edits) {
    throw DecodeFailure("MP4: it promises " + std::to_string(promise.samples) + " samples in " +
                        std::to_string(bytes.size()) + " bytes");
  }
}

// ---------------------------------------------------------------------------------------- Matroska

/// Reads an EBML number of 1 to 8 bytes, whose length the first byte's leading zeros tell. With
/// `keep_marker` its leading one stays, as in identifiers; without, all ones stand for "unknown".
std::uint64_t ebml_number(std::string_view bytes, std::size_t& at, bool keep_marker) {
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

/// What a segment may hold: SeekHead, Info, Tracks, Cluster, Cues, Attachments, Chapters, Tags,
/// Void and CRC-32.
bool is_in_segment(std::uint64_t id) noexcept {
  constexpr std::array<std::uint64_t, 10> kAll = {0x114D9B74, 0x1549A966, 0x1654AE6B, kCluster,
                                                  0x1C53BB6B, 0x1941A469, 0x1043A770, 0x1254C367,
                                                  0xEC,       0xBF};
  return std::ranges::find(kAll, id) != kAll.end();
}

/// What a cluster may hold: numbers of 8 bytes at most (Timestamp, Position, PrevSize),
/// SimpleBlock, BlockGroup, SilentTracks, EncryptedBlock, Void and CRC-32.
bool is_in_cluster(std::uint64_t id, std::uint64_t size) noexcept {
  if (id == 0xE7 || id == 0xA7 || id == 0xAB) return size <= 8;
  return id == 0xA3 || id == 0xA0 || id == 0x5854 || id == 0xAF || id == 0xEC || id == 0xBF;
}

/// Where libav meets an element that it does not know, or that is larger than what holds it, it
/// looks for the next cluster: the frames in between are lost, and nobody hears of it.
void require_whole_segment(std::string_view segment, bool knows_size) {
  const auto size_within = [](std::uint64_t size, std::size_t left) {
    if (size > left) throw DecodeFailure(kEndsEarly);
    return static_cast<std::size_t>(size);
  };
  std::size_t cluster_end = 0;  // while `at` is before it, it is in a cluster
  bool knows_cluster_size = true;
  for (std::size_t at = 0; at < segment.size();) {
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
      return;  // what follows the first segment is not read
    } else {
      throw DecodeFailure("Matroska: an element is damaged");
    }
  }
}

void require_plausible_matroska(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::uint64_t id = ebml_number(bytes, at, true);
    const std::uint64_t size = ebml_number(bytes, at, false);
    const bool knows_size = size != UINT64_MAX;  // streams do not, and go on to the end
    if (knows_size && size > bytes.size() - at) throw DecodeFailure(kEndsEarly);
    if (id == kSegment || !knows_size) {
      // What follows the first one is not read.
      return require_whole_segment(bytes.substr(at, knows_size ? size : bytes.npos), knows_size);
    }
    at += size;
  }
  throw DecodeFailure("Matroska: it has no segment");
}

// --------------------------------------------------------------------------------------------- WAV

/// Where the chunk of the samples begins. Errors: DecodeFailure: there is none.
std::size_t data_chunk_of(std::string_view wav) {
  for (std::size_t at = 12; wav.size() - at >= 8;) {
    if (wav.substr(at, 4) == "data") return at;
    const std::uint32_t size = little_endian_32(wav, at + 4);
    const std::uint64_t whole = 8 + std::uint64_t{size} + size % 2;
    if (whole > wav.size() - at) break;
    at += whole;
  }
  throw DecodeFailure(kEndsEarly);
}

/// Whether `bytes` are chunks, one behind the other, to their end.
bool are_chunks(std::string_view bytes) noexcept {
  while (bytes.size() >= 8) {
    const bool has_name =
        std::ranges::all_of(bytes.substr(0, 4), [](char c) { return c >= ' ' && c <= '~'; });
    const std::uint64_t size = little_endian_32(bytes, 4);
    if (!has_name || size > bytes.size() - 8) return false;
    bytes.remove_prefix(std::min<std::uint64_t>(8 + size + size % 2, bytes.size()));
  }
  return bytes.empty();
}

/// Programs that write to a pipe cannot know the size, and leave all ones or a zero. A zero is
/// meant where the file's own size is right, or where the samples' place is taken by other chunks.
bool knows_size(std::string_view wav, std::size_t data_chunk) noexcept {
  const std::uint32_t size = little_endian_32(wav, data_chunk + 4);
  if (size != 0) return size != 0xFFFFFFFF;
  return little_endian_32(wav, 4) == wav.size() - 8 || are_chunks(wav.substr(data_chunk + 8));
}

void require_plausible_wav(std::string_view bytes) {
  const std::size_t at = data_chunk_of(bytes);
  if (!knows_size(bytes, at)) return;
  const std::uint32_t size = little_endian_32(bytes, at + 4);
  if (size == 0) throw DecodeFailure("it has no samples");
  if (size > bytes.size() - at - 8) throw DecodeFailure(kEndsEarly);
}

// ------------------------------------------------------------------------------------------- FLAC

/// `bytes` without the ID3v2 tags that they begin with.
std::string_view behind_id3v2(std::string_view bytes) noexcept {
  constexpr std::size_t kHeader = 10;
  while (bytes.size() >= kHeader && bytes.substr(0, 3) == "ID3") {
    std::size_t size = kHeader;  // 7 bits a byte; a flag says that the header comes again
    for (std::size_t i = 6, shift = 21; i < 10; ++i, shift -= 7) {
      size += std::size_t{static_cast<unsigned char>(bytes[i]) & 0x7Fu} << shift;
    }
    if ((static_cast<unsigned char>(bytes[5]) & 0x10u) != 0) size += kHeader;
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  return bytes;
}

/// `bytes` without the ID3v1 tag that they end with.
std::string_view before_id3v1(std::string_view bytes) noexcept {
  constexpr std::size_t kTag = 128;
  if (bytes.size() < kTag || bytes.substr(bytes.size() - kTag, 3) != "TAG") return bytes;
  return bytes.substr(0, bytes.size() - kTag);
}

// --------------------------------------------------------------------------------------------- Ogg

constexpr std::size_t kOggHeader = 27;  // and then the sizes of its segments

/// Of the CRC-32 with the polynomial 04C11DB7, the highest bit first.
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

std::size_t end_of_ogg_page(std::string_view ogg, std::size_t at) {
  constexpr std::string_view kBegin = "OggS";
  const std::string_view page = ogg.substr(at);
  const bool begins = kBegin.starts_with(page.substr(0, kBegin.size()));
  if (!begins && page.find(kBegin) == page.npos) return ogg.size();  // tags, zeros
  if (!begins) throw DecodeFailure("Ogg: it is damaged between two pages");
  if (page.size() < kOggHeader) throw DecodeFailure(kEndsEarly);
  std::size_t size = kOggHeader + static_cast<unsigned char>(page[26]);
  if (page.size() < size) throw DecodeFailure(kEndsEarly);
  for (const char segment : page.substr(kOggHeader, size - kOggHeader)) {
    size += static_cast<unsigned char>(segment);
  }
  if (page.size() < size) throw DecodeFailure(kEndsEarly);
  // The checksum is of the page with zeros in its own place.
  std::uint32_t crc = crc_of(page.substr(0, 22), 0);
  crc = crc_of(std::string_view("\0\0\0\0", 4), crc);
  crc = crc_of(page.substr(26, size - 26), crc);
  if (crc != little_endian_32(page, 22)) throw DecodeFailure("Ogg: a page is damaged");
  return at + size;
}

Container container_of(std::string_view bytes) {
  const auto has = [&](std::size_t at, std::string_view magic) {
    return bytes.size() >= at + magic.size() && bytes.substr(at, magic.size()) == magic;
  };
  if (bytes.empty()) throw DecodeFailure("it is empty");
  for (const char* type : {"ftyp", "moov", "mdat", "free", "skip", "wide", "styp"}) {
    if (has(4, type)) return Container::kMp4;
  }
  if (has(0, "\x1A\x45\xDF\xA3")) return Container::kMatroska;
  if (has(0, "RIFF") && has(8, "WAVE")) return Container::kWav;
  if (has(0, "fLaC")) return Container::kFlac;
  if (has(0, "OggS")) return Container::kOgg;
  // The frame header's sync word, and a layer that is not reserved.
  const bool is_frame = bytes.size() >= 2 && bytes[0] == '\xFF' &&
                        (static_cast<unsigned char>(bytes[1]) & 0xE0) == 0xE0 &&
                        (static_cast<unsigned char>(bytes[1]) & 0x06) != 0;
  if (has(0, "ID3") || is_frame) return Container::kMp3;
  throw DecodeFailure(
      "neither MP4 nor Matroska nor WAV nor FLAC nor MP3 nor Ogg by its first bytes");
}

void require_plausible(Container container, std::string_view bytes) {
  if (container == Container::kMp4) require_plausible_mp4(bytes);
  if (container == Container::kMatroska) require_plausible_matroska(bytes);
  if (container == Container::kWav) require_plausible_wav(bytes);
}

std::string_view without_tags(std::string_view bytes) noexcept {
  const std::string_view media = behind_id3v2(bytes);
  return media.substr(0, 4) == "fLaC" ? before_id3v1(media) : bytes;
}

bool knows_size_of_wav(std::string_view bytes) { return knows_size(bytes, data_chunk_of(bytes)); }

}  // namespace shardwise::detail
