#include "train_options.h"

#include <charconv>
#include <string>
#include <utility>

#include "base/text.h"
#include "command_line.h"
#include "options.h"
#include "output.h"
#include "shardwise/base/error.h"

namespace shardwise::train {
namespace {

/// Parses a size: "48x64" is height 48 and width 64; "48" is 48x48.
void parse_size(const std::string& text, Options& options) {
  const std::size_t cross = text.find('x');
  const auto height = parse_int64(text.substr(0, cross));
  const auto width = cross == std::string::npos ? height : parse_int64(text.substr(cross + 1));
  if (!height || !width || *height < 1 || *width < 1 || *height > 65536 || *width > 65536) {
    throw CLI::ValidationError("--resize",
                               "expected HEIGHTxWIDTH, e.g. 224x224; got " + in_quotes(text));
  }
  options.height = *height;
  options.width = *width;
}

void add_step_options(CLI::App& app, Options& options) {
  constexpr auto kMany = std::uint64_t{1} << 40;
  app.add_option(
         "--train", options.train_index,
         "index to train on, or one SOURCE as for `shardwise index`, whose index is built at first "
         "use; not with --mix")
      ->type_name("INDEX");
  app.add_option("--eval", options.eval_index, "index, or SOURCE, to evaluate on after each epoch")
      ->type_name("INDEX");
  app.add_option("--epochs", options.epochs,
                 "number of epochs of the whole run, including those before --resume")
      ->check(CLI::Range(std::uint64_t{1}, kMany))
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* const batch_size =
      app.add_option("--batch-size", options.batch_size, "samples per step on each rank")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
          ->type_name("N")
          ->capture_default_str();
  app.add_option("--global-batch-size", options.global_batch_size,
                 "samples per step on all ranks together, instead of --batch-size")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("N")
      ->excludes(batch_size);
  app.add_option("--threads", options.threads,
                 "loading threads of each rank; 0 means: the training loop itself loads "
                 "(default: the rank's share of the cores, at most 4)")
      ->check(CLI::Range(0u, 1024u))
      ->type_name("N");
  app.add_option("--compute-threads", options.compute_threads,
                 "threads with which LibTorch computes on each rank; 0 means: as many as "
                 "`OMP_NUM_THREADS` or `MKL_NUM_THREADS` says, else the rank's share of the cores")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--lr", options.learning_rate,
                 "maximum learning rate of AdamW: linear warm-up over the first tenth of the "
                 "steps, then cosine decay to 0")
      ->check([](const std::string& text) {
        double rate = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, rate);
        const bool valid = error == std::errc() && stop == end && rate > 0 && rate <= 10;
        return valid ? std::string() : in_quotes(text) + " is not a number above 0 and up to 10";
      })
      ->type_name("RATE")
      ->capture_default_str();
}

void add_sample_options(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--resize", [&](const std::string& text) { parse_size(text, options); },
         "height and width to which images are resized, e.g. 224x224; without it, all images must "
         "have the same size")
      ->type_name("HxW");
  app.add_option("--image-field", options.image_field,
                 "field with the image; 'jpg;png' means the field jpg, or png in samples without "
                 "jpg (default: the only field with the name of an image)")
      ->type_name("FIELD");
  app.add_option("--label-field", options.label_field, "field with the class number")
      ->type_name("FIELD")
      ->capture_default_str();
  app.add_option("--max-bad", options.max_bad,
                 "maximum number of unreadable samples to leave out; more are an error")
      ->transform(tools::kWholeNumber)
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--classes", options.classes,
                 "number of classes; 0 means: the largest label plus 1")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
      ->type_name("N")
      ->capture_default_str();
}

void add_checkpoint_options(CLI::App& app, Options& options) {
  constexpr double kManyMinutes = 1e7;
  auto* checkpoint =
      app.add_option(
             "--checkpoint", options.checkpoint,
             "checkpoint file, replaced atomically after each epoch and when the ranks stop")
          ->type_name("FILE");
  app.add_option("--checkpoint-steps", options.checkpoint_steps,
                 "also write the checkpoint every N steps; 0 means: only after each epoch")
      ->needs(checkpoint)
      ->transform(tools::kWholeNumber)
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--checkpoint-minutes", options.checkpoint_minutes,
                 "also write the checkpoint every N minutes; 0 means never")
      ->check(CLI::Range(0.0, kManyMinutes))
      ->needs(checkpoint)
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-minutes", options.max_minutes,
                 "stop all ranks after N minutes, and write the checkpoint if --checkpoint is "
                 "given; 0 means never")
      ->check(CLI::Range(0.0, kManyMinutes))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--patience", options.patience,
                 "stop after N evaluations without a better accuracy; 0 means never")
      ->needs("--eval")
      ->transform(tools::kWholeNumber)
      ->type_name("N")
      ->capture_default_str();
  app.add_option(
         "--timeout", options.timeout_seconds,
         "longest wait for another rank, while connecting or in a step; if a rank ends, the "
         "others stop at once")
      ->check(CLI::Range(0.1, 1e6))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option("--keep", options.keep,
                 "number of checkpoints to keep: FILE, FILE.1 (the previous one), and so on; "
                 "--resume uses the newest complete one")
      ->check(CLI::Range(1, 1000))
      ->needs(checkpoint)
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--log-samples", options.sample_log,
                 "write epoch, step and number of each delivered sample to the file PREFIX.RANK; "
                 "after --resume, the file has the repeated steps twice")
      ->type_name("PREFIX");
  CLI::Option* const resume = app.add_flag("--resume", options.resume,
                                           "continue from the checkpoint, on any number of ranks")
                                  ->needs(checkpoint);
  app.add_flag("--allow-changes", options.allow_changes,
               "let --resume accept other weights of --mix; after a complete epoch, also changed "
               "data and another order")
      ->needs(resume);
}

void add_place_options(CLI::App& app, Options& options) {
  app.add_option("--local-ranks", options.local_ranks,
                 "start N ranks on this machine (default: this process is one rank)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app.add_option_function<std::string>(
         "--access", [&](const std::string& name) { options.access = parse_access(name); },
         tools::kAccessHelp)
      ->check(CLI::IsMember({"map", "read", "range"}))
      ->default_str("map");
  tools::add_lookup_options(app, options.lookup);
  app.add_option("--eval-root", options.eval_root,
                 "folder to which the shards of --eval moved, "
                 "as --root for --train")
      ->type_name("DIR")
      ->needs("--eval")
      ->group(app.get_option("--root")->get_group());
  tools::add_cache_options(app, options.cache);
  app.add_flag("--json", options.json, "print one JSON object per line");
  tools::add_order_options(app, options.order);
  tools::add_first_use_options(app, options.first_use);
}

}  // namespace

std::unique_ptr<CLI::App> make_program(Options& options, std::function<std::string()> version) {
  auto program = std::make_unique<CLI::App>(
      "Train a small CNN on an index of (image, label) samples, data parallel over ranks",
      "shardwise-train");
  CLI::App& app = *program;
  app.footer(
      "Examples:\n"
      "  shardwise-train --local-ranks 2 --train train.idx --eval eval.idx --epochs 2\n"
      "  torchrun --no-python --nproc-per-node 8 shardwise-train --train train.idx\n"
      "  mpirun -n 8 shardwise-train --train train.idx\n"
      "  srun shardwise-train --train train.idx");
  app.set_version_flag("-V,--version", std::move(version), "show versions, and exit");
  add_step_options(app, options);
  add_sample_options(app, options);
  add_checkpoint_options(app, options);
  add_place_options(app, options);
  tools::add_usual_options(app);
  tools::mark_common(app, {"--train", "--eval", "--epochs", "--batch-size", "--lr", "--resize",
                           "--checkpoint", "--resume", "--local-ranks", "--seed", "--json"});
  return program;
}

bool parse_options(int argc, char** argv, std::function<std::string()> version, Options& options,
                   int& exit_code) {
  const std::unique_ptr<CLI::App> app = make_program(options, std::move(version));
  tools::Output out;
  try {
    if (const auto end = tools::parse_command_line(*app, argc, argv, out)) {
      exit_code = *end;
      return false;
    }
    if (options.train_index.empty() && options.order.mix.empty()) {
      throw CLI::RequiredError("--train or --mix");
    }
    if (!options.train_index.empty() && !options.order.mix.empty()) {
      tools::throw_usage("--mix cannot be given with --train; leave out --train");
    }
    tools::check_order_options(options.order);
    options.first_use.fetching = options.cache.fetching;
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
