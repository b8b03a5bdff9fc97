#include <fmt/core.h>

#include <memory>
#include <optional>

#include "cache_options.h"
#include "commands.h"
#include "interrupt.h"
#include "shardwise/base/text.h"
#include "shardwise/data/dataset.h"

namespace shardwise::tools {
namespace {

struct CatOptions {
  std::string index;
  std::optional<std::string> key;
  std::optional<std::string> sample;  ///< with --key there is none, and FIELD comes in its place
  std::optional<std::string> field;
  std::string access = "map";
  CacheArguments cache;
};

std::uint64_t sample_number(const CatOptions& options) {
  const std::optional<std::int64_t> number = parse_int64(options.sample.value_or(""));
  if (!number || *number < 0) {
    throw CLI::ValidationError("SAMPLE", "must be a sample's number, from 0 on; or give --key KEY");
  }
  return static_cast<std::uint64_t>(*number);
}

std::optional<std::string> field_of(const CatOptions& options) {
  if (!options.key) return options.field;
  if (options.field) throw CLI::ValidationError("SAMPLE", "give a number or --key, not both");
  return options.sample;
}

void run(const CatOptions& options, Output& out) {
  const std::optional<std::string> wanted = field_of(options);
  const std::uint64_t number = options.key ? 0 : sample_number(options);
  const Dataset data =
      open_dataset(options.index, parse_access(options.access), options.cache, &interrupt_flag());
  const Sample sample = options.key ? data.get(*options.key) : data[number];
  if (wanted) {
    out.write(sample.copy(*wanted));  // a shard that was truncated is an error, not a signal
    return;
  }
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    const Field field = sample.field(i);
    out.print("{}\t{}\n", escaped(field.name), field.bytes.size());
  }
}

}  // namespace

void add_cat_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "cat", "Write one field's bytes; without FIELD, show the sample's fields and their sizes");
  const auto options = std::make_shared<CatOptions>();
  command->add_option("INDEX", options->index, "the index")->required()->type_name("");
  command->add_option("--key", options->key, "the sample with this key, instead of SAMPLE");
  command->add_option("SAMPLE", options->sample, "the sample's number, from 0; not with --key")
      ->type_name("");
  command->add_option("FIELD", options->field, "the field whose bytes to write")->type_name("");
  command
      ->add_option("--access", options->access,
                   "range: of a remote shard bring only this sample; otherwise the shard goes into "
                   "the cache")
      ->check(CLI::IsMember({"map", "read", "range"}))
      ->capture_default_str();
  add_cache_options(*command, options->cache);
  command->footer(
      "Examples:\n  shardwise cat train.idx 42 jpg > 42.jpg\n"
      "  shardwise cat train.idx --key n01440764/000042");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
