#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/text.h"
#include "build_notes.h"
#include "commands.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "progress.h"
#include "shardwise/base/error.h"
#include "shardwise/tar/shard_writer.h"
#include "tar/pack_source.h"
#include "tar/shard_set.h"

namespace shardwise::tools {
namespace {
namespace fs = std::filesystem;
using detail::PackFile, detail::PackList, detail::PackSample, detail::list_files,
    detail::list_images, detail::shuffle_samples;

constexpr std::string_view kShardSuffix = ".tar";
constexpr unsigned kShardDigits = 6;

struct PackOptions {
  std::string directory;
  std::string images;
  std::string files;
  std::string prefix = "shard-";
  std::uint64_t max_samples = 1000;
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool force = false;
  bool dry_run = false;
  bool quiet = false;
  bool json = false;
};

using PackReport = ShardWriter::Totals;

/// Returns the rule for names of shards in `folder`; without a folder, for bare file names.
ShardWriter::Names shard_names(const PackOptions& options, const std::string& folder = {}) {
  return {.before = folder + options.prefix,
          .digits = kShardDigits,
          .after = std::string(kShardSuffix)};
}

std::string shard_name(const PackOptions& options, std::uint64_t number) {
  return shard_names(options).name(number);
}

/// Returns the numbers of the directory's existing shards whose names this command could have made.
std::vector<std::uint64_t> shards_there(const PackOptions& options) {
  return detail::numbers_there(shard_names(options, options.directory + "/"));
}

/// True if the file has the format that write_classes() writes.
bool is_classes_file(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
  const File file = File::open_read(path);
  const std::uint64_t size = file_identity(file.fd(), path).size_bytes;
  if (size > kMaxBytes) return false;
  std::string text(size, '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() && json.size() == 1 && json.contains("classes") &&
         json["classes"].is_array();
}

/// Throws if this run would replace or remove a file that another program wrote.
void require_own(const PackOptions& options, bool has_classes) {
  const auto refuse = [](const std::string& path) {
    throw InvalidArgument("will not replace a file that `shardwise pack` did not write",
                          in_quotes(path),
                          "move the file, or choose another folder with "
                          "--output, or another --prefix");
  };
  for (const std::uint64_t number : shards_there(options)) {
    const std::string path = options.directory + "/" + shard_name(options, number);
    if (!detail::is_of_shard_writer(path)) refuse(path);
  }
  const std::string classes = options.directory + "/" + std::string(kClassesFile);
  if (has_classes && fs::exists(fs::symlink_status(classes)) && !is_classes_file(classes)) {
    refuse(classes);
  }
}

void prepare_directory(const PackOptions& options, bool has_classes) {
  std::error_code error;
  if (options.dry_run) {
    if (!fs::exists(options.directory, error)) return;
  } else {
    fs::create_directories(options.directory, error);
  }
  if (error) throw_errno(error.value(), "cannot make the folder", options.directory);
  if (!options.force && !shards_there(options).empty()) {
    throw InvalidArgument("the folder already holds shards", in_quotes(options.directory),
                          "replace these shards with --force, or choose another folder with "
                          "--output");
  }
  require_own(options, has_classes);
}

/// Writes samples to one shard after another. In a dry run only counts them.
class Packer {
 public:
  explicit Packer(const PackOptions& options)
      : writer_(shard_names(options, options.directory + "/"), {.max_samples = options.max_samples,
                                                                .max_bytes = options.max_bytes,
                                                                .replace = options.force,
                                                                .dry_run = options.dry_run}) {}

  void add(const PackSample& sample) {
    std::vector<ShardWriter::Field> fields;
    for (const PackFile& file : sample.files) {
      fields.push_back({.name = file.field, .file = file.path});
    }
    const std::string label = sample.class_number ? std::to_string(*sample.class_number) : "";
    if (sample.class_number) fields.push_back({.name = "cls", .bytes = label});
    writer_.write(sample.key, fields);
  }

  void finish() { writer_.close(); }

  /// Number of shards with their final names, which remain even after an error. In a dry run, the
  /// number that would be written.
  std::size_t num_finished() const { return writer_.paths().size(); }

  const PackReport& report() const { return writer_.totals(); }

 private:
  ShardWriter writer_;
};

[[noreturn]] void throw_interrupted(const PackOptions& options, const Packer& packer) {
  if (options.dry_run || packer.num_finished() == 0) throw Cancelled("interrupted");
  throw Interrupted(fmt::format(
      "interrupted; {} complete in {}; run again with --force to replace these shards",
      counted(packer.num_finished(), "shard", "is", "are"), in_quotes(options.directory)));
}

void write_classes(const PackOptions& options, const std::vector<std::string>& classes) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const std::string& name : classes) names.push_back(escaped(name));
  AtomicFile file(options.directory + "/" + std::string(kClassesFile));
  file.file().write(nlohmann::ordered_json{{"classes", names}}.dump(1) + "\n");
  file.commit();
}

void print_report(const PackOptions& options, const PackList& list, const PackReport& report,
                  double seconds, Output& out) {
  if (options.json) {
    const nlohmann::ordered_json json = {
        {"directory", options.directory},
        {"dry_run", options.dry_run},
        {"shards", report.shards},
        {"samples", report.samples},
        {"members", report.members},
        {"shard_bytes", report.shard_bytes},
        {"content_bytes", report.content_bytes},
        {"classes", list.classes.size()},
        {"other_files", list.left_out.size()},
        {"seconds", seconds},
    };
    print_json(out, "pack", json);
    return;
  }
  out.print("{}{}: {} in {}, {}", options.dry_run ? "would write into " : "",
            escaped(options.directory), counted(report.samples, "sample"),
            counted(report.shards, "shard"), human_bytes(report.shard_bytes));
  if (!list.classes.empty()) {
    out.print(", {} (names in {})", counted(list.classes.size(), "class"), kClassesFile);
  }
  out.print(", {:.2f} s\n", seconds);
  if (!list.left_out.empty()) {
    say("note",
        fmt::format("{} left out, because not named like {}; the first file is {}",
                    counted(list.left_out.size(), "file"),
                    list.classes.empty() ? "samples" : "images", in_quotes(list.left_out[0])));
  }
  if (!list.classes.empty() && !options.shuffle) {
    say("note",
        "each shard has samples of few classes, which is bad for training; mix the "
        "classes with --shuffle");
  }
}

void run(const PackOptions& options, Output& out) {
  Progress progress(options.dry_run ? "counting" : "packing", Unit::kSamples, options.quiet);
  PackList list = options.images.empty() ? list_files(options.files, interrupt_token())
                                         : list_images(options.images, interrupt_token());
  if (options.shuffle) shuffle_samples(list.samples, options.seed);
  prepare_directory(options, !list.classes.empty());

  Packer packer(options);
  for (const PackSample& sample : list.samples) {
    if (interrupt_token().is_cancelled()) throw_interrupted(options, packer);
    packer.add(sample);
    progress.update(packer.report().samples, list.samples.size(),
                    [&] { return counted(packer.report().shards, "shard"); });
  }
  packer.finish();
  if (!options.dry_run && !list.classes.empty()) write_classes(options, list.classes);
  progress.clear();
  print_report(options, list, packer.report(), progress.seconds(), out);
}

}  // namespace

void add_pack_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand("pack", "Make shards from images or other files");
  const auto options = std::make_shared<PackOptions>();
  command->add_option("-o,--output", options->directory, "folder for the shards")
      ->required()
      ->type_name("DIR");
  CLI::Option_group* source = command->add_option_group("source", "Files to pack, one of");
  source
      ->add_option("--images", options->images,
                   "images in one folder per class; the field cls is the number of the class, from "
                   "0 in the order of the folders' names")
      ->type_name("DIR");
  source
      ->add_option("--files", options->files,
                   "files grouped by base name: a.jpg and a.json become one sample")
      ->type_name("DIR");
  source->require_option(1);
  add_new_shard_options(*command, options->max_samples, options->max_bytes, options->prefix);
  CLI::Option* shuffle = command->add_flag("--shuffle", options->shuffle, "shuffle the samples");
  command->add_option("--seed", options->seed, "shuffle seed")
      ->transform(kWholeNumber)
      ->needs(shuffle)
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--force", options->force,
                    "replace the shards of an earlier `shardwise pack`, but no other file");
  command->add_flag("--dry-run", options->dry_run,
                    "count shards, samples and bytes, and write nothing");
  command->add_flag("--quiet", options->quiet, "show no progress");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  mark_common(*command, {"--output", "--images", "--files", "--max-samples", "--max-bytes",
                         "--shuffle", "--force", "--dry-run", "--json"});
  command->footer(
      "Equal files give equal shards, byte for byte.\n"
      "A sample's key ends at the first dot of its name. With --images, other dots in a name "
      "become `_`;\n"
      "with --files, the text after the first dot is the field: a.seg.png is the field seg.png of "
      "the sample a.\n\n"
      "Example:\n  shardwise pack --images photos --shuffle -o shards");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
