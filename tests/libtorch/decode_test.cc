#include "shardwise/libtorch/decode.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "libtorch/decode_internal.h"
#include "support/dataset.h"
#include "support/images.h"

namespace shardwise::libtorch {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

torch::Tensor planes(const test::Rgb& image) {
  return torch::from_blob(const_cast<std::uint8_t*>(image.pixels.data()),
                          {image.height, image.width, 3}, torch::kUInt8)
      .permute({2, 0, 1})
      .contiguous();
}

std::int64_t largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  if (a.sizes() != b.sizes()) return 255;
  return (a.to(torch::kInt64) - b.to(torch::kInt64)).abs().max().item<std::int64_t>();
}

torch::Tensor decoded(std::string_view bytes, const DecodeOptions& options = {}) {
  return decode_image(bytes, options, "here");
}

/// Expects that every proper prefix of `bytes` is refused.
template <class Decode>
void expect_truncations_refused(const std::string& bytes, Decode&& decode) {
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // Copy the prefix, so that sanitizers detect reads beyond its end.
    const std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(test::error_code([&] { decode(std::string_view(part.data(), part.size())); }),
              ErrorCode::kBadField)
        << size << " of " << bytes.size() << " bytes";
  }
}

// ---------------------------------------------------------------------------------------- images

TEST(DecodeImageTest, AnImageIsUint8WithChannelsFirstAndContiguous) {
  const auto picture = test::test_picture(31, 17);
  const auto image = decoded(test::encode_png(picture));
  EXPECT_EQ(image.sizes(), (std::vector<std::int64_t>{3, 17, 31}));
  EXPECT_EQ(image.dtype(), torch::kUInt8);
  EXPECT_TRUE(image.is_contiguous());
  EXPECT_TRUE(image.device().is_cpu());
  EXPECT_TRUE(image.equal(planes(picture)));
}

TEST(DecodeImageTest, ResizingIsTorchsAntialiasedBilinear) {
  struct Case {
    int height, width, to_height, to_width;
  };
  for (const auto& c : {Case{45, 67, 20, 24}, Case{45, 67, 45, 30}, Case{45, 67, 90, 100},
                        Case{45, 67, 7, 200}, Case{5, 3, 1, 1}, Case{1, 1, 6, 5}}) {
    const auto picture = test::test_picture(c.width, c.height);
    const auto image = decoded(test::encode_png(picture), {.resize = {c.to_height, c.to_width}});
    const auto reference =
        at::_upsample_bilinear2d_aa(planes(picture).to(torch::kFloat).unsqueeze(0),
                                    {c.to_height, c.to_width}, false)[0]
            .round()
            .clamp(0, 255)
            .to(torch::kUInt8);
    EXPECT_LE(largest_difference(image, reference), 1)
        << c.height << "x" << c.width << " to " << c.to_height << "x" << c.to_width;
  }
}

TEST(DecodeImageTest, ASizeThatCannotBeIsRefused) {
  const auto png = test::encode_png(test::test_picture(4, 4));
  for (const ImageSize size : {ImageSize{-1, 5}, ImageSize{5, 0}, ImageSize{1, 1 << 21}}) {
    EXPECT_EQ(test::error_code([&] { decoded(png, {.resize = size}); }),
              ErrorCode::kInvalidArgument);
  }
}

TEST(DecodeImageTest, AStripThatWouldTakeMuchMemoryToResizeIsRefused) {
  EXPECT_THAT(test::error_text([&] { decoded(test::png_bomb(1U << 26, 1)); }),
              AllOf(HasSubstr("side"), HasSubstr("more than 1,048,576")));
  const std::string tall = "P5 1 1048576 255\n" + std::string(1 << 20, 'x');
  EXPECT_THAT(test::error_text([&] {
                decoded(tall, {.resize = {2, 1024}});
              }),
              AllOf(HasSubstr("1048576x1024 (HxW)"), HasSubstr("268,435,456"), HasSubstr("here")));
  EXPECT_EQ(decoded(tall, {.resize = {2, 16}}).size(2), 16);
}

TEST(DecodeImageTest, WhatCannotBeDecodedIsABadFieldWithTheReason) {
  const auto png = test::encode_png(test::test_picture(12, 9));
  EXPECT_EQ(test::error_code([&] { decoded(png.substr(0, 60)); }), ErrorCode::kBadField);
  EXPECT_THAT(test::error_text([&] { decoded(png.substr(0, 60)); }),
              AllOf(HasSubstr("the data ends early"), HasSubstr("here")));
  EXPECT_THAT(test::error_text([] { decoded(test::png_bomb(1'000'000, 1'000'000)); }),
              HasSubstr("limit of 268,435,456"));
  EXPECT_THAT(test::error_text([&] { decoded(png, {.max_pixels = 107}); }),
              AllOf(HasSubstr("9x12 (HxW)"), HasSubstr("limit of 107 pixels")));
  EXPECT_NO_THROW(decoded(png, {.max_pixels = 108}));
}

// ------------------------------------------------------------------------------------------- npy

std::string npy(std::string header, std::string_view data, int version = 1) {
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  }
  return bytes + header + std::string(data);
}

std::string npy(const std::string& type, const std::string& shape, std::string_view data,
                bool fortran = false, int version = 1) {
  return npy("{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
                 ", 'shape': " + shape + ", }",
             data, version);
}

torch::Tensor npy_tensor(std::string_view bytes) { return decode_npy(bytes, "here"); }

template <class T>
std::string raw(std::initializer_list<T> values, bool swapped = false) {
  std::string bytes;
  for (const T value : values) {
    std::string one(reinterpret_cast<const char*>(&value), sizeof value);
    if (swapped) std::reverse(one.begin(), one.end());
    bytes += one;
  }
  return bytes;
}

TEST(DecodeNpyTest, EveryPlainTypeHasItsTensorType) {
  struct Row {
    std::string type;
    std::string data;
    torch::Tensor expected;
  };
  const auto ints = [](auto type) { return torch::tensor({1, 2, -3}, type); };
  const std::vector<Row> rows = {
      {"|b1", raw<std::uint8_t>({0, 1, 7}), torch::tensor({false, true, true})},
      {"|i1", raw<std::int8_t>({1, 2, -3}), ints(torch::kInt8)},
      {"|u1", raw<std::uint8_t>({1, 2, 253}), torch::tensor({1, 2, 253}, torch::kUInt8)},
      {"<i2", raw<std::int16_t>({1, 2, -3}), ints(torch::kInt16)},
      {">i2", raw<std::int16_t>({1, 2, -3}, true), ints(torch::kInt16)},
      {"<i4", raw<std::int32_t>({1, 2, -3}), ints(torch::kInt32)},
      {">i4", raw<std::int32_t>({1, 2, -3}, true), ints(torch::kInt32)},
      {"<i8", raw<std::int64_t>({1, 2, -3}), ints(torch::kInt64)},
      {">i8", raw<std::int64_t>({1, 2, -3}, true), ints(torch::kInt64)},
      {"<u2", raw<std::uint16_t>({1, 2, 65535}), torch::tensor({1, 2, 65535}, torch::kInt32)},
      {">u2", raw<std::uint16_t>({1, 2, 65535}, true), torch::tensor({1, 2, 65535}, torch::kInt32)},
      {"<u4", raw<std::uint32_t>({1, 2, 4294967295u}),
       torch::tensor({std::int64_t{1}, std::int64_t{2}, std::int64_t{4294967295}})},
      {"<f4", raw<float>({1, 2, -3}), ints(torch::kFloat)},
      {">f4", raw<float>({1, 2, -3}, true), ints(torch::kFloat)},
      {"<f8", raw<double>({1, 2, -3}), ints(torch::kDouble)},
      {">f8", raw<double>({1, 2, -3}, true), ints(torch::kDouble)},
      {"<f2", raw<std::uint16_t>({0x3C00, 0x4000, 0xC200}), ints(torch::kHalf)},
      {">f2", raw<std::uint16_t>({0x3C00, 0x4000, 0xC200}, true), ints(torch::kHalf)},
  };
  for (const Row& row : rows) {
    const auto tensor = npy_tensor(npy(row.type, "(3,)", row.data));
    EXPECT_EQ(tensor.dtype(), row.expected.dtype()) << row.type;
    EXPECT_TRUE(tensor.equal(row.expected)) << row.type << "\n" << tensor;
  }
  const auto complex = npy_tensor(npy(">c8", "(1,)", raw<float>({1, -2}, true)));
  EXPECT_EQ(complex.dtype(), torch::kComplexFloat);
  EXPECT_TRUE(torch::view_as_real(complex).equal(torch::tensor({{1.0f, -2.0f}})));
  const auto wide = npy_tensor(npy("<c16", "(1,)", raw<double>({1, -2})));
  EXPECT_EQ(wide.dtype(), torch::kComplexDouble);
}

TEST(DecodeNpyTest, FortranOrderGivesTheSameElements) {
  const auto c = npy_tensor(npy("<i4", "(2, 3)", raw<std::int32_t>({0, 1, 2, 3, 4, 5})));
  const auto f = npy_tensor(npy("<i4", "(2, 3)", raw<std::int32_t>({0, 3, 1, 4, 2, 5}), true));
  EXPECT_TRUE(c.equal(f));
  EXPECT_TRUE(f.is_contiguous());
  EXPECT_EQ(c.sizes(), (std::vector<std::int64_t>{2, 3}));
}

TEST(DecodeNpyTest, ScalarsEmptyArraysAndAllVersionsAreRead) {
  const auto scalar = npy_tensor(npy("<f8", "()", raw<double>({2.5})));
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(scalar.item<double>(), 2.5);
  const auto empty = npy_tensor(npy("<f4", "(0, 5)", ""));
  EXPECT_EQ(empty.sizes(), (std::vector<std::int64_t>{0, 5}));
  for (const int version : {1, 2, 3}) {
    EXPECT_EQ(
        npy_tensor(npy("<i8", "(1,)", raw<std::int64_t>({9}), false, version)).item<std::int64_t>(),
        9);
  }
  EXPECT_EQ(npy_tensor(npy(R"({"shape":(1L,),"fortran_order":False,"descr":"<i8"})",
                           raw<std::int64_t>({9})))
                .item<std::int64_t>(),
            9);
}

TEST(DecodeNpyTest, WhatIsNoArrayOfNumbersIsRefusedWithItsReason) {
  const auto text = [](const std::string& bytes) {
    return test::error_text([&] { npy_tensor(bytes); });
  };
  EXPECT_THAT(text(npy("|O", "(1,)", "cos\nsystem\n")), HasSubstr("is a pickle"));
  EXPECT_THAT(
      text(npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }", "abcd")),
      HasSubstr("array of records"));
  for (const char* type : {"<u8", "<U3", "|S3", "<M8[ns]", "<f16", "<i3", "i4", ""}) {
    EXPECT_THAT(text(npy(type, "(1,)", "12345678")),
                AnyOf(HasSubstr("LibTorch has no type"), HasSubstr("of plain numbers")))
        << type;
  }
  EXPECT_THAT(text(npy("<i4", "(4611686018427387904, 4611686018427387904)", "abcd")),
              HasSubstr("too many elements"));
  EXPECT_THAT(text(npy("<i4", "(4611686018427387904, 4611686018427387904, 0)", "")),
              HasSubstr("too many elements"));
  EXPECT_THAT(text(npy("<i4", "(-1,)", "abcd")), HasSubstr("size in the shape"));
  EXPECT_THAT(text(npy("<i4", "(2,)", "abcd")),
              AllOf(HasSubstr("ends early, 4 bytes"), HasSubstr("needs 8")));
  EXPECT_THAT(text(npy("<i4", "(1,)", "abcdefgh")), HasSubstr("too long"));
  EXPECT_THAT(text(npy("<i4", "(1000000000000,)", "abcd")), HasSubstr("ends early"));
  EXPECT_THAT(text(npy("{'descr': '<i4', 'shape': (1,), }", "abcd")), HasSubstr("lacks descr"));
  EXPECT_THAT(text(npy("<i4", "(1,)", "abcd", false, 4)), HasSubstr("version 4.0"));
  EXPECT_THAT(text("not an array"), HasSubstr("not a NumPy array"));
}

TEST(DecodeNpyTest, EveryTruncationIsRefused) {
  for (const int version : {1, 2}) {
    expect_truncations_refused(
        npy("<i4", "(2, 3)", raw<std::int32_t>({0, 1, 2, 3, 4, 5}), false, version),
        [](std::string_view b) { npy_tensor(b); });
  }
}

// ---------------------------------------------------------------------------- json, text, samples

TEST(DecodeJsonTest, DocumentsAreReadAndBadOnesRefusedWithTheByte) {
  const auto json = decode_json(R"({"boxes": [[1, 2.5]], "name": "Ä"})", {}, "here");
  EXPECT_EQ(json["boxes"][0][1], 2.5);
  EXPECT_EQ(json["name"], "Ä");
  const auto text = [](std::string_view bytes, DecodeOptions options = {}) {
    return test::error_text([&] { decode_json(bytes, options, "here"); });
  };
  EXPECT_THAT(text("{\"a\": }"), AllOf(HasSubstr("'}' where a value"), HasSubstr("at offset 6")));
  EXPECT_THAT(text("[NaN]"), AllOf(HasSubstr("'NaN' where a value"), HasSubstr("at offset 1")));
  EXPECT_THAT(text({"{}\0 x", 5}), AllOf(HasSubstr("after the value"), HasSubstr("at offset 2")));
  EXPECT_EQ(decode_json("\xEF\xBB\xBF[1]", {}, "here")[0], 1);
  EXPECT_THAT(text(""), HasSubstr("JSON"));
  EXPECT_THAT(text("\"\xFF\""), HasSubstr("JSON"));
  EXPECT_THAT(text(std::string(129, '[') + std::string(129, ']')), HasSubstr("deeper than 128"));
  EXPECT_THAT(text(std::string(1'000'000, '[')), HasSubstr("deeper than 128"));
  EXPECT_NO_THROW(decode_json(std::string(128, '[') + std::string(128, ']'), {}, "here"));
  EXPECT_THAT(text("[1, 2, 3]", {.max_json_bytes = 8}), HasSubstr("limit of 8"));
}

TEST(DecodeSampleTest, FieldsAreDecodedByTheirNames) {
  const test::TempDir dir;
  const auto picture = test::test_picture(8, 6);
  const auto data = test::make_dataset(dir, "mixed",
                                       {{{"seg.png", test::encode_png(picture)},
                                         {"jpg", test::encode_png(picture)},  // the content decides
                                         {"cls", " 7\n"},
                                         {"txt", "grüße"},
                                         {"json", R"({"a": 1})"},
                                         {"npy", npy("<i4", "(1,)", raw<std::int32_t>({5}))},
                                         {"pkl", "cposix\nsystem\n(S'touch x'\ntR."}}});
  const Sample sample = data[0];
  const auto values = decode(sample);
  ASSERT_EQ(values.size(), 7u);
  EXPECT_TRUE(std::get<torch::Tensor>(values.at("seg.png")).equal(planes(picture)));
  EXPECT_TRUE(std::get<torch::Tensor>(values.at("jpg")).equal(planes(picture)));
  EXPECT_EQ(std::get<std::int64_t>(values.at("cls")), 7);
  EXPECT_EQ(std::get<std::string>(values.at("txt")), "grüße");
  EXPECT_EQ((*std::get<std::shared_ptr<const nlohmann::json>>(values.at("json")))["a"], 1);
  EXPECT_EQ(std::get<torch::Tensor>(values.at("npy")).item<std::int64_t>(), 5);
  EXPECT_EQ(std::get<Bytes>(values.at("pkl")).data.substr(0, 6), "cposix");
}

TEST(DecodeSampleTest, ABadFieldIsNamedWithItsShardAndKey) {
  const test::TempDir dir;
  const auto data = test::make_dataset(dir, "bad",
                                       {{{"cls", "1"}, {"txt", "a"}},
                                        {{"png", "no image"},
                                         {"npy", "no array"},
                                         {"json", "{"},
                                         {"txt", "\xC0\xC1"},
                                         {"cls", "one"}}});
  const Sample sample = data[1];
  for (const char* field : {"png", "npy", "json", "txt", "cls"}) {
    EXPECT_EQ(test::error_code([&] { decode(sample, field); }), ErrorCode::kBadField);
    EXPECT_THAT(test::error_text([&] { decode(sample, field); }),
                AllOf(HasSubstr("bad-0.tar"), HasSubstr("s00001"), HasSubstr(field)));
  }
  EXPECT_EQ(test::error_code([&] { decode(sample, "jpg"); }), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace shardwise::libtorch
