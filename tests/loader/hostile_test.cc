// Malformed fields, and options at their limits: errors say what is wrong, within limits of time
// and memory, and nothing crashes.

#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <random>
#include <utility>

#include "decode/image_codec.h"
#include "loader/loader_access.h"
#include "loader/thread_ranks.h"
#include "loader/transform.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sample_key.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/sanitizers.h"

namespace shardwise {
namespace {

using detail::ImageTransformer;
using testing::AllOf;
using testing::HasSubstr;

std::string big_endian(std::uint64_t value, std::size_t num_bytes) {
  std::string text;
  for (std::size_t i = num_bytes; i-- > 0;) text += static_cast<char>(value >> 8 * i);
  return text;
}

/// Returns a small JPEG whose header states another size.
std::string lying_jpeg(unsigned width, unsigned height, bool progressive = false) {
  std::string bytes = test::encode_jpeg(test::test_picture(16, 16), 90, progressive);
  const std::size_t frame = bytes.find(progressive ? "\xFF\xC2" : "\xFF\xC0");
  return bytes.replace(frame + 5, 4, big_endian(height, 2) + big_endian(width, 2));
}

std::string lying_webp(unsigned width, unsigned height) {
  std::string bytes = test::encode_webp(test::test_picture(16, 16), true);
  const std::uint32_t bits = (width - 1) | (height - 1) << 14;
  for (std::size_t i = 0; i < 4; ++i) bytes[21 + i] = static_cast<char>(bits >> 8 * i);
  return bytes;
}

std::string picture() { return test::encode_png(test::test_picture(8, 6)); }

std::string text_of(const Dataset& data, const Column& column, std::uint64_t batch_size = 64,
                    std::uint64_t max_bad = 0) {
  return test::error_text([&] {
    Loader loader(data, {.columns = {column},
                         .order = {.kind = Sequential{}},
                         .batch_size = batch_size,
                         .threads = 1,
                         .max_bad = max_bad});
    while (loader.next()) {
    }
  });
}

TEST(HostileTest, ImagesThatClaimToBeHugeAreRefusedBeforeMemoryIsTaken) {
  const test::TempDir dir;
  const std::pair<std::string, std::string> claims[] = {
      {"jpg", lying_jpeg(65500, 65500)},
      {"jpg", lying_jpeg(65500, 65500, true)},
      {"png", test::png_bomb(1U << 20, 1U << 20)},
      {"png", test::png_bomb(0x7FFFFFFF, 0x7FFFFFFF)},
      {"ppm", "P6 999999999 999999999 255\nabc"},
      {"ppm", "P6 18446744073709551615 18446744073709551615 255\nabc"}};
  const std::optional<ImageTransform> transforms[] = {
      ImageTransform{}, ImageTransform{.resize = {4, 4}}, ImageTransform{.padding = {1, 1, 1, 1}},
      ImageTransform{.resize_shorter_side = 3}, ImageTransform{.random_crop = {4, 4}}};
  for (std::size_t i = 0; i < std::size(claims); ++i) {
    const Dataset data = test::make_dataset(dir, "claims" + std::to_string(i), {{claims[i]}});
    for (const auto& transform : transforms) {
      EXPECT_THAT(text_of(data, columns::image(claims[i].first, *transform)),
                  AllOf(HasSubstr("limit of 268,435,456 pixels"), HasSubstr("s00000"),
                        HasSubstr("'" + claims[i].first + "'"),
                        HasSubstr("claims" + std::to_string(i) + "-0.tar")));
    }
  }
}

TEST(HostileTest, WithoutALimitOfPixelsTheirBytesAreCountedAllTheSame) {
  // This size times 3 is 2 modulo 2^64.
  const std::string bytes = "P6 6148914691236517206 1 255\nab";
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"ppm", bytes}}});
  const ImageDecoding unlimited{.max_pixels = ~std::uint64_t{0}};
  for (const ImageTransform& transform : {ImageTransform{}, ImageTransform{.resize = {4, 4}},
                                          ImageTransform{.random_crop = {4, 4}}}) {
    EXPECT_THAT(text_of(data, columns::image("ppm", transform, unlimited)),
                AllOf(HasSubstr("a side of more than 1,048,576"), HasSubstr("s00000")));
  }
}

TEST(HostileTest, AHeaderThatLiesIsABadFieldAndTheOthersAreDelivered) {
  const test::TempDir dir;
  const std::string lies[] = {"",
                              "\xFF\xD8\xFF",
                              lying_jpeg(9999, 9999),
                              lying_jpeg(65500, 65500),
                              lying_webp(4000, 4000),
                              test::png_bomb(5000, 5000),
                              test::png_bomb(0x7FFFFFFF, 1),
                              picture().substr(0, 60),
                              "P6 5000 5000 255\nabc",
                              "P6 0 7 255\n",
                              "P6 -1 7 255\n",
                              "P6 3 3 70000\n",
                              "P5"};
  for (std::size_t i = 0; i < std::size(lies); ++i) {
    for (const bool lie_is_first : {false, true}) {
      std::vector<test::Fields> samples(3, test::Fields{{"img", picture()}});
      samples[lie_is_first ? 0 : 1][0].second = lies[i];
      const Dataset data =
          test::make_dataset(dir, "lies" + std::to_string(i) + (lie_is_first ? "a" : "b"), samples);
      for (const ImageTransform& transform : {ImageTransform{}, ImageTransform{.resize = {4, 4}}}) {
        // If decoding is not strict, a truncated JPEG becomes an image with a gray rest, as in
        // Pillow.
        Loader loader(data, {.columns = {columns::image("img", transform, {.strict = true})},
                             .order = {.kind = Sequential{}},
                             .batch_size = 3,
                             .max_bad = 1});
        const auto batch = loader.next();
        ASSERT_TRUE(batch.has_value()) << i;
        EXPECT_EQ(batch->size(), 2u) << i << lie_is_first;
        EXPECT_THAT(loader.prove(), HasSubstr("proven"));
      }
    }
  }
}

TEST(HostileTest, ACutImageIsPictureOrBadFieldWhereverItIsCut) {
  const test::TempDir dir;
  const test::Rgb original = test::test_picture(24, 20);
  const std::string formats[] = {test::encode_png(original),
                                 test::encode_jpeg(original),
                                 test::encode_jpeg(original, 90, true),
                                 test::encode_webp(original, true),
                                 test::encode_webp(original, false),
                                 test::encode_ppm(original)};
  std::size_t count = 0;
  for (const std::string& whole : formats) {
    std::vector<test::Fields> samples;
    const std::size_t step = std::max<std::size_t>(whole.size() / 150, 1);
    for (std::size_t size = 0; size < whole.size(); size += step) {
      samples.push_back({{"img", whole.substr(0, size)}});
    }
    const Dataset data = test::make_dataset(dir, "cut" + std::to_string(count++), samples, 1000);
    for (const ImageTransform& transform :
         {ImageTransform{.resize = {4, 4}}, ImageTransform{.centre_crop = {6, 6}}}) {
      Loader loader(data, {.columns = {columns::image("img", transform)},
                           .batch_size = 16,
                           .max_bad = samples.size()});
      detail::LoaderAccess::accept_all_bad(loader);
      std::size_t good = 0;
      while (const auto batch = loader.next()) good += batch->size();
      loader.prove();
      EXPECT_EQ(good + loader.bad_samples().samples().size(), samples.size());
      for (const auto& [sample, entry] : loader.bad_samples().samples()) {
        EXPECT_THAT(entry.reason,
                    AllOf(HasSubstr("cannot decode"), HasSubstr("'img' as an image")));
      }
    }
  }
}

TEST(HostileTest, AHighAndNarrowImageDoesNotTakeManyTimesItsPixels) {
  const test::TempDir dir;
  // 1 x 2^20 pixels, 3 MB. If each row were resized horizontally, this would take 2^28 x 3 * 4
  // bytes.
  const std::string tall = "P5 1 1048576 255\n" + std::string(1 << 20, 'x');
  const Dataset data = test::make_dataset(dir, "tall", {{{"pgm", tall}}});
  EXPECT_THAT(text_of(data, columns::image("pgm", {.resize = {2, 1024}})),
              AllOf(HasSubstr("1048576x1024 (HxW)"), HasSubstr("intermediate image"),
                    HasSubstr("limit of 268,435,456"), HasSubstr("s00000"), HasSubstr("'pgm'")));
  Loader loader(data, {.columns = {columns::image("pgm", {.resize = {2, 16}})}});
  EXPECT_EQ(loader.next()->size(), 1u);
}

TEST(HostileTest, ImagesOfOnePixelAcrossAreResizedBothWays) {
  const test::TempDir dir;
  const auto strip = [](int width, int height) {
    return test::encode_png(test::test_picture(width, height));
  };
  const Dataset data = test::make_dataset(
      dir, "strips",
      {{{"png", strip(1, 3000)}}, {{"png", strip(3000, 1)}}, {{"png", strip(1, 1)}}});
  const auto shape = [&](const ImageTransform& transform, std::uint64_t sample) {
    Loader loader(data.subset(std::vector<std::uint64_t>{sample}),
                  {.columns = {columns::image("png", transform)}, .batch_size = 1});
    return loader.next()->arrays()[0].shape();
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape({.resize_shorter_side = 2}, 0), (Shape{1, 3, 6000, 2}));
  EXPECT_EQ(shape({.resize_shorter_side = 2}, 1), (Shape{1, 3, 2, 6000}));
  EXPECT_EQ(shape({.resize_shorter_side = 2, .centre_crop = {9, 9}}, 1), (Shape{1, 3, 9, 9}));
  EXPECT_EQ(shape({.resize = {1500, 1500}}, 2), (Shape{1, 3, 1500, 1500}));
  EXPECT_EQ(shape({.random_resized_crop = {{.size = {1, 1}}}}, 0), (Shape{1, 3, 1, 1}));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers end the program
TEST(HostileTest, AfterAnImageThatFoundNoMemoryTheNextOneFindsItsOwn) {
  detail::RgbImage image;
  image.reshape(100, 100);
  EXPECT_THROW(image.reshape(std::size_t{1} << 31, std::size_t{1} << 31), std::bad_alloc);
  image.reshape(10, 10);
  ASSERT_NE(image.data(), nullptr);
}

TEST(HostileTest, ARowThatFindsNoMemorySaysHowMuchItWas) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"txt", "x"}}});
  const auto make = [](const Sample&, const Hash128&, columns::Row& row) {
    row.resize(std::int64_t{1} << 61);
  };
  Loader loader(data, {.columns = {columns::ragged_function("f", DType::kUInt8, make)}});
  EXPECT_THAT(test::error_text([&] { loader.next(); }),
              AllOf(HasSubstr("column 'f'"), HasSubstr("cannot allocate a row"),
                    HasSubstr("2,305,843,009,213,693,952 bytes")));
}
#endif

TEST(HostileTest, ABatchWithoutRowsDoesNotFailForASampleThatIsLeftOut) {
  const test::TempDir dir;
  std::vector<test::Fields> samples(4, {{"png", picture()}});
  samples[0][0].second = "broken";
  const Dataset data = test::make_dataset(dir, "d", samples);
  Order order{.kind = Sequential{}};
  order.skip.add_sample(0, "it is broken");
  test::ThreadRanks ranks(2);
  test::on_ranks(2, [&](std::uint64_t rank) {
    Loader loader(data, {.columns = {columns::image("png")}, .order = order, .batch_size = 1},
                  ranks.rank(rank));
    EXPECT_EQ(loader.next()->size(), 1u);
    const auto last = loader.next();
    EXPECT_EQ(last->size(), 1 - rank);
    EXPECT_THAT(last->arrays()[0].shape(),
                testing::ElementsAre(1 - static_cast<std::int64_t>(rank), 3, 6, 8));
    EXPECT_THAT(loader.prove(), HasSubstr("3 samples, each exactly once, 1 excluded on purpose"));
  });
}

TEST(HostileTest, ABatchThatFindsNoMemoryNamesItsColumnAndTheNextOneComes) {
  class OnceEmpty : public std::pmr::memory_resource {
    void* do_allocate(std::size_t size, std::size_t alignment) override {
      if (!std::exchange(was_asked_, true)) throw std::bad_alloc();
      return std::pmr::new_delete_resource()->allocate(size, alignment);
    }
    void do_deallocate(void* p, std::size_t size, std::size_t alignment) override {
      std::pmr::new_delete_resource()->deallocate(p, size, alignment);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override {
      return this == &other;
    }
    bool was_asked_ = false;
  };
  const test::TempDir dir;
  const Dataset data =
      test::make_dataset(dir, "d", std::vector<test::Fields>(8, {{"txt", std::string(512, 'x')}}));
  const Column columns[] = {columns::bytes("txt").named("wide"),
                            columns::function("wide", DType::kInt8, {512},
                                              [](const Sample&, const Hash128&, columns::Row&) {}),
                            columns::ragged_function("wide", DType::kInt8,
                                                     [](const Sample&, const Hash128&,
                                                        columns::Row& row) { row.resize(512); })};
  for (const Column& column : columns) {
    Loader loader(data, {.columns = {column},
                         .batch_size = 4,
                         .threads = 0,
                         .memory = std::make_shared<OnceEmpty>()});
    EXPECT_THAT(test::error_text([&] { loader.next(); }),
                AllOf(HasSubstr("not fit into memory"), HasSubstr("wide, 2.0 KiB"),
                      HasSubstr("4 rows"), HasSubstr("smaller batch size")));
    EXPECT_EQ(loader.next()->size(), 4u);
  }
}

TEST(HostileTest, ValuesAreNotReadAsThoseOfAnotherType) {
  const test::TempDir dir;
  Loader loader(test::make_dataset(dir, "d", {{{"txt", "x"}, {"cls", "-1"}}}),
                {.columns = {columns::bytes("txt"), columns::integer("cls")}});
  const auto batch = loader.next();
  const Batch::Array& number = (*batch)["cls"];
  EXPECT_EQ(number.values<std::int64_t>()[0], -1);
  EXPECT_THAT(test::error_text([&] { number.values<double>(); }),
              AllOf(HasSubstr("values of column 'cls'"), HasSubstr("int64, 8 bytes each")));
  EXPECT_THAT(test::error_text([&] { number.values<std::uint64_t>(); }), HasSubstr("int64"));
  const Batch::Array& text = (*batch)["txt"];
  EXPECT_EQ(text.values<char>()[0], 'x');
  EXPECT_EQ(text.values<std::uint8_t>()[0], 'x');
  EXPECT_EQ(text.values<std::byte>()[0], std::byte{'x'});
  EXPECT_THAT(test::error_text([&] { text.values<std::int8_t>(); }), HasSubstr("uint8"));
}

TEST(HostileTest, AShardThatIsNotThereIsAnErrorAndNotManyBadSamples) {
  const test::TempDir dir;
  test::make_dataset(dir, "gone", std::vector<test::Fields>(30, {{"png", picture()}}), 10);
  std::filesystem::remove(dir / "gone-1.tar");
  const Dataset data = Dataset::open(dir / "gone.idx");
  for (const Column& column :
       {columns::bytes("png"), columns::image("png"), columns::image("png", {.resize = {2, 2}})}) {
    for (const unsigned threads : {0U, 2U}) {
      Loader loader(data, {.columns = {column},
                           .order = {.kind = Sequential{}},
                           .batch_size = 5,
                           .threads = threads,
                           .max_bad = 30});
      std::size_t lost = 0;
      for (bool more = true; more;) {
        try {
          more = loader.next().has_value();
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), AllOf(HasSubstr("shard not found"), HasSubstr("gone-1.tar")));
          ++lost;
        }
      }
      EXPECT_EQ(lost, 2u);
      EXPECT_EQ(test::error_code([&] { loader.prove(); }), ErrorCode::kNotExact);
      EXPECT_TRUE(loader.bad_samples().empty());
    }
  }
}

TEST(HostileTest, ARaggedRowThatIsNotGivenAShapeIsEmpty) {
  const test::TempDir dir;
  const Dataset data =
      test::make_dataset(dir, "rows", std::vector<test::Fields>(4, {{"txt", "x"}}));
  const auto column = columns::ragged_function(
      "f", DType::kInt16, [](const Sample& sample, const Hash128&, columns::Row& row) {
        const std::int64_t shape[] = {2, 1};
        if (sample.index() % 2 == 1) std::memset(row.resize(shape).data(), 1, 4);
      });
  Loader loader(data, {.columns = {column}, .order = {.kind = Sequential{}}, .batch_size = 4});
  const auto batch = loader.next();
  EXPECT_THAT(batch->arrays()[0].offsets(), testing::ElementsAre(0, 0, 2, 2, 4));
  EXPECT_THAT(batch->arrays()[0].row_shape(0), testing::ElementsAre(0, 0));
  EXPECT_THAT(batch->arrays()[0].row_shape(3), testing::ElementsAre(2, 1));
}

TEST(HostileTest, AnEpochThatTheLoaderHasLeftGivesNoBatchesOfAnother) {
  const test::TempDir dir;
  Loader loader(test::make_dataset(dir, "d", {{{"txt", "x"}}}),
                {.columns = {columns::bytes("txt")}});
  const auto epoch = loader.epoch();
  loader.set_epoch(1);
  EXPECT_THAT(test::error_text([&] { (void)epoch.begin(); }),
              AllOf(HasSubstr("another epoch"), HasSubstr("epoch 0")));
  EXPECT_EQ(loader.steps_left(), 1u);
}

// --------------------------------------------------------------------------------------- arrays

std::string npy_with(const std::string& header, const std::string& data = {}) {
  const auto size = static_cast<unsigned>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size & 255) +
         static_cast<char>(size >> 8) + header + data;
}

TEST(HostileTest, ArraysThatLieAreBadFieldsThatSayWhy) {
  const test::TempDir dir;
  const auto shaped = [](const std::string& shape, const std::string& data = "abcd",
                         const std::string& descr = "'<f4'") {
    return npy_with("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }\n",
                    data);
  };
  const std::pair<std::string, std::string> lies[] = {
      {shaped("(4611686018427387904,)"), "too many elements"},
      {shaped("(4294967296, 4294967296)"), "too many elements"},
      {shaped("(0, 9223372036854775807)", ""), "too many elements"},
      {shaped("(99999999999999999999,)"), "size in the shape"},
      {shaped("(-1,)"), "size in the shape"},
      {shaped("(1000000000,)"), "ends early"},
      {shaped("()", "abcdefgh"), "too long"},
      {shaped("(" + std::string(300, '1') + ")"), "size in the shape"},
      {shaped("(1,)", "abcd", "'|O'"), "Python objects"},
      {shaped("(1,)", "abcd", "[('a', '<f4')]"), "records"},
      {shaped("(1,)", "abcd", "'<U1'"), "of type '<U1'"},
      {shaped("(1,)", "abcd", "'<M8[s]'"), "of type"},
      {shaped("(1,)", "abcd", "'<f16'"), "of type"},
      {npy_with("{'descr': '<f4'"), "lacks"},
      {npy_with(std::string(5000, '{')), "lacks"},
      {std::string("\x93NUMPY\x09\x00\x01\x00{", 11), "version 9"},
      {std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12), "exceeds 1 MiB"},
      {"", "not a NumPy array"},
      {"\x93NUMPY", "ends early"}};
  for (std::size_t i = 0; i < std::size(lies); ++i) {
    const std::string name = "npy" + std::to_string(i);
    const Dataset data = test::make_dataset(dir, name, {{{"npy", lies[i].first}}});
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1}}) {
      EXPECT_THAT(text_of(data, columns::array("npy", DType::kFloat32, shape)),
                  AllOf(HasSubstr(lies[i].second), HasSubstr("'npy' as an array"),
                        HasSubstr("s00000"), HasSubstr(name + "-0.tar")))
          << i;
    }
  }
}

// --------------------------------------------------------------------------------------- options

/// Draws valid options of any kind, more often than not at their limits.
class AnyTransform {
 public:
  explicit AnyTransform(std::uint64_t seed) : random_(seed) {}

  std::size_t side() { return one_of<std::size_t>({1, 1, 2, 3, 7, 16, 33}); }
  ImageTransform draw() {
    ImageTransform drawn;
    switch (below(4)) {
      case 0:
        drawn.random_resized_crop = {{.size = {side(), side()}, .scale = part(), .ratio = ratio()}};
        break;
      case 1:
        drawn.resize = {side(), below(40) == 0 ? 4000 : side()};
        break;
      case 2:
        drawn.resize_shorter_side = side();
        break;
      default:
        break;
    }
    if (below(3) == 0) drawn.padding = {below(9), below(9), below(40), below(9)};
    if (below(3) == 0) {
      (below(2) == 0 ? drawn.centre_crop : drawn.random_crop) = {side(), side()};
    }
    drawn.horizontal_flip = chance();
    drawn.vertical_flip = chance();
    if (below(3) == 0) {
      drawn.colour_jitter = {{.probability = chance(),
                              .brightness = range(0, 1000),
                              .contrast = range(0, 1000),
                              .saturation = range(0, 1000),
                              .hue = range(-0.5, 0.5)}};
    }
    drawn.grayscale = chance();
    drawn.type = one_of({ImageTransform::Type::kUint8, ImageTransform::Type::kFloat32,
                         ImageTransform::Type::kFloat16, ImageTransform::Type::kBfloat16});
    if (drawn.type != ImageTransform::Type::kUint8 && below(2) == 0) {
      drawn.normalize = ImageTransform::Normalize{};
    }
    if (below(3) == 0) {
      drawn.random_erasing = {
          {.probability = chance(), .scale = part(), .ratio = ratio(), .value = {255, 0, 1}}};
    }
    drawn.fill = {1, 2, 3};
    drawn.filter = one_of({ImageTransform::Filter::kBilinear, ImageTransform::Filter::kBicubic});
    drawn.layout =
        one_of({ImageTransform::Layout::kChannelsFirst, ImageTransform::Layout::kChannelsLast});
    return drawn;
  }
  std::size_t below(std::size_t n) { return random_() % n; }
  Hash128 key() { return {random_(), random_()}; }

 private:
  template <class Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[below(values.size())];
  }
  double chance() { return one_of({0.0, 0.5, 1.0}); }
  double between(double least, double most) {
    return least + (most - least) * static_cast<double>(below(101)) / 100;
  }
  ImageTransform::Range range(double least, double most) {
    const double a = between(least, most);
    const double b = between(least, most);
    return {std::min(a, b), std::max(a, b)};
  }
  ImageTransform::Range part() { return below(4) == 0 ? ImageTransform::Range{0, 0} : range(0, 1); }
  ImageTransform::Range ratio() {
    return one_of<ImageTransform::Range>(
        {{0.75, 4.0 / 3}, {1e-6, 1e-6}, {1e6, 1e6}, {1e-6, 1e6}, {1, 1}});
  }

  std::mt19937_64 random_;
};

TEST(HostileTest, AnImageWithWrongBytesIsAPictureOrABadFieldForAnyTransform) {
  const test::TempDir dir;
  AnyTransform any(23);
  const test::Rgb original = test::test_picture(33, 21);
  const std::string formats[] = {test::encode_png(original),
                                 test::encode_jpeg(original),
                                 test::encode_jpeg(original, 90, true),
                                 test::encode_cmyk_jpeg(original),
                                 test::encode_webp(original, true),
                                 test::encode_webp(original, false),
                                 test::encode_ppm(original),
                                 test::make_odd_png(3, 4, true, true).bytes};
  for (std::size_t round = 0; round < 24; ++round) {
    std::vector<test::Fields> samples;
    for (std::size_t i = 0; i < 40; ++i) {
      std::string bytes = formats[any.below(std::size(formats))];
      // Change mostly the beginning, which has the headers.
      for (std::size_t flips = any.below(4); flips > 0; --flips) {
        const std::size_t end =
            any.below(2) == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 200);
        bytes[any.below(end)] = static_cast<char>(any.below(256));
      }
      if (any.below(8) == 0) bytes.resize(any.below(bytes.size()));
      samples.push_back({{"img", bytes}});
    }
    const Dataset data = test::make_dataset(dir, "wrong" + std::to_string(round), samples);
    ImageTransform transform = any.draw();
    transform.resize_shorter_side = 0;  // a false header may state a very long image, whose result
                                        // would be even longer
    const ImageDecoding decoding{.max_pixels = 1 << 20,
                                 .strict = any.below(3) == 0,
                                 .apply_orientation = any.below(2) == 0,
                                 .scaling = static_cast<ImageDecoding::Scaling>(any.below(3))};
    Loader loader(data, {.columns = {columns::image("img", transform, decoding)},
                         .batch_size = 1,
                         .max_bad = samples.size()});
    detail::LoaderAccess::accept_all_bad(loader);
    std::size_t good = 0;
    while (const auto batch = loader.next()) good += batch->size();
    EXPECT_THAT(loader.prove(), HasSubstr("proven"));
    EXPECT_EQ(good + loader.bad_samples().samples().size(), samples.size());
  }
}

TEST(HostileTest, NoValidTransformOfATinyImageLeavesItsMemory) {
  // The memory has exactly the result's size, so that AddressSanitizer finds writes beyond it.
  AnyTransform any(7);
  for (int run = 0; run < 6000; ++run) {
    const ImageTransform transform = any.draw();
    const ImageTransformer transformer(transform);
    const std::size_t height = any.side();
    const std::size_t width = any.side();
    std::vector<std::uint8_t> pixels(height * width * 3);
    for (auto& byte : pixels) byte = static_cast<std::uint8_t>(any.below(256));
    const detail::RgbView image{pixels.data(), height, width, width * 3};
    const detail::ImagePlan plan = transformer.plan({height, width}, any.key());
    if (const auto size = transformer.fixed_size()) {
      ASSERT_EQ(*size, (ImageTransform::Size{plan.height, plan.width})) << run;
    }
    const std::size_t num_bytes = plan.height * plan.width * 3 * transformer.value_bytes();
    std::vector<std::byte> once(num_bytes, std::byte{0xAA});
    std::vector<std::byte> again(num_bytes, std::byte{0x55});
    transformer.apply(plan, image.cropped(plan.source), once.data());
    transformer.apply(plan, image.cropped(plan.source), again.data());
    ASSERT_EQ(once, again) << "run " << run << ": a value was not written";
  }
}

TEST(HostileTest, TheSameBytesForAnyThreadsBatchesAndWorldsOfAnyTransform) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 12; ++i) {
    const auto made = test::test_picture(1 + 5 * (i % 4), 1 + 9 * (i % 3), 1U + unsigned(i));
    samples.push_back({{"img", i % 2 == 0 ? test::encode_png(made) : test::encode_jpeg(made)}});
  }
  const Dataset data = test::make_dataset(dir, "small", samples, 5);
  AnyTransform any(11);
  for (int run = 0; run < 60; ++run) {
    const ImageTransform transform = any.draw();
    const bool is_fixed = ImageTransformer(transform).fixed_size().has_value();
    std::map<std::int64_t, std::string> expected;
    for (const unsigned threads : {0U, 2U, 7U}) {
      for (const std::uint64_t batch_size : {1U, 3U, 64U}) {
        if (!is_fixed && batch_size > 1) continue;
        std::map<std::int64_t, std::string> rows;
        Loader first(data, {.columns = {columns::image("img", transform)},
                            .order = {.seed = 5},
                            .batch_size = batch_size,
                            .threads = threads});
        first.set_epoch(2);
        const auto take = [&](Loader& loader) {
          auto batch = loader.next();
          for (std::size_t i = 0; batch && i < batch->size(); ++i) {
            EXPECT_TRUE(rows.emplace(batch->samples()[i], batch->arrays()[0].text(i)).second);
          }
          return batch.has_value();
        };
        for (std::size_t steps = any.below(first.steps()); steps > 0; --steps) take(first);
        Loader second(data, {.columns = {columns::image("img", transform)},
                             .order = {.seed = 5},
                             .batch_size = is_fixed ? 3U : 1U,
                             .threads = 1});
        second.restore(first.state());
        while (take(second)) {
        }
        EXPECT_THAT(second.prove(), HasSubstr("12 samples, each exactly once: proven"));
        if (expected.empty()) expected = rows;
        ASSERT_EQ(rows, expected) << run << ": " << threads << " threads, " << batch_size;
      }
    }
  }
}

TEST(HostileTest, OptionsOutOfRangeAreNamedWhenTheColumnIsMade) {
  using Transform = ImageTransform;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const auto rejects = [](const ImageTransform& transform, const std::string& option) {
    EXPECT_EQ(test::error_code([&] { columns::image("jpg", transform); }),
              ErrorCode::kInvalidArgument)
        << option;
    EXPECT_THAT(test::error_text([&] { columns::image("jpg", transform); }), HasSubstr(option));
  };
  for (const double wrong : {nan, inf, -inf, -0.1, 1.1}) {
    rejects({.horizontal_flip = wrong}, "horizontal_flip");
    rejects({.vertical_flip = wrong}, "vertical_flip");
    rejects({.grayscale = wrong}, "grayscale");
    rejects({.colour_jitter = {{.probability = wrong}}}, "colour_jitter");
    rejects({.random_erasing = {{.probability = wrong}}}, "random_erasing");
    rejects({.random_resized_crop = {{.size = {2, 2}, .scale = {0, wrong}}}}, "scale");
    rejects({.random_resized_crop = {{.size = {2, 2}, .scale = {wrong, 1}}}}, "scale");
    rejects({.random_erasing = {{.scale = {wrong, 1}}}}, "random_erasing.scale");
    rejects({.colour_jitter = {{.hue = {wrong - 0.5, wrong}}}}, "hue");
  }
  for (const double wrong : {nan, inf, -1.0, 0.0}) {
    rejects({.random_resized_crop = {{.size = {2, 2}, .ratio = {wrong, 1}}}}, "ratio");
    rejects({.random_erasing = {{.ratio = {wrong, 1}}}}, "random_erasing.ratio");
    Transform::Normalize normalize;
    normalize.std[1] = static_cast<float>(wrong);
    rejects({.normalize = normalize, .type = Transform::Type::kFloat32}, "normalize");
  }
  for (const double wrong : {nan, inf, -1.0, 1e9}) {
    rejects({.colour_jitter = {{.brightness = {wrong, wrong}}}}, "brightness");
    rejects({.colour_jitter = {{.contrast = {wrong, wrong}}}}, "contrast");
    rejects({.colour_jitter = {{.saturation = {wrong, wrong}}}}, "saturation");
  }
  rejects({.colour_jitter = {{.brightness = {1.2, 1.1}}}}, "brightness");
  rejects({.random_resized_crop = {{.size = {2, 2}, .ratio = {2, 1}}}}, "ratio");
  rejects({.random_resized_crop = {{.size = {0, 2}}}}, "random_resized_crop.size");
  rejects({.random_resized_crop = {{}}}, "random_resized_crop.size");
  rejects({.resize = {0, 2}}, "resize");
  rejects({.resize = {std::size_t(-1), 2}}, "resize");
  rejects({.resize_shorter_side = std::size_t(-1)}, "resize_shorter_side");
  rejects({.padding = {.left = std::size_t(-1)}}, "padding");
  rejects({.centre_crop = {2, 0}}, "centre_crop");
  rejects({.random_crop = {2, std::size_t(-1)}}, "random_crop");
  rejects({.random_erasing = {{.value = {256, 0, 0}}}}, "random_erasing.value");
  Transform::Normalize normalize;
  normalize.mean[2] = static_cast<float>(nan);
  rejects({.normalize = normalize, .type = Transform::Type::kFloat32}, "normalize");
}

TEST(HostileTest, LoaderOptionsOutOfRangeAreNamed) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"txt", "x"}}});
  const auto text = [&](Loader::Options options) {
    options.columns = {columns::bytes("txt")};
    EXPECT_EQ(test::error_code([&] { Loader(data, options); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(test::error_text([&] { Loader(data, options); }),
              test::error_text([&] { Loader::validate(data, options, 1); }));
    return test::error_text([&] { Loader(data, options); });
  };
  EXPECT_THAT(text({.threads = 2000}), AllOf(HasSubstr("threads"), HasSubstr("at most 1024")));
  EXPECT_THAT(text({.prefetch = std::size_t(-1)}),
              AllOf(HasSubstr("prefetch"), HasSubstr("65536")));
  EXPECT_THAT(text({.batch_size = 0}), HasSubstr("batch size"));
  EXPECT_THAT(text({.batch_size = std::uint64_t(-1)}), HasSubstr("batch size"));
  EXPECT_THAT(text({.replicas = 0}), HasSubstr("replicas"));
  EXPECT_THAT(text({.replicas = 2}), HasSubstr("replicas"));
}

}  // namespace
}  // namespace shardwise
