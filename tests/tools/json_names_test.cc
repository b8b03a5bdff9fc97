// The JSON of all commands: a name has one type and one meaning.

#include "json_names.h"

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "loaded_epoch.h"
#include "order/fields.h"
#include "program.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/sampler.h"
#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using nlohmann::json;
using tools::JsonName;
using tools::JsonType;
using tools::OldJsonName;
using Words = std::vector<std::string>;

bool has_type(const json& value, JsonType type) {
  switch (type) {
    case JsonType::kNumber:
      return value.is_number();
    case JsonType::kText:
      return value.is_string();
    case JsonType::kFlag:
      return value.is_boolean();
    case JsonType::kList:
      return value.is_array();
    case JsonType::kObject:
    case JsonType::kMap:
      break;
  }
  return value.is_object();
}

/// Outputs of commands, which are checked as they come.
class Outputs {
 public:
  /// Runs a command with --json. Its exit code does not matter.
  void run(const std::string& command, Words words) {
    words.insert(words.begin(), "--json");
    std::istringstream in(command);
    std::size_t at = 0;
    for (std::string word; in >> word;) words.insert(words.begin() + static_cast<long>(at++), word);
    const Finished finished = shardwise(words);
    const std::vector<json> objects = json_lines(finished.out);
    EXPECT_FALSE(objects.empty()) << command << ": " << finished.err;
    commands.insert(command);
    for (const json& object : objects) expect_known(command, object);
  }

  std::set<std::string> commands;
  std::set<std::string> names;

 private:
  void expect_known(const std::string& command, const json& value) {
    if (value.is_array()) {
      for (const json& item : value) expect_known(command, item);
    }
    if (!value.is_object()) return;
    const std::set<std::string> old = old_names_of(command, value);
    for (const auto& [name, member] : value.items()) {
      if (old.contains(name)) continue;
      const bool is_hex = name.ends_with("_hex") && !known_.contains(name);
      const auto known = known_.find(is_hex ? name.substr(0, name.size() - 4) : name);
      if (known == known_.end()) {
        ADD_FAILURE() << command << " prints " << name << ", which json_names() lacks: " << value;
        continue;
      }
      const JsonName& entry = *known->second;
      names.insert(entry.name);
      const bool may_be_null = entry.may_be_null || command == "query";
      EXPECT_TRUE((member.is_null() && may_be_null) || has_type(member, entry.type))
          << command << ": " << name << " is " << member;
      if (entry.type != JsonType::kMap) expect_known(command, member);
    }
  }

  /// Expects each old name beside its new one, with its value, and returns them.
  static std::set<std::string> old_names_of(const std::string& command, const json& object) {
    std::map<std::string, std::vector<json>> values;
    for (const OldJsonName& old : tools::old_json_names()) {
      if (old.command != command || !object.contains(std::string(old.now))) continue;
      values[std::string(old.before)].push_back(object[std::string(old.now)]);
    }
    std::set<std::string> names;
    for (const auto& [name, candidates] : values) {
      EXPECT_THAT(candidates, testing::Contains(object.value(name, json()))) << name << object;
      names.insert(name);
    }
    return names;
  }

  std::map<std::string, const JsonName*> known_ = [] {
    std::map<std::string, const JsonName*> known;
    for (const JsonName& name : tools::json_names()) known.emplace(name.name, &name);
    return known;
  }();
};

/// Adds the full names of the commands that take --json.
void add_json_commands(const CLI::App& app, const std::string& name, std::set<std::string>& names) {
  if (app.get_option_no_throw("--json") != nullptr) names.insert(name);
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name().empty()) continue;
    add_json_commands(*command, name + (name.empty() ? "" : " ") + command->get_name(), names);
  }
}

TEST(JsonNamesTest, EachIsListedOnceAndExplained) {
  std::set<std::string> names;
  for (const JsonName& name : tools::json_names()) {
    EXPECT_TRUE(names.insert(name.name).second) << name.name << " has two types";
    EXPECT_FALSE(name.text.empty()) << name.name;
  }
  for (const OldJsonName& old : tools::old_json_names()) {
    EXPECT_TRUE(names.contains(std::string(old.now)) || old.now.ends_with("_hex")) << old.now;
    EXPECT_NE(old.now, old.before);
  }
}

/// Tokens with each kind of order, and with each part that a token may have.
Words tokens_of(const std::string& path) {
  const Dataset data = Dataset::open(path);
  const MixedDataset two({data, data});
  Words texts;
  const auto add = [&](const auto& samples, const Order& order) -> ResumeToken {
    return make_sampler(samples, order, {.world_size = 2, .batch_size = 1})->token_after(1);
  };
  shardwise::detail::visit_kinds([&]<class Kind>() {
    if constexpr (!std::is_same_v<Kind, Mixture>) {
      texts.push_back(add(data, {.kind = Kind{}}).to_text());
    }
  });
  texts.push_back(add(two, {.kind = two.mixture(std::array{1.0, 2.0})}).to_text());
  const std::vector<Mixture::Change> schedule{{300, {2.0, 1.0}}};
  texts.push_back(
      add(two, {.kind = two.mixture(std::array{1.0, 2.0}, Chunked{}, schedule)}).to_text());
  ResumeToken token = add(data, {.seed = 5});
  token.skip.add_sample(3, "a reason", {});
  token.skip.add_positions(1, 2, 4);
  token.batches = ResumeToken::Batches{.rule = "a rule", .delivered = 1};
  token.audit.emplace();
  token.history.push_back({.end_epoch = 0, .fingerprint = token.fingerprint, .spec = token.spec});
  texts.push_back(token.to_text());
  return texts;
}

TEST(JsonNamesTest, EachHasOneTypeInAllCommands) {
  const TempDir dir;
  const std::string whole = dir / "x.idx", odd = dir / "odd.idx", packed = dir / "z.idx";
  for (const char* folder : {"in", "files"}) std::filesystem::create_directory(dir / folder);
  write_file(dir / "in/a.tar", small_shard(0, 3));
  write_file(dir / "in/b.tar", small_shard(3, 4));
  write_file(dir / "in/notes.txt", "no shard");
  write_file(dir / "files/1.txt", "a text");
  write_file(
      dir / "odd.tar",
      TarBuilder().file("1.txt", "x").file("README", "x").file("\xff.\xfe", "x").end().bytes());
  write_file(dir / "z.tar.gz", compress(small_shard(0, 3), Compression::kGzip));

  Outputs all;
  all.run("index", {"-o", whole, "--column", "cls", dir / "in"});
  all.run("index", {"-o", odd, "--on-bad", "skip", dir / "odd.tar"});
  all.run("index", {"-o", packed, dir / "z.tar.gz"});
  all.run("index", {"-o", whole, "--dry-run", dir / "in"});
  Words parts;
  for (const char* part : {"1", "2"}) {
    parts.push_back(dir / (std::string(part) + ".idx"));
    all.run("index", {"-o", parts.back(), "--part", std::string(part) + "/2", dir / "in"});
  }
  all.run("merge", {"-o", dir / "merged.idx", parts[0], parts[1]});
  for (const std::string& index : {whole, odd, packed, parts[0]}) {
    all.run("info", {index});
    all.run("ls", {index});
    all.run("verify", {index});
    if (index == whole) continue;  // it has a column of its own
    for (const char* table : {"samples", "members", "shards", "fields"}) {
      all.run("query", {index, std::string("SELECT * FROM ") + table});
    }
  }
  for (const std::string& index : {whole, odd}) all.run("cat", {index, "0"});
  all.run("ls", {"--left-out", odd});
  all.run("query", {odd, "SELECT * FROM skipped"});
  all.run("query", {whole, ".schema"});
  all.run("export", {whole, "--format", "dali", "-o", dir / "dali"});
  all.run("pack", {"--files", dir / "files", "-o", dir / "packed"});
  all.run("repack", {whole, "-o", dir / "repacked"});
  all.run("order", {whole, "--limit", "2"});
  all.run("explain", {whole, "--step", "0", "--batch", "2"});
  all.run("when", {whole, "--sample", "1", "--batch", "2"});
  all.run("plan", {whole, "--nodes", "1", "--cache-bytes", "1M"});
  for (const std::string& token : tokens_of(whole)) all.run("token", {token});
  all.run("epoch", {whole});
  if (tools::has_loader()) {
    all.run("explain", {whole, "--step", "0", "--batch", "2", "--group-by", "sample % 2"});
    all.run("epoch", {dir / "packed", "--decode", "auto", "--max-bad", "9"});
    all.run("epoch", {dir / "packed", "--decode", "auto", "--replay", "2"});
  }
  const std::string cache = dir / "cache";
  all.run("cache fill", {packed, "--cache", cache});
  all.run("epoch", {packed, "--cache", cache});
  all.run("cache ls", {cache});
  for (const auto& shard : std::filesystem::directory_iterator(cache + "/shards")) {
    if (shard.path().extension() == ".tar") write_file(shard.path(), "damaged");
  }
  all.run("cache verify", {"--remove", cache});
  all.run("cache prune", {cache, "--to", "1K", "--dry-run"});
  all.run("cache clear", {cache});
  write_file(dir / "t.csv", "key,score\n1,5\n");
  all.run("attach", {odd, dir / "t.csv", "--on", "key"});
  all.run("attach", {odd});
  all.run("info", {odd});
  all.run("version", {});
  std::filesystem::remove(dir / "in/a.tar");
  all.run("verify", {whole});

  tools::Output out;
  std::set<std::string> commands;
  add_json_commands(*tools::make_program(out), "", commands);
  EXPECT_EQ(all.commands, commands);
  if (!tools::has_loader()) return;
  // Names that only shardwise-train prints, or that occur only for an image with forgiven damage.
  const std::set<std::string> others = {
      "accuracy", "bad_samples", "compute_threads", "correct", "evaluated",
      "example",  "loss",        "num_epochs",      "proofs",  "stopped"};
  for (const JsonName& name : tools::json_names()) {
    EXPECT_NE(all.names.contains(name.name), others.contains(name.name)) << name.name;
  }
}

}  // namespace
}  // namespace shardwise::test
