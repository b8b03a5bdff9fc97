#include "order/checkpoint_format.h"

#include "base/error_types.h"
#include "base/hasher.h"
#include "order/order_test_support.h"
#include "shardwise/order/sampler.h"

namespace shardwise {
namespace {

using detail::CheckpointContent;
using detail::CheckpointPart;
using detail::parse_checkpoint;
using testing::HasSubstr;

ResumeToken some_token() {
  const auto sampler = make_sampler(std::uint64_t{100}, {.seed = 5}, {.world_size = 2});
  return sampler->token_after(7);
}

std::string bytes_of(const CheckpointContent& content) {
  std::string bytes = checkpoint_front(content);
  for (const CheckpointPart& part : content.parts) bytes += part.bytes;
  return bytes;
}

CheckpointContent some_content() {
  static const std::string weights(4 * 6, '\x40');
  return {.token = some_token(),
          .writer = "shardwise 1.2",
          .parts = {{"model/weight", "float32", {2, 3}, weights},
                    {"step", "int64", {}, std::string_view("\7\0\0\0\0\0\0\0", 8)},
                    {"empty", "uint8", {0, 5}, ""},
                    {"note", "text", {}, "two\nlines"}}};
}

std::string refused(std::string_view bytes) {
  try {
    parse_checkpoint(bytes, "run.pt");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(CheckpointFormatTest, GivesBackWhatWasPutIn) {
  const CheckpointContent content = some_content();
  const std::string bytes = bytes_of(content);
  const CheckpointContent read = parse_checkpoint(bytes, "run.pt");
  EXPECT_EQ(read.token, content.token);
  EXPECT_EQ(read.writer, content.writer);
  ASSERT_EQ(read.parts.size(), content.parts.size());
  for (std::size_t i = 0; i < read.parts.size(); ++i) {
    EXPECT_EQ(read.parts[i].name, content.parts[i].name);
    EXPECT_EQ(read.parts[i].type, content.parts[i].type);
    EXPECT_EQ(read.parts[i].shape, content.parts[i].shape);
    EXPECT_EQ(read.parts[i].bytes, content.parts[i].bytes);
  }
}

// docs/formats/checkpoint.md, version 2.
TEST(CheckpointFormatTest, IsTheTextThatThePageSpecifies) {
  const CheckpointContent content = some_content();
  const std::string front = checkpoint_front(content);
  EXPECT_THAT(front, testing::StartsWith("shardwise checkpoint 2\n" + content.token.to_text() +
                                         "\nshardwise 1.2\n4\n"
                                         "model/weight float32 2,3 24 "));
  EXPECT_THAT(front, HasSubstr("\nstep int64 - 8 "));
  EXPECT_THAT(front, HasSubstr("\nempty uint8 0,5 0 99aa06d3014798d86001c324468d497f\n"));
}

TEST(CheckpointFormatTest, EveryFlippedBitIsRefused) {
  const std::string bytes = bytes_of(some_content());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_THAT(refused(damaged), HasSubstr("run.pt")) << i << ", bit " << bit;
    }
  }
}

TEST(CheckpointFormatTest, EveryCutIsRefused) {
  const std::string bytes = bytes_of(some_content());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(refused(bytes.substr(0, size)), HasSubstr("run.pt")) << size;
  }
  EXPECT_THAT(refused(bytes + "x"), HasSubstr(" instead of "));
}

TEST(CheckpointFormatTest, SaysWhatIsWrong) {
  EXPECT_THAT(refused("PK"), testing::AllOf(HasSubstr("not a complete checkpoint"),
                                            HasSubstr("first line"), HasSubstr("'run.pt'")));
  EXPECT_THROW(parse_checkpoint("shardwise checkpoint 1\n", "run.pt"), VersionMismatch);
  std::string bytes = bytes_of(some_content());
  bytes[bytes.size() - 1] ^= 1;
  EXPECT_THAT(refused(bytes), HasSubstr("the value 'note' is damaged"));
  CheckpointContent twice = some_content();
  twice.parts.push_back(twice.parts[1]);
  EXPECT_THAT(refused(bytes_of(twice)), HasSubstr("'step' occurs twice"));
}

TEST(CheckpointFormatTest, NumbersThatLieAreRefused) {
  // An attacker can write any text with correct hashes. The numbers in the text must be checked
  // before they are used.
  const auto with = [](const std::string& line) {
    CheckpointContent none = some_content();
    none.parts.clear();
    std::string text = checkpoint_front(none);
    text.resize(text.size() - 33);
    text.replace(text.rfind("\n0\n"), 3, "\n1\n" + line + "\n");
    return text + to_string(hash128(text)) + "\n";
  };
  const std::string hash(32, '0');
  EXPECT_THAT(refused(with("x uint8 - 18446744073709551615 " + hash)), HasSubstr("too large"));
  EXPECT_THAT(refused(with("x uint8 -1 1 " + hash)), HasSubstr("number is not valid"));
  EXPECT_THAT(refused(with("x uint8 1,,2 1 " + hash)), HasSubstr("number is not valid"));
  EXPECT_THAT(refused(with("x")), HasSubstr("number is not valid"));
  EXPECT_THAT(refused(with("x uint8 1 1000 " + hash)), HasSubstr(" instead of "));
}

TEST(CheckpointFormatTest, TheTokenIsReadFromTheFrontAlone) {
  const test::TempDir dir;
  std::string bytes = bytes_of(some_content());
  bytes[bytes.size() - 1] ^= 1;  // changes a value, which this function does not read
  test::write_file(dir / "run.pt", bytes);
  EXPECT_EQ(read_checkpoint_token(dir / "run.pt"), some_token());
  test::write_file(dir / "run.pt", bytes.substr(0, bytes.size() - 1));
  EXPECT_THROW(read_checkpoint_token(dir / "run.pt"), InvalidArgument);
}

TEST(CheckpointFormatTest, NamesArePlain) {
  EXPECT_NO_THROW(detail::require_part_name("model/layer.0.weight"));
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\n"),
                                  std::string("a\0", 2), std::string(1001, 'x')}) {
    EXPECT_THROW(detail::require_part_name(name), InvalidArgument) << name;
  }
}

}  // namespace
}  // namespace shardwise
