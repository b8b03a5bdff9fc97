#include "options.h"

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "command_line.h"
#include "output.h"
#include "shardwise/base/error.h"
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

bool parse_options(int argc, char** argv, Options& options, int& exit_code) {
  CLI::App app("Trains a small CNN on an index of (image, label) samples, data parallel over ranks",
               "shardwise-train");
  app.footer(
      "Examples:\n"
      "  shardwise-train --local-ranks 2 --train train.idx --eval eval.idx --epochs 2\n"
      "  torchrun --no-python --nproc-per-node 8 shardwise-train --train train.idx\n"
      "  mpirun -n 8 shardwise-train --train train.idx\n"
      "  srun shardwise-train --train train.idx");
  app.set_version_flag("-V,--version", version, "show versions, and exit");
  app.set_help_flag("-h,--help", "show this help, and exit");
  constexpr auto kMany = std::uint64_t{1} << 40;
  app.add_option("--train", options.train_index,
                 "index to train on, or one SOURCE, whose index is built at first use; or --mix");
  app.add_option("--eval", options.eval_index, "the same, to evaluate on after each epoch");
  app.add_option("--epochs", options.epochs, "epochs in total, those before --resume counted")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->capture_default_str();
  CLI::Option* const batch_size =
      app.add_option("--batch-size", options.batch_size, "samples of one step on each rank")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
          ->capture_default_str();
  app.add_option("--global-batch-size", options.global_batch_size,
                 "samples of one step on all ranks together, instead")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->excludes(batch_size);
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
  app.add_option("--image-field", options.image_field,
                 "field with the image, or several as 'jpg;png'; default: the only one");
  app.add_option("--label-field", options.label_field, "field with the class as a whole number")
      ->capture_default_str();
  app.add_option("--max-bad", options.max_bad,
                 "samples that may turn out bad and are left out; one more is an error")
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
  app.add_option("--log-samples", options.sample_log,
                 "write the samples of each step to PREFIX.RANK: lines of epoch, step, sample; "
                 "with --resume appended, so steps after the checkpoint stand there twice")
      ->type_name("PREFIX");
  CLI::Option* const resume = app.add_flag("--resume", options.resume,
                                           "go on from the checkpoint, with any number of ranks")
                                  ->needs(checkpoint);
  app.add_flag("--allow-changes", options.allow_changes,
               "with --resume: data or order may be others than the checkpoint's, if it is of the "
               "end of an epoch")
      ->needs(resume);
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
  tools::add_lookup_options(app, options.lookup);
  app.add_option("--eval-root", options.eval_root, "the same for the shards of --eval")
      ->type_name("DIR")
      ->needs("--eval")
      ->group(app.get_option("--root")->get_group());
  tools::add_cache_options(app, options.cache);
  app.add_flag("--json", options.json, "one JSON object a line on stdout");
  tools::add_order_options(app, options.order);
  tools::add_first_use_options(app, options.first_use);

  tools::Output out;
  try {
    if (const auto end = tools::parse_command_line(app, argc, argv, out)) {
      exit_code = *end;
      return false;
    }
    if (options.train_index.empty() && options.order.mix.empty()) {
      throw CLI::RequiredError("--train or --mix");
    }
    if (!options.train_index.empty() && !options.order.mix.empty()) {
      throw CLI::ValidationError("--mix names the indexes: leave --train out",
                                 CLI::ExitCodes::ValidationError);
    }
    tools::check_order_options(options.order);
    options.first_use.allow_pipe = options.cache.allow_pipe;
    options.first_use.cancel = &stop_requested;
    return true;
  } catch (const CLI::Error& e) {
    tools::say("error", std::string(e.what()) + "; see shardwise-train --help");
    exit_code = tools::kExitWrongUsage;
  } catch (const tools::ReaderGone&) {
    exit_code = tools::kExitDone;
  } catch (const std::exception& e) {
    tools::say("error", e.what());
    exit_code = tools::kExitFailed;
  }
  return false;
}

}  // namespace shardwise::train
