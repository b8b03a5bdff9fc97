#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {

/// Returns XXH3, 64 bits. The value is the same on every platform and in every library version.
SHARDWISE_EXPORT std::uint64_t hash64(std::string_view bytes, std::uint64_t seed = 0) noexcept;

/// Returns XXH3, 128 bits.
SHARDWISE_EXPORT Hash128 hash128(std::string_view bytes) noexcept;

/// Computes XXH3-128 of bytes that arrive in pieces: hash128() of the joined pieces. digest() may
/// be called at any time, and more pieces may follow.
/// Threads: one.
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

}  // namespace shardwise::detail

namespace shardwise {
using detail::hash128;
using detail::hash64;
using detail::Hasher128;
}  // namespace shardwise
