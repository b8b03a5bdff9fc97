// Tests `shardwise token`, and the options --token, --checkpoint and --skip of commands with an
// order.

#include <nlohmann/json.hpp>
#include <sstream>

#include "order/checkpoint_format.h"
#include "order/fields.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/explain.h"
#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using shardwise::detail::checkpoint_front;
using testing::AllOf;
using testing::HasSubstr;

const Order kOrder = {.seed = 5, .kind = Chunked{.chunk_size = 2, .window = 2}};

/// Returns a token of two ranks after a step of 2 samples on each. It leaves out sample 3 from
/// there on.
ResumeToken token_of(const std::string& index) {
  const auto data = Dataset::open(index);
  const auto sampler = make_sampler(data, kOrder, {.world_size = 2, .batch_size = 2});
  ResumeToken token = sampler->token_after(1);
  EpochAudit::Sum sum;
  for (const Sampler::RankStep& rank : explain_step(*sampler, 0)) {
    sum += EpochAudit::Sum::of(rank.samples, data.fingerprint());
  }
  token.audit = sum;
  return token;
}

/// Writes a checkpoint with this token and a value. Returns its path.
std::string checkpoint_of(const ResumeToken& token) {
  const std::string value("\0\n\n", 3);
  return checkpoint_front(
             {.token = token,
              .writer = "a test",
              .parts = {{.name = "x", .type = "uint8", .shape = {3}, .bytes = value}}}) +
         value;
}

std::vector<std::string> explained(const std::vector<Sampler::RankStep>& ranks) {
  std::vector<std::string> lines;
  for (const Sampler::RankStep& rank : ranks) {
    for (const std::uint64_t sample : rank.samples) {
      lines.push_back(std::to_string(rank.rank) + "\t" + std::to_string(sample));
    }
  }
  return lines;
}

TEST(TokenCommandTest, SaysWhatATokenSays) {
  const SmallIndex index;
  const ResumeToken token = token_of(index.path());
  const auto json = nlohmann::json::parse(shardwise_output({"token", token.to_text(), "--json"}));
  EXPECT_EQ(json["epoch"], 0);
  EXPECT_EQ(json["position"], 4);
  EXPECT_EQ(json["delivered"], 4);
  EXPECT_EQ(json["order"]["sampler"], "chunked");
  EXPECT_EQ(json["order"]["chunk_size"], 2);
  EXPECT_EQ(json["order"]["versions"]["permutation"], 1);
  EXPECT_THAT(shardwise_output({"token", token.to_text()}),
              AllOf(HasSubstr("epoch          0\nposition       4 over all"),
                    HasSubstr("window         2")));
}

TEST(TokenCommandTest, SmallFilesOfWindowsAreReadAlike) {
  const SmallIndex index;
  const std::string mark = "\xEF\xBB\xBF";
  write_file(index.dir() / "token.txt", mark + token_of(index.path()).to_text() + "\r\n");
  EXPECT_THAT(shardwise_output({"token", index.dir() / "token.txt"}),
              HasSubstr("position       4 over"));
  write_file(index.dir() / "skip.txt", mark + "3\r\n# none\r\n4 # bad\r\n");
  const std::vector<std::string> order = {"order", index.path(), "--no-shuffle", "--skip",
                                          index.dir() / "skip.txt"};
  EXPECT_EQ(lines_of(shardwise_output(order)).size(), 5U);
  write_file(index.dir() / "skip.txt", std::string("3\n\0\n", 4));
  expect_failure(shardwise(order), {"the skip file has a NUL byte: ", "skip.txt', line 2"});
  write_file(index.dir() / "skip.txt", std::string("3\0\n\0", 4));
  expect_failure(shardwise(order), {"the skip file is UTF-16 or UTF-32, not UTF-8"});
  const std::vector<std::string> with_headers = {"epoch", index.path(), "--quiet", "--http-header",
                                                 "@" + index.dir() / "headers.txt"};
  write_file(index.dir() / "headers.txt", mark + "X-Who: we\r\n\r\nX-Why: so\r\n");
  EXPECT_EQ(shardwise(with_headers).code, 0);
  write_file(index.dir() / "headers.txt", std::string("X-Who: we\0\n", 11));
  const Finished bad = shardwise(with_headers);
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("the file of headers has a NUL byte"));
}

TEST(TokenCommandTest, ReadsFilesWithATokenOrACheckpoint) {
  const SmallIndex index;
  const ResumeToken token = token_of(index.path());
  write_file(index.dir() / "token.txt", token.to_text() + "\n");
  write_file(index.dir() / "run.pt", checkpoint_of(token));
  const std::string text = shardwise_output({"token", token.to_text()});
  EXPECT_EQ(shardwise_output({"token", index.dir() / "token.txt"}), text);
  EXPECT_EQ(shardwise_output({"token", index.dir() / "run.pt"}), text);
  expect_failure(shardwise({"token", "nothing"}),
                 {"neither a file nor a resume token", "'nothing'", "sw2."});
  EXPECT_THAT(shardwise({"token", "sw1.AAAA"}).err, HasSubstr("sw2."));
  write_file(index.dir() / "torch.pt", std::string("PK\x03\x04\0\0", 6));
  expect_failure(shardwise({"token", index.dir() / "torch.pt"}),
                 {"a file of torch.save() is neither a resume token nor a checkpoint", "torch.pt'",
                  "state_dict()"});
  write_file(index.dir() / "binary", std::string("\1\0\n", 3));
  expect_failure(shardwise({"token", index.dir() / "binary"}),
                 {"the binary file is neither a resume token nor a checkpoint", "binary'", "sw2."});
  write_file(index.dir() / "notes.txt", "epoch 3");
  expect_failure(shardwise({"token", index.dir() / "notes.txt"}),
                 {"the file has no resume token", "notes.txt'", "sw2."});
}

TEST(TokenCommandTest, ReadsTheStateOfAPythonProgramInJson) {
  const SmallIndex index;
  const std::string token = token_of(index.path()).to_text();
  const std::string path = index.dir() / "state.json";
  const std::string shown = shardwise_output({"token", token});
  for (const std::string& state :
       {R"({"token": ")" + token + R"(", "batches": 2})",
        "\n{\"step\": 7, \"loader\": {\"batches\": 2, \"token\": \"" + token + "\"}}\n",
        "[{\"token\": \"" + token + "\"}, {\"token\": \"" + token + "\"}]", "\"" + token + "\"",
        R"({"login": {"token": "hf_a"}, "loader": {"token": ")" + token + "\"}}"}) {
    write_file(path, state);
    EXPECT_EQ(shardwise_output({"token", path}), shown) << state;
  }
  write_file(path, R"({"token": "sw2.a", "other": {"token": "sw2.b"}})");
  expect_failure(shardwise({"token", path}), {"several resume tokens", "state.json'", "one state"});
  write_file(path, R"({"tokens": "a", "token": 1})");
  expect_failure(shardwise({"token", path}), {"has no resume token", "state.json'"});
  write_file(path, R"({"token": "a)");
  expect_failure(shardwise({"token", path}), {"not valid JSON", "state.json'", "offset"});
}

TEST(TokenCommandTest, SaysWhereATokenStandsAmongBatchesByLength) {
  const SmallIndex index;
  ResumeToken token = token_of(index.path());
  token.batches = {.rule = "field txt, unit 1, window 32, batch_size 6, max_tokens 0",
                   .delivered = 4};
  const std::string text = token.to_text();
  EXPECT_THAT(shardwise_output({"token", text}),
              AllOf(HasSubstr("batches        4 delivered of the current window"),
                    HasSubstr("rule: field txt, unit 1, window 32, batch_size 6, max_tokens 0\n")));
  EXPECT_THAT(shardwise_output({"token", "--json", text}),
              HasSubstr("\"batches\":{\"rule\":\"field txt, unit 1, window 32, batch_size 6, "
                        "max_tokens 0\",\"delivered\":4}"));
  EXPECT_THAT(shardwise({"epoch", index.path(), "--token", text}).err, HasSubstr("same by_length"));
}

TEST(RunOptionsTest, ExplainNamesTheGroupsOfBatches) {
  const SmallIndex index;
  const std::vector<std::string> explain = {"explain", index.path(), "--step",    "0",
                                            "--world", "2",          "--batch",   "2",
                                            "--json",  "--group-by", "sample % 2"};
  std::istringstream lines(shardwise_output(explain));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["group"], std::to_string(json["sample"].get<int>() % 2)) << line;
  }
  EXPECT_GT(count, 1U);
  // A token within a window can be used only with the same groups.
  ResumeToken token = token_of(index.path());
  token.position = 0;
  token.batches = {.rule = "groups (hash 1), batch_sizes 2 2, held over, window 8192",
                   .delivered = 1};
  std::vector<std::string> resumed = explain;
  resumed.insert(resumed.end(), {"--token", token.to_text()});
  EXPECT_THAT(shardwise(resumed).err,
              AllOf(HasSubstr("cannot change"), HasSubstr("'groups (hash 1), "),
                    HasSubstr("batch_sizes 2 2, held over, window 8192' in this")));
  std::vector<std::string> grouped = explain;
  grouped.insert(grouped.end(), {"--group", "0=1", "--group", "one"});
  EXPECT_THAT(shardwise(grouped).err, HasSubstr("write KEY=BATCH"));
}

TEST(RunOptionsTest, ATokenIsAnsweredForByEveryCommandThatAsksAboutARun) {
  const SmallIndex index;
  const ResumeToken token = token_of(index.path());
  write_file(index.dir() / "run.pt", checkpoint_of(token));
  const auto data = Dataset::open(index.path());
  const auto resumed = make_sampler(data, kOrder, {.world_size = 3, .batch_size = 1});
  resumed->resume(token);
  std::vector<std::string> expected = explained(explain_step(*resumed, 0));
  const auto with = [&](std::vector<std::string> command, std::vector<std::string> more) {
    command.insert(command.end(), {index.path(), "--world", "3"});
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  for (const auto& [option, value] :
       {std::pair<std::string, std::string>{"--token", token.to_text()},
        {"--checkpoint", index.dir() / "run.pt"}}) {
    auto lines = lines_of(
        shardwise_output(with({"explain"}, {"--step", "0", "--batch", "1", option, value})));
    ASSERT_EQ(lines.size(), expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_THAT(lines[i], testing::StartsWith(expected[i] + "\t"));
    }
    EXPECT_EQ(lines_of(shardwise_output(with({"order"}, {option, value}))).front(),
              std::to_string(resumed->at(0)));
    EXPECT_EQ(shardwise_output(with({"when"}, {"--batch", "1", "--sample",
                                               std::to_string(resumed->at(0)), option, value})),
              "rank 0, step 0, place 0\n");
    EXPECT_THAT(shardwise_output(with({"epoch"}, {"--quiet", option, value})),
                HasSubstr("epoch 0: 7 samples, each exactly once: proven"));
    EXPECT_EQ(
        shardwise(with({"plan"}, {"--nodes", "1", "--cache-bytes", "1M", option, value})).code, 0);
  }
}

TEST(RunOptionsTest, WhatATokenSaysIsNotSaidAgain) {
  const SmallIndex index;
  const std::string token = token_of(index.path()).to_text();
  const Finished twice = shardwise({"order", index.path(), "--token", token, "--seed", "5"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, AllOf(HasSubstr("--seed"), HasSubstr("--token")));
  EXPECT_EQ(shardwise({"order", index.path(), "--token", token, "--checkpoint", "x"}).code, 2);
  // A later epoch of the same run is allowed, but not an earlier one.
  EXPECT_EQ(
      lines_of(shardwise_output({"order", index.path(), "--token", token, "--epoch", "1"})).size(),
      7u);
  ResumeToken later = token_of(index.path());
  later.epoch = 2;
  EXPECT_EQ(shardwise({"order", index.path(), "--token", later.to_text(), "--epoch", "1"}).code, 2);
}

TEST(RunOptionsTest, ATokenOfAnotherDataSetIsRefusedAndOneAloneIsEnough) {
  const SmallIndex index;
  ResumeToken token = token_of(index.path());
  EXPECT_EQ(lines_of(shardwise_output({"order", "--token", token.to_text()})).size(), 3u);
  token.fingerprint.low ^= 1;
  const Finished other = shardwise({"order", index.path(), "--token", token.to_text()});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("cannot resume this run"));
}

TEST(RunOptionsTest, SkipFilesAndConditionsLeaveSamplesOut) {
  const SmallIndex index;
  write_file(index.dir() / "skip.txt",
             "# a list\n\n3 # looked odd\nkey 5\nsample 0\npositions 7 0 3\n");
  const std::vector<std::string> rest = {"1", "2", "4", "6"};
  EXPECT_EQ(lines_of(shardwise_output(
                {"order", index.path(), "--no-shuffle", "--skip", index.dir() / "skip.txt"})),
            rest);
  const Finished from_pipe =
      run({"/bin/sh", "-c", "cat \"$2\" | \"$0\" order \"$1\" --no-shuffle --skip /dev/stdin",
           SHARDWISE_PROGRAM, index.path(), index.dir() / "skip.txt"});
  EXPECT_EQ(lines_of(from_pipe.out), rest) << from_pipe.err;
  EXPECT_THAT(
      shardwise_output({"epoch", index.path(), "--quiet", "--skip", index.dir() / "skip.txt"}),
      HasSubstr("epoch 0: 4 samples, each exactly once, 3 excluded on purpose: proven"));
  const Finished when = shardwise(
      {"when", index.path(), "--batch", "1", "--sample", "3", "--skip", index.dir() / "skip.txt"});
  EXPECT_EQ(when.code, 1);
  write_file(index.dir() / "bad.txt", "3\nsample x\n");
  const Finished bad = shardwise({"order", index.path(), "--skip", index.dir() / "bad.txt"});
  EXPECT_NE(bad.code, 0);
  EXPECT_THAT(bad.err, AllOf(HasSubstr("bad.txt"), HasSubstr("line 2"), HasSubstr("sample x")));
  EXPECT_EQ(lines_of(shardwise_output({"order", index.path(), "--where", "sample >= 3"})).size(),
            4u);
  const Finished no_index = shardwise({"order", "--size", "9", "--where", "sample > 3"});
  EXPECT_EQ(no_index.code, 2);
}

TEST(RunOptionsTest, KeysInJsonAreTheBytesThatTheyAre) {
  const TempDir dir;
  write_file(dir / "k.tar", test::TarBuilder()
                                .file("a\\b.txt", "")
                                .file("a\\\\b.txt", "")
                                .file("a\xff.txt", "")
                                .end()
                                .bytes());
  shardwise_output({"index", "--quiet", "-o", dir / "k.idx", dir / "k.tar"});
  const auto lines = lines_of(shardwise_output(
      {"explain", dir / "k.idx", "--no-shuffle", "--step", "0", "--batch", "3", "--json"}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(nlohmann::json::parse(lines[0])["key"], "a\\b");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["key"], "a\\\\b");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["key_hex"], "61ff");
  const auto shown = lines_of(
      shardwise_output({"explain", dir / "k.idx", "--no-shuffle", "--step", "0", "--batch", "3"}));
  EXPECT_THAT(shown.at(2), HasSubstr("a\\xff"));
}

TEST(TokenCommandTest, ACutCheckpointIsNoCheckpoint) {
  const SmallIndex index;
  const std::string bytes = checkpoint_of(token_of(index.path()));
  write_file(index.dir() / "cut.pt", bytes.substr(0, bytes.size() - 1));
  const Finished finished = shardwise({"token", index.dir() / "cut.pt"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("cut.pt"), HasSubstr(" instead of ")));
}

TEST(RunOptionsTest, AMixturesTokenWantsItsIndexesAndWeights) {
  const SmallIndex first;
  const SmallIndex second;
  const MixedDataset data({Dataset::open(first.path()), Dataset::open(second.path())});
  const std::array weights{0.75, 0.25};
  const std::string token =
      make_sampler(data, {.kind = data.mixture(weights)})->token_after(2).to_text();
  const auto mixed = [&](const std::string& a, const std::string& b) {
    return shardwise({"order", "--token", token, "--mix",
                      first.path() + "=" + a + "," + second.path() + "=" + b});
  };
  EXPECT_EQ(mixed("0.75", "0.25").code, 0) << mixed("0.75", "0.25").err;
  EXPECT_EQ(mixed("0.5", "0.5").code, 2);
  const std::string later =
      make_sampler(data, {.kind = data.mixture(weights, Chunked{}, {{256, {0.5, 0.5}}})})
          ->token_after(2)
          .to_text();
  for (const auto& [given, code] : {std::pair{"0.5", 0}, std::pair{"0.6", 2}}) {
    EXPECT_EQ(shardwise({"order", "--token", later, "--mix",
                         first.path() + "=" + given + "," + second.path() + "=0.5"})
                  .code,
              code);
  }
  const Finished alone = shardwise({"order", first.path(), "--token", token});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--mix"));
}

/// Sets a value other than the default.
void give_another(std::uint64_t& value) { value += 7; }
void give_another(bool& value) { value = !value; }
void give_another(std::string& value) { value = "w"; }
template <shardwise::detail::Choice Enum>
void give_another(Enum& value) {
  value = static_cast<Enum>(1);
}

// Covers every option in the lists of fields, also ones added later.
TEST(OrderFieldsTest, EachIsInTokensComparisonsJsonAndHelp) {
  const std::string help = shardwise({"order", "--help"}).out;
  const auto order_json = [](const ResumeToken& token) {
    return nlohmann::json::parse(shardwise({"token", token.to_text(), "--json"}).out)["order"];
  };
  std::size_t num_fields = 0;
  const auto expect_field = [&](const auto& field, const Order& order, const Order& changed) {
    ++num_fields;
    ResumeToken there, here;
    there.spec.order = order;
    here.spec.order = changed;
    const std::string key(field.key());
    EXPECT_EQ(ResumeToken::from_text(here.to_text()), here) << key;
    EXPECT_THAT(difference(there.spec, here.spec), testing::StartsWith(key + " "));
    EXPECT_TRUE(order_json(here).contains(key)) << key;
    EXPECT_NE(order_json(here)[key], order_json(there)[key]) << key;
    EXPECT_THAT(help, HasSubstr("  " + std::string(field.text.option) + " ")) << key;
    EXPECT_FALSE(field.text.words.empty()) << key;
  };
  shardwise::detail::visit_fields<Order>(
      [&]<class Value>(const shardwise::detail::Field<Order, Value>& field) {
        if constexpr (requires(Value value) { give_another(value); }) {
          Order changed;
          give_another(changed.*field.member);
          expect_field(field, {}, changed);
        }
      });
  shardwise::detail::visit_kinds([&]<class Kind>() {
    shardwise::detail::visit_fields<Kind>(
        [&]<class Value>(const shardwise::detail::Field<Kind, Value>& field) {
          if constexpr (requires(Value value) { give_another(value); }) {
            Kind kind;
            give_another(kind.*field.member);
            expect_field(field, {.kind = Kind{}}, {.kind = kind});
          }
        });
  });
  EXPECT_GE(num_fields, 14U);
}

}  // namespace
}  // namespace shardwise::test
