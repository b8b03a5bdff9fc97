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

/// An archive: strict and lenient scans, each directly and through libarchive. Bit 0 of byte 0
/// corrects the headers' checksums first.
void scan_tar_target(std::string_view input);
/// An archive: scanned directly, and as the image of its headers that stands for a compressed one.
/// Bits of byte 0: bit 0 corrects the headers' checksums first, bit 1 skips members' data, and bit
/// 2 keeps some of it. Bits 3 to 5 set the size of the pieces that the bytes arrive in.
void sparse_tar_image_target(std::string_view input);
/// An offset table or a segment, by byte 0 modulo 4:
/// - 0 is a segment.
/// - 1 is a segment with a corrected checksum.
/// - 2 is an offset table in an index, with corrected checksums.
/// - 3 is an index around a segment with a corrected checksum.
void offset_table_target(std::string_view input);
/// A catalogue. If bit 0 of byte 0 is clear, the rest is the file. If it is set, the rest edits the
/// values in a catalogue's rows, which are then written with correct checksums.
void catalogue_target(std::string_view input);
/// A wids descriptor's text, without a control byte.
void descriptor_target(std::string_view input);

/// A compressed file. If bit 0 of byte 0 is clear, the rest goes through every codec. If it is set,
/// the rest selects a change to an intact file. The result must be correct, or the file refused.
void expand_target(std::string_view input);
/// A checkpoint. Bit 0 of byte 0 replaces a line "#" by the hash of the bytes before it.
void checkpoint_target(std::string_view input);
/// The bytes of a connection while ranks meet. Bit 0 of byte 0 is set if they come from a rank, and
/// clear if from the hub. The other bits set the size of the pieces that they arrive in.
void rendezvous_target(std::string_view input);
/// An array: a .npy file if bit 0 of byte 0 is clear, else array "a" of a .npz file.
void array_target(std::string_view input);
/// An image, whole, in part and scaled. Bits of byte 0: bit 0 is strict, bit 1 applies the Exif
/// orientation, and bits 2 to 4 set the scale. Byte 1 sets the part's corner.
void image_target(std::string_view input);

/// An image, decoded and resized, with the control bits of image_target(), except for the scale.
/// Its memory is counted. Bit 2 of byte 0 selects the bicubic filter.
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
