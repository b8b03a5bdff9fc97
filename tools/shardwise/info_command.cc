#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/url.h"
#include "build_notes.h"
#include "commands.h"
#include "first_use.h"
#include "index/lost_rests.h"
#include "interrupt.h"
#include "json_names.h"
#include "options.h"
#include "progress.h"
#include "shardwise/index/index.h"

namespace shardwise::tools {
namespace {

/// Limit of skipped members in the text for people; --json lists all.
constexpr std::uint64_t kSkippedShown = 20;

struct InfoOptions {
  std::string index;
  FirstUse first_use;
  bool json = false;
};

nlohmann::ordered_json name_json(const char* name, std::string_view bytes) {
  std::string text = "{";
  append_json_name(text, name, bytes);
  return nlohmann::ordered_json::parse(text + "}");
}

struct CompressedShards {
  std::uint64_t count = 0;
  std::uint64_t unchecked = 0;  ///< the number of these shards without a checksum over their
                                ///< content
};

CompressedShards compressed_shards(const Index& index, bool quiet) {
  const Progress progress("reading the index", Unit::kSamples, quiet);
  CompressedShards found;
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    throw_if_interrupted();
    const Index::Shard shard = index.shard(i);
    found.count += shard.compression == Compression::kNone ? 0 : 1;
    found.unchecked += shard.unchecked ? 1 : 0;
  }
  return found;
}

void print_summary_json(const Index& index, const Index::Summary& summary, bool quiet,
                        Output& out) {
  const CompressedShards compressed = compressed_shards(index, quiet);
  const detail::LostRests lost = detail::lost_rests(index);
  nlohmann::ordered_json fields = nlohmann::ordered_json::array();
  for (const Index::Summary::Field& field : summary.fields) {
    nlohmann::ordered_json row = name_json("field", field.name);
    row["members"] = field.num_members;
    row["bytes"] = field.bytes;
    fields.push_back(std::move(row));
  }
  nlohmann::ordered_json skipped = nlohmann::ordered_json::array();
  for (const Index::SkippedMember& member : index.skipped(summary.num_skipped)) {
    nlohmann::ordered_json row = {{"shard", member.shard}, {"offset", member.offset}};
    row.update(name_json("name", member.name));
    row["kind"] = left_out_name(member.kind);
    row["reason"] = member.reason;
    skipped.push_back(std::move(row));
  }
  nlohmann::ordered_json columns = nlohmann::ordered_json::array();
  for (const Index::Column& column : summary.content.columns) {
    columns.push_back(
        {{"column", column.name}, {"field", column.field}, {"json_path", column.json_path}});
  }
  nlohmann::ordered_json side_tables = nlohmann::ordered_json::array();
  for (const SideTable& table : index.side_tables()) {
    side_tables.push_back({{"side_table", table.name},
                           {"columns", table.columns},
                           {"source", table.source},
                           {"on", table.key},
                           {"rows", table.num_rows},
                           {"attached_at", table.attached_at}});
  }
  const nlohmann::ordered_json json = {
      {"index", index.path()},
      {"origin", without_secrets(index.origin())},
      {"shards", summary.num_shards},
      {"samples", summary.num_samples},
      {"members", summary.num_members},
      {"shard_bytes", summary.shard_bytes},
      {"content_bytes", summary.content_bytes},
      {"fields", std::move(fields)},
      {"fingerprint", to_string(summary.fingerprint)},
      {"built_with", summary.built_with},
      {"built_at", summary.built_at},
      {"on_bad", to_string(summary.content.policies)},
      {"columns", std::move(columns)},
      {"side_tables", std::move(side_tables)},
      {"hashes", summary.content.hashes},
      {"unique_keys", summary.content.unique_keys},
      {"part", summary.part ? to_string(*summary.part) : std::string()},
      {"url_base", without_secrets(summary.url_base)},
      {"compressed_shards", compressed.count},
      {"unchecked_shards", compressed.unchecked},
      {"num_skipped", summary.num_skipped},
      {"shards_cut_short", lost.num_shards},
      {"bytes_cut_off", lost.bytes},
      {"skipped", std::move(skipped)},
  };
  print_json(out, "info", json);
}

void print_fields(const Index::Summary& summary, Output& out) {
  std::size_t width = 5;
  for (const Index::Summary::Field& field : summary.fields)
    width = std::max(width, escaped(field.name).size());
  out.print("\n{}\n", out.head(fmt::format("{:<{}}  {:>14}  {:>12}  {:>12}", "field", width,
                                           "members", "bytes", "mean")));
  for (const Index::Summary::Field& field : summary.fields) {
    out.print("{:<{}}  {:>14}  {:>12}  {:>12}\n", escaped(field.name), width,
              human_count(field.num_members), human_bytes(field.bytes),
              human_bytes(field.bytes / std::max<std::uint64_t>(1, field.num_members)));
  }
}

void print_left_out(const Index& index, std::uint64_t count, Output& out) {
  std::map<Index::SkippedMember::Kind, std::uint64_t> kinds;
  const std::vector<Index::SkippedMember> members = index.skipped(count);
  for (const Index::SkippedMember& member : members) ++kinds[member.kind];
  const std::uint64_t num_values = kinds[Index::SkippedMember::Kind::kNoValue];
  kinds.erase(Index::SkippedMember::Kind::kNoValue);
  std::string text;
  for (const auto& [kind, of_kind] : kinds) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", human_count(of_kind), left_out_name(kind));
  }
  out.print("\n");
  if (count > num_values) {
    out.print("left out: {} ({}){}\n", counted(count - num_values, "member"), text,
              rests_text(index));
  }
  if (num_values > 0) {
    out.print("not read for a column, so the value is NULL: {}\n", counted(num_values, "member"));
  }
  const std::size_t shown = std::min<std::size_t>(members.size(), kSkippedShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const Index::SkippedMember& member = members[i];
    out.print("  shard {}, offset {}, {}: {}\n", member.shard, member.offset,
              in_quotes(member.name), escaped(member.reason));
  }
  if (members.size() > shown) {
    out.print("  and {} more members; shardwise ls --left-out lists all\n",
              human_count(members.size() - shown));
  }
}

void run(const InfoOptions& options, Output& out) {
  const std::shared_ptr<const Index> index =
      Index::open(index_path(options.index, options.first_use));
  const Index::Summary summary = index->summary();
  if (options.json) {
    print_summary_json(*index, summary, options.first_use.quiet, out);
    return;
  }
  out.print("index        {}\n", escaped(index->path()));
  if (!index->origin().empty()) {
    out.print("fetched from {}\n", escaped(redacted_url(index->origin())));
  }
  out.print("samples      {}\n", human_count(summary.num_samples));
  out.print("shards       {}, {}\n", human_count(summary.num_shards),
            human_bytes(summary.shard_bytes));
  out.print("members      {}, {}\n", human_count(summary.num_members),
            human_bytes(summary.content_bytes));
  out.print("fingerprint  {}\n", to_string(summary.fingerprint));
  out.print("built        {} by {}, on bad members: {}\n", summary.built_at, summary.built_with,
            to_string(summary.content.policies));
  if (summary.part) out.print("part         {}\n", to_string(*summary.part));
  if (!summary.url_base.empty()) {
    out.print("URLs         below {}\n", escaped(without_secrets(summary.url_base)));
  }
  if (summary.content.hashes) out.print("hashes       of every shard and member\n");
  if (summary.content.unique_keys) out.print("keys         unique over all shards\n");
  for (const Index::Column& column : summary.content.columns) {
    out.print("column       {} from {}{}{}\n", column.name, escaped(column.field),
              column.json_path.empty() ? "" : ":", escaped(column.json_path));
  }
  for (const SideTable& table : index->side_tables()) {
    out.print("side table   {} with {} by {}, from {}:", escaped(table.name),
              counted(table.num_rows, "row"), escaped(table.key), escaped(table.source));
    for (const std::string& column : table.columns) out.print(" {}", column);
    out.print("\n");
  }
  const CompressedShards compressed = compressed_shards(*index, options.first_use.quiet);
  if (compressed.count > 0) {
    out.print("compressed   {}, which cannot be read in place\n",
              counted(compressed.count, "shard"));
    if (compressed.unchecked > 0 && !summary.content.hashes) {
      out.print(
          "unchecked    {}, compressed without a checksum; store hashes with shardwise "
          "index --hash\n",
          counted(compressed.unchecked, "shard"));
    }
  }
  print_fields(summary, out);
  if (summary.num_skipped == 0) return;
  print_left_out(*index, summary.num_skipped, out);
}

}  // namespace

void add_info_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "info",
      "Show shards, samples, members, bytes, fields, fingerprint, and how an index was built");
  const auto options = std::make_shared<InfoOptions>();
  add_index_argument(*command, options->index)->required();
  command->add_flag("--json", options->json, "print one JSON object");
  add_first_use_options(*command, options->first_use);
  mark_common(*command, {"--json", "--quiet"});
  command->footer("Examples:\n  shardwise info train.idx\n  shardwise info data/train");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
