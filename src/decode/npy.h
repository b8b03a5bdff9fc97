#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The header of a NumPy .npy file, checked against the size of the data. Format:
///
///     "\x93NUMPY" | major, minor | length of the text, 2 bytes (version 1) or 4, little-endian
///     text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  blanks  \n
///     data
struct SHARDWISE_EXPORT NpyHeader {
  char kind = 0;  ///< NumPy's letter: b bool, i int, u uint, f float, c complex
  std::size_t item_bytes = 0;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;
  std::uint64_t num_items = 0;
};

/// Parses the header. Throws DecodeFailure if `bytes` is not an array of plain numbers, or is
/// longer or shorter than the header says.
SHARDWISE_EXPORT NpyHeader parse_npy_header(std::string_view bytes);

/// Writes the array's items to `to`, in C order and in the machine's byte order. Bools are written
/// as 0 or 1.
/// @param header  the result of parse_npy_header(bytes).
/// @param to      memory of header.num_items * header.item_bytes bytes.
SHARDWISE_EXPORT void write_npy(const NpyHeader& header, std::string_view bytes, std::byte* to);

}  // namespace shardwise::detail
