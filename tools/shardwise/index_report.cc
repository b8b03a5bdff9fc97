#include "index_report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "base/url.h"
#include "build_notes.h"
#include "console.h"
#include "index/lost_rests.h"
#include "json_names.h"
#include "shardwise/index/index.h"
#include "table.h"

namespace shardwise::tools {
namespace {

std::vector<std::string> shown(const std::vector<std::string>& paths) {
  std::vector<std::string> texts;
  for (const std::string& path : paths) texts.push_back(without_secrets(path));
  return texts;
}

/// Shards and other files that a report mentions, as paths without secrets.
struct Noted {
  Noted(const BuildReport& report, std::vector<std::string> other_files)
      : without_end_marker(shown(report.without_end_marker)),
        concatenated(shown(report.concatenated)),
        with_trailing_bytes(shown(report.with_trailing_bytes)),
        without_checksum(shown(report.without_checksum)),
        left_out(std::move(other_files)),
        dropped(shown(report.dropped)),
        gone(shown(report.gone)) {}

  std::vector<std::string> without_end_marker;
  std::vector<std::string> concatenated;
  std::vector<std::string> with_trailing_bytes;
  std::vector<std::string> without_checksum;
  std::vector<std::string> left_out;  ///< files that are not shards
  std::vector<std::string> dropped;
  std::vector<std::string> gone;
};

/// Adds the paths as an array `name`. Paths that are not UTF-8 are added in hexadecimal as
/// `name`_hex.
void add_paths(nlohmann::ordered_json& json, const std::string& name,
               const std::vector<std::string>& paths) {
  json[name] = nlohmann::ordered_json::array();
  for (const std::string& path : paths) {
    if (is_utf8(path)) {
      json[name].push_back(path);
    } else {
      json[name + "_hex"].push_back(hex(path));
    }
  }
}

void print_notes(const std::string& index, const BuildReport& report, const Noted& noted) {
  const std::vector<Index::Column>& columns = report.summary.content.columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (report.without_value[i] == 0) continue;
    say("note",
        fmt::format("the column {} is NULL for {} of {}, which lack the field or its JSON path: "
                    "--column {}",
                    in_quotes(columns[i].name), human_count(report.without_value[i]),
                    counted(report.summary.num_samples, "sample"), escaped(to_string(columns[i]))));
  }
  if (!noted.gone.empty()) {
    say("note",
        fmt::format("{} removed from the index, because no longer among the sources: {}",
                    counted(noted.gone.size(), "shard", "was", "were"), some_of(noted.gone)));
  }
  say_files_left_out(noted.left_out);
  say_without_end_marker(noted.without_end_marker);
  if (!noted.concatenated.empty()) {
    say("note", fmt::format("{} made of several archives, all of which were read: {}",
                            counted(noted.concatenated.size(), "shard", "is", "are"),
                            some_of(noted.concatenated)));
  }
  if (!noted.with_trailing_bytes.empty()) {
    say("note", fmt::format("{} bytes after the end-of-archive marker, which are ignored: {}",
                            counted(noted.with_trailing_bytes.size(), "shard", "has", "have"),
                            some_of(noted.with_trailing_bytes)));
  }
  if (!noted.without_checksum.empty() && !report.summary.content.hashes) {
    say("note", fmt::format("{} compressed without a checksum, so damage cannot be detected; store "
                            "hashes with --hash: {}",
                            counted(noted.without_checksum.size(), "shard", "is", "are"),
                            some_of(noted.without_checksum)));
  }
  if (report.shards_moved > 0) {
    say("note", fmt::format("{} a new path or modification time, and {} not read again",
                            counted(report.shards_moved, "shard", "has", "have"),
                            report.shards_moved == 1 ? "was" : "were"));
  }
  if (report.shards_resumed > 0) {
    say("note", fmt::format("{} reused from an unfinished build",
                            counted(report.shards_resumed, "shard", "was", "were")));
  }
  if (!report.dropped.empty()) {
    say("note",
        fmt::format("{} missing and left out: {}",
                    counted(report.dropped.size(), "shard", "is", "are"), some_of(noted.dropped)));
  }
  if (report.num_not_samples > 0) {
    say("note", fmt::format("{} to no sample: directories, links, devices",
                            counted(report.num_not_samples, "member", "belongs", "belong")));
  }
  say_members_left_out(report.summary.num_skipped, index);
}

void print_build_json(const std::string& index, const BuildReport& report, const Noted& noted,
                      double seconds, Output& out) {
  nlohmann::ordered_json without_value = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < report.without_value.size(); ++i) {
    without_value[report.summary.content.columns[i].name] = report.without_value[i];
  }
  detail::LostRests lost;
  if (report.summary.num_skipped > 0) lost = detail::lost_rests(*Index::open(index));
  nlohmann::ordered_json json = {
      {"index", index},
      {"shards", report.summary.num_shards},
      {"shards_scanned", report.shards_scanned},
      {"shards_reused", report.shards_reused},
      {"shards_moved", report.shards_moved},
      {"shards_resumed", report.shards_resumed},
      {"other_files", noted.left_out.size()},
      {"samples", report.summary.num_samples},
      {"members", report.summary.num_members},
      {"shard_bytes", report.summary.shard_bytes},
      {"content_bytes", report.summary.content_bytes},
      {"fingerprint", to_string(report.summary.fingerprint)},
      {"not_samples", report.num_not_samples},
      {"num_skipped", report.summary.num_skipped},
      {"shards_cut_short", lost.num_shards},
      {"bytes_cut_off", lost.bytes},
      {"without_value", without_value},
      {"seconds", seconds},
  };
  add_paths(json, "dropped", noted.dropped);
  add_paths(json, "gone", noted.gone);
  add_paths(json, "without_end_marker", noted.without_end_marker);
  add_paths(json, "concatenated", noted.concatenated);
  add_paths(json, "with_trailing_bytes", noted.with_trailing_bytes);
  add_paths(json, "without_checksum", noted.without_checksum);
  print_json(out, "index", json);
}

}  // namespace

void report_build(const std::string& index, const BuildReport& report,
                  std::vector<std::string> left_out, double seconds, bool is_json, Output& out) {
  const Noted noted(report, std::move(left_out));
  if (is_json) return print_build_json(index, report, noted, seconds, out);
  out.print("{}: {} in {} ({} read, {} unchanged), {} of {}, {:.2f} s\n", escaped(index),
            counted(report.summary.num_samples, "sample"),
            counted(report.summary.num_shards, "shard"), human_count(report.shards_scanned),
            human_count(report.shards_reused), counted(report.summary.num_members, "member"),
            human_bytes(report.summary.content_bytes), seconds);
  print_notes(index, report, noted);
}

void report_plan(const std::string& index, const BuildPlan& plan, bool is_json, bool has_header,
                 Output& out) {
  const std::pair<const char*, const std::vector<std::string>&> kinds[] = {
      {"read", plan.read},
      {"resumed", plan.resumed},
      {"unchanged", plan.unchanged},
      {"missing", plan.missing},
      {"gone", plan.gone}};
  if (is_json) {
    nlohmann::ordered_json json = {{"index", index}, {"dry_run", true}};
    for (const auto& [kind, shards] : kinds) add_paths(json, kind, shown(shards));
    json["bytes_to_read"] = plan.bytes_to_read;
    print_json(out, "index", json);
    return;
  }
  Table table(out, {{"what"}, {"url", Align::kLeft, Cut::kStart}}, has_header);
  for (const auto& [kind, shards] : kinds) {
    for (const std::string& shard : shards) table.add({kind, escaped(without_secrets(shard))});
  }
  table.finish();
  out.flush();
  std::string text = fmt::format("would read {} ({})", counted(plan.read.size(), "shard"),
                                 human_bytes(plan.bytes_to_read));
  const auto add = [&](const std::vector<std::string>& shards, std::string_view what) {
    if (!shards.empty()) text += fmt::format(", {} {}", human_count(shards.size()), what);
  };
  add(plan.resumed, "reused from an unfinished build");
  add(plan.unchanged, "unchanged");
  add(plan.missing, "missing");
  add(plan.gone, "no longer among the sources");
  say("note", text + "; nothing was written");
}

}  // namespace shardwise::tools
