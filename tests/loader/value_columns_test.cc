// Columns of values: at JSON paths, of metadata, and with a value for samples that have none.

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/json.h"
#include "loader/column_maker.h"
#include "loader/one_batch.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/loader.h"
#include "support/chain.h"
#include "support/dataset.h"
#include "support/says.h"

namespace shardwise {
namespace {

using namespace std::string_literals;
using test::one_batch;
using testing::ElementsAre;
using testing::HasSubstr;

/// Makes one row. Returns its bytes, or the code of the error.
struct Made {
  std::string bytes;
  std::optional<ErrorCode> error;
  std::string text;

  template <class T>
  T as() const {
    T value{};
    EXPECT_EQ(bytes.size(), sizeof value) << text;
    std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
    return value;
  }
};

Made make(const Column& column, const Sample& sample) {
  Made made;
  try {
    const Batch batch = columns::decode(sample, {column});
    const auto bytes = batch.arrays()[0].bytes();
    made.bytes = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } catch (const Error& error) {
    made.error = error.code();
    made.text = error.what();
  }
  return made;
}

Dataset indexed(const test::TempDir& dir, const std::vector<test::Fields>& samples,
                const std::vector<std::string>& columns) {
  test::make_dataset(dir, "d", samples, 1000);
  BuildOptions options;
  options.content.policies = DefectPolicies::all(DefectPolicies::OnDefect::kSkip);
  for (const std::string& column : columns) {
    options.content.columns.push_back(parse_column(column));
  }
  build_index(dir / "m.idx", {dir / "d-0.tar"}, options);
  return Dataset::open(dir / "m.idx");
}

TEST(ValueColumnsTest, ValuesAtJsonPathsAndOfMetadataAreRowsOfABatch) {
  const test::TempDir dir;
  const Dataset data = indexed(
      dir,
      {{{"json",
         R"({"id": 7, "caption": "a cat", "size": {"wh": [640, 480]}, "tags": ["a", "b"]})"},
        {"score", "0.5"}},
       {{"json", R"({"id": true, "caption": "", "size": {"wh": [1, 2e2]}, "tags": []})"},
        {"score", " 3\n"}}},
      {"w=json:$.size.wh[0]", "score", "c=json:$.caption"});
  const Batch batch =
      one_batch(data, {columns::integer("json:$.id"), columns::text("json:$.caption"),
                       columns::number("none;json:$.size.wh[1]"), columns::json("json:$.tags"),
                       columns::text("json:$.tags").named("list"), columns::number("score"),
                       columns::metadata("w"), columns::metadata<double>("score").named("s"),
                       columns::metadata<std::string>("c")});
  EXPECT_EQ(batch["id"].dtype(), DType::kInt64);
  EXPECT_THAT(batch["id"].shape(), ElementsAre(2));
  EXPECT_THAT(batch["id"].values<std::int64_t>(), ElementsAre(7, 1));
  EXPECT_EQ(batch["caption"].text(0), "a cat");
  EXPECT_EQ(batch["caption"].text(1), "");
  EXPECT_EQ(batch["wh"].dtype(), DType::kFloat64);
  EXPECT_THAT(batch["wh"].values<double>(), ElementsAre(480, 200));
  EXPECT_EQ(batch["tags"].text(0), R"(["a","b"])");
  EXPECT_EQ(batch["list"].text(1), "[]");
  EXPECT_THAT(batch["score"].values<double>(), ElementsAre(0.5, 3));
  EXPECT_THAT(batch["w"].values<std::int64_t>(), ElementsAre(640, 1));
  EXPECT_THAT(batch["s"].values<double>(), ElementsAre(0.5, 3));
  EXPECT_EQ(batch["c"].text(0), "a cat");
}

TEST(ValueColumnsTest, AColumnOfAPathIsNamedAfterItsLastKey) {
  EXPECT_EQ(columns::text("json:$.Caption").name(), "Caption");
  EXPECT_EQ(columns::integer("a;b:$.size.\"w x\"[2]").name(), "w x");
  EXPECT_EQ(columns::number("a;b:$[1]").name(), "a");
  EXPECT_EQ(columns::json("json:$").name(), "json");
}

TEST(ValueColumnsTest, WhatIsMissingGetsTheValueOfTheColumnOrMakesABadSample) {
  const test::TempDir dir;
  const Dataset data = indexed(dir,
                               {{{"json", R"({"a": null})"}, {"x", ""}},
                                {{"json", "{}"}, {"x", ""}},
                                {{"x", ""}},
                                {{"json", R"({"a": "1"})"}, {"x", ""}}},
                               {"a=json:$.a"});
  const Batch batch = one_batch(
      data, {columns::text("json:$.a", "none"), columns::json("json", "{}"),
             columns::metadata<std::string>("a", "0").named("m"), columns::integer("cls", -1),
             columns::number("n", NAN), columns::text("txt", ""), columns::integer("json:$.b", 5)});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(batch["a"].text(i), "none");
    EXPECT_EQ(batch["m"].text(i), "0");
    EXPECT_TRUE(std::isnan(batch["n"].values<double>()[i]));
  }
  EXPECT_EQ(batch["a"].text(3), "1");
  EXPECT_EQ(batch["m"].text(3), "1");
  EXPECT_EQ(batch["json"].text(0), R"({"a": null})");
  EXPECT_EQ(batch["json"].text(2), "{}");
  EXPECT_THAT(batch["cls"].values<std::int64_t>(), ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(batch["b"].values<std::int64_t>(), ElementsAre(5, 5, 5, 5));

  EXPECT_ERROR(test::Says("field 'json' has no value at '$.a'", "s00000", "missing", "max_bad"),
               one_batch(data, {columns::text("json:$.a")}));
  EXPECT_ERROR(test::Says("no value in the metadata column 'a'", "s00000"),
               one_batch(data, {columns::metadata<std::string>("a")}));
  EXPECT_EQ(make(columns::text("json:$.a"), data[2]).error, ErrorCode::kNotFound);
  EXPECT_THAT(make(columns::text("json:$.a"), data[2]).text, HasSubstr("its fields are x"));
  const Batch rest = one_batch(data, {columns::text("json:$.a")}, {.max_bad = 3});
  EXPECT_THAT(rest.samples(), ElementsAre(3));
}

TEST(ValueColumnsTest, AValueOfAnotherKindNamesSampleFieldAndPath) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(
      dir, "d",
      {{{"json", R"({"s": "12", "r": 2.5, "i": 3, "o": {}, "b": 99999999999999999999})"},
        {"x", "twelve"}}});
  const auto text = [&](const Column& column) {
    const Made made = make(column, data[0]);
    EXPECT_EQ(made.error, ErrorCode::kBadField);
    return made.text;
  };
  const auto is = [](const std::string& type, const std::string& found) {
    return test::Says("cannot decode field 'json' as " + type, found, "sample 0 ('s00000')",
                      "max_bad");
  };
  EXPECT_THAT(text(columns::integer("json:$.s")), is("an integer at '$.s'", "it is \"12\""));
  EXPECT_THAT(text(columns::integer("json:$.s", 1)), is("an integer at '$.s'", "it is \"12\""));
  EXPECT_THAT(text(columns::integer("json:$.r")), is("an integer at '$.r'", "it is 2.5"));
  EXPECT_THAT(text(columns::integer("json:$.b")), is("an integer at '$.b'", "exceeds 64 bits"));
  EXPECT_THAT(text(columns::number("json:$.b")), is("a number at '$.b'", "exceeds 64 bits"));
  EXPECT_THAT(text(columns::text("json:$.b")), is("a text at '$.b'", "exceeds 64 bits"));
  EXPECT_THAT(text(columns::number("json:$.o")), is("a number at '$.o'", "it is {}"));
  EXPECT_THAT(text(columns::text("json:$.i")), is("a text at '$.i'", "it is 3"));
  EXPECT_THAT(text(columns::number("x")), HasSubstr("'x' as a number (it is 'twelve')"));
  EXPECT_THAT(text(columns::text("x:$.a")), HasSubstr("'x' as JSON ('twelve' where a value"));
  EXPECT_EQ(make(columns::json("json:$.b"), data[0]).bytes, "99999999999999999999");
}

TEST(ValueColumnsTest, RanksCompareFieldsPathsKindsAndMissingValues) {
  const auto text = [](const Column& column) { return column.maker()->describe(); };
  EXPECT_EQ(text(columns::integer("a;b:$.c", 3)), "integer 'a' 'b' at '$.c', or 3");
  EXPECT_EQ(text(columns::number("a", NAN)), "number 'a', or nan");
  EXPECT_EQ(text(columns::metadata<std::string>("a", "x")), "text metadata 'a', or 'x'");
  EXPECT_EQ(text(columns::json("a:$")), "json 'a' at '$'");
  EXPECT_EQ(text(columns::tokens("a:$")), "tokens 'a' at '$'");
  EXPECT_EQ(text(columns::array("a:$", DType::kInt32)), "array 'a' at '$'");
  EXPECT_EQ(text(columns::integer("a")), "integer 'a'") << "as without paths";
}

TEST(ValueColumnsTest, ASampleIsDecodedByTheKindsOfItsFields) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d",
                                          {{{"cls", "7"},
                                            {"json", "[1]"},
                                            {"txt.gz", test::compress("text", Compression::kGzip)},
                                            {"bin", "b"},
                                            {"pkl", "p"},
                                            {"x;y.cls", "9"}},
                                           {{"npy", "damaged"}}});
  const Batch batch = columns::decode(data[0]);
  ASSERT_EQ(batch.size(), 1U);
  EXPECT_THAT(batch["cls"].values<std::int64_t>(), ElementsAre(7));
  EXPECT_EQ(batch["json"].text(0), "[1]");
  EXPECT_EQ(batch["txt.gz"].text(0), "text");
  EXPECT_EQ(batch["bin"].text(0), "b");
  EXPECT_EQ(batch["pkl"].text(0), "p");
  EXPECT_EQ(batch["x;y.cls"].text(0), "9");
  EXPECT_ERROR(test::Says("field 'npy' as an array", "s00001"), columns::decode(data[1]));
  EXPECT_EQ(make(columns::key(), data[1]).bytes, "s00001");
}

TEST(ValueColumnsTest, ArraysAtJsonPathsAreRowsOfNumbers) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(
      dir, "d",
      {{{"json", R"({"ids": [1, -2], "box": [1, 2.5], "boxes": [[1, 2], [3, 4], [5, 6]]})"}},
       {{"json", R"({"ids": [], "box": [0, 1e3], "boxes": []})"}},
       {{"json", R"({"ids": [7], "box": [ -1 , 2], "boxes": [[7, 8]]})"}}});
  const Batch batch = one_batch(
      data, {columns::tokens("json:$.ids"), columns::array("json:$.box", DType::kFloat32, {2}),
             columns::array("json:$.boxes", DType::kInt16),
             columns::array("json:$.ids", DType::kFloat64).named("reals")});
  EXPECT_THAT(batch["ids"].values<std::int32_t>(), ElementsAre(1, -2, 7));
  EXPECT_THAT(batch["ids"].offsets(), ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(batch["reals"].values<double>(), ElementsAre(1, -2, 7));
  EXPECT_THAT(batch["box"].shape(), ElementsAre(3, 2));
  EXPECT_THAT(batch["box"].values<float>(), ElementsAre(1, 2.5, 0, 1000, -1, 2));
  EXPECT_THAT(batch["boxes"].row_shape(0), ElementsAre(3, 2));
  EXPECT_THAT(batch["boxes"].row_shape(1), ElementsAre(0, 0));
  EXPECT_THAT(batch["boxes"].values<std::int16_t>(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(ValueColumnsTest, EmptyRowsOfABatchWithoutOtherRowsHaveOneDimension) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", {{{"json", "[]"}}, {{"json", "[]"}}});
  const Batch batch = one_batch(
      data, {columns::tokens("json:$"), columns::array("json:$", DType::kFloat32).named("reals"),
             columns::ragged_function("f", DType::kInt8,
                                      [](const Sample&, const Hash128&, columns::Row&) {})});
  for (const char* name : {"json", "reals", "f"}) {
    EXPECT_THAT(batch[name].row_shape(0), ElementsAre(0)) << name;
    EXPECT_THAT(batch[name].row_shape(1), ElementsAre(0)) << name;
  }
}

TEST(ValueColumnsTest, AnArrayThatIsNotARowNamesTheReason) {
  const test::TempDir dir;
  const auto refused = [&](const std::string& json, const Column& column, const std::string& why) {
    const Made made = make(column, test::make_dataset(dir, "d", {{{"json", json}}})[0]);
    EXPECT_EQ(made.error, ErrorCode::kBadField);
    EXPECT_THAT(made.text, test::Says("'json' as an array at '$' (" + why, "s00000")) << json;
  };
  const Column any = columns::array("json:$", DType::kInt64);
  for (const char* json : {"[1, [2]]", "[[1], 2]", "[[], 1]", "[[[]], [1]]"}) {
    refused(json, any, "it mixes arrays and numbers");
  }
  for (const char* json : {"[[1], [2, 3]]", "[[], [1]]", "[[[1]], [[2], [3]]]"}) {
    refused(json, any, "its arrays differ in length");
  }
  for (const char* json :
       {"[\"1\"]", "[null]", "[true]", "[{}]", "[1.5]", "[9223372036854775808]"}) {
    refused(json, any, "it contains ");
  }
  refused("7", any, "it is 7");
  refused("[128]", columns::array("json:$", DType::kInt8), "it contains 128, which is not int8");
  refused("[-1]", columns::array("json:$", DType::kUInt64), "it contains -1, which is not uint64");
  refused("[1e39]", columns::array("json:$", DType::kFloat32), "it contains 1e39");
  refused("[1, 2]", columns::array("json:$", DType::kInt64, {3}), "its shape is [2], but");
  refused("[[1]]", columns::tokens("json:$"), "its shape is [1, 1]");
  EXPECT_ERROR(test::Says("bool", "float32"), columns::array("json:$", DType::kBool));
}

TEST(ValueColumnsTest, APathThatIsMalformedOrOfAnotherColumnIsRefused) {
  for (const char* field : {"json:$.", "json:$a", "json:$[x]"}) {
    EXPECT_ERROR(test::Says("malformed"), columns::text(field)) << field;
  }
  EXPECT_ERROR(test::Says("semicolon"), columns::text("json:$.a;txt"));
  EXPECT_EQ(columns::text("json;txt:$.\"a;b\"").name(), "a;b");
  EXPECT_ERROR(test::Says("name of a field"), columns::text(":$.a"));
  EXPECT_ERROR(test::Says("can run code"), columns::text("pkl:$.a"));
  EXPECT_ERROR(test::Says("no JSON path"), columns::bytes("json:$.a"));
  EXPECT_ERROR(test::Says("no JSON path"), columns::image("json:$.a"));
  EXPECT_ERROR(test::Says("not JSON"), columns::json("json", "{"));
}

TEST(ValueColumnsTest, AColumnThatTheIndexLacksIsRefusedBeforeASampleIsRead) {
  const test::TempDir dir;
  const Dataset data = indexed(dir, {{{"cls", "1"}}}, {"cls"});
  EXPECT_ERROR(test::Says("no column 'width'", "its columns are 'cls'"),
               Loader(data, {.columns = {columns::metadata("width", 0)}, .max_bad = 10}));
  const Dataset other = test::make_dataset(dir, "e", {{{"cls", "1"}}});
  EXPECT_ERROR(test::Says("no column 'cls'"),
               Loader(MixedDataset({data, other}), {.columns = {columns::metadata("cls")}}));
  EXPECT_EQ(make(columns::metadata<std::string>("cls"), data[0]).error, ErrorCode::kBadField);
  EXPECT_THAT(make(columns::metadata<std::string>("cls"), data[0]).text,
              test::Says("column 'cls' is not a text: 1", "s00000"));
}

TEST(ValueColumnsTest, MetadataOfAViewAndOfAMixtureIsThatOfTheSample) {
  const test::TempDir dir, other;
  std::vector<test::Fields> samples;
  for (int i = 0; i < 50; ++i) samples.push_back({{"cls", std::to_string(i)}});
  const Dataset data = indexed(dir, samples, {"cls"});
  const Dataset more = indexed(other, samples, {"x=cls", "cls"});  // in another place
  const MixedDataset mixed({data.where("cls % 3 = 1"), more.where("cls > 40")});
  Loader loader(mixed, {.columns = {columns::metadata("cls"), columns::integer("cls").named("own")},
                        .order = {.seed = 5},
                        .batch_size = 7});
  std::size_t rows = 0;
  while (auto batch = loader.next()) {
    const auto values = (*batch)["cls"].values<std::int64_t>();
    const auto own = (*batch)["own"].values<std::int64_t>();
    EXPECT_TRUE(std::ranges::equal(values, own));
    rows += values.size();
  }
  EXPECT_EQ(rows, mixed.size());
}

/// Random documents with the keys a, b and "c d", and arrays.
class Documents {
 public:
  explicit Documents(std::uint64_t seed) : random_(seed) {}

  std::string document() {
    if (pick(20) == 0) return "{\"a\": ";
    return blank() + value(3) + blank();
  }
  std::string path() {
    std::string path = "$";
    for (std::uint64_t steps = pick(4); steps > 0; --steps) path += kSteps[pick(std::size(kSteps))];
    return path;
  }

 private:
  static constexpr const char* kSteps[] = {".a",  ".a",  ".b",    ".\"c d\"", ".\"\\u0061\"",
                                           "[0]", "[1]", "[#-1]", "[#-2]",    "[#]"};
  static constexpr const char* kScalars[] = {"null",
                                             "true",
                                             "false",
                                             "0",
                                             "-7",
                                             "2.5",
                                             "1e3",
                                             "-0",
                                             "9223372036854775807",
                                             "9223372036854775808",
                                             "-99999999999999999999",
                                             "1e-999",
                                             "1e300",
                                             "\"\"",
                                             "\"x y\"",
                                             "\"\\u00f6\\n\"",
                                             "\"\xC3\xB6\"",
                                             "\"a\\u0000b\"",
                                             "\"\\ud83d\\ude00\""};
  static constexpr const char* kKeys[] = {"\"a\"", "\"a\"", "\"b\"", "\"c d\"", "\"\\u0061\""};

  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  std::string blank() { return std::string(pick(2), ' '); }
  std::string value(int depth) {
    const std::uint64_t kind = pick(depth > 0 ? 6 : 2);
    if (kind < 2) return kScalars[pick(std::size(kScalars))];
    std::string text(1, kind < 5 ? '{' : '[');
    const std::uint64_t count = pick(4);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i > 0) text += blank() + "," + blank();
      if (kind < 5) text += kKeys[pick(std::size(kKeys))] + blank() + ":" + blank();
      text += value(depth - 1);
    }
    return text + blank() + (kind < 5 ? "}" : "]");
  }

  std::mt19937_64 random_;
};

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("-0123456789") == std::string_view::npos;
}

// A path gives the value of a metadata column with the same path, or says why it cannot.
TEST(ValueColumnsTest, RandomDocumentsHaveTheValuesThatTheIndexStores) {
  using Type = Query::Value::Type;
  test::for_each_seed(6, 200, [](std::uint64_t seed) {
    const test::TempDir dir;
    Documents documents(seed);
    std::vector<std::string> texts, paths;
    std::vector<test::Fields> samples;
    for (int i = 0; i < 60; ++i) {
      texts.push_back(documents.document());
      samples.push_back({{"json", texts.back()}});
    }
    std::vector<std::string> wanted;
    for (int i = 0; i < 8; ++i) {
      paths.push_back(documents.path());
      wanted.push_back("c" + std::to_string(i) + "=json:" + paths.back());
    }
    const Dataset data = indexed(dir, samples, wanted);
    for (std::size_t c = 0; c < paths.size(); ++c) {
      const std::string name = "c" + std::to_string(c), field = "json:" + paths[c];
      for (std::uint64_t i = 0; i < data.size(); ++i) {
        SCOPED_TRACE(paths[c] + " in " + texts[i]);
        const Query::Value value = data.values(name, std::span(&i, 1))[0];
        const bool is_json = !detail::json_fault(texts[i]);
        const bool is_large = value.type == Type::kText && is_digits(value.bytes);
        const auto check = [&](const Column& column, bool has_metadata, bool fits, auto equal) {
          const Made made = make(column, data[i]);
          if (fits) {
            EXPECT_TRUE(!made.error && equal(made)) << made.text;
            return;
          }
          const bool is_missing = value.type == Type::kNull && (is_json || has_metadata);
          EXPECT_EQ(made.error, is_missing ? ErrorCode::kNotFound : ErrorCode::kBadField);
        };
        const auto integer = [&](const Made& made) {
          return made.as<std::int64_t>() == value.integer;
        };
        const auto number = [&](const Made& made) {
          return made.as<double>() ==
                 (value.type == Type::kInteger ? static_cast<double>(value.integer) : value.real);
        };
        const auto text = [&](const Made& made) { return made.bytes == value.bytes; };
        const bool is_integer = value.type == Type::kInteger;
        const bool is_number = is_integer || value.type == Type::kReal;
        const bool is_text = value.type == Type::kText || value.type == Type::kBlob;
        check(columns::integer(field), false, is_integer, integer);
        check(columns::number(field), false, is_number, number);
        check(columns::text(field), false, is_text && !is_large, text);
        check(columns::metadata(name), true, is_integer, integer);
        check(columns::metadata<double>(name), true, is_number, number);
        check(columns::metadata<std::string>(name), true, is_text, text);
        check(columns::json(field), false, value.type != Type::kNull, [&](const Made& made) {
          const auto json = nlohmann::json::parse(made.bytes);
          if (json.is_string()) return json.get<std::string>() == value.bytes;
          if (json.is_structured() || is_large) return made.bytes == value.bytes;
          if (json.is_boolean()) return json.get<bool>() == (value.integer == 1);
          return json.get<double>() ==
                 (is_integer ? static_cast<double>(value.integer) : value.real);
        });
      }
    }
  });
}

}  // namespace
}  // namespace shardwise
