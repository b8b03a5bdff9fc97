#include "shardwise/loader/columns.h"

#include <cstring>
#include <memory_resource>
#include <new>
#include <stdexcept>

#include "loader/one_batch.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sample_key.h"
#include "support/dataset.h"
#include "support/says.h"
#include "zip_bytes.h"

namespace shardwise {
namespace {

using namespace std::string_literals;
using test::one_batch;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Returns a .npy file of version 1.
std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                const std::string& fortran = "False") {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
  const auto size = static_cast<unsigned char>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + std::string(1, static_cast<char>(size)) +
         std::string(1, '\0') + header + data;
}

std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

TEST(ColumnsTest, BytesTextsNumbersAndKeysOfEverySample) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d",
                                          {{{"bin", "abc"}, {"txt", "eins"}, {"cls", "7"}},
                                           {{"bin", ""}, {"txt", "zw\xC3\xB6lf"}, {"cls", " -3\n"}},
                                           {{"bin", "de"}, {"txt", ""}, {"cls", "0"}}});
  const Batch batch = one_batch(data, {columns::bytes("bin"), columns::text("txt").named("caption"),
                                       columns::integer("cls"), columns::key()});
  EXPECT_EQ(batch.size(), 3u);
  EXPECT_THAT(batch.samples(), ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.positions(), ElementsAre(0, 1, 2));
  const Batch::Array& bytes = batch["bin"];
  EXPECT_TRUE(bytes.is_ragged());
  EXPECT_EQ(bytes.dtype(), DType::kUInt8);
  EXPECT_THAT(bytes.shape(), ElementsAre(3));
  EXPECT_THAT(bytes.offsets(), ElementsAre(0, 3, 3, 5));
  EXPECT_THAT(bytes.row_shape(2), ElementsAre(2));
  EXPECT_EQ(bytes.text(0), "abc");
  EXPECT_EQ(bytes.text(1), "");
  EXPECT_EQ(bytes.text(2), "de");
  EXPECT_EQ(batch["caption"].text(1), "zw\xC3\xB6lf");
  EXPECT_FALSE(batch["cls"].is_ragged());
  EXPECT_THAT(batch["cls"].shape(), ElementsAre(3));
  EXPECT_THAT(batch["cls"].values<std::int64_t>(), ElementsAre(7, -3, 0));
  EXPECT_EQ(batch["__key__"].text(1), "s00001");
  for (const Batch::Array& array : batch.arrays()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.memory().get()) % 64, 0u);
  }
}

TEST(ColumnsTest, RowsThatAreMadeTogetherAreThoseThatAreMadeOneByOne) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i);
    test::Fields fields = {{"a", "a" + number}, {"cls", number}};
    if (i % 3 == 0) fields = {{"b", "b" + number}, {"cls", " " + number}};
    if (i % 7 == 0) fields = {{"cls", number + "\n"}, {"b", "b" + number}, {"a", "a" + number}};
    samples.push_back(fields);
  }
  const Dataset data = test::make_dataset(dir, "d", samples);
  const auto make = [](const Sample& sample, const Hash128&, columns::Row& row) {
    row.values<std::int64_t>()[0] = static_cast<std::int64_t>(sample.index());
  };
  std::vector<Column> columns = {columns::bytes("a;b"), columns::integer("cls"), columns::key()};
  const Batch together = one_batch(data, columns);
  columns.push_back(columns::function("f", DType::kInt64, {1}, make));  // has no make_rows()
  const Batch alone = one_batch(data, columns);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::string number = std::to_string(i);
    EXPECT_EQ(together["a"].text(i), (i % 3 == 0 && i % 7 != 0 ? "b" : "a") + number);
    EXPECT_EQ(together["cls"].values<std::int64_t>()[i], static_cast<std::int64_t>(i));
    EXPECT_EQ(together["a"].text(i), alone["a"].text(i));
    EXPECT_EQ(together["__key__"].text(i), alone["__key__"].text(i));
  }
  EXPECT_THAT(together.samples(), testing::ElementsAreArray(alone.samples()));
}

TEST(ColumnsTest, ABadRowAmongThoseThatAreMadeTogetherIsNamedOrLeftOut) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 70; ++i) {
    samples.push_back({{"bin", std::string(static_cast<std::size_t>(i), 'x')}, {"cls", "1"}});
  }
  samples[40] = {{"bin", "y"}, {"cls", "many"}};
  samples[41] = {{"bin", "z"}};
  const Dataset data = test::make_dataset(dir, "d", samples);
  const std::vector<Column> columns = {columns::bytes("bin"), columns::integer("cls")};
  EXPECT_ERROR(test::Says("field 'cls'", "not an integer: 'many'", "sample 40 ('s00040')"),
               one_batch(data, columns));
  const Batch batch = one_batch(data, columns, {.max_bad = 2});
  ASSERT_EQ(batch.size(), 68u);
  EXPECT_EQ(batch["bin"].text(39), std::string(39, 'x'));
  EXPECT_EQ(batch["bin"].text(40), std::string(42, 'x'));
  EXPECT_EQ(batch["cls"].values<std::int64_t>()[67], 1);
}

TEST(ColumnsTest, BlanksAroundTheNameOfAFieldDoNotCount) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"b", "1"}}, {{"a", "2"}}});
  const Batch batch = one_batch(data, {columns::text(" a; b\t")});
  EXPECT_EQ(batch["a"].text(0), "1");
  EXPECT_EQ(batch["a"].text(1), "2");
  EXPECT_ERROR(test::Says("name of a field", "' ; '"), columns::text(" ; "));
}

TEST(ColumnsTest, ArraysHaveTheTypeAndShapeThatTheColumnSays) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(
      dir, "d",
      {{{"npy", npy("<f4", "(2, 2)", floats({1, 2, 3, 4}))}},
       {{"npy", npy("<f4", "(2, 2)", floats({1, 2, 3, 4}), "True")}},
       {{"npy", npy(">f4", "(2, 2)",
                    std::string("\x3F\x80\0\0\x40\0\0\0\x40\x40\0\0\x40\x80\0\0", 16))}}});
  const Batch batch = one_batch(data, {columns::array("npy", DType::kFloat32, {2, 2})});
  EXPECT_THAT(batch["npy"].shape(), ElementsAre(3, 2, 2));
  EXPECT_THAT(batch["npy"].values<float>(), ElementsAre(1, 2, 3, 4, 1, 3, 2, 4, 1, 2, 3, 4));
  EXPECT_ERROR(test::Says("float32", "int64", "s00000"),
               one_batch(data, {columns::array("npy", DType::kInt64, {2, 2})}));
  EXPECT_ERROR(test::Says("[2, 2]", "[4]"),
               one_batch(data, {columns::array("npy", DType::kFloat32, {4})}));
}

TEST(ColumnsTest, AnArrayOfAnNpzFileIsReadByItsName) {
  const test::TempDir dir;
  const std::string pair = npy("<f4", "(2,)", floats({1, 2}));
  const std::string other = npy("<i2", "(1,)", std::string("\7\0", 2));
  const Dataset data =
      test::make_dataset(dir, "d",
                         {{{"npz", fuzz::zip({{"pair.npy", pair}, {"other.npy", other}}, false)}},
                          {{"npz", fuzz::zip({{"other.npy", other}, {"pair.npy", pair}}, true)}}});
  const Batch batch = one_batch(data, {columns::npz("npz", "pair", DType::kFloat32, {2}),
                                       columns::npz("npz", "other", DType::kInt16)});
  EXPECT_THAT(batch["pair"].shape(), ElementsAre(2, 2));
  EXPECT_THAT(batch["pair"].values<float>(), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(batch["other"].offsets(), ElementsAre(0, 1, 2));
  EXPECT_THAT(batch["other"].values<std::int16_t>(), ElementsAre(7, 7));
  EXPECT_ERROR(test::Says("s00000", "'npz'", "its arrays are pair, other"),
               one_batch(data, {columns::npz("npz", "x", DType::kInt16)}));
  EXPECT_ERROR(test::Says("name of an array"), columns::npz("npz", "", DType::kInt16));
}

TEST(ColumnsTest, TokensAreRawIntegers) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d",
                                          {{{"ids", std::string("\1\0\0\0\xFF\xFF\xFF\xFF", 8)}},
                                           {{"ids", ""}},
                                           {{"ids", std::string("\2\0\1\0", 4)}}});
  const Batch batch = one_batch(data, {columns::tokens("ids")});
  EXPECT_EQ(batch["ids"].dtype(), DType::kInt32);
  EXPECT_THAT(batch["ids"].offsets(), ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(batch["ids"].values<std::int32_t>(), ElementsAre(1, -1, 65538));
  const Batch shorts = one_batch(data, {columns::tokens("ids", DType::kUInt16)});
  EXPECT_THAT(shorts["ids"].offsets(), ElementsAre(0, 4, 4, 6));
  EXPECT_THAT(shorts["ids"].values<std::uint16_t>(), ElementsAre(1, 0, 65535, 65535, 2, 1));
  EXPECT_ERROR(test::Says("4 bytes", "multiple of 8", "s00002", "'ids'"),
               one_batch(data, {columns::tokens("ids", DType::kInt64)}));
  EXPECT_ERROR(test::Says("float32", "choose uint16"), columns::tokens("ids", DType::kFloat32));
}

TEST(ColumnsTest, JsonIsCheckedAndGivenAsItIs) {
  const test::TempDir dir;
  const std::vector<std::string> good = {R"({"a": [1, 2.5, null]})", " 7\n", "\"\xC3\xB6\"",
                                         "\xEF\xBB\xBF[1]",
                                         std::string(500, '[') + std::string(500, ']')};
  std::vector<test::Fields> samples;
  for (const std::string& text : good) samples.push_back({{"json", text}});
  const Batch batch = one_batch(test::make_dataset(dir, "good", samples), {columns::json("json")});
  for (std::size_t i = 0; i < good.size(); ++i) EXPECT_EQ(batch["json"].text(i), good[i]);
  for (const std::string& bad :
       {""s, "{"s, "{} {}"s, "nan"s, "[NaN]"s, "1e999"s, "\"\xFF\""s, R"("\ud800")"s, "{}\0 x"s,
        std::string(501, '[') + std::string(501, ']')}) {
    const Dataset data = test::make_dataset(dir, "bad", {{{"json", bad}}});
    EXPECT_ERROR(test::Says("cannot decode field 'json' as JSON", "s00000"),
                 one_batch(data, {columns::json("json")}))
        << bad;
  }
}

TEST(ColumnsTest, PicklesAreGivenAsBytesOnly) {
  for (const std::string field : {"pt", "emb.pth", "txt;pkl", "pickle", "emb.pt.gz"}) {
    const auto refused = test::Says("can run code", "columns::bytes");
    EXPECT_ERROR(refused, columns::array(field, DType::kFloat32));
    EXPECT_ERROR(refused, columns::image(field));
    EXPECT_ERROR(refused, columns::text(field));
    EXPECT_ERROR(refused, columns::json(field));
    EXPECT_ERROR(refused, columns::tokens(field));
    EXPECT_ERROR(refused, columns::integer(field));
    EXPECT_NO_THROW(columns::bytes(field));
  }
  EXPECT_EQ(columns::text("ptx").name(), "ptx");
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"pt", "\x80\x02."}}});
  const Batch batch = one_batch(data, {columns::bytes("pt")});
  EXPECT_EQ(batch["pt"].text(0), "\x80\x02.");
}

TEST(ColumnsTest, ANegativeShapeIsRefusedAtOnce) {
  const auto make = [](const Sample&, const Hash128&, columns::Row&) {};
  EXPECT_ERROR(test::Says("shape", "negative number", "'f': -3"),
               columns::function("f", DType::kInt32, {2, -3}, make));
  EXPECT_ERROR(test::Says("shape", "negative number", "'npy': -1"),
               columns::array("npy", DType::kInt32, {-1}));
}

TEST(ColumnsTest, RaggedArraysKeepTheirShapes) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d",
                                          {{{"npy", npy("<f4", "(1, 2)", floats({1, 2}))}},
                                           {{"npy", npy("<f4", "(0, 2)", "")}},
                                           {{"npy", npy("<f4", "(2, 1)", floats({3, 4}))}}});
  const Batch batch = one_batch(data, {columns::array("npy", DType::kFloat32)});
  const Batch::Array& array = batch["npy"];
  EXPECT_THAT(array.offsets(), ElementsAre(0, 2, 2, 4));
  EXPECT_THAT(array.row_shape(0), ElementsAre(1, 2));
  EXPECT_THAT(array.row_shape(1), ElementsAre(0, 2));
  EXPECT_THAT(array.row_shape(2), ElementsAre(2, 1));
  EXPECT_THAT(array.values<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(ColumnsTest, AFunctionMakesRowsOfItsOwn) {
  const test::TempDir dir;
  const Dataset data =
      test::make_dataset(dir, "d", {{{"t", "abc"}}, {{"t", "de"}}, {{"t", "fghi"}}});
  const Batch batch = one_batch(
      data, {columns::function("length", DType::kInt32, {2},
                               [](const Sample& sample, const Hash128&, columns::Row& row) {
                                 row.values<std::int32_t>()[0] =
                                     static_cast<std::int32_t>(sample["t"].size());
                                 row.values<std::int32_t>()[1] =
                                     static_cast<std::int32_t>(sample.index());
                               }),
             columns::ragged_function("twice", DType::kUInt8,
                                      [](const Sample& sample, const Hash128&, columns::Row& row) {
                                        const std::string twice =
                                            sample.copy("t") + sample.copy("t");
                                        row.resize(static_cast<std::int64_t>(twice.size()));
                                        std::memcpy(row.bytes().data(), twice.data(), twice.size());
                                      }),
             columns::ragged_function("nothing", DType::kInt64,
                                      [](const Sample&, const Hash128&, columns::Row&) {})});
  EXPECT_THAT(batch["length"].values<std::int32_t>(), ElementsAre(3, 0, 2, 1, 4, 2));
  EXPECT_EQ(batch["twice"].text(1), "dede");
  EXPECT_THAT(batch["nothing"].offsets(), ElementsAre(0, 0, 0, 0));
}

TEST(ColumnsTest, AFunctionThatWritesValuesOfAnotherTypeIsToldSo) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"t", "abc"}}});
  const auto write = [&]<class T>(DType dtype, T) {
    one_batch(data, {columns::function("x", dtype, {2},
                                       [](const Sample&, const Hash128&, columns::Row& row) {
                                         row.values<T>()[0] = T{};
                                       })});
  };
  const auto text = [&](DType dtype, auto value) {
    return test::error_text([&] { write(dtype, value); });
  };
  EXPECT_THAT(text(DType::kFloat32, double{}),
              test::Says("column 'x', sample 0 ('s00000') in shard", "values of the row",
                         "float32, 4 bytes each"));
  EXPECT_THAT(text(DType::kInt32, float{}), HasSubstr("the row are int32, 4 bytes each"));
  EXPECT_THAT(text(DType::kInt64, std::uint64_t{}), HasSubstr("the row are int64, 8 bytes each"));
  EXPECT_NO_THROW(write(DType::kFloat32, float{}));
  EXPECT_NO_THROW(write(DType::kUInt8, char{}));
  EXPECT_NO_THROW(write(DType::kBool, bool{}));
  EXPECT_NO_THROW(write(DType::kFloat16, std::uint16_t{}));
  EXPECT_NO_THROW(write(DType::kComplex64, float{}));
}

TEST(ColumnsTest, ARowIsGivenItsShapeOnceAlsoThatOfASingleValue) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"t", "abc"}}});
  EXPECT_THAT(test::error_text([&] {
                one_batch(data, {columns::ragged_function(
                                    "x", DType::kInt32,
                                    [](const Sample&, const Hash128&, columns::Row& row) {
                                      row.resize(std::span<const std::int64_t>{});
                                      row.resize(std::span<const std::int64_t>{});
                                    })});
              }),
              HasSubstr("resize() was called twice"));
}

/// Decodes numbers of one digit each, e.g. "3,1,4".
void decode_digits(std::string_view bytes, const Hash128&, columns::Row& row) {
  row.resize(static_cast<std::int64_t>((bytes.size() + 1) / 2));
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    if (bytes[i] < '0' || bytes[i] > '9')
      throw std::out_of_range("no digit at " + std::to_string(i));
    row.values<std::int16_t>()[i / 2] = static_cast<std::int16_t>(bytes[i] - '0');
  }
}

TEST(ColumnsTest, ADecoderOfOnesOwnGetsTheBytesOfItsField) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(
      dir, "d", {{{"digits", "3,1,4"}}, {{"digits", ""}}, {{"other", "x"}, {"numbers", "2"}}});
  const Batch batch = one_batch(
      data, {columns::ragged_decoded("digits;numbers", DType::kInt16, decode_digits),
             columns::decoded("digits;numbers", DType::kUInt64, {2},
                              [](std::string_view bytes, const Hash128& random, columns::Row& row) {
                                row.values<std::uint64_t>()[0] = bytes.size();
                                row.values<std::uint64_t>()[1] = random.low;
                              })
                 .named("sizes")});
  EXPECT_THAT(batch["digits"].offsets(), ElementsAre(0, 3, 3, 4));
  EXPECT_THAT(batch["digits"].values<std::int16_t>(), ElementsAre(3, 1, 4, 2));
  EXPECT_THAT(batch["sizes"].shape(), ElementsAre(3, 2));
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(batch["sizes"].values<std::uint64_t>()[2 * i], (std::vector{5U, 0U, 1U}[i]));
    EXPECT_EQ(batch["sizes"].values<std::uint64_t>()[2 * i + 1], sample_key(0, 0, i).low);
  }
}

TEST(ColumnsTest, WhatADecoderThrowsSaysWhoseFaultItIs) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"digits", "3,x"}}, {{"digits", "5"}}});
  const auto throwing = [](auto error) {
    return columns::decoded(
        "digits", DType::kInt8, {},
        [error](std::string_view, const Hash128&, columns::Row&) { throw error; });
  };
  const Column digits = columns::ragged_decoded("digits", DType::kInt16, decode_digits);
  EXPECT_ERROR(
      test::Says("cannot decode field 'digits'", "no digit at 2", "sample 0 ('s00000') in shard",
                 "repair the member", "leave the sample out"),
      one_batch(data, {digits}));
  EXPECT_THAT(one_batch(data, {digits}, {.max_bad = 1}).samples(), ElementsAre(1)) << "left out";
  EXPECT_ERROR(test::Says("'digits'", "(odd): sample 0"),
               one_batch(data, {throwing(BadField("odd"))}));
  EXPECT_EQ(one_batch(data, {throwing(std::runtime_error("odd"))}, {.max_bad = 2}).size(), 0U);
  EXPECT_ERROR(test::Says("decoder of field 'digits'", "sample 0 ('s00000') in shard"),
               one_batch(data, {throwing(InvalidArgument("wrong"))}, {.max_bad = 2}));
  EXPECT_THROW(one_batch(data, {throwing(CorruptShard("torn"))}, {.max_bad = 2}), CorruptShard);
  EXPECT_THROW(one_batch(data, {throwing(std::bad_alloc())}, {.max_bad = 2}), std::bad_alloc);
  EXPECT_ERROR(test::Says("the decoder of field 'digits'", "already have a shape"),
               one_batch(data, {columns::decoded("digits", DType::kInt8, {1}, decode_digits)}));
  EXPECT_ERROR(test::Says("the sample has no field 'none'"),
               one_batch(data, {columns::ragged_decoded("none", DType::kInt8, decode_digits)}));
  EXPECT_ERROR(test::Says("has no function"),
               columns::decoded("digits", DType::kInt8, {}, nullptr));
  EXPECT_ERROR(test::Says("has a negative number"),
               columns::decoded("digits", DType::kInt8, {-1}, decode_digits));
  EXPECT_ERROR(test::Says("can run code"),
               columns::ragged_decoded("x.pkl", DType::kInt8, decode_digits));
}

/// Makes samples whose field "cls" is their number, 0 to `count` - 1.
Dataset numbered(const test::TempDir& dir, std::uint64_t count) {
  std::vector<std::vector<std::pair<std::string, std::string>>> samples;
  for (std::uint64_t i = 0; i < count; ++i) samples.push_back({{"cls", std::to_string(i)}});
  return test::make_dataset(dir, "d" + std::to_string(count), samples);
}

/// Reads an epoch with a decoder that refuses samples from `good` to `first_good` - 1. Returns the
/// text of the loader's error, or of the proof.
/// @param resumed_after  if not 0, resumes after this number of batches.
std::string outcome(const Dataset& data, std::uint64_t first_good, unsigned threads,
                    std::uint64_t good = 0, int resumed_after = 0) {
  const auto decode = [&](std::string_view bytes, const Hash128&, columns::Row& row) {
    const std::uint64_t number = std::stoull(std::string(bytes));
    if (number >= good && number < first_good) throw std::logic_error("a mistake");
    row.values<std::int64_t>()[0] = static_cast<std::int64_t>(number);
  };
  const Loader::Options options{.columns = {columns::decoded("cls", DType::kInt64, {}, decode)},
                                .order = {.kind = Sequential{}},
                                .batch_size = 7,
                                .threads = threads,
                                .max_bad = 1000};
  Loader first(data, options), loader(data, options);
  return test::error_text([&] {
    std::uint64_t rows = 0;
    for (int i = 0; i < resumed_after; ++i) rows += first.next()->size();
    if (resumed_after > 0) loader.restore(first.state());
    while (const auto batch = loader.next()) rows += batch->size();
    const std::string proof = loader.prove();
    throw NotExact(std::to_string(rows) + " rows: " + proof);
  });
}

TEST(ColumnsTest, ARunWithoutAGoodSampleIsAnErrorHoweverManyMayBeBad) {
  const test::TempDir dir;
  const Dataset data = numbered(dir, 300), small = numbered(dir, 20);
  for (const unsigned threads : {0U, 3U}) {
    // The error comes once 100 samples are bad. The first 15 batches contain 105 samples.
    EXPECT_THAT(outcome(data, 1000, threads),
                test::Says("first 105 samples", "are bad", "a mistake", "sample 0",
                           "columns and their functions"));
    EXPECT_THAT(outcome(small, 1000, threads),
                test::Says("all 20 samples of epoch 0", "a mistake"));
    EXPECT_EQ(outcome(data, 97, threads),
              "203 rows: epoch 0: 203 samples, each exactly once, 97 excluded on purpose: proven");
    EXPECT_EQ(outcome(small, 19, threads),
              "1 rows: epoch 0: 1 sample, each exactly once, 19 excluded on purpose: proven");
    // 140 bad samples follow the resume, but the 70 good samples before it count, so this is no
    // error.
    EXPECT_EQ(outcome(data, 210, threads, 70, 10),
              "160 rows: epoch 0: 160 samples, each exactly once, 140 excluded on purpose: proven");
  }
}

TEST(ColumnsTest, BadRowsAreClosedUpInEveryKindOfColumn) {
  const test::TempDir dir;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 9; ++i) {
    samples.push_back({{"t", std::string(static_cast<std::size_t>(i), 'x')},
                       {"npy", npy("<f4", "(1,)", floats({static_cast<float>(i)}))},
                       {"cls", i % 3 == 0 ? "bad" : std::to_string(i)}});
  }
  const Dataset data = test::make_dataset(dir, "d", samples);
  const Batch batch = one_batch(
      data, {columns::bytes("t"), columns::array("npy", DType::kFloat32), columns::integer("cls")},
      {.max_bad = 3});
  EXPECT_THAT(batch.samples(), ElementsAre(1, 2, 4, 5, 7, 8));
  EXPECT_THAT(batch.positions(), ElementsAre(1, 2, 4, 5, 7, 8));
  EXPECT_THAT(batch["cls"].values<std::int64_t>(), ElementsAre(1, 2, 4, 5, 7, 8));
  EXPECT_THAT(batch["npy"].values<float>(), ElementsAre(1, 2, 4, 5, 7, 8));
  EXPECT_THAT(batch["t"].offsets(), ElementsAre(0, 1, 3, 7, 12, 19, 27));
}

TEST(ColumnsTest, ErrorsNameTheSampleTheFieldAndTheReason) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"txt", "\xFF"}, {"cls", "x"}}});
  const auto text = [&](const Column& column) {
    return test::error_text([&] { one_batch(data, {column}); });
  };
  EXPECT_THAT(text(columns::text("txt")), test::Says("txt", "UTF-8", "s00000", "d-0.tar"));
  EXPECT_THAT(text(columns::integer("cls")), test::Says("cls", "s00000"));
  EXPECT_THAT(text(columns::bytes("jpg;png")), test::Says("jpg;png", "its fields are txt, cls"));
  EXPECT_THAT(
      text(columns::function(
          "f", DType::kInt8, {},
          [](const Sample&, const Hash128&, columns::Row& row) { row.resize(1); })),
      test::Says("column 'f', sample 0 ('s00000') in shard", "d-0.tar", "already have a shape"));
  const Column bad = columns::ragged_function(
      "g", DType::kInt8, [](const Sample& sample, const Hash128&, columns::Row&) {
        throw BadField("odd: " + sample.describe());
      });
  EXPECT_THAT(text(bad), AllOf(testing::StartsWith("column 'g': odd: sample 0"),
                               HasSubstr("('s00000') in shard")));
  EXPECT_EQ(one_batch(data, {bad}, {.max_bad = 1}).size(), 0u) << "it stays a bad sample";
  EXPECT_ERROR(test::Says("name of a field"), columns::bytes(""));
  EXPECT_ERROR(test::Says("has no function"), columns::function("f", DType::kInt8, {}, nullptr));
  EXPECT_ERROR(test::Says("two columns"),
               Loader(data, {.columns = {columns::bytes("a"), columns::text("a")}}));
  const Batch batch = one_batch(data, {columns::bytes("txt")});
  EXPECT_ERROR(test::Says("'jpg'", "its columns are 'txt'"), batch["jpg"]);
  EXPECT_ERROR(test::Says("are uint8, 1 byte each"), batch["txt"].values<std::int32_t>());
}

}  // namespace
}  // namespace shardwise
