#include "options.h"

#include <CLI/CLI.hpp>
#include <limits>

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "trainer.h"

namespace shardwise::train {
namespace {

/// "48x64" is height 48, width 64; "48" is 48x48.
void parse_size(const std::string& text, Options& options) {
  const std::size_t cross = text.find('x');
  const auto height = parse_int64(text.substr(0, cross));
  const auto width = cross == std::string::npos ? height : parse_int64(text.substr(cross + 1));
  if (!height || !width || *height < 1 || *width < 1 || *height > 65536 || *width > 65536) {
    throw CLI::ValidationError("--resize", "give HEIGHTxWIDTH, as 224x224");
  }
  options.height = *height;
  options.width = *width;
}

}  // namespace

std::int64_t Options::rank_batch_size(int world_size) const {
  if (batch_size % world_size == 0) return batch_size / world_size;
  const std::int64_t lower = batch_size / world_size * world_size;
  throw InvalidArgument(
      "--batch-size is of all ranks together and must divide among them",
      std::to_string(batch_size) + " samples for " + std::to_string(world_size) + " ranks",
      "choose " + (lower > 0 ? std::to_string(lower) + " or " : std::string()) +
          std::to_string(lower + world_size));
}

bool parse_options(int argc, char** argv, Options& options, int& exit_code) {
  CLI::App app{
      "Trains a small CNN on an index of (image, label) samples, data parallel over the ranks.\n"
      "Example: shardwise-train --local-ranks 2 --train train.idx --eval eval.idx --epochs 2\n"
      "Or under a launcher: torchrun --no-python --nproc-per-node 8 shardwise-train --train ...,\n"
      "mpirun -n 8 shardwise-train --train ..., srun shardwise-train --train ..."};
  app.set_version_flag("--version", version);
  constexpr auto kMany = std::uint64_t{1} << 40;
  app.add_option("--train", options.train_index, "index to train on")->required();
  app.add_option("--eval", options.eval_index, "index to evaluate on after each epoch");
  app.add_option("--epochs", options.epochs, "epochs in total, those before --resume counted")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size,
                 "samples of one step, all ranks together; a multiple of the number of ranks")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "loading threads of each rank; 0: by the cores")
      ->check(CLI::Range(0u, 1024u))
      ->capture_default_str();
  app.add_option("--compute-threads", options.compute_threads,
                 "LibTorch's threads of each rank; 0: the cores shared by the ranks of the machine")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option(
         "--lr", options.learning_rate,
         "highest learning rate: AdamW, warmed up over a tenth of the steps, then cosine to 0")
      ->check(CLI::Range(1e-12, 10.0))
      ->capture_default_str();
  app.add_option_function<std::string>(
      "--resize", [&](const std::string& text) { parse_size(text, options); },
      "HxW; without it all images must be of one size");
  app.add_option("--seed", options.seed, "of the order and of the first weights")
      ->capture_default_str();
  app.add_option("--image-field", options.image_field,
                 "field with the image, or several as 'jpg;png'; default: the only one");
  app.add_option("--label-field", options.label_field, "field with the class as a whole number")
      ->capture_default_str();
  app.add_option("--classes", options.classes, "number of classes; 0: the largest label and one")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
      ->capture_default_str();
  auto* checkpoint = app.add_option("--checkpoint", options.checkpoint,
                                    "file to keep the run in, written whole after each epoch");
  app.add_option("--checkpoint-steps", options.checkpoint_steps,
                 "also after every so many steps; 0: not within an epoch")
      ->needs(checkpoint)
      ->capture_default_str();
  app.add_flag("--resume", options.resume, "go on from the checkpoint, with any number of ranks")
      ->needs(checkpoint);
  app.add_option("--local-ranks", options.local_ranks,
                 "start so many ranks on this machine; without it this process is one rank")
      ->check(CLI::Range(1, 4096));
  app.add_option_function<std::string>(
      "--access",
      [&](const std::string& name) {
        try {
          options.access = parse_access(name);
        } catch (const Error& e) {
          throw CLI::ValidationError("--access", e.what());
        }
      },
      "map (default): shards are mapped; read: for shards that may be truncated under the run");
  tools::add_cache_options(app, options.cache);
  app.add_flag("--json", options.json, "one JSON object a line on stdout");
  app.add_flag("--quiet", options.quiet, "no progress on stderr");

  const auto order = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->group("Order of the training samples");
  };
  app.add_option_function<std::string>(
         "--sampler",
         [&](const std::string& name) {
           try {
             options.sampler = parse_sampler(name);
           } catch (const Error& e) {
             throw CLI::ValidationError("--sampler", e.what());
           }
         },
         "chunked, sharded, sequential, resampled or wids; default: chunked")
      ->group("Order of the training samples");
  order("--chunk", options.chunk_size, "samples a chunk")->capture_default_str();
  auto* window = order("--window", options.window,
                       "chunks mixed together; should span classes that lie one after another");
  window->capture_default_str();
  order("--streams", options.streams, "contiguous runs that the ranks share")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--tail",
         [&](const std::string& name) {
           try {
             options.tail = parse_tail(name);
           } catch (const Error& e) {
             throw CLI::ValidationError("--tail", e.what());
           }
         },
         "exact, drop or pad; default: exact")
      ->group("Order of the training samples");
  app.add_flag("!--no-shuffle", options.shuffle, "keep the samples in the order of the index")
      ->group("Order of the training samples");
  app.add_flag("--shufflefirst", options.shufflefirst, "wids: permute the chunks of epoch 0, too")
      ->group("Order of the training samples");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e) == 0 ? 0 : 2;
    return false;
  }
  // A sampler refuses what it has no use for: without --window only the chunked and sharded mix.
  const bool mixes =
      options.sampler == SamplerKind::kChunked || options.sampler == SamplerKind::kSharded;
  if (window->count() == 0 && (!mixes || !options.shuffle)) options.window = 1;
  return true;
}

}  // namespace shardwise::train
