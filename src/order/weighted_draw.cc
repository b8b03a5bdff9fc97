#include "order/weighted_draw.h"

#include <string_view>
#include <vector>

#include "base/bytes.h"  // asserts a little-endian machine
#include "base/hasher.h"
#include "order/arithmetic.h"
#include "order/weight_shares.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {

namespace {

constexpr std::uint64_t kColumn = std::uint64_t{1} << 32;

}  // namespace

WeightedDraw::WeightedDraw(std::vector<double> weights) {
  const std::vector<std::uint64_t> shares =
      weight_shares(weights, weights.size() * kColumn, "sample");
  std::vector<double>().swap(weights);
  const std::size_t n = shares.size();
  columns_.resize(n);
  // light_from() and heavy_from() each go through the shares once, so that memory is accessed in
  // order.
  const auto light_from = [&](std::size_t i) {
    while (i < n && shares[i] >= kColumn) ++i;
    return i;
  };
  const auto heavy_from = [&](std::size_t i) {
    while (i < n && shares[i] < kColumn) ++i;
    return i;
  };
  std::size_t light = light_from(0);
  std::size_t heavy = heavy_from(0);
  // The shares that are not yet assigned fill exactly the columns of `heavy` and of all later light
  // and heavy samples. Therefore, if left > 2^32, there is a later light sample. If there is no
  // later heavy sample, left is 2^32.
  std::uint64_t left = shares[heavy];
  for (std::size_t next = heavy_from(heavy + 1); light < n || next < n;) {
    if (left > kColumn) {
      columns_[light] = {static_cast<std::uint32_t>(shares[light]),
                         static_cast<std::uint32_t>(heavy)};
      left -= kColumn - shares[light];
      light = light_from(light + 1);
    } else {
      // A threshold of 2^32 does not fit in 32 bits. A threshold of 0, with the sample as its own
      // alias, is equivalent.
      const bool whole = left == kColumn;
      columns_[heavy] = {whole ? 0 : static_cast<std::uint32_t>(left),
                         static_cast<std::uint32_t>(whole ? heavy : next)};
      left = shares[next] - (kColumn - left);
      heavy = next;
      next = heavy_from(heavy + 1);
    }
  }
  columns_[heavy] = {0, static_cast<std::uint32_t>(heavy)};
  digest_ = hash64({reinterpret_cast<const char*>(shares.data()), n * sizeof shares[0]});
}

std::uint64_t WeightedDraw::operator()(std::uint64_t uniform) const noexcept {
  const uint128 place = static_cast<uint128>(uniform) * columns_.size();
  const auto j = static_cast<std::uint64_t>(place >> 64);
  const Column column = columns_[j];
  const auto height = static_cast<std::uint32_t>(static_cast<std::uint64_t>(place) >> 32);
  return height < column.threshold ? j : column.alias;
}

}  // namespace shardwise::detail
