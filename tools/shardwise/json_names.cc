#include "json_names.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "order/fields.h"
#include "schema.h"

namespace shardwise::tools {
namespace {

using enum JsonType;

struct OwnName {
  std::string_view name;
  JsonType type;
  std::string_view text;
  bool may_be_null = false;
};

/// Names that are neither columns of `shardwise query` nor options of an order.
constexpr OwnName kOwnNames[] = {
    {"accuracy", kNumber, "fraction of the evaluated samples that were classified correctly"},
    {"algorithms", kMap, "versions of the algorithms"},
    {"attached_at", kText, "time when the side table was attached, in UTC"},
    {"bad", kList, "bad samples, with reasons"},
    {"bad_samples", kNumber, "bad samples that were excluded"},
    {"batches", kObject, "batches by length of the current window"},
    {"begin", kNumber, "first position"},
    {"being_fetched", kFlag, "a process is fetching the shard"},
    {"built_at", kText, "time of the build, in UTC"},
    {"built_with", kText, "program that built the index"},
    {"bypassed", kNumber, "shards that did not fit into the cache"},
    {"bytes", kNumber, "bytes of the fields, samples or shards that the object counts"},
    {"bytes_cut_off", kNumber, "bytes after damage, which could not be read"},
    {"bytes_in_use", kNumber, "maximum bytes of the shards that a node reads at the same time"},
    {"bytes_to_read", kNumber, "bytes that a build would read"},
    {"cache", kObject, "counts of the shard cache"},
    {"cache_bytes", kNumber, "size of the cache of a node"},
    {"cache_bytes_for_once", kNumber, "cache size from which nothing is fetched twice"},
    {"cache_bytes_for_once_an_epoch", kNumber,
     "cache size from which nothing is fetched twice in an epoch"},
    {"checksum", kText, "sum of the hashes of all fields that were read", true},
    {"classes", kNumber, "number of classes"},
    {"column", kText, "name of a column"},
    {"columns", kList, "columns of metadata in the index, or in a side table"},
    {"compiler", kText, "compiler that built the program"},
    {"compressed_shards", kNumber, "number of compressed shards"},
    {"compute_threads", kNumber, "number of LibTorch's threads"},
    {"concatenated", kList, "shards made of several archives"},
    {"content_bytes", kNumber, "bytes of all members"},
    {"correct", kNumber, "samples that were classified correctly"},
    {"counts_of_node", kNumber, "the node whose counts are shown, which was simulated"},
    {"damaged", kList, "shards that differ from what was fetched"},
    {"decode", kText, "value of --decode"},
    {"delivered", kNumber, "delivered samples of the epoch or of the window", true},
    {"directory", kText, "folder of the shards"},
    {"data_sets", kList, "samples that the run has read of each data set of a mixture"},
    {"dropped", kList, "missing shards that were left out"},
    {"dry_run", kFlag, "nothing was changed"},
    {"end", kNumber, "end of the range of positions, exclusive"},
    {"end_epoch", kNumber, "first epoch with the next order"},
    {"epoch", kNumber, "epoch, from 0"},
    {"epochs", kList, "counts by epoch"},
    {"evaluated", kNumber, "samples that were evaluated"},
    {"evicted", kNumber, "shards that were evicted from the cache"},
    {"evicted_bytes", kNumber, "bytes of these shards"},
    {"example", kText, "first image with this damage: its shard and key"},
    {"expected_by", kList, "processes that need the shard later"},
    {"fetched", kNumber, "number of fetched shards"},
    {"fetched_bytes", kNumber, "bytes of fetched shards"},
    {"fetcher", kNumber, "process that fetches the shard", true},
    {"fields", kList, "fields of the sample, or of all samples"},
    {"files", kList, "files that were written"},
    {"fingerprint", kText, "fingerprint of the data set"},
    {"first_rank", kNumber, "first rank of the node"},
    {"foreign", kList, "files in the directory of the cache that are not cached shards"},
    {"forgiven", kList, "kinds of damage in images that were decoded nevertheless"},
    {"format", kText, "value of --format"},
    {"formats", kMap, "versions of the formats"},
    {"from_epoch", kNumber, "epoch from which the sample is left out"},
    {"from_position", kNumber, "position from which the sample is left out"},
    {"gone", kList, "shards of the earlier index that are not among the sources"},
    {"group", kText, "key of the batch's group"},
    {"has_record", kFlag, "the cache recorded a hash of the shard"},
    {"hash", kText, "hash of a cached shard", true},
    {"hashes", kFlag, "the index stores a hash of every shard and member"},
    {"history", kList, "earlier orders of the run"},
    {"hits", kNumber, "times that a needed shard was in the cache"},
    {"images", kNumber, "number of images"},
    {"images_per_second", kNumber, "images per second"},
    {"in_use", kFlag, "a process is using the shard"},
    {"index", kText, "path of the index"},
    {"json_path", kText, "path in the field's JSON; empty if the whole field is the value"},
    {"kind", kText, "kind of the damage or defect"},
    {"last_use", kText, "time of the last use, in UTC"},
    {"left_out", kList, "samples and positions that the order leaves out, as by --skip"},
    {"libraries", kMap, "versions of the libraries"},
    {"libtorch", kText, "version of LibTorch"},
    {"limit", kText, "what limits the run, and what to try"},
    {"loads", kNumber, "stretches of the order in which a node reads a shard"},
    {"loss", kNumber, "mean loss"},
    {"lru", kObject, "fetches if the least recently used shard is evicted"},
    {"members", kNumber, "number of members"},
    {"misses", kNumber, "times that a needed shard was not in the cache"},
    {"missing", kList, "shards that do not exist"},
    {"name", kText, "file name of a member, or of a shard in the cache"},
    {"names", kList, "names of the shards in the cache"},
    {"next_use", kObject, "fetches if the shard needed last is evicted"},
    {"node", kNumber, "node, from 0"},
    {"nodes", kList, "counts by node"},
    {"nodes_not_simulated", kNumber,
     "nodes that were not simulated, and show the counts of a "
     "similar node"},
    {"not_fitting", kNumber, "shards that did not fit into the cache's budget"},
    {"not_fitting_bytes", kNumber, "bytes of these shards"},
    {"note", kText, "a note for people"},
    {"num_epochs", kNumber, "number of epochs"},
    {"num_in_use", kNumber, "shards that stayed, because a process uses them"},
    {"num_nodes", kNumber, "number of nodes"},
    {"num_parts", kNumber, "number of merged parts"},
    {"num_removed", kNumber, "number of removed shards"},
    {"num_skipped", kNumber, "number of members that a build skipped"},
    {"ok", kFlag, "the shard is as it was indexed; null if it could not be read", true},
    {"on", kText, "column of the source that contained the keys"},
    {"on_bad", kText, "policies for bad members"},
    {"order", kObject, "the order's options"},
    {"order_known", kFlag, "the times at which the order needs each shard are known in advance"},
    {"origin", kText, "URL from which the index was fetched; empty if it was not fetched"},
    {"other_files", kNumber, "files that are not named like a shard, an image or a sample"},
    {"part", kText, "I/N if the index is a part; empty for a whole index"},
    {"parts", kList, "data sets of the mixture"},
    {"passes", kNumber, "whole passes over the data set so far"},
    {"peak_bytes", kNumber, "maximum bytes in the cache"},
    {"peak_memory_bytes", kNumber, "maximum memory of the process, with mapped shards"},
    {"place", kNumber, "place in the rank's batch, from 0"},
    {"position", kNumber, "position in the epoch, over all ranks, from 0"},
    {"present", kNumber, "shards that were in the cache"},
    {"present_bytes", kNumber, "bytes of these shards"},
    {"private_memory_bytes", kNumber, "private memory of the process at the end"},
    {"problem", kText, "how the shard differs, or why it could not be read"},
    {"proof", kText, "the proof of the epoch", true},
    {"proofs", kList, "the proofs of all epochs"},
    {"rank", kNumber, "rank, from 0; null for all ranks", true},
    {"ranks", kNumber, "number of ranks"},
    {"read", kList, "shards that would be read"},
    {"reason", kText, "why"},
    {"remainder", kNumber, "samples read of the data set's next pass"},
    {"removed", kFlag, "the shard was removed"},
    {"removed_bytes", kNumber, "bytes of removed shards"},
    {"replayed", kNumber, "times that one batch was delivered"},
    {"resumed", kList, "shards taken over from a build that did not finish"},
    {"rows", kNumber, "rows of a side table"},
    {"rows_without_sample", kNumber, "rows of a side table whose key no sample has"},
    {"rule", kText, "rule of batches by length or group"},
    {"sampler", kText, "value of --sampler"},
    {"samples", kNumber, "number of samples"},
    {"samples_per_second", kNumber, "samples per second"},
    {"samples_read", kNumber, "samples of the data set read so far, in all epochs"},
    {"samples_without_row", kNumber, "samples whose key no row of a side table has"},
    {"seconds", kNumber, "duration of the work"},
    {"shard_bytes", kNumber, "bytes of all shards"},
    {"shards", kNumber, "number of shards"},
    {"shards_cut_short", kNumber, "shards whose bytes after damage were left out"},
    {"shards_moved", kNumber, "shards with another path or time that were not read again"},
    {"shards_opened", kNumber, "times that a shard was opened"},
    {"shards_resumed", kNumber, "number of shards taken over from a run that did not finish"},
    {"shards_reused", kNumber, "unchanged shards, which were not read"},
    {"shards_scanned", kNumber, "shards that were read"},
    {"side_table", kText, "name of a side table"},
    {"side_tables", kList, "tables that were attached to the index"},
    {"size", kNumber, "bytes of the member, or of the shard's file"},
    {"skipped", kList, "members that a build skipped, which are in no sample"},
    {"source", kText, "file of a side table"},
    {"stages", kMap, "times and counts of the loader's stages"},
    {"step", kNumber, "step of the epoch, from 0"},
    {"stopped", kText, "why the run stopped early"},
    {"table", kText, "name of a table"},
    {"text", kText, "description"},
    {"threads", kNumber, "number of threads"},
    {"type", kText, "type of a column"},
    {"unchanged", kList, "shards that would not be read again"},
    {"unchecked_shards", kNumber, "compressed shards without a checksum"},
    {"unique_keys", kFlag, "the build refused keys that occur in two shards"},
    {"url", kText, "path or URL of the shard, without secrets"},
    {"url_base", kText, "common folder of the shards' URLs; empty if the URLs share no folder"},
    {"users", kList, "processes that use the shard"},
    {"version", kText, "version of the program"},
    {"versions", kMap, "versions of the algorithms that the order uses"},
    {"wait_seconds", kNumber, "time waited for data, or for another process"},
    {"waits", kNumber, "times that a process waited for the fetch of another process"},
    {"weight", kNumber, "weight of a data set in the mixture", true},
    {"with_trailing_bytes", kList, "shards with bytes after the end-of-archive marker"},
    {"without_checksum", kList, "compressed shards without a checksum"},
    {"without_end_marker", kList, "shards without an end-of-archive marker"},
    {"without_value", kMap, "number of samples without a value, by column"},
    {"world_size", kNumber, "number of ranks of the run"},
    {"wrong", kNumber, "fetched shards that were refused, because they were damaged"},
};

template <class Value>
constexpr JsonType type_of() {
  if constexpr (std::is_same_v<Value, bool>) {
    return kFlag;
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return kNumber;
  } else if constexpr (requires(Value value) { value.emplace_back(); } &&
                       !std::is_same_v<Value, std::string>) {
    return kList;
  } else {
    return kText;
  }
}

/// Adds the fields of a part of an order, as `shardwise token` prints them.
template <class Owner>
void add_fields(std::vector<JsonName>& names) {
  detail::visit_fields<Owner>([&]<class Value>(const detail::Field<Owner, Value>& field) {
    if constexpr (!std::is_same_v<Value, SkipList>) {
      const std::string text(field.text.words);
      names.push_back({std::string(field.key()), type_of<Value>(), text.substr(0, text.find(';'))});
    }
  });
}

std::vector<JsonName> all_names() {
  std::vector<JsonName> names;
  for (const OwnName& own : kOwnNames) {
    names.push_back({std::string(own.name), own.type, std::string(own.text), own.may_be_null});
  }
  for (const SchemaColumn& column : query_schema()) {
    const bool is_number = column.type == "integer";
    names.push_back({column.name, is_number ? kNumber : kText, column.text});
  }
  detail::visit_kinds([&]<class Kind>() { add_fields<Kind>(names); });
  add_fields<Mixture::Part>(names);
  add_fields<Mixture::Change>(names);
  add_fields<Order>(names);
  // A name that occurs several times is listed once, with its first explanation.
  std::ranges::stable_sort(names, {}, &JsonName::name);
  const auto is_same = [](const JsonName& a, const JsonName& b) {
    return a.name == b.name && a.type == b.type;
  };
  names.erase(std::unique(names.begin(), names.end(), is_same), names.end());
  return names;
}

constexpr std::array<OldJsonName, 21> kOld = {{
    {"cache clear", "num_in_use", "in_use"},
    {"cache clear", "num_removed", "removed"},
    {"cache fill", "not_fitting", "left_out"},
    {"cache fill", "not_fitting_bytes", "left_out_bytes"},
    {"cache prune", "num_in_use", "in_use"},
    {"cache prune", "num_removed", "removed"},
    {"epoch", "example", "first_sample"},
    {"index", "num_skipped", "skipped"},
    {"index", "other_files", "left_out"},
    {"info", "column", "name"},
    {"info", "field", "name"},
    {"info", "field_hex", "name_hex"},
    {"merge", "num_parts", "parts"},
    {"pack", "other_files", "left_out"},
    {"plan", "bypassed", "bypasses"},
    {"plan", "evicted", "evictions"},
    {"plan", "fetched_bytes", "bytes_fetched"},
    {"plan", "world_size", "world"},
    {"shardwise-train", "limit", "loading"},
    {"shardwise-train", "num_epochs", "epochs"},
    {"token", "world_size", "world"},
}};

void add_old_names(std::string_view command, nlohmann::ordered_json& json) {
  if (json.is_structured()) {
    for (nlohmann::ordered_json& part : json) add_old_names(command, part);
  }
  if (!json.is_object()) return;
  for (const OldJsonName& old : kOld) {
    const auto now = json.find(std::string(old.now));
    if (old.command != command || now == json.end()) continue;
    if (json.contains(std::string(old.before))) continue;
    const nlohmann::ordered_json value = *now;
    json[std::string(old.before)] = value;
  }
}

}  // namespace

std::string_view name_of(JsonType type) {
  switch (type) {
    case kNumber:
      return "number";
    case kText:
      return "text";
    case kFlag:
      return "true or false";
    case kList:
      return "list";
    case kObject:
    case kMap:
      break;
  }
  return "object";
}

const std::vector<JsonName>& json_names() {
  static const std::vector<JsonName> names = all_names();
  return names;
}

std::span<const OldJsonName> old_json_names() { return kOld; }

nlohmann::ordered_json with_old_names(std::string_view command, nlohmann::ordered_json json) {
  add_old_names(command, json);
  return json;
}

void print_json(Output& out, std::string_view command, nlohmann::ordered_json json) {
  out.print("{}\n", json_text(with_old_names(command, std::move(json))));
}

}  // namespace shardwise::tools
