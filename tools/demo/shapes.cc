#include "shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace shardwise::demo {
namespace {

/// A counter-based generator: word i is a hash of (key, i).
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream)
      : key_(scatter(scatter(seed ^ 0x6A09E667F3BCC909u) + stream)) {}

  std::uint64_t word() { return scatter(key_ + 0x9E3779B97F4A7C15u * ++count_); }
  /// Returns a number in [low, high) from 53 random bits.
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(word() >> 11) * 0x1p-53);
  }

 private:
  static std::uint64_t scatter(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

struct Point {
  double x = 0;
  double y = 0;
};

double length(double x, double y) { return std::sqrt(x * x + y * y); }

/// Returns the distance of `p` from the edge of a polygon; negative inside the polygon.
double polygon_distance(const std::vector<Point>& corners, Point p) {
  double nearest = std::numeric_limits<double>::max();
  bool inside = false;
  for (std::size_t i = 0, j = corners.size() - 1; i < corners.size(); j = i++) {
    const Point a = corners[i];
    const Point b = corners[j];
    const double ex = b.x - a.x;
    const double ey = b.y - a.y;
    const double t =
        std::clamp(((p.x - a.x) * ex + (p.y - a.y) * ey) / (ex * ex + ey * ey), 0.0, 1.0);
    const double dx = p.x - a.x - t * ex;
    const double dy = p.y - a.y - t * ey;
    nearest = std::min(nearest, dx * dx + dy * dy);
    if ((a.y > p.y) != (b.y > p.y) && p.x < (b.x - a.x) * (p.y - a.y) / (b.y - a.y) + a.x) {
      inside = !inside;
    }
  }
  const double distance = std::sqrt(nearest);
  return inside ? -distance : distance;
}

std::vector<Point> box(double half_width, double half_height) {
  return {{-half_width, -half_height},
          {half_width, -half_height},
          {half_width, half_height},
          {-half_width, half_height}};
}

/// The corners of a regular pentagon and of its star, on the unit circle.
constexpr std::array<Point, 10> kTenth = {{{0.0, 1.0},
                                           {0.5877852522924731, 0.8090169943749475},
                                           {0.9510565162951535, 0.3090169943749474},
                                           {0.9510565162951535, -0.3090169943749474},
                                           {0.5877852522924731, -0.8090169943749475},
                                           {0.0, -1.0},
                                           {-0.5877852522924731, -0.8090169943749475},
                                           {-0.9510565162951535, -0.3090169943749474},
                                           {-0.9510565162951535, 0.3090169943749474},
                                           {-0.5877852522924731, 0.8090169943749475}}};

std::vector<Point> pentagon() {
  std::vector<Point> corners;
  for (std::size_t i = 0; i < 10; i += 2) corners.push_back(kTenth[i]);
  return corners;
}

std::vector<Point> star() {
  std::vector<Point> corners;
  for (std::size_t i = 0; i < 10; ++i) {
    const double radius = i % 2 == 0 ? 1.0 : 0.42;
    corners.push_back({kTenth[i].x * radius, kTenth[i].y * radius});
  }
  return corners;
}

std::vector<Point> cross() {
  constexpr double a = 0.28;
  constexpr double b = 0.95;
  return {{-a, -b}, {a, -b}, {a, -a}, {b, -a}, {b, a},   {a, a},
          {a, b},   {-a, b}, {-a, a}, {-b, a}, {-b, -a}, {-a, -a}};
}

/// Signed distances to shapes that fit in the unit circle.
class Shape {
 public:
  explicit Shape(std::string_view name) : name_(name) {
    if (name == "bar") corners_ = box(0.95, 0.3);
    if (name == "square") corners_ = box(0.74, 0.74);
    if (name == "triangle") {
      corners_ = {{0, 1}, {0.8660254037844386, -0.5}, {-0.8660254037844386, -0.5}};
    }
    if (name == "pentagon") corners_ = pentagon();
    if (name == "star") corners_ = star();
    if (name == "cross") corners_ = cross();
  }

  double distance(Point p) const {
    if (!corners_.empty()) return polygon_distance(corners_, p);
    const double radius = length(p.x, p.y);
    if (name_ == "ring") return std::abs(radius - 0.74) - 0.24;
    if (name_ == "half") return std::max(radius - 1.0, -p.y);
    if (name_ == "crescent") return std::max(radius - 1.0, 0.86 - length(p.x - 0.52, p.y));
    return radius - 0.92;
  }

 private:
  std::string_view name_;
  std::vector<Point> corners_;
};

using Colour = std::array<double, 3>;

Colour random_colour(Random& random) {
  return {random.uniform(0, 255), random.uniform(0, 255), random.uniform(0, 255)};
}

double difference(const Colour& a, const Colour& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

}  // namespace

std::vector<std::uint8_t> draw_shape(std::size_t shape, int size, std::uint64_t seed,
                                     std::uint64_t number) {
  Random random(seed, number);
  const Shape drawn(kShapes[shape]);

  Colour ground = random_colour(random);
  Colour ink = random_colour(random);
  while (difference(ground, ink) < 160) ink = random_colour(random);
  Colour slope_x;
  Colour slope_y;
  for (std::size_t c = 0; c < 3; ++c) {
    slope_x[c] = random.uniform(-40, 40);
    slope_y[c] = random.uniform(-40, 40);
  }
  const double side = size;
  const double scale = side * random.uniform(0.24, 0.44);
  const double room = std::max(0.0, side / 2 - scale);
  const Point centre{side / 2 + random.uniform(-room, room),
                     side / 2 + random.uniform(-room, room)};
  // Compute a point on the unit circle from a rational parameter: results of sin() may differ by a
  // bit between platforms.
  const double t = random.uniform(-1, 1);
  const double turn = (random.word() & 1) != 0 ? 1 : -1;
  const double cosine = turn * (1 - t * t) / (1 + t * t);
  const double sine = turn * 2 * t / (1 + t * t);
  const double noise = random.uniform(4, 22);

  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size) * static_cast<std::size_t>(size) *
                                   3);
  std::uint8_t* out = pixels.data();
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      const double dx = x + 0.5 - centre.x;
      const double dy = y + 0.5 - centre.y;
      const Point p{(cosine * dx + sine * dy) / scale, (cosine * dy - sine * dx) / scale};
      const double cover = std::clamp(0.5 - drawn.distance(p) * scale, 0.0, 1.0);
      const double across = (x + 0.5) / side - 0.5;
      const double down = (y + 0.5) / side - 0.5;
      std::uint64_t grains = random.word();
      for (std::size_t c = 0; c < 3; ++c) {
        const double back = ground[c] + slope_x[c] * across + slope_y[c] * down;
        // Approximate a bell curve by the sum of two uniform numbers, in [-1, 1].
        const double grain = static_cast<double>(static_cast<int>(grains & 255) +
                                                 static_cast<int>(grains >> 8 & 255) - 255) /
                             255;
        grains >>= 16;
        const double value = back + (ink[c] - back) * cover + 2.4 * noise * grain;
        *out++ = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0) + 0.5);
      }
    }
  }
  return pixels;
}

}  // namespace shardwise::demo
