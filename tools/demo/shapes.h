#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace shardwise::demo {

/// The classes in alphabetical order, so that a class's index is the label that `shardwise pack
/// --images` assigns.
inline constexpr std::array<std::string_view, 10> kShapes = {
    "bar", "circle", "crescent", "cross", "half", "pentagon", "ring", "square", "star", "triangle"};

/// Draws image `number` of the set that `seed` selects: one antialiased shape of random position,
/// size, angle and colour, on a gradient between two colours, with noise.
///
/// The pixels are the same on every platform. Random numbers are integers, and floating-point
/// operations are those that IEEE 754 defines exactly. The only library function it calls is
/// sqrt().
/// @return  size * size pixels of interleaved RGB.
std::vector<std::uint8_t> draw_shape(std::size_t shape, int size, std::uint64_t seed,
                                     std::uint64_t number);

}  // namespace shardwise::demo
