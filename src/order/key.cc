#include "order/key.h"

#include <array>
#include <string_view>

#include "base/bytes.h"
#include "base/hasher.h"
#include "shardwise/order/sample_key.h"

namespace shardwise::detail {

Hash128 derive_key(std::uint64_t seed, std::uint64_t epoch, KeyPurpose purpose,
                   std::uint64_t index) noexcept {
  std::array<char, 32> bytes{};
  store_le64(bytes.data(), seed);
  store_le64(bytes.data() + 8, epoch);
  store_le64(bytes.data() + 16, static_cast<std::uint64_t>(purpose));
  store_le64(bytes.data() + 24, index);
  return hash128(std::string_view(bytes.data(), bytes.size()));
}

}  // namespace shardwise::detail

namespace shardwise {

Hash128 sample_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) noexcept {
  return derive_key(seed, epoch, KeyPurpose::kSample, sample);
}

Hash128 sample_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                   std::uint64_t position) noexcept {
  const Hash128 key = sample_key(seed, epoch, sample);
  return derive_key(key.low, key.high, KeyPurpose::kSample, position);
}

}  // namespace shardwise
