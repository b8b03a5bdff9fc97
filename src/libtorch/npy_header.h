#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardwise::libtorch::detail {

/// The head of a NumPy .npy file, checked against the bytes that follow it.
///
///     "\x93NUMPY" | major, minor | length of the text, 2 bytes (version 1) or 4, little-endian
///     text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  blanks  \n
///     data
struct NpyHeader {
  char kind = 0;  ///< NumPy's letter: b bool, i int, u uint, f float, c complex
  std::size_t item_bytes = 0;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;
  std::uint64_t num_items = 0;
};

/// Throws DecodeFailure unless `bytes` is an array of plain numbers and is exactly as long as its
/// header says.
NpyHeader parse_npy_header(std::string_view bytes);

}  // namespace shardwise::libtorch::detail
