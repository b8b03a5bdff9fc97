// Costs of video frames. The video is H.264 (or MPEG-4) in MP4, encoded here: 150 frames, a key
// frame every 50. One item is one requested frame.
//
//   BM_Open          makes a reader, which indexes the frames and decodes nothing
//   BM_Sequential    all frames, 30 per call
//   BM_Random        single frames in random order; "decoded" also counts frames that were only
//                    decoded to reach them
//   BM_EveryKth      all frames whose number is a multiple of k
//   BM_Limit_*       libav alone, from the same bytes in memory: decodes all frames in order, with
//                    and without converting them to RGB by libswscale
//
// No files are used; caches are warm; one thread.

#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "decode/video/libav.h"
#include "media_bytes.h"
#include "shardwise/decode/video_reader.h"

namespace shardwise {
namespace {

constexpr int kFrames = 150;

const std::string& clip(int width) {
  const auto made = [](int w, int h) {
    fuzz::VideoSpec spec{.width = w, .height = h, .num_frames = kFrames, .group = 50};
    if (fuzz::has_encoder("libx264")) {
      spec.codec = "libx264";
      spec.b_frames = 3;
      spec.codec_options = {{"preset", "veryfast"}};
    }
    spec.moves = true;
    return fuzz::encode_video(spec);
  };
  static const std::string kSmall = made(320, 240);
  static const std::string kLarge = made(640, 360);
  return width == 320 ? kSmall : kLarge;
}

void report(benchmark::State& state, std::uint64_t decoded) {
  state.counters["decoded"] = benchmark::Counter(static_cast<double>(decoded) /
                                                 static_cast<double>(state.items_processed()));
}

void BM_Open(benchmark::State& state) {
  const std::string& bytes = clip(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    VideoReader video(bytes);
    benchmark::DoNotOptimize(video.info());
  }
}

void BM_Sequential(benchmark::State& state) {
  const std::string& bytes = clip(static_cast<int>(state.range(0)));
  std::uint64_t decoded = 0;
  std::vector<std::uint8_t> frames;
  for (auto _ : state) {
    VideoReader video(bytes);
    frames.resize(30 * video.frame_bytes());
    for (std::int64_t i = 0; i < kFrames; i += 30) {
      video.read({.begin = i, .end = i + 30}, frames);
    }
    decoded += video.frames_decoded();
  }
  state.SetItemsProcessed(state.iterations() * kFrames);
  report(state, decoded);
}

void BM_Random(benchmark::State& state) {
  const std::string& bytes = clip(static_cast<int>(state.range(0)));
  VideoReader video(bytes);
  std::vector<std::uint8_t> frame(video.frame_bytes());
  std::mt19937_64 random(17);
  for (auto _ : state) {
    const auto number = static_cast<std::int64_t>(random() % kFrames);
    video.read({.begin = number, .end = number + 1}, frame);
  }
  state.SetItemsProcessed(state.iterations());
  report(state, video.frames_decoded());
}

void BM_EveryKth(benchmark::State& state) {
  const std::string& bytes = clip(static_cast<int>(state.range(0)));
  const std::int64_t step = state.range(1);
  const VideoReader::Range range{.begin = 0, .end = kFrames, .step = step};
  std::uint64_t decoded = 0;
  std::vector<std::uint8_t> frames;
  for (auto _ : state) {
    VideoReader video(bytes);
    frames.resize(static_cast<std::size_t>(range.size()) * video.frame_bytes());
    video.read(range, frames);
    decoded += video.frames_decoded();
  }
  state.SetItemsProcessed(state.iterations() * range.size());
  report(state, decoded);
}

// ----------------------------------------------------------------------------------- libav alone

/// Decodes all frames. Calls `use` with each.
template <class Use>
int decode_all(const std::string& bytes, Use&& use) {
  detail::Demuxer demuxer(bytes);
  demuxer.select(0);
  const auto codec = detail::open_decoder(demuxer.stream(0), 1 << 26);
  const auto packet = detail::make_packet();
  const auto frame = detail::make_frame();
  int count = 0;
  const auto drain = [&] {
    while (avcodec_receive_frame(codec.get(), frame.get()) >= 0) {
      use(*frame);
      ++count;
    }
  };
  while (av_read_frame(&demuxer.format(), packet.get()) >= 0) {
    avcodec_send_packet(codec.get(), packet.get());
    av_packet_unref(packet.get());
    drain();
  }
  avcodec_send_packet(codec.get(), nullptr);
  drain();
  return count;
}

void BM_Limit_Decoded(benchmark::State& state) {
  const std::string& bytes = clip(static_cast<int>(state.range(0)));
  std::int64_t count = 0;
  for (auto _ : state) count += decode_all(bytes, [](const AVFrame&) {});
  state.SetItemsProcessed(count);
}

void BM_Limit_Rgb(benchmark::State& state) {
  const std::string& bytes = clip(static_cast<int>(state.range(0)));
  std::int64_t count = 0;
  std::vector<std::uint8_t> rgb;
  for (auto _ : state) {
    detail::LibavPtr<SwsContext> scaler;
    count += decode_all(bytes, [&](const AVFrame& frame) {
      const auto format = static_cast<AVPixelFormat>(frame.format);
      scaler.reset(sws_getCachedContext(scaler.release(), frame.width, frame.height, format,
                                        frame.width, frame.height, AV_PIX_FMT_RGB24, SWS_BICUBIC,
                                        nullptr, nullptr, nullptr));
      rgb.resize(static_cast<std::size_t>(frame.width * frame.height) * 3);
      std::uint8_t* const planes[4] = {rgb.data(), nullptr, nullptr, nullptr};
      const int strides[4] = {3 * frame.width, 0, 0, 0};
      sws_scale(scaler.get(), frame.data, frame.linesize, 0, frame.height, planes, strides);
    });
  }
  state.SetItemsProcessed(count);
}

BENCHMARK(BM_Limit_Decoded)->ArgName("width")->Arg(320)->Arg(640)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Limit_Rgb)->ArgName("width")->Arg(320)->Arg(640)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Sequential)->ArgName("width")->Arg(320)->Arg(640)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Random)->ArgName("width")->Arg(320)->Arg(640)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_EveryKth)
    ->ArgNames({"width", "k"})
    ->Args({320, 4})
    ->Args({320, 50})
    ->Args({640, 50})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Open)->ArgName("width")->Arg(320)->Arg(640)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardwise

BENCHMARK_MAIN();
