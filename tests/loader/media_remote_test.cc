// Clips of large videos behind a server: few requests, few bytes, the frames of a local shard, and
// the errors of a server that fails or changes the shard during a clip.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "loader/one_batch.h"
#include "media_bytes.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/dataset.h"

namespace shardwise {
namespace {

using test::error_code;
using test::ServedFile;

constexpr std::uint64_t kLarge = std::uint64_t{8} << 20;  // larger fields are read in parts
constexpr int kGroup = 10;
constexpr int kFrames = 500;

/// An MP4 with its header at the end, and a key frame in each quarter MiB or so.
const std::string& large_video() {
  static const std::string video = [] {
    fuzz::VideoSpec spec{.width = 320, .height = 240, .num_frames = kFrames};
    spec.codec = fuzz::has_encoder("libx264") ? "libx264" : "mpeg4";
    spec.group = kGroup;
    spec.moves = true;
    spec.codec_options = {{"b", "12000000"}, {"preset", "ultrafast"}};
    return fuzz::encode_video(spec);
  }();
  return video;
}

class MediaRemoteTest : public testing::Test {
 protected:
  MediaRemoteTest() : fetchers_(std::make_shared<const Fetchers>(test::quick_options())) {
    server_.serve("/v.tar", {.body = shard()});
    build_index(dir_ / "v.idx", {server_.url("/v.tar")}, {.remote = make_remote_access(fetchers_)});
    num_before_ = server_.requests().size();
  }

  static const std::string& shard() {
    static const std::string bytes = [] {
      test::TarBuilder tar;
      for (const char* key : {"a", "b"}) {
        tar.file(std::string(key) + ".cls", "3").file(std::string(key) + ".mp4", large_video());
      }
      return tar.end().bytes();
    }();
    return bytes;
  }
  Dataset ranged() const {
    return Dataset::open(dir_ / "v.idx",
                         {.access = Dataset::Access::kRange, .fetchers = fetchers_});
  }
  static std::vector<Column> columns() {
    return {columns::video("mp4", {.frames = 4, .every = 3}), columns::integer("cls")};
  }
  static Batch clips(const Dataset& data) { return test::one_batch(data, columns()); }
  /// Returns the number of requests and of bytes since the last call.
  std::pair<std::size_t, std::uint64_t> requested() {
    const auto all = server_.requests();
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    for (const auto& request : std::span(all).subspan(std::exchange(num_before_, all.size()))) {
      const std::string range = request.header("range");
      if (request.method != "GET") continue;
      ++count;
      const std::size_t dash = range.find('-');
      bytes += std::stoull(range.substr(dash + 1)) - std::stoull(range.substr(6)) + 1;
    }
    return {count, bytes};
  }
  /// Serves a file that `change` changes at the `number`th request from now on.
  void change_at(int number, std::function<void(ServedFile&)> change) {
    server_.serve("/v.tar", {.body = shard(), .before_get = [=, n = 0](ServedFile& file) mutable {
                               if (++n == number) change(file);
                             }});
  }

  const test::TempDir dir_;
  test::TestHttpServer server_;
  const std::shared_ptr<const Fetchers> fetchers_;
  std::size_t num_before_ = 0;
};

TEST_F(MediaRemoteTest, ClipsTakeFewRequestsAndBytes) {
  ASSERT_GT(large_video().size(), kLarge);
  const Batch from_server = clips(ranged());
  const auto [requests, bytes] = requested();
  EXPECT_LT(bytes, shard().size() / 2);
  // A clip takes a range for the header of each key frame, which are fetched together, and a few
  // others.
  EXPECT_LT(requests, 2 * (kFrames / kGroup + 40));
  const Batch from_file = clips(test::make_dataset(
      dir_, "l", {{{"cls", "3"}, {"mp4", large_video()}}, {{"cls", "3"}, {"mp4", large_video()}}}));
  for (std::size_t c = 0; c < from_file.arrays().size(); ++c) {
    EXPECT_TRUE(std::ranges::equal(from_file.arrays()[c].bytes(), from_server.arrays()[c].bytes()));
  }
}

TEST_F(MediaRemoteTest, AShardThatChangesDuringAClipIsStale) {
  for (const int number : {2, 4, 8}) {
    change_at(number, [](ServedFile& file) { file.etag = "\"v2\""; });
    EXPECT_EQ(error_code([&] { clips(ranged()); }), ErrorCode::kStaleIndex) << number;
  }
}

TEST_F(MediaRemoteTest, AServerThatIgnoresRangesDuringAClipIsAnError) {
  change_at(4, [](ServedFile& file) { file.has_ranges = false; });
  EXPECT_EQ(error_code([&] { clips(ranged()); }), ErrorCode::kFetch);
}

TEST_F(MediaRemoteTest, AShardThatIsGoneDuringAClipIsNotABadSample) {
  for (const int number : {4, 8}) {
    change_at(number, [](ServedFile& file) { file.redirect_to = "/gone.tar"; });
    const auto times = columns::video_times("mp4", {.frames = 4, .every = 3});
    Loader loader(ranged(), {.columns = {times}, .batch_size = 2, .threads = 1, .max_bad = 2});
    EXPECT_EQ(error_code([&] { loader.next(); }), ErrorCode::kStaleIndex) << number;
  }
}

TEST_F(MediaRemoteTest, TransfersThatFailAreRepeated) {
  const Batch whole = clips(ranged());
  for (const int number : {3, 8}) {
    server_.serve("/v.tar", {.body = shard(), .before_get = [=, n = 0](ServedFile& file) mutable {
                               ++n;
                               file.cut_after = n == number || n == number + 1
                                                    ? std::optional<std::size_t>(1000)
                                                    : std::nullopt;
                             }});
    const Batch cut = clips(ranged());
    EXPECT_TRUE(std::ranges::equal(whole["mp4"].bytes(), cut["mp4"].bytes())) << number;
  }
}

TEST_F(MediaRemoteTest, AClipEndsWhenTheLoaderIsStopped) {
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  for (const int number : {3, 6}) {
    std::atomic<bool> is_hanging{false};
    change_at(number, [&](ServedFile& file) {
      file.hangs = hangs;
      is_hanging = true;
    });
    Loader loader(ranged(), {.columns = columns(), .batch_size = 2, .threads = 1});
    std::thread stopper([&] {
      while (!is_hanging) std::this_thread::yield();
      loader.stop();
    });
    EXPECT_EQ(error_code([&] { loader.next(); }), ErrorCode::kCancelled) << number;
    stopper.join();
  }
  *hangs = false;
}

}  // namespace
}  // namespace shardwise
