#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/hasher.h"

/// A model of the batches of one window, written only from docs/formats/order.md and
/// docs/formats/length-batches.md.
namespace shardwise::test {

// ---------------------------------------------------------------------------- from order.md

inline std::string words_of(std::initializer_list<std::uint64_t> words) {
  std::string bytes;
  for (const std::uint64_t word : words) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(word >> (8 * i)));
  }
  return bytes;
}

inline Hash128 model_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t purpose,
                         std::uint64_t index) {
  return hash128(words_of({seed, epoch, purpose, index}));
}

inline std::uint64_t model_scatter(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

inline std::uint32_t low32(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

/// Returns the permutation's results for 0 to n - 1.
inline std::vector<std::uint64_t> model_permutation(std::uint64_t n, const Hash128& key) {
  const std::uint64_t k0 = key.low;
  const std::uint64_t k1 = key.high | 1;
  std::vector<std::uint64_t> images(n);
  std::iota(images.begin(), images.end(), 0);
  if (n <= 64) {
    for (std::uint64_t i = n; i-- > 1;) {
      const std::uint64_t c = n - 1 - i;
      const std::uint64_t word = model_scatter(k0 + c / 2 * k1);
      const std::uint64_t u = c % 2 == 0 ? low32(word) : word >> 32;
      std::swap(images[i], images[(u * (i + 1)) >> 32]);
    }
    return images;
  }
  std::uint64_t a = 1;
  while (a * a < n) ++a;
  const std::uint64_t b = (n + a - 1) / a;
  const auto f = [&](std::uint64_t t, std::uint64_t x, std::uint64_t m) {
    const std::uint64_t w = k0 + t * k1;
    std::uint64_t y = std::uint64_t{low32(x ^ w)} * 0x9e3779b1U + w;
    y = std::uint64_t{low32(y ^ (y >> 32))} * 0x85ebca77U;
    return (low32(y) * m) >> 32;
  };
  for (std::uint64_t& image : images) {
    do {
      std::uint64_t l = image / b;
      std::uint64_t r = image % b;
      for (std::uint64_t t = 0; t < (n < 512 ? 12U : 8U); t += 2) {
        l = (l + f(t, r, a)) % a;
        r = (r + f(t + 1, l, b)) % b;
      }
      image = l * b + r;
    } while (image >= n);
  }
  return images;
}

// --------------------------------------------------------------------- from length-batches.md

/// A sample of a batch: its number in the window, and the position of its first token.
struct Placed {
  std::uint64_t number = 0;
  std::uint64_t start = 0;
};
using PlacedBatch = std::vector<Placed>;

inline std::vector<std::uint64_t> sorted_by(const std::vector<std::uint64_t>& lengths,
                                            bool longest) {
  std::vector<std::uint64_t> numbers(lengths.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::stable_sort(numbers.begin(), numbers.end(), [&](std::uint64_t a, std::uint64_t b) {
    return longest ? lengths[a] > lengths[b] : lengths[a] < lengths[b];
  });
  return numbers;
}

template <class Thing>
std::vector<Thing> shuffled(const std::vector<Thing>& things, const Hash128& key) {
  std::vector<Thing> result;
  for (const std::uint64_t from : model_permutation(things.size(), key)) {
    result.push_back(things[from]);
  }
  return result;
}

/// The groups of the model: the numbers of a window's samples, and each group's batch size.
struct ModelGroups {
  std::vector<std::uint64_t> of_sample;
  std::vector<std::uint64_t> batch_sizes;
  bool holds_over = false;
};

/// @param held_over  is set to the numbers of the samples that are held over, ascending.
inline std::vector<PlacedBatch> model_grouped(const std::vector<std::uint64_t>& lengths,
                                              const ModelGroups& groups, std::uint64_t max_tokens,
                                              const Hash128& key,
                                              std::vector<std::uint64_t>& held_over) {
  held_over.clear();
  std::vector<PlacedBatch> batches;
  const std::vector<std::uint64_t> sorted = sorted_by(lengths, false);
  for (std::uint64_t group = 0; group < groups.batch_sizes.size(); ++group) {
    const std::uint64_t batch_size = groups.batch_sizes[group];
    const auto joins = [&](const PlacedBatch& batch, std::uint64_t i) {
      if (batch.size() >= batch_size) return false;
      const std::uint64_t longest = std::max<std::uint64_t>(lengths[i], 1);
      return max_tokens == 0 || longest <= max_tokens / (batch.size() + 1);
    };
    std::vector<PlacedBatch> own;
    for (const std::uint64_t i : sorted) {
      if (groups.of_sample[i] != group) continue;
      if (own.empty() || !joins(own.back(), i)) own.emplace_back();
      own.back().push_back({i, 0});
    }
    // Hold the group's last batch over if it is not full: one more sample of its greatest length
    // would fit.
    if (groups.holds_over && !own.empty() && joins(own.back(), own.back().back().number)) {
      for (const Placed& placed : own.back()) held_over.push_back(placed.number);
      own.pop_back();
    }
    batches.insert(batches.end(), own.begin(), own.end());
  }
  std::sort(held_over.begin(), held_over.end());
  return shuffled(batches, key);
}

inline std::vector<PlacedBatch> model_batches(const std::vector<std::uint64_t>& lengths,
                                              std::uint64_t batch_size, std::uint64_t max_tokens,
                                              const Hash128& key) {
  std::vector<std::uint64_t> held_over;
  return model_grouped(lengths, {std::vector<std::uint64_t>(lengths.size()), {batch_size}},
                       max_tokens, key, held_over);
}

inline std::vector<PlacedBatch> model_packed(const std::vector<std::uint64_t>& lengths,
                                             std::uint64_t batch_size, std::uint64_t pack_to,
                                             const Hash128& key) {
  struct Group {
    PlacedBatch samples;
    std::uint64_t rows = 1;
    std::uint64_t room = 0;  // free tokens in the last row
  };
  std::vector<Group> groups;
  for (const std::uint64_t i : sorted_by(lengths, true)) {
    Group* best = nullptr;
    for (Group& group : groups) {
      if (group.room < lengths[i]) continue;
      if (best == nullptr || group.room < best->room) best = &group;
    }
    if (best == nullptr) {
      const std::uint64_t rows = std::max<std::uint64_t>(1, (lengths[i] + pack_to - 1) / pack_to);
      best = &groups.emplace_back(Group{{}, rows, rows * pack_to});
    }
    best->samples.push_back({i, best->rows * pack_to - best->room});
    best->room -= lengths[i];
  }
  std::vector<PlacedBatch> batches;
  std::uint64_t rows = 0;
  for (const Group& group : shuffled(groups, key)) {
    if (batches.empty() || rows + group.rows > batch_size) {
      batches.emplace_back();
      rows = 0;
    }
    for (const Placed& placed : group.samples) {
      batches.back().push_back({placed.number, rows * pack_to + placed.start});
    }
    rows += group.rows;
  }
  return batches;
}

}  // namespace shardwise::test
