// make_shapes: draws a set of images for classification in the demo, in one folder per class.

#include <png.h>

#include <cstdio>
// jpeglib.h needs stdio.h before it.
#include <jpeglib.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>

#include "base/cores.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/text.h"
#include "shapes.h"
#include "shardwise/base/error.h"

namespace {

namespace fs = std::filesystem;
using shardwise::demo::kShapes;

std::atomic<bool> interrupted{false};

struct Options {
  std::string out;
  std::uint64_t count = 20'000;
  int size = 48;
  std::uint64_t seed = 1;
  std::string format = "png";
  unsigned threads = 0;
  bool quiet = false;
};

std::string encode_png(const std::vector<std::uint8_t>& rgb, int size) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size);
  image.height = static_cast<png_uint_32>(size);
  image.format = PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;
  std::string bytes(rgb.size() + rgb.size() / 8 + 4096, '\0');
  png_alloc_size_t num_bytes = bytes.size();
  if (png_image_write_to_memory(&image, bytes.data(), &num_bytes, 0, rgb.data(), 0, nullptr) == 0) {
    throw std::runtime_error(std::string("cannot make a PNG: ") + image.message);
  }
  bytes.resize(num_bytes);
  return bytes;
}

std::string encode_jpeg(const std::vector<std::uint8_t>& rgb, int size) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);  // exits on errors: compressing to memory fails only if
                                       // memory is full
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long num_bytes = 0;
  jpeg_mem_dest(&jpeg, &buffer, &num_bytes);
  jpeg.image_width = static_cast<JDIMENSION>(size);
  jpeg.image_height = static_cast<JDIMENSION>(size);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 92, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(rgb.data()) + static_cast<std::size_t>(jpeg.next_scanline) *
                                                          static_cast<std::size_t>(size) * 3;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(buffer), num_bytes);
  std::free(buffer);
  jpeg_destroy_compress(&jpeg);
  return bytes;
}

void make_image(const Options& options, const fs::path& folder, std::uint64_t number) {
  const std::size_t shape = number % kShapes.size();
  const auto rgb = shardwise::demo::draw_shape(shape, options.size, options.seed, number);
  const std::string bytes =
      options.format == "png" ? encode_png(rgb, options.size) : encode_jpeg(rgb, options.size);
  std::string name = std::to_string(number);
  name.insert(0, name.size() < 5 ? 5 - name.size() : 0, '0');
  const fs::path path = folder / kShapes[shape] / (name + "." + options.format);
  shardwise::File::create_exclusive(path).write(bytes);
}

/// Draws into a temporary folder beside `out`, and renames it to `out` once all images exist.
void make_set(const Options& options) {
  if (fs::exists(options.out) && !(fs::is_directory(options.out) && fs::is_empty(options.out))) {
    throw shardwise::InvalidArgument("the output folder is not empty",
                                     shardwise::in_quotes(options.out),
                                     "choose another folder, or remove it first");
  }
  const fs::path folder = options.out + "." + shardwise::random_name(8) + ".partial";
  fs::create_directories(folder);
  try {
    for (const auto shape : kShapes) fs::create_directory(folder / shape);
    std::atomic<std::uint64_t> next{0};
    struct {
      shardwise::LongMutex mutex;
      std::exception_ptr first SHARDWISE_GUARDED_BY(mutex);
    } failure;
    const auto work = [&] {
      try {
        while (!interrupted) {
          const std::uint64_t number = next++;
          if (number >= options.count) return;
          make_image(options, folder, number);
        }
      } catch (...) {
        const shardwise::Lock lock(failure.mutex);
        if (!failure.first) failure.first = std::current_exception();
        next = options.count;
      }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < options.threads; ++i) threads.emplace_back(work);
    for (auto& thread : threads) thread.join();
    {
      const shardwise::Lock lock(failure.mutex);
      if (failure.first) std::rethrow_exception(failure.first);
    }
    if (interrupted) throw shardwise::Cancelled("interrupted");
    fs::rename(folder, options.out);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Draws images of " + std::to_string(kShapes.size()) +
               " shapes, OUT/<class>/<number>.png, to train on.\n"
               "Example: make_shapes --count 20000 --seed 1 shapes/train"};
  app.add_option("OUT", options.out, "folder for the images; must be empty or not exist")
      ->required();
  app.add_option("--count", options.count, "total number of images, spread evenly over the classes")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}))
      ->capture_default_str();
  app.add_option("--size", options.size, "width and height in pixels")
      ->check(CLI::Range(8, 4096))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of the images")->capture_default_str();
  app.add_option("--format", options.format, "png or jpg")
      ->check(CLI::IsMember({"png", "jpg"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "number of threads; 0 means one per core")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--quiet", options.quiet, "print nothing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (options.threads == 0) options.threads = shardwise::usable_cores();

  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  try {
    make_set(options);
  } catch (const shardwise::Cancelled&) {
    std::fprintf(stderr, "make_shapes: interrupted\n");
    return 130;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_shapes: error: %s\n", e.what());
    return 1;
  }
  if (!options.quiet) {
    std::printf("%s images of %zu classes, %dx%d, in %s\n",
                shardwise::human_count(options.count).c_str(), kShapes.size(), options.size,
                options.size, shardwise::in_quotes(options.out).c_str());
    if (std::fflush(stdout) != 0) {
      std::fprintf(stderr, "make_shapes: error: cannot write the results: standard output (%s)\n",
                   std::strerror(errno));
      return 1;
    }
  }
  return 0;
}
