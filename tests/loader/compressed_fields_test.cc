#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <map>
#include <new>

#include "compressed_bytes.h"
#include "loader/one_batch.h"
#include "shardwise/loader/loader.h"
#include "support/dataset.h"
#include "support/images.h"
#include "support/says.h"

namespace {
std::atomic<std::size_t> largest_request{0};

void* take(std::size_t size) noexcept {
  std::size_t largest = largest_request;
  while (size > largest && !largest_request.compare_exchange_weak(largest, size)) {
  }
  return std::malloc(size > 0 ? size : 1);
}

void* take_or_throw(std::size_t size) {
  if (void* const memory = take(size)) return memory;
  throw std::bad_alloc();
}

// Not inlined: a compiler that sees free() after `new` would warn of a mismatch.
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }
}  // namespace

void* operator new(std::size_t size) { return take_or_throw(size); }
void* operator new[](std::size_t size) { return take_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return take(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return take(size); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }

namespace shardwise {
namespace {

using fuzz::compressed_bytes;
using test::one_batch;
using testing::ElementsAre;
using testing::HasSubstr;

const std::map<std::string, Compression> kSuffixes = {{".gz", Compression::kGzip},
                                                      {".zst", Compression::kZstd},
                                                      {".xz", Compression::kXz},
                                                      {".bz2", Compression::kBzip2},
                                                      {".lz4", Compression::kLz4}};

std::string npy_of_ints(std::int32_t first, std::int32_t second) {
  const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  bytes += header;
  for (const std::int32_t value : {first, second}) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

void copy_bytes(std::string_view bytes, const Hash128&, columns::Row& row) {
  std::copy(bytes.begin(), bytes.end(),
            reinterpret_cast<char*>(row.resize(static_cast<std::int64_t>(bytes.size())).data()));
}

TEST(CompressedFieldsTest, EveryColumnLooksIntoThem) {
  const test::TempDir dir;
  const std::string png = test::encode_png(test::test_picture(20, 16));
  const std::map<std::string, std::vector<std::string>> fields = {
      {"txt", {"caption \xC3\xB6", ""}},
      {"json", {R"({"a": [1, 2]})", " 7 "}},
      {"ids", {std::string("\1\0\0\0\2\0\0\0", 8), ""}},
      {"cls", {"42", " -3\n"}},
      {"npy", {npy_of_ints(5, 6), npy_of_ints(-7, 8)}},
      {"png", {png, png}}};
  for (const auto& [suffix, compression] : kSuffixes) {
    std::vector<test::Fields> plain(2), packed(2);
    for (const auto& [name, values] : fields) {
      for (std::size_t i = 0; i < 2; ++i) {
        plain[i].emplace_back(name, values[i]);
        packed[i].emplace_back(name + suffix, compressed_bytes(values[i], compression));
      }
    }
    const auto columns = [](const std::string& end) {
      const ImageTransform cut{.resize = {8, 8}};
      return std::vector<Column>{
          columns::text("txt" + end).named("txt"),
          columns::json("json" + end).named("json"),
          columns::tokens("ids" + end).named("ids"),
          columns::integer("cls" + end).named("cls"),
          columns::array("npy" + end, DType::kInt32, {2}).named("npy"),
          columns::array("npy" + end, DType::kInt32).named("ragged"),
          columns::image("png" + end).named("image"),
          columns::image("png" + end, cut).named("small"),
          columns::image("").named("only"),
          columns::ragged_decoded("txt" + end, DType::kUInt8, copy_bytes).named("decoded")};
    };
    const Batch expected = one_batch(test::make_dataset(dir, "plain", plain), columns(""));
    const Batch found = one_batch(test::make_dataset(dir, "packed", packed), columns(suffix));
    ASSERT_EQ(found.arrays().size(), expected.arrays().size());
    for (std::size_t a = 0; a < expected.arrays().size(); ++a) {
      const Batch::Array& array = expected.arrays()[a];
      EXPECT_EQ(found.arrays()[a].shape(), array.shape()) << suffix << " " << array.name();
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(found.arrays()[a].text(i), array.text(i)) << suffix << " " << array.name();
      }
    }
    EXPECT_EQ(found["txt"].text(0), "caption \xC3\xB6");
  }
}

TEST(CompressedFieldsTest, BytesAreGivenAsTheyAre) {
  const test::TempDir dir;
  const std::string packed = compressed_bytes("text", Compression::kGzip);
  const Dataset data = test::make_dataset(dir, "d", {{{"txt.gz", packed}}});
  const Batch batch = one_batch(data, {columns::bytes("txt.gz")});
  EXPECT_EQ(batch["txt.gz"].text(0), packed);
}

TEST(CompressedFieldsTest, ASampleMayHaveEither) {
  const test::TempDir dir;
  const Dataset data =
      test::make_dataset(dir, "d",
                         {{{"txt", "as it is"}},
                          {{"txt.gz", compressed_bytes("one", Compression::kGzip)}},
                          {{"txt.zst", compressed_bytes("two", Compression::kZstd) +
                                           compressed_bytes(" streams", Compression::kZstd)}}});
  const Batch batch = one_batch(data, {columns::text("txt;txt.gz;txt.zst")});
  EXPECT_TRUE(batch["txt"].is_ragged());
  EXPECT_THAT(batch["txt"].offsets(), ElementsAre(0, 8, 11, 22));
  EXPECT_EQ(batch["txt"].text(0), "as it is");
  EXPECT_EQ(batch["txt"].text(1), "one");
  EXPECT_EQ(batch["txt"].text(2), "two streams");
}

// faults.md 41
TEST(CompressedFieldsTest, WhatCannotBeExpandedIsABadField) {
  const test::TempDir dir;
  const std::string good = compressed_bytes(std::string(300, 'x') + "text", Compression::kGzip);
  std::string changed = good;
  changed[changed.size() - 6] ^= 1;  // a byte of the checksum
  const auto text = [&](const std::string& bytes, const std::string& name = "txt.gz") {
    const Dataset data = test::make_dataset(dir, "bad", {{{name, bytes}}});
    return test::error_text([&] { one_batch(data, {columns::text(name)}); });
  };
  EXPECT_THAT(
      text(good.substr(0, good.size() - 3)),
      test::Says("cannot decode field 'txt.gz'", "as gzip (truncated", "within a gzip stream",
                 "sample 0 ('s00000') in shard", "repair the member", "leave the sample out"));
  EXPECT_THAT(text(""), HasSubstr("as gzip (truncated"));
  EXPECT_THAT(text(changed), HasSubstr("as gzip (incorrect data check)"));
  EXPECT_THAT(text(good + "more"), HasSubstr("nor zeros"));
  EXPECT_THAT(text("plain text"), test::Says("no gzip header", "sample 0"));
  EXPECT_THAT(text(good, "txt.zst"), test::Says("no zstd header", "is gzip"));
  EXPECT_THAT(text(compressed_bytes("\xFF", Compression::kGzip)),
              test::Says("cannot decode field 'txt.gz'", "as text", "not UTF-8"));
  const Dataset number = test::make_dataset(
      dir, "number", {{{"cls.gz", compressed_bytes("seven", Compression::kGzip)}}});
  EXPECT_ERROR(test::Says("cannot decode field 'cls.gz'", "not an integer: \"seven\""),
               one_batch(number, {columns::integer("cls.gz")}));
}

TEST(CompressedFieldsTest, TheLargestLimitIsNone) {
  const test::TempDir dir;
  const Dataset data =
      test::make_dataset(dir, "d", {{{"txt.gz", compressed_bytes("text", Compression::kGzip)}}});
  Loader loader(data, {.columns = {columns::text("txt.gz")},
                       .max_expanded_bytes = std::numeric_limits<std::uint64_t>::max()});
  const auto batch = loader.next();
  EXPECT_EQ((*batch)["txt.gz"].text(0), "text");
}

TEST(CompressedFieldsTest, BadOnesAreLeftOut) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 20; ++i) {
    std::string bytes = compressed_bytes(std::to_string(i), Compression::kZstd);
    if (i % 7 == 3) bytes.resize(bytes.size() - 1);
    samples.push_back({{"cls.zst", bytes}, {"txt.zst", bytes}});
  }
  const Dataset data = test::make_dataset(dir, "d", samples, 6);
  Loader loader(data, {.columns = {columns::integer("cls.zst"), columns::text("txt.zst")},
                       .order = {.seed = 5},
                       .batch_size = 4,
                       .threads = 2,
                       .max_bad = 3});
  std::size_t count = 0;
  while (const auto batch = loader.next()) {
    for (std::size_t i = 0; i < batch->size(); ++i, ++count) {
      const std::int64_t sample = batch->samples()[i];
      EXPECT_EQ((*batch)["cls.zst"].values<std::int64_t>()[i], sample);
      EXPECT_EQ((*batch)["txt.zst"].text(i), std::to_string(sample));
    }
  }
  EXPECT_EQ(count, 17U);
  EXPECT_THAT(loader.prove(),
              HasSubstr("17 samples, each exactly once, 3 excluded on purpose: proven"));
  EXPECT_EQ(loader.stats().bad_samples, 3U);
}

// faults.md 41
TEST(CompressedFieldsTest, ABombIsRefusedInBoundedMemory) {
  const test::TempDir dir;
  constexpr std::uint64_t kCap = std::uint64_t{1} << 20;
  for (const auto& [suffix, compression] : kSuffixes) {
    const std::string bomb = compressed_bytes(std::string(kCap * 6, '\0'), compression);
    const Dataset data = test::make_dataset(dir, "bomb", {{{"txt" + suffix, bomb}}});
    const Column column = columns::text("txt" + suffix);
    largest_request = 0;
    EXPECT_ERROR(test::Says("exceeds 1.0 MiB", "limit of max_expanded_bytes",
                            "sample 0 ('s00000') in shard"),
                 one_batch(data, {column}, {.max_expanded_bytes = kCap}));
    EXPECT_LE(largest_request, kCap + 1) << suffix;
    const Batch batch = one_batch(data, {column}, {.max_expanded_bytes = kCap * 6});
    EXPECT_EQ(batch["txt" + suffix].text(0).size(), kCap * 6);
  }
}

}  // namespace
}  // namespace shardwise
