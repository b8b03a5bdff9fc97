#include "build_notes.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "index/lost_rests.h"
#include "output.h"
#include "shardwise/index/index.h"

namespace shardwise::tools {

void show(Progress& progress, const shardwise::Progress& at) {
  progress.update(at.bytes_done, at.num_bytes, [&] {
    return fmt::format("{} of {}, {}", human_count(at.shards_done), counted(at.num_shards, "shard"),
                       counted(at.samples, "sample"));
  });
}

std::string some_of(const std::vector<std::string>& paths) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < paths.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + in_quotes(paths[i]);
  }
  if (paths.size() > kShown)
    text += fmt::format(" and {} more", human_count(paths.size() - kShown));
  return text;
}

std::vector<std::string> unknown_files(const std::vector<std::string>& files) {
  std::vector<std::string> others;
  std::ranges::copy_if(files, std::back_inserter(others), [](const std::string& file) {
    return !file.ends_with(".idx") &&
           std::string_view(file).substr(file.rfind('/') + 1) != kClassesFile;
  });
  return others;
}

void say_what_is_fetched(const BuildPlan::RemoteReading& remote) {
  if (remote.num_shards == 0) return;
  std::string size = ", at most " + human_bytes(remote.bytes);
  if (remote.num_unknown == remote.num_shards) {
    size = ", of unknown size";
  } else if (remote.num_unknown > 0) {
    size += ", not counting " + counted(remote.num_unknown, "shard") + " of unknown size";
  }
  say("note", counted(remote.num_shards, "shard") + " will be fetched" + size);
}

void say_files_left_out(const std::vector<std::string>& files) {
  if (files.empty()) return;
  say("note", fmt::format("{} ignored, because not named like a shard: {}",
                          counted(files.size(), "file", "is", "are"), some_of(files)));
}

void say_without_end_marker(const std::vector<std::string>& shards) {
  if (shards.empty()) return;
  say("note",
      fmt::format("{} no end-of-archive marker, and so may be truncated between two members: {}",
                  counted(shards.size(), "shard", "has", "have"), some_of(shards)));
}

void say_members_left_out(std::uint64_t num_members, const std::string& index) {
  if (num_members == 0) return;
  const auto opened = Index::open(index);
  const auto members = opened->skipped(num_members);
  const auto num_values = static_cast<std::uint64_t>(std::ranges::count(
      members, Index::SkippedMember::Kind::kNoValue, &Index::SkippedMember::kind));
  const std::string see = fmt::format("see `shardwise ls --left-out {}`", index);
  if (num_members > num_values) {
    say("note",
        fmt::format("{} left out{}; {}", counted(num_members - num_values, "member", "was", "were"),
                    rests_text(*opened), see));
  }
  if (num_values > 0) {
    say("note", fmt::format("{} not be read for a column, so the value is NULL; {}",
                            counted(num_values, "member", "could", "could"), see));
  }
}

std::string rests_text(const Index& index) {
  const detail::LostRests lost = detail::lost_rests(index);
  if (lost.num_shards == 0) return {};
  return fmt::format(", and all bytes after the damage in {}, {}",
                     counted(lost.num_shards, "shard"), human_bytes(lost.bytes));
}

}  // namespace shardwise::tools
