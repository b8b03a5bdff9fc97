#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "pack_source.h"
#include "progress.h"
#include "shardwise/base/error.h"
#include "shardwise/base/file.h"
#include "shardwise/base/text.h"
#include "tar_writer.h"

namespace shardwise::tools {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kClassesFile = "classes.json";
constexpr std::string_view kShardSuffix = ".tar";
constexpr std::size_t kShardDigits = 6;

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

struct PackReport {
  std::uint64_t shards = 0;
  std::uint64_t samples = 0;
  std::uint64_t members = 0;
  std::uint64_t shard_bytes = 0;
  std::uint64_t content_bytes = 0;
};

std::string shard_name(const PackOptions& options, std::uint64_t number) {
  return fmt::format("{}{:0{}}{}", options.prefix, number, kShardDigits, kShardSuffix);
}

/// The numbers of the shards that are in the directory, as far as shard_name could have named them.
std::vector<std::uint64_t> shards_there(const PackOptions& options) {
  std::vector<std::uint64_t> numbers;
  for (const auto& entry : fs::directory_iterator(options.directory)) {
    const std::string name = entry.path().filename().native();
    const std::size_t around = options.prefix.size() + kShardSuffix.size();
    if (name.size() <= around) continue;
    const std::optional<std::int64_t> number =
        parse_int64(std::string_view(name).substr(options.prefix.size(), name.size() - around));
    if (!number || *number < 0) continue;
    const auto n = static_cast<std::uint64_t>(*number);
    if (name == shard_name(options, n)) numbers.push_back(n);
  }
  return numbers;
}

void prepare_directory(const PackOptions& options) {
  std::error_code error;
  if (options.dry_run) {
    if (!fs::exists(options.directory, error)) return;
  } else {
    fs::create_directories(options.directory, error);
  }
  if (error) throw_errno(error.value(), "cannot make the folder", options.directory);
  if (!options.force && !shards_there(options).empty()) {
    throw InvalidArgument("shards are there already", in_quotes(options.directory),
                          "give --force to replace them, or another folder");
  }
}

/// Takes away what an earlier and larger set of shards left, so that the folder holds this one
/// alone.
void remove_surplus(const PackOptions& options, std::uint64_t num_shards) {
  for (const std::uint64_t number : shards_there(options)) {
    if (number < num_shards) continue;
    const std::string path = options.directory + "/" + shard_name(options, number);
    if (::unlink(path.c_str()) != 0) throw_errno(errno, "cannot remove the old shard", path);
  }
}

/// How many bytes the members of a shard become as a file: the end marker, and tar's padding.
std::uint64_t shard_bytes_of(std::uint64_t member_bytes) {
  constexpr std::uint64_t kRecordBytes = 10'240;
  constexpr std::uint64_t kEndMarkerBytes = 1024;
  return (member_bytes + kEndMarkerBytes + kRecordBytes - 1) / kRecordBytes * kRecordBytes;
}

/// Writes samples into one shard after another; in a dry run only counts them.
class Packer {
 public:
  explicit Packer(const PackOptions& options) : options_(options) {}

  void add(const PackSample& sample) {
    const std::string label = sample.class_number ? std::to_string(*sample.class_number) : "";
    std::uint64_t content_bytes = label.size();
    std::uint64_t tar_bytes = sample.class_number ? TarWriter::member_bytes(label.size()) : 0;
    for (const PackFile& file : sample.files) {
      const std::uint64_t size_bytes = file_identity(file.path).size_bytes;
      content_bytes += size_bytes;
      tar_bytes += TarWriter::member_bytes(size_bytes);
    }
    if (in_shard_ &&
        (samples_in_shard_ == options_.max_samples ||
         tar_bytes > options_.max_bytes - std::min(bytes_in_shard_, options_.max_bytes))) {
      finish_shard();
    }
    if (!in_shard_) begin_shard();

    for (const PackFile& file : sample.files) {
      throw_if_interrupted();
      if (writer_) writer_->add_file(sample.key + "." + file.field, file.path);
    }
    if (writer_ && sample.class_number) writer_->add(sample.key + ".cls", label);
    ++samples_in_shard_;
    bytes_in_shard_ += tar_bytes;
    ++report_.samples;
    report_.members += sample.files.size() + (sample.class_number ? 1 : 0);
    report_.content_bytes += content_bytes;
  }

  void finish_shard() {
    if (!in_shard_) return;
    in_shard_ = false;
    ++report_.shards;
    if (!writer_) {
      report_.shard_bytes += shard_bytes_of(bytes_in_shard_);
      return;
    }
    writer_->commit();
    writer_.reset();
    report_.shard_bytes += file_identity(path_).size_bytes;
  }

  const PackReport& report() const { return report_; }

 private:
  void begin_shard() {
    in_shard_ = true;
    samples_in_shard_ = 0;
    bytes_in_shard_ = 0;
    if (options_.dry_run) return;
    path_ = options_.directory + "/" + shard_name(options_, report_.shards);
    sweep_temporaries(path_);
    writer_.emplace(path_);
  }

  const PackOptions& options_;
  bool in_shard_ = false;
  std::optional<TarWriter> writer_;  // of the shard; none in a dry run
  std::string path_;
  std::uint64_t samples_in_shard_ = 0;
  std::uint64_t bytes_in_shard_ = 0;
  PackReport report_;
};

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
        {"left_out", list.left_out.size()},
        {"seconds", seconds},
    };
    out.print("{}\n", json_text(json));
    return;
  }
  out.print("{}{}: {} in {}, {}", options.dry_run ? "would write into " : "",
            escaped(options.directory), counted(report.samples, "sample"),
            counted(report.shards, "shard"), human_bytes(report.shard_bytes));
  if (!list.classes.empty()) {
    out.print(", {} {} (names in {})", list.classes.size(),
              list.classes.size() == 1 ? "class" : "classes", kClassesFile);
  }
  out.print(", {:.2f} s\n", seconds);
  if (!list.left_out.empty()) {
    say("note",
        fmt::format("{} left out, as named unlike {}; the first is {}",
                    counted(list.left_out.size(), "file"),
                    list.classes.empty() ? "samples" : "images", in_quotes(list.left_out[0])));
  }
  if (!list.classes.empty() && !options.shuffle) {
    say("note",
        "each shard holds few classes, which training learns badly from; --shuffle mixes them");
  }
}

void run(const PackOptions& options, Output& out) {
  // So that libarchive takes names as UTF-8 whatever the user's locale. Names that are not UTF-8
  // stay the bytes they are.
  std::setlocale(LC_CTYPE, "C.UTF-8");
  Progress progress(options.dry_run ? "counting" : "packing", Unit::kSamples, options.quiet);
  PackList list = options.images.empty() ? list_files(options.files) : list_images(options.images);
  if (options.shuffle) shuffle_samples(list.samples, options.seed);
  prepare_directory(options);

  Packer packer(options);
  for (const PackSample& sample : list.samples) {
    throw_if_interrupted();
    packer.add(sample);
    progress.update(packer.report().samples, list.samples.size(),
                    [&] { return counted(packer.report().shards, "shard"); });
  }
  packer.finish_shard();
  if (!options.dry_run) {
    remove_surplus(options, packer.report().shards);
    if (!list.classes.empty()) write_classes(options, list.classes);
  }
  progress.clear();
  print_report(options, list, packer.report(), progress.seconds(), out);
}

}  // namespace

void add_pack_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand("pack", "Make shards out of images or other files");
  const auto options = std::make_shared<PackOptions>();
  command->add_option("-o,--output", options->directory, "the folder for the shards")
      ->required()
      ->type_name("DIR");
  CLI::Option_group* source = command->add_option_group("source", "What to pack; one of");
  source
      ->add_option("--images", options->images,
                   "images in one folder per class; the folder's place becomes field cls")
      ->type_name("DIR");
  source
      ->add_option("--files", options->files,
                   "files grouped by base name: a.jpg and a.json become one sample")
      ->type_name("DIR");
  source->require_option(1);
  command->add_option("--max-samples", options->max_samples, "samples per shard, at most")
      ->check(kWholeNumber)
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->capture_default_str();
  add_byte_size(*command, "--max-bytes", options->max_bytes, "bytes per shard, at most");
  command->add_option("--prefix", options->prefix, "what the shards' names begin with")
      ->check([](const std::string& prefix) {
        return prefix.find('/') == std::string::npos ? "" : "must not contain a slash";
      })
      ->type_name("TEXT")
      ->capture_default_str();
  CLI::Option* shuffle = command->add_flag("--shuffle", options->shuffle, "mix the samples");
  command->add_option("--seed", options->seed, "seed of the mixture")
      ->check(kWholeNumber)
      ->needs(shuffle)
      ->type_name("S")
      ->capture_default_str();
  command->add_flag("--force", options->force, "replace shards that are there already");
  command->add_flag("--dry-run", options->dry_run,
                    "count shards, samples and bytes, and write nothing");
  command->add_flag("--quiet", options->quiet, "show no progress");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  command->footer(
      "The same files give the same shards, byte for byte.\n"
      "A sample's key ends at the first dot of its name. With --images, other dots in a name "
      "become _;\n"
      "with --files, what follows the first dot is the field: a.seg.png is field seg.png of sample "
      "a.\n\n"
      "Example:\n  shardwise pack --images photos --shuffle -o shards");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
