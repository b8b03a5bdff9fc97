#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "shardwise/base/text.h"
#include "shardwise/index/index.h"

namespace shardwise::tools {
namespace {

/// Skipped members that the human-readable text shows; --json gives all.
constexpr std::uint64_t kSkippedShown = 20;

struct InfoOptions {
  std::string index;
  bool json = false;
};

nlohmann::ordered_json name_json(const char* name, std::string_view bytes) {
  std::string text = "{";
  append_json_name(text, name, bytes);
  return nlohmann::ordered_json::parse(text + "}");
}

std::uint64_t num_compressed(const Index& index) {
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    count += index.shard(i).compression == Compression::kNone ? 0 : 1;
  }
  return count;
}

void print_json(const Index& index, const IndexSummary& summary, Output& out) {
  nlohmann::ordered_json fields = nlohmann::ordered_json::array();
  for (const FieldInfo& field : summary.fields) {
    nlohmann::ordered_json row = name_json("name", field.name);
    row["members"] = field.num_members;
    row["bytes"] = field.bytes;
    fields.push_back(std::move(row));
  }
  nlohmann::ordered_json skipped = nlohmann::ordered_json::array();
  for (const SkippedMember& member : index.skipped(summary.num_skipped)) {
    nlohmann::ordered_json row = {{"shard", member.shard}, {"offset", member.offset}};
    row.update(name_json("name", member.name));
    row["reason"] = member.reason;
    skipped.push_back(std::move(row));
  }
  nlohmann::ordered_json columns = nlohmann::ordered_json::array();
  for (const Column& column : summary.columns) {
    columns.push_back(
        {{"name", column.name}, {"field", column.field}, {"json_path", column.json_path}});
  }
  const nlohmann::ordered_json json = {
      {"index", index.path()},
      {"shards", summary.num_shards},
      {"samples", summary.num_samples},
      {"members", summary.num_members},
      {"shard_bytes", summary.shard_bytes},
      {"content_bytes", summary.content_bytes},
      {"fields", std::move(fields)},
      {"fingerprint", to_string(summary.fingerprint)},
      {"built_with", summary.built_with},
      {"built_at", summary.built_at},
      {"on_bad", to_string(summary.policies)},
      {"columns", std::move(columns)},
      {"hashes", summary.has_hashes},
      {"unique_keys", summary.keys_are_unique},
      {"part", summary.part},
      {"compressed_shards", num_compressed(index)},
      {"num_skipped", summary.num_skipped},
      {"skipped", std::move(skipped)},
  };
  out.print("{}\n", json_text(json));
}

void print_fields(const IndexSummary& summary, Output& out) {
  std::size_t width = 5;
  for (const FieldInfo& field : summary.fields) width = std::max(width, escaped(field.name).size());
  out.print("\n{:<{}}  {:>14}  {:>12}  {:>12}\n", "field", width, "members", "bytes", "mean");
  for (const FieldInfo& field : summary.fields) {
    out.print("{:<{}}  {:>14}  {:>12}  {:>12}\n", escaped(field.name), width,
              human_count(field.num_members), human_bytes(field.bytes),
              human_bytes(field.bytes / std::max<std::uint64_t>(1, field.num_members)));
  }
}

void run(const InfoOptions& options, Output& out) {
  const std::shared_ptr<const Index> index = Index::open(options.index);
  const IndexSummary summary = index->summary();
  if (options.json) {
    print_json(*index, summary, out);
    return;
  }
  out.print("index        {}\n", escaped(index->path()));
  out.print("samples      {}\n", human_count(summary.num_samples));
  out.print("shards       {}, {}\n", human_count(summary.num_shards),
            human_bytes(summary.shard_bytes));
  out.print("members      {}, {}\n", human_count(summary.num_members),
            human_bytes(summary.content_bytes));
  out.print("fingerprint  {}\n", to_string(summary.fingerprint));
  out.print("built        {} by {}, on bad members: {}\n", summary.built_at, summary.built_with,
            to_string(summary.policies));
  if (!summary.part.empty()) out.print("part         {}\n", summary.part);
  if (summary.has_hashes) out.print("hashes       of every shard and member\n");
  if (summary.keys_are_unique) out.print("keys         unique over all shards\n");
  for (const Column& column : summary.columns) {
    out.print("column       {} from {}{}{}\n", column.name, escaped(column.field),
              column.json_path.empty() ? "" : ":", escaped(column.json_path));
  }
  if (const std::uint64_t count = num_compressed(*index); count > 0) {
    out.print("compressed   {}, which cannot be read in place\n", counted(count, "shard"));
  }
  print_fields(summary, out);
  if (summary.num_skipped == 0) return;
  out.print("\nskipped as bad: {}\n", counted(summary.num_skipped, "member"));
  for (const SkippedMember& member : index->skipped(kSkippedShown)) {
    out.print("  shard {}, offset {}, {}: {}\n", member.shard, member.offset,
              in_quotes(member.name), escaped(member.reason));
  }
  if (summary.num_skipped > kSkippedShown) {
    out.print("  and {} more: shardwise info --json shows all\n",
              summary.num_skipped - kSkippedShown);
  }
}

}  // namespace

void add_info_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "info",
      "Show shards, samples, members, bytes, fields, fingerprint, and how an index was built");
  const auto options = std::make_shared<InfoOptions>();
  command->add_option("INDEX", options->index, "the index")->required()->type_name("");
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer("Example:\n  shardwise info train.idx");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
