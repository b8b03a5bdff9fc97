#include <algorithm>
#include <charconv>
#include <cstring>

#include "decode/decode_failure.h"
#include "decode/image_formats.h"

namespace shardwise::detail {
namespace {

struct PnmHeader {
  std::size_t channels = 0;
  std::uint64_t height = 0;
  std::uint64_t width = 0;
  unsigned most = 0;      ///< maximum value
  std::string_view data;  ///< stored values
};

/// Skips blanks and comments, and reads the next number of a PNM header.
std::uint64_t pnm_number(std::string_view& rest) {
  for (;;) {
    const auto start = rest.find_first_not_of(" \t\r\n\v\f");
    rest.remove_prefix(std::min(start, rest.size()));
    if (rest.empty() || rest[0] != '#') break;
    rest.remove_prefix(std::min(rest.find('\n'), rest.size()));
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) throw DecodeFailure("PNM: the header holds no size");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

PnmHeader parse_pnm(std::string_view bytes) {
  PnmHeader header;
  header.channels = bytes[1] == '6' ? 3 : 1;
  std::string_view rest = bytes.substr(2);
  header.width = pnm_number(rest);
  header.height = pnm_number(rest);
  const std::uint64_t most = pnm_number(rest);
  if (most == 0 || most > 65535) throw DecodeFailure("PNM: the maximum value is out of range");
  header.most = static_cast<unsigned>(most);
  if (rest.empty()) throw DecodeFailure("PNM: the data ends early");
  header.data = rest.substr(1);  // skip the single blank that ends the header
  return header;
}

}  // namespace

ImageHeader read_pnm_header(std::string_view bytes) {
  const PnmHeader header = parse_pnm(bytes);
  return {header.height, header.width, 1};
}

RealBox decode_pnm(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                   DecodeWarnings& warnings) {
  const PnmHeader header = parse_pnm(bytes);
  require_pixels(header.height, header.width, request.max_pixels);
  const std::size_t depth = header.most > 255 ? 2 : 1;
  if (request.keep_16_bits) require_16_bits("PNM", depth * 8);
  const std::uint64_t num_values = header.width * header.height * header.channels;
  if (header.data.size() / depth < num_values) throw DecodeFailure("PNM: the data ends early");
  const Box box = wanted_box(request, header.height, header.width);
  image.reshape(box.height, box.width, request.keep_16_bits ? 6 : 3);
  const unsigned half = header.most / 2;
  bool is_above = false;
  const auto read_value = [&](const std::uint8_t* from) {
    const unsigned value = depth == 1 ? from[0] : from[0] * 256u + from[1];
    is_above |= value > header.most;
    return std::min(value, header.most);
  };
  const auto put_value = [&](const std::uint8_t* from, std::uint8_t* to, std::size_t channel) {
    const unsigned value = read_value(from);
    if (request.keep_16_bits) {
      const auto kept = static_cast<std::uint16_t>(value);
      std::memcpy(to + channel * 2, &kept, 2);
    } else {
      to[channel] = static_cast<std::uint8_t>((value * 255 + half) / header.most);
    }
  };
  const std::size_t pixel_bytes = header.channels * depth;
  const bool is_as_ours = header.most == 255 && header.channels == 3;
  for (std::size_t y = 0; y < box.height; ++y) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(header.data.data()) +
                       ((box.top + y) * header.width + box.left) * pixel_bytes;
    std::uint8_t* to = image.row(y);
    if (is_as_ours) {
      std::memcpy(to, from, box.width * 3);
      continue;
    }
    for (std::size_t x = 0; x < box.width; ++x, from += pixel_bytes, to += image.pixel_bytes()) {
      for (std::size_t c = 0; c < 3; ++c) {
        put_value(header.channels == 1 ? from : from + c * depth, to, c);
      }
    }
  }
  if (is_above) {
    if (request.strict) throw DecodeFailure("PNM: a value exceeds the maximum");
    warnings.add("PNM: a value exceeds the maximum");
  }
  return whole_of(box);
}

}  // namespace shardwise::detail
