#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace shardwise::demo {

/// The classes, in alphabetical order: the label that `shardwise pack --images` gives a folder.
inline constexpr std::array<std::string_view, 10> kShapes = {
    "bar", "circle", "crescent", "cross", "half", "pentagon", "ring", "square", "star", "triangle"};

/// Draws image `number` of the set that `seed` names: one shape at a random place, size, angle and
/// colour, antialiased, on a background that runs from one colour to another, under noise.
///
/// The same pixels on every platform: integer random numbers, and of floating point only what IEEE
/// 754 fixes (no library functions but sqrt).
/// @return  size * size pixels of interleaved RGB.
std::vector<std::uint8_t> draw_shape(std::size_t shape, int size, std::uint64_t seed,
                                     std::uint64_t number);

}  // namespace shardwise::demo
