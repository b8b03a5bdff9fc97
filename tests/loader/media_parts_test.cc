// Videos that are read in parts: the same frames as from memory, few bytes, and errors that name
// the place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/byte_source.h"
#include "data/dataset_access.h"
#include "data/sample_access.h"
#include "decode/video/container.h"
#include "decode/video/media_view.h"
#include "decode/video/video_decoder.h"
#include "loader/one_batch.h"
#include "media_bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/loader/media_columns.h"
#include "support/chain.h"
#include "support/dataset.h"
#include "support/says.h"

namespace shardwise {
namespace {

using detail::MediaInput;
using detail::MediaView;
using detail::VideoDecoder;
using testing::HasSubstr;

/// Counts the bytes that are read, and fails once more than `max_bytes` were read.
class CountingSource final : public detail::ByteSource {
 public:
  explicit CountingSource(std::string_view bytes, std::uint64_t max_bytes = UINT64_MAX)
      : bytes_(bytes), max_bytes_(max_bytes) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return bytes_.size(); }
  void read_parts(std::span<const Part> parts) const override {
    ++num_calls_;
    for (const auto& [offset, to] : parts) {
      ASSERT_FALSE(to.empty());  // an HTTP request of no bytes would be answered with the file
      ASSERT_LE(offset, bytes_.size());
      ASSERT_LE(to.size(), bytes_.size() - offset);
      read_ += to.size();
      if (read_ > max_bytes_) throw Error(ErrorCode::kIo, "the disk is broken", "here", "mend it");
      bytes_.copy(to.data(), to.size(), offset);
    }
  }
  [[nodiscard]] bool is_remote() const noexcept override { return false; }
  [[nodiscard]] std::size_t cheap_read_bytes() const noexcept override { return 4096; }
  [[nodiscard]] std::uint64_t num_read() const noexcept { return read_; }
  [[nodiscard]] int num_calls() const noexcept { return num_calls_; }

 private:
  const std::string_view bytes_;
  const std::uint64_t max_bytes_;
  mutable std::uint64_t read_ = 0;
  mutable int num_calls_ = 0;
};

TEST(MediaInputTest, AnySequenceOfReadsGivesTheBytesOfTheSource) {
  test::for_each_seed(20, 200, [](std::uint64_t seed) {
    test::Dice dice(seed);
    std::string bytes(1 + dice.below(2'000'000), '\0');
    for (char& c : bytes) c = static_cast<char>(dice.below(256));
    const CountingSource source(bytes);
    MediaInput input(source);
    const MediaView all(input);
    std::size_t at = 0;
    for (int i = 0; i < 100; ++i) {
      at = dice.flip() ? dice.below(bytes.size()) : at;  // otherwise continues
      const std::size_t count = std::min<std::size_t>(dice.below(20'000), bytes.size() - at);
      const std::string_view wanted = std::string_view(bytes).substr(at, count);
      switch (dice.below(5)) {
        case 0:
          ASSERT_TRUE(input.view(at, count) == wanted);
          break;
        case 1: {
          std::string copy(count, '\0');
          input.copy(at, copy);
          ASSERT_TRUE(copy == wanted);
          break;
        }
        case 2: {
          std::vector<MediaInput::Range> ranges(dice.below(30));
          for (auto& [begin, end] : ranges) {
            begin = dice.below(bytes.size() + 1000);
            end = begin + dice.below(2000);  // may extend beyond the end
          }
          const int before = source.num_calls();
          input.prefetch(ranges);
          ASSERT_LE(source.num_calls(), before + 1);
          break;
        }
        case 3: {
          const std::size_t begin = dice.below(bytes.size());
          const MediaView part = all.substr(begin, dice.below(200'000));
          const std::string_view same = std::string_view(bytes).substr(begin, part.size());
          const std::string_view text = std::string_view(bytes).substr(at, 2);
          ASSERT_EQ(part.find(text), same.find(text));
          ASSERT_EQ(part.rfind(text), same.rfind(text));
          break;
        }
        default:
          ASSERT_EQ(all[at], bytes[at]);
      }
      at = std::min(at + count, bytes.size() - 1);
    }
  });
}

TEST(MediaInputTest, PrefetchedRangesAreReadByOneCall) {
  std::string bytes(1 << 20, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  const CountingSource source(bytes);
  MediaInput input(source);
  std::vector<MediaInput::Range> ranges;
  for (std::size_t at = 0; at < bytes.size(); at += 100'000) ranges.push_back({at, at + 1000});
  input.prefetch(ranges);
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(input.view(begin + 10, 900), std::string_view(bytes).substr(begin + 10, 900));
  }
  EXPECT_EQ(source.num_calls(), 1);
  EXPECT_EQ(source.num_read(), ranges.size() * 1000);
}

/// An MP4 has its header at the end.
std::string long_video(const std::string& container = "mp4", const std::string& codec = "libx264") {
  fuzz::VideoSpec spec{.container = container, .width = 320, .height = 240, .num_frames = 300};
  if (fuzz::has_encoder(codec)) spec.codec = codec;
  spec.group = 60;
  spec.moves = true;
  spec.codec_options = {{"b", "20000000"}, {"preset", "ultrafast"}};
  return fuzz::encode_video(spec);
}

std::vector<std::uint8_t> frames_of(MediaView bytes, std::span<const std::int64_t> numbers) {
  VideoDecoder decoder(bytes, 1 << 24, 1 << 20);
  std::vector<std::uint8_t> frames(
      numbers.size() * static_cast<std::size_t>(decoder.height() * decoder.width()) * 3);
  decoder.read(numbers, frames.data());
  return frames;
}

TEST(MediaPartsTest, AClipOfALongVideoReadsFewBytes) {
  const std::string video = long_video();
  ASSERT_GT(video.size(), std::size_t{1} << 20);  // so that Loader reads parts, too
  const std::int64_t numbers[] = {183, 185};
  const CountingSource source(video);
  MediaInput input(source);
  EXPECT_EQ(frames_of(input, numbers), frames_of(video, numbers));
  EXPECT_LT(source.num_read(), video.size() / 4);
}

TEST(MediaPartsTest, AllFramesAreThoseFromMemory) {
  std::vector<std::string> videos = {long_video("matroska"), long_video()};
  if (fuzz::has_encoder("libx265")) videos.push_back(long_video("mp4", "libx265"));
  if (const auto corpus = test::corpus_dir()) {
    for (const auto& entry : std::filesystem::directory_iterator(*corpus / "corpus" / "media")) {
      if (entry.path().extension() == ".mp4") videos.push_back(test::read_file(entry.path()));
    }
  }
  for (const std::string& video : videos) {
    const CountingSource source(video);
    MediaInput input(source);
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = VideoDecoder(video, 1 << 24, 1 << 20).num_frames(); i-- > 0; i -= 6) {
      numbers.push_back(i);
    }
    EXPECT_EQ(frames_of(input, numbers), frames_of(video, numbers));
  }
}

TEST(MediaPartsTest, AFragmentedVideoHasNoTableOfAllPackets) {
  fuzz::VideoSpec spec;
  for (const char* flags : {"frag_keyframe+empty_moov", "frag_keyframe+dash"}) {
    spec.muxer_options = {{"movflags", flags}};
    EXPECT_TRUE(detail::is_read_whole(fuzz::encode_video(spec))) << flags;
  }
  EXPECT_FALSE(detail::is_read_whole(long_video()));
  spec.muxer_options = {{"moov_size", "30000"}};  // the header is at the front
  EXPECT_FALSE(detail::is_read_whole(fuzz::encode_video(spec)));
}

TEST(MediaPartsTest, AFailedReadIsTheErrorWhereverItHappens) {
  const std::string video = long_video();
  const std::int64_t numbers[] = {215};
  const CountingSource whole(video);
  MediaInput input(whole);
  frames_of(input, numbers);
  for (std::uint64_t max = 0; max < whole.num_read(); max += whole.num_read() / 23) {
    const CountingSource source(video, max);
    MediaInput broken(source);
    try {
      frames_of(broken, numbers);
      ADD_FAILURE() << "no error after " << max;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the disk is broken"));
    }
  }
}

class MediaReadTest : public testing::Test {
 protected:
  Dataset opened() const {
    return Dataset::open(dir_ / "v.idx", {.access = Dataset::Access::kRead});
  }
  static Batch clips(const Dataset& data) {
    return test::one_batch(
        data, {columns::video("mp4", {.frames = 4, .every = 9}), columns::integer("cls")});
  }

  const test::TempDir dir_;
  const Dataset mapped_ = test::make_dataset(
      dir_, "v", {{{"cls", "3"}, {"mp4", long_video()}}, {{"cls", "4"}, {"mp4", long_video()}}});
};

TEST_F(MediaReadTest, ClipsAreThoseOfAMappedShard) {
  const Batch from_map = clips(mapped_), from_file = clips(opened());
  for (std::size_t c = 0; c < from_map.arrays().size(); ++c) {
    EXPECT_TRUE(std::ranges::equal(from_map.arrays()[c].bytes(), from_file.arrays()[c].bytes()));
  }
}

TEST_F(MediaReadTest, AFileThatIsCutDuringAClipIsNamedWithTheField) {
  const std::string in_parts[] = {"mp4"};
  const Sample sample = DatasetAccess::get(opened(), 1, in_parts);
  const auto field = detail::SampleAccess::open_field(sample, 1);
  ASSERT_NE(field, nullptr);
  std::string bytes(5000, '\0');
  field->read(99, bytes);
  EXPECT_EQ(bytes, mapped_[1].copy("mp4").substr(99, 5000));
  const std::string shard = dir_ / "v-0.tar";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 8192);
  try {
    field->read(99, bytes);
    ADD_FAILURE() << "no error";
  } catch (const StaleIndex& error) {
    for (const char* part : {"s00001", "v-0.tar", "field 'mp4'"}) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace shardwise
