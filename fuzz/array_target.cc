#include <cstring>
#include <memory>

#include "decode/decode_failure.h"
#include "decode/npy.h"
#include "decode/npz.h"
#include "targets.h"
#include "zip_bytes.h"

namespace shardwise::fuzz {
namespace {

constexpr std::uint64_t kMaxArrayBytes = 1 << 20;

void read_npy(std::string_view bytes) {
  const detail::NpyHeader header = detail::parse_npy_header(bytes);
  SHARDWISE_FUZZ_REQUIRE(header.data_offset <= bytes.size());
  std::uint64_t count = 1;
  for (const std::int64_t n : header.shape) {
    SHARDWISE_FUZZ_REQUIRE(n >= 0);
    count *= static_cast<std::uint64_t>(n);
  }
  SHARDWISE_FUZZ_REQUIRE(count == header.num_items);
  SHARDWISE_FUZZ_REQUIRE(header.num_items * header.item_bytes == bytes.size() - header.data_offset);
  // The buffer has exactly the announced size, so that AddressSanitizer detects writes beyond it.
  const std::size_t size = header.num_items * header.item_bytes;
  const std::unique_ptr<std::byte[]> items(new std::byte[size]);
  detail::write_npy(header, bytes, items.get());
}

}  // namespace

void array_target(std::string_view input) {
  if (input.empty()) return;
  const std::unique_ptr<char[]> copy(new char[input.size() - 1]);
  std::memcpy(copy.get(), input.data() + 1, input.size() - 1);
  const std::string_view bytes(copy.get(), input.size() - 1);
  try {
    if ((input[0] & 1) == 0) return read_npy(bytes);
    const std::string array = detail::read_npz(bytes, "a", kMaxArrayBytes);
    SHARDWISE_FUZZ_REQUIRE(array.size() <= kMaxArrayBytes);
    read_npy(array);
  } catch (const detail::DecodeFailure&) {
    return;
  }
}

std::vector<std::string> array_seeds() {
  const auto npy = [](char version, const std::string& text, const std::string& data) {
    std::string bytes = std::string("\x93NUMPY") + version + '\0';
    bytes += static_cast<char>(text.size());
    bytes.append(version == 1 ? 1 : 3, '\0');
    return bytes + text + data;
  };
  const std::vector<std::string> arrays = {
      npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
          std::string(24, '\1')),
      npy(2, "{'descr': '>i2', 'fortran_order': True, 'shape': (3, 2), }\n", std::string(12, '\2')),
      npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }\n", std::string(1, '\1')),
      npy(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (0, 5), }\n", ""),
  };
  std::vector<std::string> seeds;
  for (const std::string& array : arrays) {
    seeds.push_back('\0' + array);
    for (const bool deflated : {false, true}) {
      seeds.push_back('\1' + zip({{"a.npy", array}, {"b.npy", "other"}}, deflated));
    }
  }
  seeds.push_back('\1' + zip({{"a.npy", std::string(2 * kMaxArrayBytes, '\0')}}, true));
  return seeds;
}

}  // namespace shardwise::fuzz
