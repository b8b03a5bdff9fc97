// The loader on 256 JPEGs of 500 x 375 pixels and about 80 KB. The page cache is warm. The order is
// a training run's, in chunks, with batches of 64, and 1 and 2 threads.
//
//   BM_Images_Bare      the limit: threads that decode the mapped bytes by libjpeg-turbo, each
//                       into its buffer
//   BM_Images_Loader    whole images, uint8, channels last: the output of the bare rows
//   BM_Images_Resize    the same, resized to 224 x 224
//   BM_Crops_Bare       the crops of the next row, by jpeg_crop_scanline and jpeg_skip_scanlines:
//                       wrong pixels at edges
//   BM_Crops_Loader     random resized crops of 224 x 224
//   BM_Scaled_Bare      at the scale at which the next row decodes
//   BM_Scaled_Loader    resized to 224 x 224 with ImageDecoding::Scaling::kFast
//   BM_FirstBatch       from a new loader to its first batch of 256 whole images; with threads:0
//                       the consumer makes the batch
//
// `cpu_us` is the CPU time per image, summed over all threads. SHARDWISE_BENCH_DIR is the pictures'
// folder.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "decode/image_codec.h"
#include "loader/transform.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sample_key.h"
#include "shardwise/order/sampler.h"
#include "support/fixtures.h"
#include "support/pictures.h"

namespace shardwise::bench {
namespace {

constexpr std::uint64_t kImages = 256;
constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kSide = 224;

struct Fixture {
  Fixture() : set(picture_shards(kImages)), data(open(set)) {
    ChunkedSampler order(data, {.seed = kSeed});
    order.set_epoch(0);
    while (const auto number = order.next()) {
      numbers.push_back(*number);
      held.push_back(data[*number]);
      images.push_back(held.back()["jpg"]);
    }
    warm_page_cache(set);
  }
  static Dataset open(const ShardSet& set) {
    const std::string path = set.dir + "/train.idx";
    build_index(path, set.shards);
    return Dataset::open(path);
  }

  ShardSet set;
  Dataset data;
  std::vector<Sample> held;              // so that the shards stay mapped
  std::vector<std::uint64_t> numbers;    // in the epoch's order
  std::vector<std::string_view> images;  // in the epoch's order
};

const Fixture& fixture() {
  static const Fixture kFixture;
  return kFixture;
}

double process_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Times `run`; each call processes `images` images.
template <class Run>
void measure(benchmark::State& state, std::uint64_t images, Run&& run) {
  fixture();
  const double begin = process_seconds();
  for (auto _ : state) run();
  const auto count = static_cast<double>(state.iterations()) * static_cast<double>(images);
  state.SetItemsProcessed(static_cast<std::int64_t>(count));
  state.counters["cpu_us"] = (process_seconds() - begin) * 1e6 / count;
}

/// Threads call `decode(jpeg, i)` for all images, each thread for the next image.
template <class Decode>
void decode_all(benchmark::State& state, Decode&& decode) {
  measure(state, kImages, [&] {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      BareJpeg jpeg;
      for (std::size_t i; (i = next.fetch_add(1)) < kImages;) decode(jpeg, i);
    };
    std::vector<std::thread> threads;
    for (std::int64_t i = 0; i < state.range(0); ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
  });
}

void load_all(benchmark::State& state, ImageTransform transform, const ImageDecoding& decoding) {
  transform.layout = ImageTransform::Layout::kChannelsLast;
  Loader loader(fixture().data, {.columns = {columns::image("jpg", transform, decoding)},
                                 .order = {.seed = kSeed},
                                 .batch_size = 64,
                                 .threads = static_cast<unsigned>(state.range(0))});
  measure(state, kImages, [&] {
    loader.set_epoch(0);
    std::uint64_t images = 0;
    while (const auto batch = loader.next()) images += batch->size();
    if (images != kImages) state.SkipWithError("images are missing");
  });
}

const ImageTransform kResize{.resize = {kSide, kSide}};
const ImageTransform kRandomCrop{.random_resized_crop = {{.size = {kSide, kSide}}}};

void BM_Images_Bare(benchmark::State& state) {
  decode_all(state, [](BareJpeg& jpeg, std::size_t i) { jpeg.decode(fixture().images[i]); });
}
void BM_Images_Loader(benchmark::State& state) { load_all(state, {}, {}); }
void BM_Images_Resize(benchmark::State& state) { load_all(state, kResize, {}); }

void BM_Crops_Bare(benchmark::State& state) {
  const detail::ImageTransformer transformer(kRandomCrop);
  std::vector<detail::Box> boxes;
  for (const std::uint64_t number : fixture().numbers) {
    const Hash128 key = sample_key(kSeed, 0, number);
    boxes.push_back(transformer.plan({kPictureHeight, kPictureWidth}, key).source);
  }
  decode_all(state, [&](BareJpeg& jpeg, std::size_t i) {
    const detail::Box& box = boxes[i];
    jpeg.decode_part(fixture().images[i], box.top, box.left, box.height, box.width);
  });
}
void BM_Crops_Loader(benchmark::State& state) { load_all(state, kRandomCrop, {}); }

void BM_Scaled_Bare(benchmark::State& state) {
  const unsigned scale = detail::choose_scale(kPictureHeight, kPictureWidth, kSide, kSide,
                                              detail::ScaleRule::kThreeQuarters);
  decode_all(state,
             [&](BareJpeg& jpeg, std::size_t i) { jpeg.decode(fixture().images[i], scale); });
}
void BM_Scaled_Loader(benchmark::State& state) {
  load_all(state, kResize, {.scaling = ImageDecoding::Scaling::kFast});
}

void BM_FirstBatch(benchmark::State& state) {
  constexpr std::uint64_t kBatch = 256;
  measure(state, kBatch, [&] {
    Loader loader(
        fixture().data,
        {.columns = {columns::image("jpg", {.layout = ImageTransform::Layout::kChannelsLast})},
         .order = {.seed = kSeed},
         .batch_size = kBatch,
         .threads = static_cast<unsigned>(state.range(0)),
         .prefetch = 1});
    if (loader.next()->size() != kBatch) state.SkipWithError("images are missing");
  });
}

void add(const char* name, void (*row)(benchmark::State&),
         const std::vector<std::int64_t>& threads) {
  for (const std::int64_t count : threads) {
    benchmark::RegisterBenchmark(name, row)
        ->ArgName("threads")
        ->Arg(count)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace shardwise::bench

int main(int argc, char** argv) {
  using namespace shardwise::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add("BM_Images_Bare", BM_Images_Bare, {1, 2});
  add("BM_Images_Loader", BM_Images_Loader, {1, 2});
  add("BM_Images_Resize", BM_Images_Resize, {1, 2});
  add("BM_Crops_Bare", BM_Crops_Bare, {1, 2});
  add("BM_Crops_Loader", BM_Crops_Loader, {1, 2});
  add("BM_Scaled_Bare", BM_Scaled_Bare, {1, 2});
  add("BM_Scaled_Loader", BM_Scaled_Loader, {1, 2});
  add("BM_FirstBatch", BM_FirstBatch, {0, 1, 2});
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
