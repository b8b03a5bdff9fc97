#include "order/permutation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "order/arithmetic.h"
#include "order/permutation_grid.h"

namespace shardwise::detail {

// There are two algorithms. The size n alone determines which is used (docs/formats/order.md
// specifies both):
//
//   up to 64    table_: the numbers 0 to n - 1, shuffled by Fisher-Yates; fill_table()
//   above       a grid of rows * columns >= n cells, in which number i is the cell in row
//               i / columns and column i % columns; Grid in permutation_grid.h
//
// A round adds a function of the column to the row, or a function of the row to the column.
// Subtraction reverses a round, so the rounds permute the cells of the grid. The grid has up to
// rows - 1 more cells than there are numbers. If a number reaches a surplus cell, the rounds are
// applied again until it is below n. This permutes the n numbers: the cells form cycles, and a
// cycle without its surplus cells is still a cycle. inverse() follows the cycles backwards.
//
// domain_.rounds == 0 selects the table. A small grid needs more rounds to mix equally well: 12
// rounds if n is below 512, otherwise 8.

namespace {

std::uint64_t ceil_sqrt(std::uint64_t n) noexcept {
  // n <= 2^62, so the floating-point root is off by at most one and its square does not wrap.
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

Grid grid_of(const PermutationDomain& domain, std::uint64_t k0, std::uint64_t k1) noexcept {
  return {domain.size, domain.rows, domain.columns, domain.columns_reciprocal, k0, k1};
}

}  // namespace

PermutationDomain::PermutationDomain(std::uint64_t n) : size(n) {
  if (n > kMaxSamples) {
    throw InvalidArgument("cannot permute " + counted(n, "number"), {},
                          "choose at most 2^62 numbers");
  }
  if (n <= 64) return;
  rows = ceil_sqrt(n);
  columns = ceil_div(n, rows);
  columns_reciprocal = reciprocal_of(columns);
  rounds = n < 512 ? 12 : 8;
}

Permutation::Permutation(const PermutationDomain& domain, Hash128 key) noexcept
    : domain_(domain), k0_(key.low), k1_(key.high | 1) {
  if (domain_.rounds == 0) fill_table();
}

void Permutation::fill_table() noexcept {
  const auto n = static_cast<unsigned>(domain_.size);
  for (unsigned i = 0; i < n; ++i) table_[i] = static_cast<std::uint8_t>(i);
  std::uint64_t word = 0;
  std::uint64_t word_key = k0_;
  for (unsigned i = n; i-- > 1;) {
    const unsigned count = n - 1 - i;
    if (count % 2 == 0) {
      word = mix64(word_key);
      word_key += k1_;
    } else {
      word >>= 32;
    }
    const std::uint64_t j = ((word & 0xffffffffU) * (i + 1)) >> 32;
    std::swap(table_[i], table_[j]);
  }
}

std::uint64_t Permutation::operator()(std::uint64_t i) const noexcept {
  SHARDWISE_ASSERT_HOT(i < size());
  if (domain_.rounds == 0) return table_[i];
  const Grid grid = grid_of(domain_, k0_, k1_);
  return domain_.rounds == 8 ? grid.image<8>(i) : grid.image<12>(i);
}

std::uint64_t Permutation::inverse(std::uint64_t v) const {
  if (v >= size()) {
    throw OutOfRange("the permutation has no number " + std::to_string(v), {},
                     "choose a number in [0, " + std::to_string(size()) + ")");
  }
  if (domain_.rounds == 0) {
    std::uint64_t i = 0;
    while (table_[i] != v) ++i;
    return i;
  }
  const Grid grid = grid_of(domain_, k0_, k1_);
  return domain_.rounds == 8 ? grid.preimage<8>(v) : grid.preimage<12>(v);
}

void Permutation::apply(std::span<std::uint64_t> values) const noexcept {
  SHARDWISE_ASSERT_HOT(std::ranges::all_of(values, [this](auto v) { return v < size(); }));
  if (domain_.rounds == 0) {
    for (std::uint64_t& value : values) value = table_[value];
  } else {
    apply_grid(fastest_bulk_path(), grid_of(domain_, k0_, k1_), domain_.rounds, values);
  }
}

}  // namespace shardwise::detail
