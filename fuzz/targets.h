#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shardwise::fuzz {

/// A target throws this if the library gives neither a correct result nor a typed error. Any other
/// exception that a target throws is also a bug.
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

/// A fuzz target. The first byte of the input selects how the rest is used. The rest may be any
/// bytes.
using Target = void (*)(std::string_view input);

/// Reads an archive by strict and lenient scans, each directly and through libarchive. If bit 0 of
/// byte 0 is set, the headers' checksums are corrected first.
void scan_tar_target(std::string_view input);
/// Scans an archive and its SparseTarImage, which is used for compressed archives. The bits of byte
/// 0 are options:
/// - Bit 0 corrects the headers' checksums first.
/// - Bit 1 skips members' data, and bit 2 keeps some of it.
/// - Bits 3 to 5 set the size of the pieces in which the bytes are passed.
void sparse_tar_image_target(std::string_view input);
/// Reads an offset table or a segment. Byte 0 modulo 4 selects the input:
/// - 0 is a segment.
/// - 1 is a segment with a corrected checksum.
/// - 2 is an offset table in an index, with corrected checksums.
/// - 3 is an index around a segment with a corrected checksum.
void offset_table_target(std::string_view input);
/// Reads a catalogue. If bit 0 of byte 0 is clear, the rest of the input is the file. If it is set,
/// the rest edits the values in a catalogue's rows, which are then written with correct checksums.
void catalogue_target(std::string_view input);
/// Reads a file of side tables. If bit 0 of byte 0 is set, the checksums of its header and of its
/// list are corrected first.
void side_tables_target(std::string_view input);
/// Attaches a CSV file whose column of keys is "key". If bit 0 of byte 0 is set, it is a TSV file.
void csv_target(std::string_view input);
/// Parses the text of a wids descriptor. The input has no control byte.
void descriptor_target(std::string_view input);
/// Finds a value in a JSON document. Byte 0 is the length of the path, which precedes the document.
void json_path_target(std::string_view input);

/// Expands a compressed file. If bit 0 of byte 0 is clear, every codec expands the rest of the
/// input. If it is set, the rest selects a change to an intact file, and the result must be correct
/// or an error.
void expand_target(std::string_view input);
/// Reads a checkpoint. If bit 0 of byte 0 is set, a line "#" is replaced by the hash of the bytes
/// before it.
void checkpoint_target(std::string_view input);
/// Reads the bytes of a connection between ranks at the start of a run. If bit 0 of byte 0 is set,
/// a rank has sent them, otherwise the hub. The other bits set the size of the pieces in which they
/// arrive.
void rendezvous_target(std::string_view input);
/// Decodes an array: a .npy file if bit 0 of byte 0 is clear, otherwise array "a" of a .npz file.
void array_target(std::string_view input);
/// Decodes an image as a whole, decodes a part of it, and decodes it at another scale. The bits of
/// byte 0 are options:
/// - Bit 0 selects strict decoding.
/// - Bit 1 applies the Exif orientation.
/// - Bits 2 to 4 set the scale.
/// Byte 1 sets the corner of the part.
void image_target(std::string_view input);

/// Decodes and resizes an image, and counts the memory for it. The control bits are those of
/// image_target() without the scale. Bit 2 of byte 0 selects the bicubic filter.
void image_memory_target(std::string_view input);

/// Reads a video or a sound. This target exists only in builds with shardwise::video. Byte 0 modulo
/// 4 selects what is read: 0 means a video, 1 video and sound, 2 a sound, and 3 a sound that is
/// mixed and resampled.
void media_target(std::string_view input);

struct NamedTarget {
  const char* name;
  Target run;
  std::vector<std::string> (*seeds)();
};
const std::vector<NamedTarget>& all_targets();
const NamedTarget& target_named(std::string_view name);

// Small valid inputs, from which mutations reach much of the code. The library itself makes them,
// so they follow changes of its formats.
std::vector<std::string> scan_tar_seeds();
std::vector<std::string> sparse_tar_image_seeds();
std::vector<std::string> offset_table_seeds();
std::vector<std::string> catalogue_seeds();
std::vector<std::string> side_tables_seeds();
std::vector<std::string> csv_seeds();
std::vector<std::string> descriptor_seeds();
std::vector<std::string> json_path_seeds();
std::vector<std::string> expand_seeds();
std::vector<std::string> checkpoint_seeds();
std::vector<std::string> rendezvous_seeds();
std::vector<std::string> array_seeds();
std::vector<std::string> image_seeds();
std::vector<std::string> image_memory_seeds();
std::vector<std::string> media_seeds();

}  // namespace shardwise::fuzz
