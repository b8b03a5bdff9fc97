#include <fmt/format.h>

#include <limits>
#include <memory>
#include <optional>

#include "base/text.h"
#include "base/url.h"
#include "commands.h"
#include "first_use.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "interrupt.h"
#include "options.h"
#include "shardwise/index/index.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct LsOptions {
  std::string index;
  FirstUse first_use;
  bool json = false;
  bool header = false;
  bool left_out = false;
  std::optional<std::uint64_t> shard;
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
};

/// Text that is the same for all members of a shard, or of a field.
struct ShardText {
  std::string start;                ///< start of each line: shard and path
  std::vector<std::string> fields;  ///< by field number
};

ShardText shard_text(const Index::Shard& shard, const SegmentView& segment, bool json) {
  ShardText text;
  if (json) {
    text.start = fmt::format("{{\"shard\":{},", shard.number);
    append_json_name(text.start, "url", without_secrets(shard.path));
    text.start += ",\"sample\":";
  } else {
    text.start = escaped(without_secrets(shard.path)) + "\t";
  }
  for (std::uint32_t field = 0; field < segment.num_fields(); ++field) {
    std::string name;
    if (json) {
      append_json_name(name, "field", segment.field_name(field));
    } else {
      name = escaped(segment.field_name(field));
    }
    text.fields.push_back(std::move(name));
  }
  return text;
}

/// Lists up to `limit` members of a shard. Returns their number.
std::uint64_t list_shard(const Index& index, std::uint64_t number, bool json, std::uint64_t limit,
                         Output& out) {
  const Index::Shard shard = index.shard(number);
  const SegmentView segment = segment_of(index, number);
  const ShardText text = shard_text(shard, segment, json);
  std::uint64_t listed = 0;
  std::string key;
  for (std::uint32_t i = 0; i < segment.num_samples() && listed < limit; ++i) {
    key.clear();
    if (json) {
      append_json_name(key, "key", segment.key(i));
    } else {
      key = escaped(segment.key(i));
    }
    for (const MemberRecord& member : segment.members(i)) {
      if (listed == limit) break;
      if (json) {
        out.print("{}{},{},{},\"offset\":{},\"size\":{}}}\n", text.start, shard.first_sample + i,
                  key, text.fields[member.field()], member.data_offset(), member.size_bytes);
      } else {
        out.print("{}{}\t{}\t{}\t{}\t{}\n", text.start, shard.first_sample + i, key,
                  text.fields[member.field()], member.data_offset(), member.size_bytes);
      }
      ++listed;
    }
  }
  return listed;
}

/// Lists up to `limit` members as a table on a terminal. Returns their number.
std::uint64_t list_shard(const Index& index, std::uint64_t number, std::uint64_t limit,
                         Table& table) {
  const Index::Shard shard = index.shard(number);
  const SegmentView segment = segment_of(index, number);
  std::uint64_t listed = 0;
  for (std::uint32_t i = 0; i < segment.num_samples() && listed < limit; ++i) {
    throw_if_interrupted();
    for (const MemberRecord& member : segment.members(i)) {
      if (listed == limit) break;
      table.add({escaped(without_secrets(shard.path)), std::to_string(shard.first_sample + i),
                 escaped(segment.key(i)), escaped(segment.field_name(member.field())),
                 std::to_string(member.data_offset()), std::to_string(member.size_bytes)});
      ++listed;
    }
  }
  return listed;
}

/// Lists the members that belong to no sample, except directories.
void list_left_out(const LsOptions& options, const Index& index, Output& out) {
  Table table(out,
              {{"url", Align::kLeft, Cut::kStart},
               {"offset", Align::kRight},
               {"kind"},
               {"name", Align::kLeft, Cut::kStart},
               {"reason"}},
              options.header && !options.json);
  std::uint64_t listed = 0;
  for (const Index::SkippedMember& member : index.skipped(index.summary().num_skipped)) {
    throw_if_interrupted();
    if (options.shard && member.shard != *options.shard) continue;
    if (listed++ == options.limit) break;
    const std::string url = without_secrets(index.shard(member.shard).path);
    if (!options.json) {
      table.add({escaped(url), std::to_string(member.offset),
                 std::string(left_out_name(member.kind)), escaped(member.name),
                 escaped(member.reason)});
      continue;
    }
    std::string line = fmt::format("{{\"shard\":{},", member.shard);
    append_json_name(line, "url", url);
    line +=
        fmt::format(",\"offset\":{},\"kind\":\"{}\",", member.offset, left_out_name(member.kind));
    append_json_name(line, "name", member.name);
    line += ',';
    append_json_name(line, "reason", member.reason);
    out.print("{}}}\n", line);
  }
  if (!options.json) table.finish();
}

void run(const LsOptions& options, Output& out) {
  const std::shared_ptr<const Index> index =
      Index::open(index_path(options.index, options.first_use));
  if (options.left_out) {
    // This throws if there is no such shard.
    if (options.shard) static_cast<void>(index->shard(*options.shard));
    list_left_out(options, *index, out);
    return;
  }
  Table table(out,
              {{"url", Align::kLeft, Cut::kStart},
               {"sample", Align::kRight},
               {"key", Align::kLeft, Cut::kStart},
               {"field"},
               {"offset", Align::kRight},
               {"size", Align::kRight}},
              options.header && !options.json);
  const bool tabular = out.is_terminal() && !options.json;
  const auto list = [&](std::uint64_t shard, std::uint64_t limit) {
    // Without a terminal there may be millions of lines, for which a table is too slow.
    return tabular ? list_shard(*index, shard, limit, table)
                   : list_shard(*index, shard, options.json, limit, out);
  };
  if (options.shard) {
    list(*options.shard, options.limit);
  } else {
    std::uint64_t left = options.limit;
    for (std::uint64_t shard = 0; shard < index->num_shards() && left > 0; ++shard) {
      throw_if_interrupted();
      left -= list(shard, left);
    }
  }
  if (tabular) table.finish();
}

}  // namespace

void add_ls_command(CLI::App& program, Output& out) {
  CLI::App* command =
      program.add_subcommand("ls",
                             "List every member: URL of the shard, sample, key, field, "
                             "offset and size");
  const auto options = std::make_shared<LsOptions>();
  add_index_argument(*command, options->index)->required();
  command->add_option("--shard", options->shard, "list only the shard with this number, from 0")
      ->transform(kWholeNumber)
      ->type_name("N");
  command->add_option("--limit", options->limit, "print at most N members")
      ->transform(kWholeNumber)
      ->type_name("N");
  command->add_flag("--left-out", options->left_out,
                    "list the members that belong to no sample, except directories: URL of the "
                    "shard, offset, kind, name and reason");
  command->add_flag("--header", options->header, kHeaderHelp);
  command->add_flag("--json", options->json, "print one JSON object per line");
  add_first_use_options(*command, options->first_use);
  mark_common(*command, {"--shard", "--limit", "--left-out", "--header", "--json"});
  command->footer("Example:\n  shardwise ls train.idx --limit 10");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
