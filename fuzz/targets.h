#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shardwise::fuzz {

/// What a target throws when the library broke a promise: anything but a typed error or a right
/// answer. Whatever else leaves a target is a finding too.
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

/// The first byte of an input says how the rest is taken; the rest may be anything.
using Target = void (*)(std::string_view input);

/// An archive: strict and lenient scans, each directly and through libarchive.
/// Byte 0, bit 0: the headers' checksums are made right first.
void scan_tar_target(std::string_view input);
/// An archive: scanned as it is, and as the image of its headers that stands for a compressed one.
/// Byte 0, bit 0: as above; bit 1: members' data is stepped over; bit 2: some of it is kept; bits 3
/// to 5: how large the pieces are in which the bytes come.
void sparse_tar_image_target(std::string_view input);
/// Byte 0 modulo 4: a segment; one whose checksum is made right; an offset table in an index, its
/// checksums made right; an index around a segment whose checksum is made right.
void offset_table_target(std::string_view input);
/// Byte 0, bit 0 clear: a catalogue's file. Set: edits of the values in a catalogue's rows, which
/// are then written with right checksums.
void catalogue_target(std::string_view input);
/// A wids descriptor's text; there is no control byte.
void descriptor_target(std::string_view input);

/// A compressed file. Byte 0, bit 0 clear: any bytes, through every codec. Set: which change is
/// made where in a file that is whole; what comes out is right, or it is refused.
void expand_target(std::string_view input);
/// A checkpoint. Byte 0, bit 0: a line "#" stands for the hash of what precedes it.
void checkpoint_target(std::string_view input);
/// What comes over a connection while ranks meet. Byte 0, bit 0: from a rank, otherwise from the
/// hub; the other bits: how large the pieces are in which it comes.
void rendezvous_target(std::string_view input);
/// An array. Byte 0, bit 0 clear: a .npy file. Set: array "a" of a .npz file.
void array_target(std::string_view input);
/// An image, whole, in part and scaled. Byte 0, bit 0: strict; bit 1: turned as its Exif block
/// says; bits 2 to 4: the scale. Byte 1: where the part begins.
void image_target(std::string_view input);

/// An image, decoded and resized, as image_target() takes it (but for the scale); the memory for it
/// is counted. Byte 0, bit 2: by cubics.
void image_memory_target(std::string_view input);

/// A video or a sound; only in builds with shardwise::video. Byte 0 modulo 4: read as a video, as
/// both, as a sound, as a sound that is mixed and resampled.
void media_target(std::string_view input);

struct NamedTarget {
  const char* name;
  Target run;
  std::vector<std::string> (*seeds)();
};
const std::vector<NamedTarget>& all_targets();
const NamedTarget& target_named(std::string_view name);

// Small inputs from which mutation reaches deep. Made by the library itself, so that they follow
// its formats.
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
