#include "decode/npy.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

#include "base/counted.h"
#include "base/text.h"
#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

constexpr std::size_t kMaxHeaderBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDimensions = 64;  // NumPy has the same limit

/// Parses the header's text, a Python dict with three known keys. Rejects all other Python syntax.
class HeaderText {
 public:
  explicit HeaderText(std::string_view text) : rest_(text) {}

  void parse(NpyHeader& header) {
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted_text();
      expect(':');
      if (key == "descr" && !has_descr) {
        has_descr = true;
        parse_type(header);
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.fortran_order = parse_bool();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        parse_shape(header);
      } else {
        throw DecodeFailure("npy: the header has an unexpected or repeated key " + in_quotes(key));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape) {
      throw DecodeFailure("npy: the header lacks descr, fortran_order or shape");
    }
    skip_blanks();
    if (!rest_.empty()) throw DecodeFailure("npy: data follows the header's dict");
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0) {
      rest_.remove_prefix(1);
    }
  }

  bool take(char c) {
    skip_blanks();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!take(c)) throw DecodeFailure(std::string("npy: the header lacks a '") + c + "'");
  }

  std::string_view quoted_text() {
    skip_blanks();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) {
      throw DecodeFailure("npy: the header lacks a quoted name");
    }
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos)
      throw DecodeFailure("npy: a name in the header lacks its closing quote");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool parse_bool() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true},
                                      std::pair<std::string_view, bool>{"False", false}}) {
      if (rest_.substr(0, word.size()) == word) {
        rest_.remove_prefix(word.size());
        return value;
      }
    }
    throw DecodeFailure("npy: fortran_order is neither True nor False");
  }

  void parse_type(NpyHeader& header) {
    skip_blanks();
    if (!rest_.empty() && rest_[0] == '[') {
      throw DecodeFailure("npy: an array of records is not supported; store one array per field");
    }
    const std::string_view descr = quoted_text();
    const auto unknown = [&]() -> DecodeFailure {
      return DecodeFailure("npy: not an array of plain numbers, but of type " + in_quotes(descr));
    };
    if (descr.find('O') != std::string_view::npos) {
      throw DecodeFailure("npy: an array of Python objects is a pickle, which is never read");
    }
    if (descr.size() < 3) throw unknown();
    switch (descr[0]) {
      case '<':
      case '|':
      case '=':
        break;
      case '>':
        header.big_endian = true;
        break;
      default:
        throw unknown();
    }
    header.kind = descr[1];
    const auto digits = descr.substr(2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), header.item_bytes);
    if (error != std::errc() || end != digits.data() + digits.size()) throw unknown();
    static constexpr std::string_view kPlain[] = {"b1", "i1", "i2", "i4", "i8", "u1", "u2",
                                                  "u4", "u8", "f2", "f4", "f8", "c8", "c16"};
    for (const auto plain : kPlain) {
      if (descr.substr(1) == plain) return;
    }
    throw unknown();
  }

  void parse_shape(NpyHeader& header) {
    expect('(');
    while (!take(')')) {
      skip_blanks();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0) {
        throw DecodeFailure("npy: a size in the shape is malformed");
      }
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      take('L');  // Python 2 writes this suffix
      header.shape.push_back(size);
      if (header.shape.size() > kMaxDimensions)
        throw DecodeFailure("npy: the shape has too many dimensions");
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view rest_;
};

/// Returns the number of items. The overflow check skips dimensions of size 0, because the strides
/// of an empty array must not overflow either.
std::uint64_t checked_items(const NpyHeader& header) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t product = header.item_bytes;
  bool is_empty = false;
  for (const std::int64_t size : header.shape) {
    if (size == 0) {
      is_empty = true;
    } else if (static_cast<std::uint64_t>(size) > kMax / product) {
      throw DecodeFailure("npy: the shape has too many elements");
    } else {
      product *= static_cast<std::uint64_t>(size);
    }
  }
  return is_empty ? 0 : product / header.item_bytes;
}

/// Copies numbers and reverses the bytes of each.
void copy_swapped(const char* from, std::size_t num_bytes, std::size_t number_bytes, char* to) {
  for (std::size_t at = 0; at < num_bytes; at += number_bytes) {
    std::reverse_copy(from + at, from + at + number_bytes, to + at);
  }
}

/// Copies the items of an array in Fortran order to C order.
void copy_transposed(const NpyHeader& header, const char* from, char* to) {
  const std::size_t rank = header.shape.size();
  std::vector<std::size_t> index(rank, 0);
  std::vector<std::size_t> strides(rank, 1);
  for (std::size_t d = 1; d < rank; ++d) {
    strides[d] = strides[d - 1] * static_cast<std::size_t>(header.shape[d - 1]);
  }
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < header.num_items; ++i) {
    std::memcpy(to + i * header.item_bytes, from + at * header.item_bytes, header.item_bytes);
    for (std::size_t d = rank; d-- > 0;) {
      at += strides[d];
      if (++index[d] < static_cast<std::size_t>(header.shape[d])) break;
      at -= strides[d] * index[d];
      index[d] = 0;
    }
  }
}

}  // namespace

NpyHeader parse_npy_header(std::string_view bytes) {
  if (bytes.substr(0, 6) != "\x93NUMPY") throw DecodeFailure("npy: not a NumPy array");
  const auto byte = [&](std::size_t i) -> std::size_t {
    return static_cast<unsigned char>(bytes[i]);
  };
  if (bytes.size() < 10) throw DecodeFailure("npy: the data ends early");
  const std::size_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0) {
    throw DecodeFailure("npy: version " + std::to_string(version) + "." + std::to_string(byte(7)) +
                        " is not 1.0, 2.0 or 3.0");
  }
  std::size_t text_offset = 10;
  std::size_t text_size = byte(8) | byte(9) << 8;
  if (version > 1) {
    if (bytes.size() < 12) throw DecodeFailure("npy: the data ends early");
    text_offset = 12;
    text_size |= byte(10) << 16 | byte(11) << 24;
  }
  if (text_size > kMaxHeaderBytes) throw DecodeFailure("npy: the header exceeds 1 MiB");
  if (text_size > bytes.size() - text_offset) throw DecodeFailure("npy: the data ends early");

  NpyHeader header;
  HeaderText(bytes.substr(text_offset, text_size)).parse(header);
  header.data_offset = text_offset + text_size;
  header.num_items = checked_items(header);
  const std::uint64_t there = bytes.size() - header.data_offset;
  const std::uint64_t needed = header.num_items * header.item_bytes;
  if (there != needed) {
    throw DecodeFailure("npy: the data " +
                        std::string(there < needed ? "ends early" : "is too long") + ", " +
                        counted(there, "byte") + " where the shape needs " + human_count(needed));
  }
  return header;
}

void write_npy(const NpyHeader& header, std::string_view bytes, std::byte* out) {
  const std::size_t num_bytes = header.num_items * header.item_bytes;
  if (num_bytes == 0) return;
  const char* from = bytes.data() + header.data_offset;
  auto* const to = reinterpret_cast<char*>(out);
  if (header.fortran_order && header.shape.size() > 1) {
    copy_transposed(header, from, to);
    from = to;
  }
  const std::size_t number_bytes = header.kind == 'c' ? header.item_bytes / 2 : header.item_bytes;
  if (header.big_endian && number_bytes > 1) {
    if (from != to) {
      copy_swapped(from, num_bytes, number_bytes, to);
    } else {
      for (char* at = to; at != to + num_bytes; at += number_bytes) {
        std::reverse(at, at + number_bytes);
      }
    }
  } else if (header.kind == 'b') {
    // Convert every nonzero byte to 1, because a bool that is neither 0 nor 1 would be undefined
    // behaviour.
    std::transform(from, from + num_bytes, to, [](char c) { return static_cast<char>(c != 0); });
  } else if (from != to) {
    std::memcpy(to, from, num_bytes);
  }
}

}  // namespace shardwise::detail
