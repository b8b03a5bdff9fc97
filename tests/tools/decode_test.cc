// Tests `shardwise epoch --decode`, which runs the loader.

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "served_shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"
#include "shardwise_program.h"
#include "support/images.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// Returns the file that numpy.save() writes for three bytes.
std::string small_npy() {
  std::string head = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
  head.resize(118 - 1, ' ');
  head += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(head.size()) +
         std::string(1, '\0') + head + "abc";
}

/// Two shards of ten samples. Each sample has an image of a different size, and a label. Some have
/// another field: an array, a text, JSON, or bytes.
class ImageIndex {
 public:
  explicit ImageIndex(const std::map<int, std::pair<std::string, std::string>>& other_fields = {}) {
    for (int shard = 0; shard < 2; ++shard) {
      TarBuilder tar;
      for (int i = 10 * shard; i < 10 * shard + 10; ++i) {
        const std::string key = "s" + std::to_string(i);
        const auto picture = test_picture(40 + 3 * i, 30 + i, unsigned(i) + 1);
        std::map<std::string, std::string> fields = {
            {i % 2 == 0 ? "jpg" : "png", i % 2 == 0 ? encode_jpeg(picture) : encode_png(picture)},
            {"cls", std::to_string(i)}};
        if (i == 3) fields["npy"] = small_npy();
        if (i == 4) fields["txt"] = "caf\xc3\xa9";
        if (i == 5) fields["json"] = "{}";
        if (i == 6) fields["bin"] = std::string("\xff\xfe", 2);
        if (const auto other = other_fields.find(i); other != other_fields.end()) {
          fields[other->second.first] = other->second.second;
        }
        for (const auto& [field, bytes] : fields) tar.file(key + "." + field, bytes);
      }
      shards_.push_back(dir_ / (shard == 0 ? "a.tar" : "b.tar"));
      write_file(shards_.back(), tar.end().bytes());
    }
    shardwise_output({"index", "-o", path(), shards_[0], shards_[1]});
  }

  std::string path() const { return dir_ / "all.idx"; }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
  std::vector<std::string> shards_;
};

nlohmann::json decoded(const std::string& index, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"epoch", "--json", "--quiet", index, "--decode"});
  return nlohmann::json::parse(shardwise_output(std::move(arguments)));
}

/// Returns true if the process has a thread with this name.
bool has_thread(pid_t pid, const std::string& name) {
  std::error_code gone;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", gone);
  return std::any_of(begin(threads), end(threads), [&](const auto& thread) {
    std::string found;
    std::ifstream(thread.path() / "comm") >> found;
    return found == name;
  });
}

TEST(EpochDecodeTest, EveryImageIsDecodedOnceWhateverRanksAndThreads) {
  const ImageIndex index;
  for (const char* world : {"1", "3"}) {
    for (const char* threads : {"0", "2"}) {
      const auto epoch = decoded(index.path(), {"rgb", "--world", world, "--threads", threads,
                                                "--batch", "4", "--epoch", "2"});
      EXPECT_EQ(epoch["samples"], 20);
      EXPECT_EQ(epoch["images"], 20);
      EXPECT_EQ(epoch["decode"], "rgb");
      EXPECT_EQ(epoch["proof"], "epoch 2: 20 samples, each exactly once: proven");
      EXPECT_TRUE(epoch["checksum"].is_null());
      EXPECT_GT(epoch["images_per_second"], 0);
      EXPECT_GT(epoch["stages"]["decoding_seconds"], 0);
      EXPECT_EQ(epoch["stages"]["transforming_seconds"], 0) << "no size was asked for";
      EXPECT_THAT(epoch["stages"]["slowest_sample"].get<std::string>(), HasSubstr(".tar"));
    }
  }
  const auto part = decoded(index.path(), {"rgb", "--world", "3", "--rank", "1"});
  EXPECT_EQ(part["samples"], 7);
  EXPECT_EQ(part["rank"], 1);
  EXPECT_EQ(part["proof"], "epoch 0: rank 1 of 3: 7 samples as ordered: proven");
}

TEST(EpochDecodeTest, ImagesAreResizedAndCropped) {
  const ImageIndex index;
  for (const char* decode : {"rgb", "auto"}) {
    const std::vector<std::vector<std::string>> ways = {
        {decode, "--resize", "24x32"},
        {decode, "--resize", "24x32", "--crop", "random"},
        {decode, "--resize", "24x32", "--crop", "centre"}};
    for (const auto& way : ways) {
      const auto epoch = decoded(index.path(), way);
      EXPECT_EQ(epoch["images"], 20);
      EXPECT_GT(epoch["stages"]["transforming_seconds"], 0);
      EXPECT_EQ(epoch["proof"], "epoch 0: 20 samples, each exactly once: proven");
    }
  }
}

TEST(EpochDecodeTest, AutoReadsEveryFieldAndRgbTheImages) {
  const ImageIndex index;
  const auto read =
      nlohmann::json::parse(shardwise_output({"epoch", "--json", "--quiet", index.path()}));
  const auto all = decoded(index.path(), {"auto"});
  EXPECT_EQ(all["bytes"], read["bytes"]);
  EXPECT_EQ(all["images"], 20);
  const auto images = decoded(index.path(), {"rgb"});
  EXPECT_LT(images["bytes"], read["bytes"]);
  EXPECT_GT(images["bytes"], 0);
}

TEST(EpochDecodeTest, ASampleThatCannotBeDecodedIsNamed) {
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> bad = {
      {{"png", "broken"}, "cannot decode field 'png' as an image ("},
      {{"npy", "broken"}, "cannot decode field 'npy' as an array ("},
      {{"cls", "seven"}, "field 'cls'"},
      {{"txt", "\xff"}, "cannot decode field 'txt' as text (it is not UTF-8)"},
      {{"json", "\xff"}, "cannot decode field 'json' as JSON ('\\xff' where a value belongs"},
      {{"json", "{"}, "cannot decode field 'json' as JSON (the text ends where a key belongs"},
  };
  for (const auto& [field, text] : bad) {
    const ImageIndex index({{13, field}});
    expect_failure(shardwise({"epoch", "--quiet", index.path(), "--decode", "auto"}),
                   {text, "b.tar", "s13"});
  }
  const ImageIndex broken({{13, {"png", "broken"}}});
  for (const char* resize : {"", "8x8"}) {
    std::vector<std::string> arguments = {"epoch", "--quiet", broken.path(), "--decode", "rgb"};
    if (*resize != '\0') arguments.insert(arguments.end(), {"--resize", resize});
    expect_failure(shardwise(arguments), {"cannot decode field 'png' as an image (", "s13"});
  }
}

TEST(EpochDecodeTest, PrintsForPeople) {
  const ImageIndex index;
  const std::string text = shardwise_output(
      {"epoch", index.path(), "--decode", "rgb", "--resize", "16x16", "--batch", "4"});
  EXPECT_THAT(text, AllOf(HasSubstr("samples   20\nimages    20, "), HasSubstr(" images/s\nbytes "),
                          HasSubstr("\nlimit     "), HasSubstr("-bound")));
  EXPECT_THAT(text, testing::Not(HasSubstr("ImageDecoding")));
  EXPECT_EQ(lines_of(text).back(), "epoch 0: 20 samples, each exactly once: proven");
  EXPECT_THAT(shardwise_output({"epoch", index.path()}), testing::Not(HasSubstr("limit")));
}

TEST(EpochDecodeTest, WhatIsForgivenHasALineForEachKind) {
  std::map<int, std::pair<std::string, std::string>> early;
  for (const int i : {2, 6, 18}) {
    const std::string jpeg = encode_jpeg(test_picture(40, 30, unsigned(i)));
    early[i] = {"jpg", jpeg.substr(0, jpeg.size() - 40) + "\xFF\xD9"};
  }
  const ImageIndex index(early);
  for (const char* decode : {"rgb", "auto"}) {
    const std::string text = shardwise_output({"epoch", index.path(), "--decode", decode});
    EXPECT_THAT(text,
                HasSubstr("\nforgiven  JPEG: Corrupt JPEG data: premature end of data segment: "
                          "3 images, first sample 2 ('s2') in shard"));
    EXPECT_EQ(text.find("forgiven"), text.rfind("forgiven")) << text;
  }
  const auto epoch = decoded(index.path(), {"rgb", "--resize", "8x8", "--world", "2"});
  ASSERT_EQ(epoch["forgiven"].size(), 1U);
  EXPECT_EQ(epoch["forgiven"][0]["kind"], "JPEG: Corrupt JPEG data: premature end of data segment");
  EXPECT_EQ(epoch["forgiven"][0]["images"], 3);
  EXPECT_THAT(epoch["forgiven"][0]["example"].get<std::string>(), HasSubstr(".tar"));
  EXPECT_EQ(decoded(ImageIndex().path(), {"rgb"})["forgiven"].size(), 0U);
}

TEST(EpochDecodeTest, GoesOnWhereATokenStands) {
  const ImageIndex index;
  Loader loader(Dataset::open(index.path()),
                {.columns = {columns::key()}, .order = {.seed = 5}, .batch_size = 4});
  for (int i = 0; i < 2; ++i) loader.next();
  const std::string token = loader.state().to_text();
  const auto rest = decoded(index.path(), {"rgb", "--token", token, "--world", "2"});
  EXPECT_EQ(rest["samples"], 12);
  EXPECT_EQ(rest["proof"], "epoch 0: 20 samples, each exactly once: proven");
  const auto next = decoded(index.path(), {"auto", "--token", token, "--epoch", "4"});
  EXPECT_EQ(next["proof"], "epoch 4: 20 samples, each exactly once: proven");
}

TEST(EpochDecodeTest, OfATokenThatDoesNotSayWhatWasDeliveredTheRestIsProven) {
  const ImageIndex index;
  const Dataset data = Dataset::open(index.path());
  const std::string token =
      ChunkedSampler(data, {.seed = 5}, {.batch_size = 4}).token_after(2).to_text();
  for (const char* decoding : {"none", "rgb"}) {
    EXPECT_EQ(decoded(index.path(), {decoding, "--token", token})["proof"],
              "epoch 0: the rest from position 8 on: 12 samples as ordered: proven");
  }
}

TEST(EpochDecodeTest, CtrlCEndsIt) {
  const ImageIndex index;
  Process epoch({SHARDWISE_PROGRAM, "epoch", "--quiet", index.path(), "--decode", "rgb",
                 "--sampler", "resampled", "--epoch-size", "1000000000000", "--threads", "1"});
  while (!has_thread(epoch.pid(), "sw-load-0")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  epoch.send(SIGINT);
  const Finished finished = epoch.wait();
  EXPECT_EQ(finished.code, 130);
  EXPECT_EQ(finished.out, "");
  EXPECT_EQ(finished.err, "shardwise: error: interrupted; nothing was left half-written\n");
}

TEST(EpochDecodeTest, SamplesAreLeftOut) {
  const ImageIndex index;
  const std::string skip = index.dir() / "skip";
  write_file(skip, "3\n7 # blurred\n");
  const auto others = decoded(index.path(), {"rgb", "--skip", skip, "--world", "2"});
  EXPECT_EQ(others["samples"], 18);
  EXPECT_THAT(others["proof"].get<std::string>(), HasSubstr("18 samples"));
  write_file(skip, "0\n");  // the first sample of the order
  EXPECT_EQ(decoded(index.path(), {"rgb", "--no-shuffle", "--skip", skip})["samples"], 19);
}

TEST(EpochDecodeTest, AllBadSamplesAreListedForLaterRuns) {
  std::map<int, std::pair<std::string, std::string>> broken;
  for (const int i : {3, 9, 13}) broken[i] = {"png", "broken"};
  const ImageIndex index(broken);
  const std::string list = index.dir() / "bad.txt";
  for (const char* world : {"1", "3"}) {
    const auto epoch =
        decoded(index.path(), {"rgb", "--bad-list", list, "--world", world, "--batch", "2"});
    EXPECT_EQ(epoch["samples"], 17);
    EXPECT_EQ(epoch["proof"],
              "epoch 0: 17 samples, each exactly once, 3 excluded on purpose: proven");
    ASSERT_EQ(epoch["bad"].size(), 3U);
    EXPECT_EQ(epoch["bad"][1]["sample"], 9);
    EXPECT_THAT(epoch["bad"][1]["reason"].get<std::string>(), HasSubstr("'s9'"));
    const auto lines = lines_of(read_file(list));
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_THAT(lines[3], AllOf(StartsWith("13 # cannot decode field 'png'"), HasSubstr("'s13'")));
  }
  expect_failure(
      shardwise({"epoch", "--quiet", index.path(), "--where", "key <> 's0'", "--skip", list}),
      {"another data set", "bad.txt"});
  const auto rest = decoded(index.path(), {"rgb", "--skip", list, "--epoch", "1"});
  EXPECT_EQ(rest["proof"], "epoch 1: 17 samples, each exactly once, 3 excluded on purpose: proven");
  EXPECT_EQ(rest["bad"].size(), 0U);
  std::size_t found = 0;
  for (const char* rank : {"0", "1"}) {
    const auto part =
        decoded(index.path(), {"rgb", "--max-bad", "3", "--world", "2", "--rank", rank});
    found += part["bad"].size();
    EXPECT_EQ(part["samples"].get<std::size_t>() + part["bad"].size(), 10U);
    EXPECT_THAT(part["proof"].get<std::string>(), testing::EndsWith("samples as ordered: proven"));
  }
  EXPECT_EQ(found, 3U);
}

TEST(EpochDecodeTest, OneBadSampleMoreThanAllowedIsAnError) {
  std::map<int, std::pair<std::string, std::string>> broken;
  for (const int i : {3, 9, 13}) broken[i] = {"png", "broken"};
  const ImageIndex index(broken);
  const std::string list = index.dir() / "bad.txt";
  for (const char* world : {"1", "3"}) {  // the limit is for all ranks together
    std::filesystem::remove(list);
    const Finished finished =
        shardwise({"epoch", "--quiet", index.path(), "--decode", "rgb", "--max-bad", "2", "--world",
                   world, "--threads", "0", "--batch", "1", "--bad-list", list});
    expect_failure(finished, {"more than the ", "that --max-bad allows"});
    EXPECT_EQ(lines_of(read_file(list)).size(), 4U) << "what was found is listed";
  }
  const std::string text =
      shardwise_output({"epoch", index.path(), "--decode", "rgb", "--max-bad", "3"});
  EXPECT_THAT(text, HasSubstr("\nbad       cannot decode field 'png'"));
}

TEST(EpochDecodeTest, ABadSampleNamesTheOptionsThatHelp) {
  const ImageIndex index({{9, {"png", "broken"}}});
  expect_failure(shardwise({"epoch", "--quiet", index.path(), "--decode", "rgb"}),
                 {"cannot decode field 'png'", "'s9'", "leave the sample out with --max-bad"});
}

TEST(EpochDecodeTest, OfSeveralImagesOneIsChosen) {
  const ImageIndex index({{9, {"mask.png", encode_png(test_picture(5, 4, 1))}}});
  expect_failure(shardwise({"epoch", "--quiet", index.path(), "--decode", "rgb"}),
                 {"the sample has several images", "'s9'",
                  "name the image's field (--image-field), one of: mask.png, png\n"});
  EXPECT_EQ(decoded(index.path(), {"rgb", "--image-field", "jpg;png"})["images"], 20);
  EXPECT_EQ(decoded(index.path(), {"rgb", "--image-field", "jpg;png", "--resize", "8x9"})["images"],
            20);
  EXPECT_EQ(decoded(index.path(), {"auto"})["images"], 21);
  const Finished unread =
      shardwise({"epoch", index.path(), "--decode", "auto", "--image-field", "png"});
  EXPECT_EQ(unread.code, 2);
  EXPECT_THAT(unread.err, HasSubstr("--image-field needs --decode rgb"));
}

TEST(EpochDecodeTest, AnEpochWhoseSamplesAreAllBadIsNotProven) {
  const ImageIndex index;
  const std::string list = index.dir() / "bad.txt";
  const Finished finished = shardwise({"epoch", "--quiet", index.path(), "--decode", "rgb",
                                       "--image-field", "cls", "--bad-list", list});
  expect_failure(finished,
                 {"all loaded samples are bad: 20 samples, the first: ", "check --decode"});
  EXPECT_EQ(lines_of(read_file(list)).size(), 21U) << "what was found is listed";
}

TEST(EpochDecodeTest, NoFileOfAnotherKindIsOverwritten) {
  const ImageIndex index;
  const std::string before = read_file(index.path());
  for (const char* option : {"--trace", "--bad-list"}) {
    expect_failure(
        shardwise({"epoch", "--quiet", index.path(), "--decode", "rgb", option, index.path()}),
        {"that this option did not write", index.path(), option});
    EXPECT_EQ(read_file(index.path()), before);
    const std::string own = index.dir() / ("own" + std::string(option));
    for (int round = 0; round < 2; ++round) decoded(index.path(), {"rgb", option, own});
  }
}

TEST(EpochTraceTest, IsChromesFormat) {
  const ImageIndex index;
  const std::string path = index.dir() / "trace.json";
  decoded(index.path(), {"rgb", "--resize", "16x16", "--batch", "5", "--threads", "2", "--world",
                         "2", "--trace", path});
  const auto trace = nlohmann::json::parse(read_file(path));
  ASSERT_TRUE(trace.is_array());
  std::map<int, std::string> threads;
  std::map<std::string, int> events;
  std::uint64_t samples = 0;
  for (const auto& event : trace) {
    EXPECT_EQ(event["pid"], 1);
    if (event["ph"] == "M") {
      EXPECT_EQ(event["name"], "thread_name");
      threads[event["tid"]] = event["args"]["name"];
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    EXPECT_TRUE(threads.contains(event["tid"])) << "names come first";
    EXPECT_GE(event["ts"], 0);
    EXPECT_GE(event["dur"], 0);
    ++events[event["name"]];
    if (event["name"] == "load samples") {
      samples += event["args"]["samples"].get<std::uint64_t>();
      EXPECT_LT(event["args"]["first_sample"], 20);
    }
  }
  EXPECT_EQ(samples, 20u);
  EXPECT_EQ(events["plan batch"], 4) << "two of each rank";
  EXPECT_EQ(events["collate batch"], 4);
  for (const auto& [thread, name] : threads) {
    EXPECT_EQ(name, thread == 0 ? "consumer" : "sw-load-" + std::to_string(thread - 1));
  }
}

TEST(EpochTraceTest, ItIsSaidBeforeTheEpochThatTheFileCannotBeWritten) {
  // The path is not an index: the options are checked before anything is opened.
  const auto said = [](const std::string& path) {
    const Finished finished =
        shardwise({"epoch", "--quiet", "/no/index", "--decode", "rgb", "--trace", path});
    EXPECT_EQ(finished.code, 1);
    return finished.err;
  };
  const TempDir dir;
  EXPECT_THAT(said(dir.path()), HasSubstr("the path names a folder, not a file"));
  EXPECT_THAT(said(dir / "no/t.json"), HasSubstr("the folder does not exist"));
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(said(pipe), HasSubstr("(a device, a pipe or a socket); name a file"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THAT(dir.list(), testing::ElementsAre("pipe"));
}

TEST(EpochReplayTest, HandsOutOneBatchAndProvesNothing) {
  const ImageIndex index;
  const auto replay =
      decoded(index.path(), {"rgb", "--resize", "16x16", "--batch", "8", "--replay", "50"});
  EXPECT_EQ(replay["samples"], 400);
  EXPECT_EQ(replay["images"], 400);
  EXPECT_EQ(replay["replayed"], 50);
  EXPECT_TRUE(replay["proof"].is_null());
  EXPECT_GT(replay["samples_per_second"], 0);
  const std::string text =
      shardwise_output({"epoch", index.path(), "--decode", "auto", "--replay", "1"});
  EXPECT_THAT(text, StartsWith("samples   20: one batch, 1 time\n"));
  EXPECT_EQ(lines_of(text).back(),
            "the epoch is not proven, because --replay delivers one batch repeatedly");
}

TEST(EpochReplayTest, NeedsABatch) {
  const ImageIndex index;
  expect_failure(shardwise({"epoch", "--quiet", index.path(), "--decode", "rgb", "--replay", "2",
                            "--where", "key = 'none'"}),
                 {"no batch can be replayed"});
}

TEST(EpochDecodeOptionsTest, WhatDoesNotGoTogetherIsWrongUsage) {
  const ImageIndex index;
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> wrong = {
      {{"--resize", "8x8"}, {"--resize needs --decode rgb or --decode auto"}},
      {{"--crop", "random"}, {"--crop needs --decode rgb or --decode auto"}},
      {{"--trace", "t.json"}, {"--trace needs --decode rgb or --decode auto"}},
      {{"--replay", "2"}, {"--replay needs --decode rgb or --decode auto"}},
      {{"--decode", "rgb", "--crop", "random"}, {"--crop needs --resize HxW"}},
      {{"--decode", "rgb", "--resize", "8"},
       {"--resize", "HEIGHTxWIDTH", "1 to 99999", "224x224", "'8'"}},
      {{"--decode", "rgb", "--resize", "100000x8"}, {"--resize", "HEIGHTxWIDTH", "'100000x8'"}},
      {{"--decode", "rgb", "--resize", "0x8"}, {"--resize", "HEIGHTxWIDTH", "'0x8'"}},
      {{"--decode", "rgb", "--resize", "8x-8"}, {"--resize", "HEIGHTxWIDTH", "'8x-8'"}},
      {{"--decode", "rgb", "--replay", "2", "--trace", "t.json"},
       {"--trace cannot be given with --replay, which loads one batch"}},
      {{"--decode", "rgb", "--replay", "0"}, {"--replay"}},
      {{"--decode", "rgb", "--resize", "8x8", "--crop", "left"}, {"--crop"}},
  };
  for (const auto& [options, texts] : wrong) {
    std::vector<std::string> arguments = {"epoch", index.path()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2) << testing::PrintToString(options);
    EXPECT_EQ(finished.out, "");
    EXPECT_THAT(finished.err, StartsWith("shardwise: error: "));
    for (const std::string& text : texts) EXPECT_THAT(finished.err, HasSubstr(text));
  }
}

TEST(EpochDecodeTest, ShardsBehindAServerComeThroughTheCacheOnceAndAreProven) {
  const TempDir dir;
  TestHttpServer server;
  std::vector<std::string> urls;
  for (int shard = 0; shard < 3; ++shard) {
    TarBuilder tar;
    for (int i = 0; i < 6; ++i) {
      const std::string key = "s" + std::to_string(6 * shard + i);
      tar.file(key + ".png", encode_png(test_picture(20 + i, 24, unsigned(i) + 1)))
          .file(key + ".cls", std::to_string(i));
    }
    const std::string path = "/" + std::to_string(shard) + ".tar";
    server.serve(path, {.body = tar.end().bytes()});
    urls.push_back(server.url(path));
  }
  const std::string index = dir / "x.idx", cache = dir / "cache";
  std::vector<std::string> build = {"index", "--quiet", "-o", index};
  build.insert(build.end(), urls.begin(), urls.end());
  shardwise_output(build);
  const auto gets = [&] {
    return server.gets("/0.tar") + server.gets("/1.tar") + server.gets("/2.tar");
  };
  const int before = gets();
  for (const char* const threads : {"0", "2"}) {
    const auto report = decoded(index, {"rgb", "--resize", "16x16", "--cache", cache, "--threads",
                                        threads, "--batch", "4"});
    EXPECT_EQ(report["samples"], 18) << report;
    EXPECT_THAT(report["proof"].get<std::string>(), HasSubstr("each exactly once: proven"));
    EXPECT_EQ(gets(), before + 3) << "each shard is fetched once, and found again";
  }
  const Finished without =
      shardwise({"epoch", index, "--quiet", "--decode", "rgb", "--resize", "16x16"});
  EXPECT_EQ(without.code, 1);
  EXPECT_THAT(without.err, HasSubstr("the shard is remote, and there is no shard cache"));
}

}  // namespace
}  // namespace shardwise::test
