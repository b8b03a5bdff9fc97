#pragma once

#include <cstdint>
#include <span>

#include "order/arithmetic.h"

namespace shardwise::detail {

struct Cell {
  std::uint64_t row;
  std::uint64_t column;
};

inline constexpr std::uint64_t kGridMultiplier1 = 0x9e3779b1U;
inline constexpr std::uint64_t kGridMultiplier2 = 0x85ebca77U;
inline constexpr std::uint64_t kLow32 = 0xffffffffU;

/// The parameters of the permutation of more than 64 numbers, which docs/formats/order.md
/// specifies: a grid and the two words of a key. They fit in registers.
///
/// rows and columns are at most 2^31, and rows * columns is below size + rows < 2^63.
struct Grid {
  std::uint64_t size;
  std::uint64_t rows;
  std::uint64_t columns;
  std::uint64_t columns_reciprocal;
  std::uint64_t k0;
  std::uint64_t k1;

  Cell cell(std::uint64_t i) const noexcept {
    const auto [row, column] = divide(i, columns, columns_reciprocal);
    return {row, column};
  }
  std::uint64_t number(Cell x) const noexcept { return x.row * columns + x.column; }

  [[nodiscard]] static std::uint64_t round_function(std::uint64_t x, std::uint64_t round_key,
                                                    std::uint64_t range) noexcept {
    std::uint64_t y = ((x ^ round_key) & kLow32) * kGridMultiplier1 + round_key;
    y = ((y ^ (y >> 32)) & kLow32) * kGridMultiplier2;
    return ((y & kLow32) * range) >> 32;
  }

  [[nodiscard]] static std::uint64_t add_mod(std::uint64_t x, std::uint64_t y,
                                             std::uint64_t m) noexcept {
    const std::uint64_t sum = x + y;
    const std::uint64_t wrapped = sum - m;
    return sum >= m ? wrapped : sum;
  }

  [[nodiscard]] static std::uint64_t subtract_mod(std::uint64_t x, std::uint64_t y,
                                                  std::uint64_t m) noexcept {
    return x >= y ? x - y : x + m - y;
  }

  template <unsigned kRounds>
  void forward(Cell& x) const noexcept {
    std::uint64_t round_key = k0;
    for (unsigned t = 0; t < kRounds; t += 2) {
      x.row = add_mod(x.row, round_function(x.column, round_key, rows), rows);
      x.column = add_mod(x.column, round_function(x.row, round_key + k1, columns), columns);
      round_key += 2 * k1;
    }
  }

  template <unsigned kRounds>
  void backward(Cell& x) const noexcept {
    std::uint64_t round_key = k0 + (kRounds - 1) * k1;
    for (unsigned t = 0; t < kRounds; t += 2) {
      x.column = subtract_mod(x.column, round_function(x.row, round_key, columns), columns);
      round_key -= k1;
      x.row = subtract_mod(x.row, round_function(x.column, round_key, rows), rows);
      round_key -= k1;
    }
  }

  template <unsigned kRounds>
  std::uint64_t image(std::uint64_t i) const noexcept {
    Cell x = cell(i);
    do {
      forward<kRounds>(x);
    } while (number(x) >= size);
    return number(x);
  }

  template <unsigned kRounds>
  std::uint64_t preimage(std::uint64_t v) const noexcept {
    Cell x = cell(v);
    do {
      backward<kRounds>(x);
    } while (number(x) >= size);
    return number(x);
  }
};

/// The implementations that evaluate many values at once, slowest first. All give the same images.
enum class BulkPath : std::uint8_t {
  kPortable,  ///< one value after another
  kSse2,      ///< x86-64
  kAvx2,      ///< x86-64, if the processor supports it
};

/// True if this build and this processor support `path`.
bool is_supported(BulkPath path) noexcept;
/// Returns the fastest supported path. Cost: one load, because the path is determined only once.
BulkPath fastest_bulk_path() noexcept;

/// Replaces each value by its image after `rounds` (8 or 12) rounds.
/// REQUIRES: every value < grid.size; is_supported(path).
void apply_grid(BulkPath path, const Grid& grid, unsigned rounds,
                std::span<std::uint64_t> values) noexcept;

}  // namespace shardwise::detail
