#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace shardwise {

/// The steps between decoding an image and storing it in a batch. The steps that are set are
/// applied in the order of the members.
///
///     const ImageTransform train{.random_resized_crop = {{.size = {224, 224}}},
///                                .horizontal_flip = 0.5,
///                                .normalize = ImageTransform::Normalize{},
///                                .type = ImageTransform::Type::kFloat32};
///     const ImageTransform eval{.resize_shorter_side = 256, .centre_crop = {224, 224}};
///
/// Random choices depend only on the run's seed, the epoch, the sample and the step. They do not
/// depend on the numbers of threads and ranks, or on the batch. Adding a step does not change the
/// choices of other steps.
///
/// docs/formats/transforms.md specifies every step. Random parameters have the same distribution as
/// in torchvision.transforms.v2. For equal parameters, pixels differ from torchvision's by at most
/// 1 of 255.
struct ImageTransform {
  struct Size {
    std::size_t height = 0;
    std::size_t width = 0;

    /// The size of the pictures of the batch's group; see Loader::ByGroup.
    [[nodiscard]] static constexpr Size by_group() noexcept {
      return {.height = ~std::size_t{0}, .width = ~std::size_t{0}};
    }

    [[nodiscard]] bool empty() const noexcept { return height == 0 && width == 0; }
    friend bool operator==(const Size&, const Size&) = default;
  };
  /// The closed interval [least, most].
  struct Range {
    double least = 0;
    double most = 0;
  };
  /// Inception's crop: a crop of random area and aspect ratio, which is then resized. If ten random
  /// crops do not fit in the image, the largest centre crop with an allowed ratio is taken.
  struct RandomResizedCrop {
    Size size{};
    Range scale{0.08, 1.0};  ///< fraction of the image's area
    /// Width / height, log-uniform. If `size` is by group, relative to the ratio of the group's
    /// size: {1, 1} then means crops of exactly this ratio.
    Range ratio{3.0 / 4.0, 4.0 / 3.0};
  };
  struct Padding {
    std::size_t top = 0;
    std::size_t left = 0;
    std::size_t bottom = 0;
    std::size_t right = 0;
  };
  /// The four changes are applied in random order. Factors of 1 and a hue of 0 change nothing.
  struct ColourJitter {
    double probability = 1;
    Range brightness{1, 1};
    Range contrast{1, 1};
    Range saturation{1, 1};
    Range hue{0, 0};  ///< fraction of a full turn of the hue circle, in [-0.5, 0.5]
  };
  /// (x / 255 - mean) / std for each channel. The defaults are ImageNet's.
  struct Normalize {
    std::array<float, 3> mean{0.485F, 0.456F, 0.406F};
    std::array<float, 3> std{0.229F, 0.224F, 0.225F};
  };
  /// Overwrites a random rectangle of the result. If ten random rectangles do not fit in the image,
  /// nothing is overwritten.
  struct RandomErasing {
    double probability = 0.5;
    Range scale{0.02, 0.33};       ///< fraction of the image's area
    Range ratio{0.3, 3.3};         ///< height / width, log-uniform
    std::array<float, 3> value{};  ///< in units of the result, after normalisation
  };
  enum class Filter : std::uint8_t { kBilinear, kBicubic };  ///< both antialiased
  enum class Type : std::uint8_t {
    kUint8,
    kFloat32,
    kFloat16,
    kBfloat16,
    /// The stored values of PNG and PNM images with 16 bits per channel. Other images are
    /// BadFields. Steps that resize or change colours are not possible. All other types scale 16
    /// bits to 8.
    kUint16
  };
  enum class Layout : std::uint8_t {
    kChannelsFirst,  ///< [3, H, W]
    kChannelsLast    ///< [H, W, 3]
  };

  std::optional<RandomResizedCrop> random_resized_crop{};
  Size resize{};                        ///< both sides; the aspect ratio changes
  std::size_t resize_shorter_side = 0;  ///< the other side keeps the aspect ratio, rounded down
  Padding padding{};
  Size centre_crop{};          ///< smaller images are padded
  Size random_crop{};          ///< smaller images are padded on both sides
  double horizontal_flip = 0;  ///< probability
  double vertical_flip = 0;
  std::optional<ColourJitter> colour_jitter{};
  double grayscale = 0;                  ///< probability
  std::optional<Normalize> normalize{};  ///< for float types; without it values are x / 255
  std::optional<RandomErasing> random_erasing{};

  std::array<std::uint8_t, 3> fill{};  ///< colour of padding
  Filter filter = Filter::kBilinear;   ///< for resizes
  Type type = Type::kUint8;
  Layout layout = Layout::kChannelsFirst;
};

}  // namespace shardwise
