#include "shardwise/tar/shard_writer.h"

#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/fault_point.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Fields = std::vector<ShardWriter::Field>;

/// Returns the output of a shell command.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    output.append(buffer, n);
  }
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return output;
}

TEST(ShardWriterTest, WritesWhatTarLists) {
  const TempDir dir;
  test::write_file(dir / "photo.jpg", std::string(70'000, 'j'));
  ShardWriter writer(dir / "train-%04d.tar", {.max_samples = 2});
  writer.write("a", Fields{{"cls", "7"}, {"seg.png", "png"}});
  writer.write("d/b", Fields{{"jpg", {}, dir / "photo.jpg"}, {"txt", ""}});
  writer.write("c", Fields{{"cls", "9"}});
  EXPECT_THAT(writer.paths(), ElementsAre(dir / "train-0000.tar"));
  writer.close();
  EXPECT_THAT(writer.paths(), ElementsAre(dir / "train-0000.tar", dir / "train-0001.tar"));
  EXPECT_THAT(dir.list(), ElementsAre("photo.jpg", "train-0000.tar", "train-0001.tar"));
  EXPECT_EQ(output_of("tar -tf '" + dir / "train-0000.tar" + "'"),
            "a.cls\na.seg.png\nd/b.jpg\nd/b.txt\n");
  EXPECT_EQ(output_of("tar -xOf '" + dir / "train-0000.tar" + "' d/b.jpg"),
            std::string(70'000, 'j'));
  EXPECT_EQ(output_of("tar -xOf '" + dir / "train-0001.tar" + "'"), "9");
  EXPECT_EQ(writer.totals().shards, 2U);
  EXPECT_EQ(writer.totals().samples, 3U);
  EXPECT_EQ(writer.totals().members, 5U);
  EXPECT_EQ(writer.totals().content_bytes, 70'005U);
  EXPECT_EQ(writer.totals().shard_bytes, std::filesystem::file_size(dir / "train-0000.tar") +
                                             std::filesystem::file_size(dir / "train-0001.tar"));
}

TEST(ShardWriterTest, LongAndForeignNamesArriveWhole) {
  const TempDir dir;
  const std::vector<std::string> keys = {
      std::string(99 - 4, 'k'), std::string(101, 'k'),
      std::string(3000, 'k'),   std::string(200, 'd') + "/" + std::string(200, 'k'),
      "d\xc3\xa9j\xc3\xa0",     "latin\xe9"};
  ShardWriter writer(dir / "{}.tar");
  std::string expected;
  for (const std::string& key : keys) {
    writer.write(key, Fields{{"txt", key}});
    expected += key + ".txt\n";
  }
  writer.close();
  EXPECT_EQ(output_of("tar --quoting-style=literal -tf '" + dir / "0.tar" + "'"), expected);
  std::string contents;
  for (const std::string& key : keys) contents += key;
  EXPECT_EQ(output_of("tar -xOf '" + dir / "0.tar" + "'"), contents);
}

TEST(ShardWriterTest, SameSamplesGiveSameBytesInAnyLocale) {
  const TempDir dir;
  const auto write = [&](const std::string& name) {
    ShardWriter writer(dir / name + "-%d.tar");
    writer.write("d\xc3\xa9j\xc3\xa0", Fields{{"txt", "1"}});
    writer.write("caf\xe9", Fields{{"txt", "2"}});
    writer.close();
    return test::read_file(dir / name + "-0.tar");
  };
  const std::string plain = write("a");
  EXPECT_EQ(test::in_child([&] {
              std::setlocale(LC_ALL, "C.UTF-8");
              return std::string(write("b") == plain ? "same" : "other");
            }),
            "same");
}

TEST(ShardWriterTest, AfterAnErrorAtTheEndOfAShardNoSampleIsLostInSilence) {
  const TempDir dir;
  static std::string shard;
  shard = dir / "0.tar";
  ShardWriter writer(dir / "%d.tar", {.max_samples = 1});
  writer.write("a", Fields{{"txt", "a"}});
  set_fault_handler([](const char* point) {
    if (std::string_view(point) == "atomic_file.after_rename") ::unlink(shard.c_str());
  });
  EXPECT_EQ(test::error_code([&] {
              writer.write("b", Fields{{"txt", "b"}});
            }),
            ErrorCode::kNotFound);
  set_fault_handler(nullptr);
  EXPECT_EQ(test::error_code([&] {
              writer.write("c", Fields{{"txt", "c"}});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(ShardWriterTest, ShardsAreFullAtTheirLimits) {
  const TempDir dir;
  const auto sizes = [&](const std::string& name, const ShardWriter::Options& options,
                         const std::vector<std::size_t>& content_bytes) {
    ShardWriter writer(dir / name + "%d.tar", options);
    std::vector<std::uint64_t> samples;
    std::uint64_t shards = 0;
    for (std::size_t i = 0; i < content_bytes.size(); ++i) {
      const std::string content(content_bytes[i], 'x');
      writer.write(std::to_string(i), Fields{{"bin", content}});
      if (writer.totals().shards > shards) samples.push_back(0);
      shards = writer.totals().shards;
      ++samples.back();
    }
    writer.close();
    EXPECT_EQ(writer.paths().size(), samples.size());
    return samples;
  };
  EXPECT_THAT(sizes("a", {.max_samples = 3}, {1, 1, 1, 1, 1, 1}), ElementsAre(3, 3));
  EXPECT_THAT(sizes("b", {.max_samples = 3}, {1, 1, 1, 1}), ElementsAre(3, 1));
  EXPECT_THAT(sizes("c", {.max_samples = 1}, {0, 0}), ElementsAre(1, 1));
  // A member of 1 to 512 bytes takes 1,024 bytes in the tar, and an empty member 512.
  EXPECT_THAT(sizes("d", {.max_bytes = 2048}, {512, 512, 1}), ElementsAre(2, 1));
  EXPECT_THAT(sizes("e", {.max_bytes = 2047}, {512, 512, 1}), ElementsAre(1, 1, 1));
  EXPECT_THAT(sizes("f", {.max_bytes = 2048}, {513, 0, 0}), ElementsAre(2, 1));
  EXPECT_THAT(sizes("g", {.max_bytes = 2048}, {1, 9999, 1}), ElementsAre(1, 1, 1));
}

TEST(ShardWriterTest, ADryRunCountsTheSameAndWritesNothing) {
  const TempDir dir;
  test::write_file(dir / "f", std::string(5000, 'f'));
  const auto run = [&](bool dry_run) {
    ShardWriter writer(dir / "%d.tar", {.max_samples = 2, .dry_run = dry_run});
    for (const char* key : {"a", "b", "c"}) {
      writer.write(key, Fields{{"x", {}, dir / "f"}, {"y", "1"}});
    }
    writer.close();
    return writer;
  };
  const ShardWriter dry = run(true);
  EXPECT_THAT(dir.list(), ElementsAre("f"));
  const ShardWriter real = run(false);
  EXPECT_EQ(dry.paths(), real.paths());
  EXPECT_EQ(dry.totals().shards, real.totals().shards);
  EXPECT_EQ(dry.totals().shard_bytes, real.totals().shard_bytes);
  EXPECT_EQ(dry.totals().content_bytes, real.totals().content_bytes);
}

TEST(ShardWriterTest, WhatReadersWouldNotFindIsRefused) {
  const TempDir dir;
  ShardWriter writer(dir / "%d.tar");
  const auto error = [&](const std::string& key, const Fields& fields) {
    EXPECT_EQ(test::error_code([&] { writer.write(key, fields); }), ErrorCode::kInvalidArgument);
    return test::error_text([&] { writer.write(key, fields); });
  };
  for (const auto& [key, field] :
       std::vector<std::pair<std::string, std::string>>{{"", "txt"},
                                                        {"a", ""},
                                                        {"a.b", "txt"},
                                                        {".hidden", "txt"},
                                                        {"d/", "txt"},
                                                        {"__meta__/x", "json"},
                                                        {"__info", "json__"},
                                                        {"a", "t/xt"},
                                                        {"a", std::string("t\0", 2)},
                                                        {std::string("a\0", 2), "txt"}}) {
    EXPECT_THAT(error(key, {{field, "1"}}),
                AllOf(HasSubstr("would not split"), HasSubstr("a key without a dot")))
        << key << " " << field;
  }
  for (const char* key : {"/a", "../a", "d/../../a"}) {
    EXPECT_THAT(error(key, {{"txt", "1"}}), AllOf(HasSubstr("leads out of"), HasSubstr(key)));
  }
  EXPECT_THAT(error("a", {}), HasSubstr("the sample has no fields: 'a'"));
  EXPECT_THAT(error("a", {{"txt", "1"}, {"TXT", "2"}}),
              AllOf(HasSubstr("field occurs twice"), HasSubstr("'TXT', key 'a'")));
  writer.write("a", Fields{{"txt", "1"}});
  writer.write("d.d/b", Fields{{"txt", "2"}});
  writer.write("..d/e", Fields{{"txt", "3"}});
  EXPECT_THAT(error("a", {{"cls", "1"}}),
              AllOf(HasSubstr("already in this shard"), HasSubstr(dir / "0.tar")));
  writer.close();  // refused samples must leave no trace
  EXPECT_EQ(output_of("tar -tf '" + dir / "0.tar" + "'"), "a.txt\nd.d/b.txt\n..d/e.txt\n");
  EXPECT_THAT(error("c", {{"txt", "1"}}), HasSubstr("the writer is closed"));
}

TEST(ShardWriterTest, AShardThatIsThereIsReplacedOnlyIfAsked) {
  const TempDir dir;
  test::write_file(dir / "0.tar", "precious");
  const Fields fields = {{"txt", "1"}};
  ShardWriter careful(dir / "%d.tar");
  const auto write = [&] { careful.write("a", fields); };
  EXPECT_EQ(test::error_code(write), ErrorCode::kInvalidArgument);
  EXPECT_THAT(
      test::error_text(write),
      AllOf(HasSubstr("the shard already exists: '" + dir / "0.tar"), HasSubstr("replace")));
  EXPECT_EQ(test::read_file(dir / "0.tar"), "precious");
  ShardWriter bold(dir / "%d.tar", {.replace = true});
  bold.write("a", fields);
  // The old file remains until the new one is complete.
  EXPECT_EQ(test::read_file(dir / "0.tar"), "precious");
  bold.close();
  EXPECT_EQ(output_of("tar -xOf '" + dir / "0.tar" + "'"), "1");
}

/// Writes `samples` samples into shards of one sample each.
void write_set(const std::string& pattern, int samples, bool replace) {
  ShardWriter writer(pattern, {.max_samples = 1, .replace = replace});
  for (int i = 0; i < samples; ++i) {
    const std::string long_name(i % 2 == 0 ? 1 : 200, 'k');  // a long name needs a pax header
    writer.write(long_name + std::to_string(i), Fields{{"txt", std::to_string(samples)}});
  }
  writer.close();
}

TEST(ShardWriterTest, APathThatTheSystemRefusesIsATypedError) {
  const TempDir dir;
  ShardWriter writer(dir / std::string(300, 'x') + "/train-%04d.tar");
  EXPECT_EQ(test::error_code([&] {
              writer.write("a", Fields{{"cls", "7"}});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(ShardWriterTest, AShorterSetReplacesTheWholeOfALongerOne) {
  const TempDir dir;
  write_set(dir / "a%02d.tar", 5, false);
  write_set(dir / "a-%02d.tar", 5, false);
  test::write_file(dir / "a-07.tar", "of somebody else");
  test::write_file(dir / "a-8.tar", "");
  std::filesystem::create_directory(dir / "a-09.tar");
  write_set(dir / "a-%02d.tar", 2, true);
  EXPECT_THAT(dir.list(), ElementsAre("a-00.tar", "a-01.tar", "a-07.tar", "a-09.tar", "a-8.tar",
                                      "a00.tar", "a01.tar", "a02.tar", "a03.tar", "a04.tar"));
  EXPECT_EQ(output_of("tar -xOf '" + dir / "a-01.tar" + "'"), "2");
  EXPECT_EQ(output_of("tar -xOf '" + dir / "a01.tar" + "'"), "5");
}

TEST(ShardWriterTest, NoSampleReplacesNoSet) {
  const TempDir dir;
  write_set(dir / "%d.tar", 0, true);
  write_set(dir / "%d.tar", 2, false);
  write_set(dir / "%d.tar", 0, false);
  EXPECT_THAT(test::error_text([&] { write_set(dir / "%d.tar", 0, true); }),
              AllOf(HasSubstr("no sample was written"), HasSubstr("earlier set")));
  EXPECT_THAT(dir.list(), ElementsAre("0.tar", "1.tar"));
}

TEST(ShardWriterTest, AShardThatAnotherMadeMeanwhileStays) {
  const TempDir dir;
  ShardWriter first(dir / "%d.tar");
  ShardWriter second(dir / "%d.tar");
  first.write("a", Fields{{"txt", "1"}});
  second.write("b", Fields{{"txt", "2"}});
  first.close();
  EXPECT_THAT(test::error_text([&] { second.close(); }),
              HasSubstr("the shard already exists: '" + dir / "0.tar"));
  EXPECT_EQ(output_of("tar -tf '" + dir / "0.tar" + "'"), "a.txt\n");
  EXPECT_EQ(output_of("ls -A '" + std::string(dir / "") + "'"), "0.tar\n");
}

TEST(ShardWriterTest, WithoutCloseTheLastShardNeverWas) {
  const TempDir dir;
  {
    ShardWriter writer(dir / "%d.tar", {.max_samples = 1});
    writer.write("a", Fields{{"txt", "1"}});
    writer.write("b", Fields{{"txt", "2"}});
  }
  EXPECT_THAT(dir.list(), ElementsAre("0.tar"));
  {
    ShardWriter writer(dir / "x%d.tar");
    const Fields fields = {{"txt", "1"}, {"jpg", {}, dir / "none.jpg"}};
    EXPECT_EQ(test::error_code([&] { writer.write("a", fields); }), ErrorCode::kNotFound);
    writer.write("b", Fields{{"txt", "1"}});  // the refused sample was not written at all
  }
  { const ShardWriter nothing(dir / "y%d.tar"); }
  ShardWriter empty(dir / "z%d.tar");
  empty.close();
  EXPECT_THAT(dir.list(), ElementsAre("0.tar"));
}

TEST(ShardWriterTest, PatternsAreReadOrRefused) {
  EXPECT_EQ(parse_shard_names("d/train-%06d.tar").name(12), "d/train-000012.tar");
  EXPECT_EQ(parse_shard_names("d/train-{:06}.tar").name(1'234'567), "d/train-1234567.tar");
  EXPECT_EQ(parse_shard_names("{:03d}").name(7), "007");
  EXPECT_EQ(parse_shard_names("%d.tar").name(0), "0.tar");
  EXPECT_EQ(parse_shard_names("50%%/{{x}}-{}.tar").name(3), "50%/{x}-3.tar");
  for (const char* wrong : {"", "train.tar", "%06d-%06d", "%6d", "%x.tar", "{", "{:6}", "{:x}", "%",
                            "%00d", "{:099}", "%06d/a.tar", "%%d.tar"}) {
    EXPECT_EQ(test::error_code([&] { parse_shard_names(wrong); }), ErrorCode::kInvalidArgument)
        << wrong;
    EXPECT_THAT(test::error_text([&] { parse_shard_names(wrong); }),
                AllOf(HasSubstr("number"), HasSubstr("%06d or {:06}")));
  }
  EXPECT_EQ(test::error_code([] { ShardWriter("%d", {.max_samples = 0}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([] { ShardWriter("%d", {.max_bytes = 0}); }),
            ErrorCode::kInvalidArgument);
}

TEST(ShardWriterTest, KilledItLeavesWholeShardsOnly) {
  const std::string content(30'000, 'x');
  const auto write_all = [&](const std::string& pattern) {
    ShardWriter writer(pattern, {.max_samples = 5, .replace = true});
    for (int i = 0; i < 100; ++i) writer.write(std::to_string(i), Fields{{"bin", content}});
    writer.close();
    return std::string("done");
  };
  const TempDir whole;
  write_all(whole / "%d.tar");
  constexpr std::uint64_t kSeed = 20261122;
  std::mt19937_64 random(kSeed);
  std::size_t killed = 0;
  for (int round = 0; round < 50; ++round) {
    const TempDir dir;
    test::Child child([&] { return write_all(dir / "%d.tar"); });
    ::usleep(static_cast<useconds_t>(random() % 60'000));
    child.kill();
    if (child.wait() != "done") ++killed;
    for (const std::string& name : dir.list()) {
      if (name.ends_with(".tmp")) continue;
      ASSERT_EQ(test::read_file(dir / name), test::read_file(whole / name))
          << name << ", seed " << kSeed << ", round " << round;
    }
    write_all(dir / "%d.tar");  // a new set replaces the old one and removes its temporary files
    EXPECT_EQ(dir.list(), whole.list());
  }
  EXPECT_GT(killed, 0U);
}

}  // namespace
}  // namespace shardwise
