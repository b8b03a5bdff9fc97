#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/text.h"
#include "base/url.h"
#include "cache_options.h"
#include "commands.h"
#include "fetch_options.h"
#include "first_use.h"
#include "interrupt.h"
#include "options.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct CatOptions {
  std::string index;
  FirstUse first_use;
  std::optional<std::string> key;
  std::optional<std::string> sample;  ///< the first argument; with --key it is FIELD
  std::optional<std::string> field;
  std::string access = "map";
  Index::Lookup lookup;
  CacheArguments cache;
  bool force = false;
  bool header = false;
  bool json = false;
};

std::uint64_t sample_number(const CatOptions& options) {
  const std::optional<std::int64_t> number = parse_int64(options.sample.value_or(""));
  if (!number || *number < 0) {
    const std::string given =
        options.sample ? in_quotes(*options.sample) + " is not a number; " : "";
    throw CLI::ValidationError("SAMPLE", given + "give a sample number, from 0, or --key KEY");
  }
  return static_cast<std::uint64_t>(*number);
}

std::optional<std::string> field_of(const CatOptions& options) {
  if (!options.key) return options.field;
  if (options.field)
    throw CLI::ValidationError("SAMPLE",
                               "cannot be given with --key; leave out "
                               "SAMPLE or --key");
  return options.sample;
}

/// True for bytes that are not text, or that contain control characters.
bool is_binary(std::string_view bytes) {
  constexpr std::string_view kHarmless = "\t\n\r\f\b";
  const bool has_control = std::any_of(bytes.begin(), bytes.end(), [&](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && kHarmless.find(c) == std::string_view::npos) ||
           c == 0x7F;
  });
  return has_control || !is_utf8(bytes);
}

void write_field(const Sample& sample, const std::string& field, bool force, Output& out) {
  const std::string bytes = sample.copy(field);  // a copy: if the shard is truncated, this throws
                                                 // instead of a signal
  if (!force && out.is_terminal() && is_binary(bytes)) {
    throw Error(ErrorCode::kInvalidArgument, "binary content is not written to a terminal",
                fmt::format("field {} of sample {}", in_quotes(field), sample.index()),
                fmt::format("redirect the output, e.g. > {}.{}, or give --force", sample.index(),
                            escaped(field)));
  }
  out.write(bytes);
}

void list_fields(const Sample& sample, const CatOptions& options, Output& out) {
  if (options.json) {
    std::string line = fmt::format("{{\"sample\":{},", sample.index());
    append_json_name(line, "key", sample.key());
    line += ',';
    append_json_name(line, "url", without_secrets(sample.shard_path()));
    line += ",\"fields\":[";
    for (std::size_t i = 0; i < sample.num_fields(); ++i) {
      const Sample::Field field = sample.field(i);
      line += i == 0 ? "{" : ",{";
      append_json_name(line, "field", field.name);
      line += fmt::format(",\"size\":{}}}", field.bytes.size());
    }
    out.print("{}]}}\n", line);
    return;
  }
  Table table(out, {{"field"}, {"size", Align::kRight}}, options.header);
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    const Sample::Field field = sample.field(i);
    table.add({escaped(field.name), std::to_string(field.bytes.size())});
  }
  table.finish();
}

void run(const CatOptions& options, Output& out) {
  const std::optional<std::string> wanted = field_of(options);
  if (wanted && (options.json || options.header)) {
    const std::string option = options.json ? "--json" : "--header";
    throw CLI::ValidationError(option,
                               "applies only to the list of fields; leave out FIELD or " + option);
  }
  const std::uint64_t number = options.key ? 0 : sample_number(options);
  FirstUse first_use = options.first_use;
  first_use.fetching = options.cache.fetching;
  const Dataset data = open_dataset(find_index(options.index, first_use), options.lookup,
                                    parse_access(options.access), options.cache,
                                    /*allow_part=*/true, interrupt_token(),
                                    // Fetch whole shards: the next call then reads from the cache.
                                    /*wait_for_whole_shards=*/true);
  check_servers(options.cache.fetching, data.index(), options.first_use.quiet);
  const Sample sample = options.key ? data.get(*options.key) : data[number];
  if (wanted) {
    write_field(sample, *wanted, options.force, out);
  } else {
    list_fields(sample, options, out);
  }
}

}  // namespace

void add_cat_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "cat",
      "Write the bytes of one field; without FIELD, list the sample's fields and their sizes");
  const auto options = std::make_shared<CatOptions>();
  add_index_argument(*command, options->index)->required();
  command->add_option("--key", options->key, "key of the sample, instead of SAMPLE")
      ->type_name("KEY");
  command->add_option("SAMPLE", options->sample, "sample number, from 0; not with --key")
      ->type_name("");
  command->add_option("FIELD", options->field, "field whose bytes are written")->type_name("");
  command->add_option("--access", options->access, kAccessHelp)
      ->check(CLI::IsMember({"map", "read", "range"}))
      ->capture_default_str();
  command->add_flag("--force", options->force, "write binary content even to a terminal");
  command->add_flag("--header", options->header, kHeaderHelp);
  command->add_flag("--json", options->json, "print the list of fields as one JSON object");
  add_lookup_options(*command, options->lookup);
  add_cache_options(*command, options->cache);
  add_first_use_options(*command, options->first_use);
  mark_common(*command, {"--key", "--force", "--cache", "--header", "--json"});
  command->footer(
      "Examples:\n  shardwise cat train.idx 42 jpg > 42.jpg\n"
      "  shardwise cat train.idx --key n01440764/000042");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
