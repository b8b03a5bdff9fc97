// Tests of the JSON reader: which texts it accepts, and the errors for all others.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/support.h"

namespace shardwise {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using Token = JsonReader::Token;

/// Returns the error of a text, or an empty text if it is valid JSON.
std::string fault_of(const std::string& text) {
  const auto fault = json_fault(text);
  return fault ? escaped(fault->text()) : std::string();
}

/// Builds a nlohmann document from the tokens of our reader.
nlohmann::json value_of(JsonReader& reader, Token token) {
  switch (token) {
    case Token::kObject: {
      nlohmann::json object = nlohmann::json::object();
      while (reader.next() == Token::kKey) {
        const std::string key(reader.text());
        object[key] = value_of(reader, reader.next());
      }
      return object;
    }
    case Token::kArray: {
      nlohmann::json array = nlohmann::json::array();
      for (Token next = reader.next(); next != Token::kEndOfArray; next = reader.next()) {
        array.push_back(value_of(reader, next));
      }
      return array;
    }
    case Token::kString:
      return std::string(reader.text());
    case Token::kNumber:
      if (const auto whole = reader.whole()) return *whole;
      if (const auto integer = reader.integer()) return *integer;
      return reader.real();
    case Token::kTrue:
      return true;
    case Token::kFalse:
      return false;
    default:
      return nullptr;
  }
}

TEST(JsonTest, WhatIsValidIsReadAsItIs) {
  for (const char* text : {
           "{}",
           "[]",
           "0",
           "-0",
           "\"\"",
           "null",
           " true ",
           "\t[ 1 , 2.5e-3 ]\r\n",
           "1e308",
           "1E+2",
           R"({"a": {"b": [false, null, {"c": []}]}, "": 1, "a": 2})",
           R"("\"\\\/\b\f\n\r\t\u0041\u00f6\u20ac\ud83d\ude00")",
           "\"\xc3\xb6\xf0\x9f\x98\x80\"",
           "\xEF\xBB\xBF{\"a\": 1}",
           "18446744073709551615",
           "-9223372036854775808",
           "123456789012345678901234567890",
           "1e-999",
           "0.1",
           "5e-324",
       }) {
    EXPECT_EQ(fault_of(text), "") << text;
    JsonReader reader(text);
    EXPECT_EQ(value_of(reader, reader.next()), nlohmann::json::parse(text)) << text;
    EXPECT_EQ(reader.next(), Token::kEnd) << text;
    EXPECT_EQ(reader.next(), Token::kEnd) << text;
  }
  EXPECT_EQ(fault_of(std::string(400, '0').replace(0, 2, "0.") + "1e300"), "");
  EXPECT_EQ(fault_of("1" + std::string(400, '0') + "e-200"), "");
  EXPECT_EQ(fault_of("0e999999999999999999999"), "");
}

TEST(JsonTest, WhatIsNotIsNamedWithItsPlace) {
  const struct {
    std::string text;
    std::vector<std::string> parts;
  } kCases[] = {
      {"", {"text ends", "value belongs", "at offset 0"}},
      {"\xEF\xBB\xBF", {"text ends", "value belongs", "at offset 3"}},
      {"{\"a\": NaN}", {"'NaN'", "value belongs", "at offset 6"}},
      {"[-Infinity]", {"'Infinity'", "digit belongs", "at offset 2"}},
      {"[1e999]", {"'1e999'", "beyond the range", "at offset 1"}},
      {"[-1e999]", {"beyond the range"}},
      {"1e99999999999999999999", {"beyond the range"}},
      {"1" + std::string(400, '0'), {"beyond the range"}},
      {R"(["a\ud800"])", {R"('\\ud800')", "unpaired surrogate", "at offset 3"}},
      {R"("\ud800\u0041")", {"unpaired surrogate", "at offset 1"}},
      {R"("\udc00")", {"unpaired surrogate", "at offset 1"}},
      {"{\"w\":50}\0 garbage"s, {R"('\x00')", "after the value", "at offset 8"}},
      {"[\0]"s, {R"('\x00')", "value belongs", "at offset 1"}},
      {"\"a\0\""s, {R"('\x00')", "within a string", "at offset 2"}},
      {"\"a\nb\"", {R"('\n' within a string)"}},
      {"\"a\xff\"", {"not UTF-8", "at offset 0"}},
      {"{\"\xed\xa0\x80\": 1}", {"not UTF-8", "at offset 1"}},
      {"\xFF\xFE{\0}\0"s, {"UTF-16"}},
      {"{\0}\0"s, {R"('\x00')", "key belongs", "at offset 1"}},
      {"{\"a\" 1}", {"'1'", "colon belongs", "at offset 5"}},
      {"{\"a\": 1 \"b\"}", {"comma or } belongs", "at offset 8"}},
      {"{\"a\": 1,}", {"'}' where a key belongs"}},
      {"{a: 1}", {"'a' where a key belongs"}},
      {"{'a': 1}", {"''' where a key belongs"}},
      {"[1 2]", {"'2' where a comma or ] belongs"}},
      {"[1,]", {"']' where a value belongs"}},
      {"[1}", {"'}' where a comma or ] belongs"}},
      {"{]", {"']' where a key belongs"}},
      {"[,1]", {"',' where a value belongs"}},
      {"1 2", {"'2'", "after the value", "at offset 2"}},
      {"{} {}", {"'{' after the value"}},
      {"]", {"']' where a value belongs"}},
      {"01", {"'01' begins with 0"}},
      {"-01.5", {"begins with 0"}},
      {".5", {"'.5' where a value belongs"}},
      {"+1", {"'+1' where a value belongs"}},
      {"1.", {"text ends", "digit belongs", "at offset 2"}},
      {"1.e5", {"'e5' where a digit belongs"}},
      {"1e", {"text ends", "digit belongs"}},
      {"-", {"text ends", "digit belongs"}},
      {"0x10", {"'x10' after the value"}},
      {"truE", {"'truE' where a value belongs"}},
      {"tru", {"'tru' where a value belongs"}},
      {"nulls", {"'s' after the value"}},
      {"True", {"'True' where a value belongs"}},
      {"\"a", {"ends within", "at offset 2"}},
      {"\"a\\", {"is not an escape", "at offset 2"}},
      {"\"\\x41\"", {R"('\\x')", "not an escape", "at offset 1"}},
      {"\"\\u12\"", {"is not an escape", "at offset 1"}},
      {"\"\\u12G4\"", {"is not an escape", "at offset 1"}},
      {"[1, // one\n2]", {"'/' where a value belongs"}},
      {"[1]\xc2\xa0", {R"('\xc2\xa0')", "after the value", "at offset 3"}},
      {"[", {"text ends", "value belongs"}},
      {"{", {"text ends", "key belongs"}},
      {"{\"a\":", {"text ends", "value belongs"}},
  };
  for (const auto& c : kCases) {
    for (const std::string& part : c.parts) {
      EXPECT_THAT(fault_of(c.text), HasSubstr(part)) << c.text;
    }
    EXPECT_FALSE(fault_of(c.text).empty()) << c.text;
  }
}

TEST(JsonTest, DepthIsBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(fault_of(nested(JsonReader::kMaxJsonDepth)), "");
  EXPECT_THAT(fault_of(nested(JsonReader::kMaxJsonDepth + 1)),
              HasSubstr("deeper than 500, at offset 500"));
  EXPECT_THAT(fault_of(std::string(10'000'000, '[')), HasSubstr("nested deeper"));
  EXPECT_FALSE(json_fault(nested(3), 3));
  EXPECT_TRUE(json_fault(nested(4), 3));
  EXPECT_TRUE(json_fault(nested(600), 100'000)) << "there is a limit that no caller moves";
}

TEST(JsonTest, SkippingEndsBehindTheValue) {
  JsonReader reader(R"([{"a": [1, {"b": "]}"}]}, "x", 7])");
  ASSERT_EQ(reader.next(), Token::kArray);
  ASSERT_EQ(reader.next(), Token::kObject);
  reader.skip();
  EXPECT_EQ(reader.token(), R"({"a": [1, {"b": "]}"}]})");
  ASSERT_EQ(reader.next(), Token::kString);
  reader.skip();
  EXPECT_EQ(reader.text(), "x");
  JsonReader copy = reader;
  ASSERT_EQ(copy.next(), Token::kNumber);
  EXPECT_EQ(copy.next(), Token::kEndOfArray);
  ASSERT_EQ(reader.next(), Token::kNumber) << "the copy read on by itself";
  EXPECT_EQ(reader.integer(), 7);
}

// nlohmann treats a NUL as the end of the text. Apart from this, both parsers accept the same
// texts.
TEST(JsonTest, RandomTextsAreJsonForUsAndForNlohmannAlike) {
  const std::uint64_t seed = test::random_seed();
  std::mt19937_64 random(seed);
  constexpr std::array kPieces = {"{",           "}",
                                  "[",           "]",
                                  ",",           ":",
                                  "\"",          "\"a\"",
                                  "\"\\u00f6\"", "\"\\ud83d\\ude00\"",
                                  "\\ud83d",     "\\",
                                  "u",           "0",
                                  "1",           "-",
                                  ".",           "e",
                                  "E",           "+",
                                  "12",          "1e5",
                                  "1e999",       "1e-999",
                                  "true",        "false",
                                  "null",        "NaN",
                                  " ",           "\n",
                                  "\t",          "\xc3\xb6",
                                  "\xff",        "\xEF\xBB\xBF",
                                  "\x01",        "\x7f",
                                  "{\"a\":",     "[1,",
                                  "\"k\":",      "1.5"};
  std::size_t num_valid = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text;
    for (auto n = 1 + random() % 8; n > 0; --n) text += kPieces[random() % kPieces.size()];
    const bool is_json = nlohmann::json::accept(text);
    ASSERT_EQ(!json_fault(text), is_json) << text;
    if (!is_json) continue;
    ++num_valid;
    JsonReader reader(text);
    ASSERT_EQ(value_of(reader, reader.next()), nlohmann::json::parse(text)) << text;
  }
  EXPECT_GT(num_valid, 2000U);
}

}  // namespace
}  // namespace shardwise
