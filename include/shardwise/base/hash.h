#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// A 128-bit hash value. Integrity against accidents, not against an adversary.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

/// 32 lower-case hexadecimal digits, most significant first.
SHARDWISE_EXPORT std::string to_string(const Hash128& hash);

/// XXH3, 64 bits, of `bytes`. The same on every platform and in every version of the library.
SHARDWISE_EXPORT std::uint64_t hash64(std::string_view bytes, std::uint64_t seed = 0) noexcept;

/// XXH3, 128 bits, of `bytes`.
SHARDWISE_EXPORT Hash128 hash128(std::string_view bytes) noexcept;

/// XXH3-128 of bytes that come in pieces. One thread. `digest` may be asked for at any time and
/// does not end the stream. Equal to hash128 of the joined pieces.
class SHARDWISE_EXPORT Hasher128 {
 public:
  Hasher128();
  ~Hasher128();
  Hasher128(Hasher128&&) noexcept;
  Hasher128& operator=(Hasher128&&) noexcept;

  void update(std::string_view bytes) noexcept;
  /// Adds `value` as eight little-endian bytes.
  void update_u64(std::uint64_t value) noexcept;
  Hash128 digest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardwise
