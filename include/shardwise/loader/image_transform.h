#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace shardwise {

/// What becomes of an image between its decoding and a batch's memory. Steps that are not asked for
/// are left out; the others come in the order of the members, whatever order they are written in.
///
///     const ImageTransform train{.random_resized_crop = {{.size = {224, 224}}},
///                                .horizontal_flip = 0.5,
///                                .normalize = ImageTransform::Normalize{},
///                                .type = ImageTransform::Type::kFloat32};
///     const ImageTransform eval{.resize_shorter_side = 256, .centre_crop = {224, 224}};
///
/// What is random about a sample is drawn from the run's seed, the epoch and the sample, and for
/// each step on its own: it is the same for any number of threads and ranks and any batch, and one
/// more step does not change what the others draw. docs/formats/transforms.md specifies every step;
/// they are torchvision.transforms.v2's, in distribution, and for given parameters in pixels up to
/// 1 of 255.
struct ImageTransform {
  struct Size {
    std::size_t height = 0;
    std::size_t width = 0;

    [[nodiscard]] bool empty() const noexcept { return height == 0 && width == 0; }
    friend bool operator==(const Size&, const Size&) = default;
  };
  /// [least, most].
  struct Range {
    double least = 0;
    double most = 0;
  };
  /// A crop of random area and shape, resized: Inception's. Ten tries, then the largest centre crop
  /// of an allowed shape.
  struct RandomResizedCrop {
    Size size{};
    Range scale{0.08, 1.0};             ///< of the image's area
    Range ratio{3.0 / 4.0, 4.0 / 3.0};  ///< width by height, uniform in its logarithm
  };
  struct Padding {
    std::size_t top = 0;
    std::size_t left = 0;
    std::size_t bottom = 0;
    std::size_t right = 0;
  };
  /// The four in random order. Factors of 1 and turns of 0 change nothing.
  struct ColourJitter {
    double probability = 1;
    Range brightness{1, 1};
    Range contrast{1, 1};
    Range saturation{1, 1};
    Range hue{0, 0};  ///< turns of the circle, in [-0.5, 0.5]
  };
  /// (x / 255 - mean) / std, by channel; ImageNet's by default.
  struct Normalize {
    std::array<float, 3> mean{0.485F, 0.456F, 0.406F};
    std::array<float, 3> std{0.229F, 0.224F, 0.225F};
  };
  /// Overwrites a rectangle of the result. Ten tries to find one that fits.
  struct RandomErasing {
    double probability = 0.5;
    Range scale{0.02, 0.33};       ///< of the image's area
    Range ratio{0.3, 3.3};         ///< height by width, uniform in its logarithm
    std::array<float, 3> value{};  ///< in the result's own values, after normalisation
  };
  enum class Filter : std::uint8_t { kBilinear, kBicubic };  ///< both antialiased
  enum class Type : std::uint8_t {
    kUint8,
    kFloat32,
    kFloat16,
    kBfloat16,
    /// The values as stored, of PNG and PNM with 16 bits a channel; other images are BadFields.
    /// Nothing resizes or recolours them. All other types get 16 bits scaled to 8.
    kUint16
  };
  enum class Layout : std::uint8_t {
    kChannelsFirst,  ///< [3, H, W]
    kChannelsLast    ///< [H, W, 3]
  };

  std::optional<RandomResizedCrop> random_resized_crop{};
  Size resize{};                        ///< both sides; the aspect ratio is not kept
  std::size_t resize_shorter_side = 0;  ///< the other side keeps the aspect ratio, rounded down
  Padding padding{};
  Size centre_crop{};          ///< a smaller image is padded
  Size random_crop{};          ///< likewise, by what it lacks, on both sides
  double horizontal_flip = 0;  ///< probabilities
  double vertical_flip = 0;
  std::optional<ColourJitter> colour_jitter{};
  double grayscale = 0;                  ///< a probability
  std::optional<Normalize> normalize{};  ///< of floats; without it they are x / 255
  std::optional<RandomErasing> random_erasing{};

  std::array<std::uint8_t, 3> fill{};  ///< the colour of padding
  Filter filter = Filter::kBilinear;   ///< of resizes
  Type type = Type::kUint8;
  Layout layout = Layout::kChannelsFirst;
};

}  // namespace shardwise
