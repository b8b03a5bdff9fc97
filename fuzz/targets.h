#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shardwise::fuzz {

/// Thrown by a target when the library gives anything but a typed error or a correct answer. Any
/// other exception that leaves a target is a finding, too.
class BrokenPromise : public std::logic_error {
  using logic_error::logic_error;
};

#define SHARDWISE_FUZZ_REQUIRE(condition)                                                 \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      throw ::shardwise::fuzz::BrokenPromise(std::string(__FILE__) + ":" +                \
                                             std::to_string(__LINE__) + ": " #condition); \
    }                                                                                     \
  } while (false)

/// A target's first input byte selects how the rest is used; the rest may be any bytes.
using Target = void (*)(std::string_view input);

/// An archive: strict and lenient scans, each directly and through libarchive.
/// Byte 0, bit 0: correct the headers' checksums first.
void scan_tar_target(std::string_view input);
/// An archive: scanned directly, and as the image of its headers that stands for a compressed one.
/// Byte 0, bit 0: correct the headers' checksums first. Bit 1: skip members' data. Bit 2: keep some
/// of it. Bits 3 to 5: the size of the pieces that the bytes arrive in.
void sparse_tar_image_target(std::string_view input);
/// An offset table or a segment, by byte 0 modulo 4:
/// - 0: a segment.
/// - 1: a segment with a corrected checksum.
/// - 2: an offset table in an index, with corrected checksums.
/// - 3: an index around a segment with a corrected checksum.
void offset_table_target(std::string_view input);
/// A catalogue. Byte 0, bit 0 clear: the bytes of the file. Set: edits of the values in a
/// catalogue's rows, which are then written with correct checksums.
void catalogue_target(std::string_view input);
/// A wids descriptor's text, without a control byte.
void descriptor_target(std::string_view input);

/// A compressed file. Byte 0, bit 0 clear: any bytes, through every codec. Set: the kind and the
/// place of a change to an intact file. The result must be correct, or the file refused.
void expand_target(std::string_view input);
/// A checkpoint. Byte 0, bit 0: replace a line "#" by the hash of the bytes before it.
void checkpoint_target(std::string_view input);
/// The bytes of a connection while ranks meet. Byte 0, bit 0: they come from a rank, otherwise from
/// the hub. The other bits: the size of the pieces that they arrive in.
void rendezvous_target(std::string_view input);
/// An array. Byte 0, bit 0 clear: a .npy file. Set: array "a" of a .npz file.
void array_target(std::string_view input);
/// An image, whole, in part and scaled. Byte 0, bit 0: strict. Bit 1: apply the Exif orientation.
/// Bits 2 to 4: the scale. Byte 1: the part's corner.
void image_target(std::string_view input);

/// An image, decoded and resized, with the control bits of image_target(), except for the scale.
/// Its memory is counted. Byte 0, bit 2: bicubic filter.
void image_memory_target(std::string_view input);

/// A video or a sound; only in builds with shardwise::video. Byte 0 modulo 4: 0 reads a video, 1
/// both, 2 a sound, 3 a sound that is mixed and resampled.
void media_target(std::string_view input);

struct NamedTarget {
  const char* name;
  Target run;
  std::vector<std::string> (*seeds)();
};
const std::vector<NamedTarget>& all_targets();
const NamedTarget& target_named(std::string_view name);

// Small inputs from which mutation reaches deep. The library itself makes them, so they follow its
// formats.
std::vector<std::string> scan_tar_seeds();
std::vector<std::string> sparse_tar_image_seeds();
std::vector<std::string> offset_table_seeds();
std::vector<std::string> catalogue_seeds();
std::vector<std::string> descriptor_seeds();
std::vector<std::string> expand_seeds();
std::vector<std::string> checkpoint_seeds();
std::vector<std::string> rendezvous_seeds();
std::vector<std::string> array_seeds();
std::vector<std::string> image_seeds();
std::vector<std::string> image_memory_seeds();
std::vector<std::string> media_seeds();

}  // namespace shardwise::fuzz
