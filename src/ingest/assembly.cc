#include "ingest/assembly.h"

#include <ctime>
#include <utility>

#include "base/counted.h"
#include "base/fault_point.h"
#include "base/private_file.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"

namespace shardwise {

Assembly::Assembly(const std::string& path, const Index::Content& content,
                   const std::optional<Index::Part>& part, const std::string& url_base,
                   std::vector<std::string> sources, bool is_secret)
    : table_(path), catalogue_(path, url_base), sources_(std::move(sources)) {
  if (is_secret) make_private(catalogue_.file());
  set_mode_as(catalogue_.file(), table_.file());
  summary_.content = content;
  summary_.part = part;
  summary_.url_base = url_base;
}

void Assembly::keep_from(const IndexFiles& old) {
  table_.keep_keys(old.table());
  for (const Index::Summary::Field& field : old.catalogue().fields()) count(field);
}

void Assembly::drop(const SegmentView& segment) {
  for (Index::Summary::Field field : count_fields(segment)) {
    // Subtract by adding negated unsigned numbers, which wrap around.
    field.num_members = -field.num_members;
    field.bytes = -field.bytes;
    count(field);
    if (fields_[field.name].num_members == 0) fields_.erase(field.name);
  }
}

void Assembly::count(const Index::Summary::Field& field) {
  Index::Summary::Field& total = fields_[field.name];
  total.name = field.name;
  total.num_members += field.num_members;
  total.bytes += field.bytes;
  summary_.content_bytes += field.bytes;
}

void Assembly::append(ShardPart& part) {
  Index::Shard& row = part.row;
  row.first_sample = summary_.num_samples;
  if (part.kept) {
    table_.append_kept(*part.kept);
  } else {
    table_.append(part.segment, part.key_hashes);
  }
  catalogue_.add_shard(row);
  for (Index::SkippedMember& member : part.skipped) {
    member.shard = urls_.size();
    catalogue_.add_skipped(member);
  }
  for (const Index::Summary::Field& field : part.fields) count(field);
  fingerprint_.update_u64(row.expanded_bytes);
  fingerprint_.update_u64(row.header_hash.high);
  fingerprint_.update_u64(row.header_hash.low);
  fingerprint_.update_u64(row.num_samples);
  fingerprint_.update_u64(row.num_members);
  summary_.num_samples += row.num_samples;
  summary_.num_members += row.num_members;
  summary_.shard_bytes += row.size_bytes;
  summary_.num_skipped += part.skipped.size();
  urls_.push_back(row.url);
}

void Assembly::refuse_repeated(const RepeatedKey& repeated) const {
  const auto place = [&](std::uint64_t sample, std::uint64_t shard) {
    return "sample " + std::to_string(sample) + " in " + in_quotes(without_secrets(urls_[shard]));
  };
  const std::string others =
      repeated.num_repeated == 1
          ? std::string()
          : " (and " + counted(repeated.num_repeated - 1, "more sample") + " with repeated keys)";
  throw CorruptShard("the key " + in_quotes(repeated.key) + " occurs in two shards" + others,
                     place(repeated.first, repeated.first_segment) + " and " +
                         place(repeated.second, repeated.second_segment),
                     "rename the samples, leave a shard out, or index without " +
                         spelled("Index::Content::unique_keys"));
}

void Assembly::finish(const CancelToken& cancel) {
  UniqueKeys unique;
  if (summary_.content.unique_keys) {
    unique.refuse = [&](const RepeatedKey& repeated) { refuse_repeated(repeated); };
  }
  table_.finish(unique, cancel);
  summary_.fields.clear();
  for (const auto& [name, field] : fields_) {
    catalogue_.add_field(field);
    summary_.fields.push_back(field);
  }
  summary_.fingerprint = fingerprint_.digest();
  summary_.built_with = "shardwise " SHARDWISE_VERSION;
  summary_.built_at = utc_text(std::time(nullptr));
  summary_.num_shards = table_.header().num_shards;
  catalogue_.finish({.table_file = table_.path().substr(table_.path().rfind('/') + 1),
                     .table_checksum = table_.header().header_checksum,
                     .num_fields = fields_.size(),
                     .sources = sources_,
                     .summary = summary_});
}

void Assembly::commit() {
  // Commit the table first, because an existing catalogue must never name a missing table.
  table_.commit();
  catalogue_.commit();
  SHARDWISE_FAULT_POINT("build.committed");
}

}  // namespace shardwise
