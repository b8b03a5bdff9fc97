// Compares the program with Python code that was written only from the pages of docs/formats.
// It compares orders, tokens and proofs, for indexes built here and for all shards of the corpus,
// and the examples on the pages. tests/order/specification_test.cc does the same for the library.

#include <array>
#include <random>

#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/sampler.h"
#include "shardwise_program.h"
#include "support/python.h"

namespace shardwise::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

/// A block of a page with a command and its output.
struct Example {
  std::string command;
  std::string output;
};
std::vector<Example> examples_of(const std::string& page) {
  std::vector<Example> examples;
  bool inside = false;
  for (const std::string& line : lines_of(read_file(source_dir() + "/docs/formats/" + page))) {
    if (line.starts_with("```")) {
      inside = line == "```console";
    } else if (inside && line.starts_with("$ ")) {
      examples.push_back({line.substr(2), ""});
    } else if (inside) {
      examples.back().output += line + "\n";
    }
  }
  return examples;
}

/// Runs a command of a page.
/// @param shardwise  replaces the word `shardwise`.
Finished run_example(const std::string& shardwise, const std::string& command) {
  return run({"/bin/sh", "-c", "shardwise() { " + shardwise + "; }; " + command});
}

TEST(SpecificationTest, ExamplesOfThePagesAreWhatTheProgramPrints) {
  const std::string program = std::string("'") + SHARDWISE_PROGRAM + "' \"$@\"";
  const std::string python =
      "shift; python3 -B '" + source_dir() + "/tests/order/answer.py' \"$@\"";
  std::size_t count = 0;
  for (const char* page : {"order.md", "wids-order.md", "resume-token.md"}) {
    for (const Example& example : examples_of(page)) {
      SCOPED_TRACE(example.command);
      EXPECT_EQ(run_example(program, example.command).out, example.output);
      if (example.command.starts_with("shardwise order ") && has_python()) {
        EXPECT_EQ(run_example(python, example.command).out, example.output);
      }
      ++count;
    }
  }
  EXPECT_EQ(count, 9U);
}

/// Builds random indexes, and draws random arguments of `shardwise order`.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  /// Builds an index of shards with random numbers of samples. Samples have fields of random sizes
  /// and the column cls.
  std::string build(const TempDir& dir, const std::string& name) {
    Words words{"index", "--quiet", "--column", "cls", "-o", dir / (name + ".idx")};
    int key = 0;
    for (std::uint64_t shard = 0; shard <= 1 + below(5); ++shard) {
      TarBuilder tar;
      for (std::uint64_t left = below(4) * below(20) + (shard == 0 ? 1 : 0); left > 0; --left) {
        tar.file(std::to_string(key) + ".bin", std::string(below(5000) >> below(12), 'x'));
        tar.file(std::to_string(key++) + ".cls", std::to_string(1 + below(9)));
      }
      words.push_back(dir / (name + std::to_string(shard) + ".tar"));
      write_file(words.back(), tar.end().bytes());
    }
    shardwise_output(words);
    return words[5];
  }

  /// Returns arguments that select an order over `n` samples, and a rank.
  Words order(std::uint64_t n) {
    Words words;
    const auto add = [&](const std::string& option, std::uint64_t value) {
      words.insert(words.end(), {option, std::to_string(value)});
    };
    const char* const samplers[] = {"chunked", "sharded", "sequential", "resampled", "wids"};
    const std::string sampler = samplers[below(5)];
    words.insert(words.end(), {"--sampler", sampler});
    const bool has_chunks = sampler == "chunked" || sampler == "wids";
    if (has_chunks != one_in(30)) add("--chunk", 1 + below(30));
    const bool has_window = sampler == "chunked" || sampler == "sharded";
    if (has_window != one_in(30)) add("--window", 1 + below(5));
    if (sampler == "chunked" && one_in(3)) words.push_back("--phase");
    if (sampler == "wids" && one_in(2)) words.push_back("--shufflefirst");
    if (sampler == "resampled" && one_in(3)) words.insert(words.end(), {"--weights", "cls"});
    if (sampler == "resampled" && one_in(3)) words.insert(words.end(), {"--resample", "shard"});
    if (one_in(10)) words.push_back("--no-shuffle");
    if (one_in(2)) add("--seed", one_in(2) ? random_() >> 1 : below(5));
    if (one_in(2)) add("--epoch", below(6));
    const bool is_wids = sampler == "wids" && !one_in(10);
    if (!is_wids && one_in(4)) words.push_back("--balance-bytes");
    if (!is_wids && one_in(4)) add("--epoch-size", 1 + below(2 * n + 1));
    if (!is_wids && one_in(4)) {
      words.insert(words.end(), {"--tail", one_in(2) ? "pad" : "drop"});
    }
    std::uint64_t world = 1 + below(6);
    if (!is_wids && one_in(4)) {
      add("--streams", 2);
      if (!one_in(8)) world *= 2;
    }
    if (one_in(5)) {
      add("--replicas", 2);
      world *= 2;
    }
    add("--world", world);
    return words;
  }

  /// Writes a file for --skip, for samples whose keys are integers.
  void write_skip(const std::string& path, std::uint64_t n) {
    std::string text = "# left out\n";
    for (std::uint64_t left = below(5); left > 0; --left) {
      text +=
          (one_in(2) ? "key " : "") + std::to_string(below(n)) + (one_in(2) ? " # odd\n" : "\n");
    }
    if (one_in(2)) text += "positions 0 3 " + std::to_string(3 + below(9)) + "\n";
    if (one_in(2)) text += "steps 1 0 1 2 " + std::to_string(1 + below(3)) + "\n";
    write_file(path, text);
  }

 private:
  std::mt19937_64 random_;
};

/// Collects questions with the program's answers, to compare with those of the Python code.
class ProgramQuestions : public Questions {
 public:
  /// Asks for the output of `shardwise order` with these arguments.
  void ask_order(Words words) {
    words.push_back("--json");
    Words command = words;
    command.insert(command.begin(), "order");
    const Finished finished = shardwise(command);
    json found;
    if (finished.code == 0) {
      found = json::array();
      for (const json& line : json_lines(finished.out)) {
        found.push_back({line["sample"], line["position"]});
      }
    }
    ask({{"do", "order"}, {"argv", words}}, std::move(found));
  }

  /// Asks for the output of `shardwise token --json`.
  void ask_token(const std::string& text) {
    ask({{"do", "token_json"}, {"text", text}},
        json::parse(shardwise_output({"token", "--json", text})));
  }

  /// Asks what `shardwise epoch` of all ranks prints with these arguments: the number of samples,
  /// and the number that the proof states. The proof must succeed.
  void ask_epoch(const Words& words) {
    Words command = words;
    command.insert(command.begin(), {"epoch", "--quiet", "--json"});
    const Finished finished = shardwise(command);
    json found;
    if (finished.code == 0) {
      const json printed = json::parse(finished.out);
      std::string proof = printed["proof"];
      std::erase(proof, ',');
      EXPECT_THAT(proof, testing::EndsWith(": proven"));
      const std::size_t colon = proof.find(": ");
      found = {{"samples", printed["samples"]},
               {"epoch", std::stoull(proof.substr(6))},
               {"proven", std::stoull(proof.substr(colon + 2))}};
    }
    ask({{"do", "epoch"}, {"argv", words}}, std::move(found));
  }
};

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(SpecificationTest, RandomOrdersOfIndexesFollowFromThePages) {
  if (!has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  Generator random(random_seed());
  const TempDir dir;
  ProgramQuestions all;
  for (int i = 0; i < 8; ++i) {
    const std::string one = random.build(dir, "one" + std::to_string(i));
    const std::string two = random.build(dir, "two" + std::to_string(i));
    const std::uint64_t n = Dataset::open(one).size();
    for (int j = 0; j < 6; ++j) {
      Words words = random.order(n);
      if (random.one_in(5)) {
        words = joined({"--mix", one + "=" + std::to_string(random.below(9)) + ".5," + two + "=1"},
                       words);
        if (random.one_in(2)) {
          const std::string position = std::to_string(1 + random.below(700));
          words =
              joined(words, {"--schedule", position + "=1,0." + std::to_string(random.below(9))});
        }
      } else {
        words.insert(words.begin(), one);
        if (random.one_in(3)) {
          const std::string skip = dir / (std::to_string(i) + "-" + std::to_string(j) + ".skip");
          random.write_skip(skip, n);
          words = joined(words, {"--skip", skip});
        }
      }
      all.ask_order(joined(words, {"--rank", std::to_string(random.below(3))}));
      all.ask_epoch(joined(words, {"--batch", std::to_string(1 + random.below(5))}));
    }
  }
  all.expect_one_answer(30);
}

TEST(SpecificationTest, RunsThatGoOnFromTokensFollowFromThePages) {
  if (!has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  Generator random(random_seed());
  const TempDir dir;
  const std::string index = random.build(dir, "one");
  const Dataset data = Dataset::open(index);
  const Order orders[] = {
      {.seed = 5, .kind = Chunked{.chunk_size = 3, .window = 2}},
      {.kind = Sharded{.window = 2}, .streams = 2, .tail = Order::Tail::kDrop},
      {.kind = Sequential{}, .epoch_size = 7},
      {.seed = 1, .kind = Resampled{.weights = "cls"}, .tail = Order::Tail::kPad},
      {.kind = Resampled{.unit = Resampled::Unit::kShard}},
      {.kind = Wids{.chunk_size = 4, .shufflefirst = true}},
      {.kind = MixedDataset(data).mixture(std::array{1.5})},
      {.kind = MixedDataset(data).mixture(std::array{1.5}, Chunked{}, {{300, {2}}, {600, {3}}}),
       .epoch_size = 400},
      {.seed = ~std::uint64_t{0}, .balance_bytes = true}};
  ProgramQuestions all;
  int number = 0;
  for (const Order& order : orders) {
    const auto sampler = make_sampler(data, order, {.world_size = 2, .batch_size = 2});
    if (sampler->steps() == 0) continue;  // a single sample, which the tail drops
    sampler->set_epoch(random.below(4));
    const std::uint64_t steps = 1 + random.below(sampler->steps());
    ResumeToken token = sampler->token_after(steps);
    EpochAudit::Sum sum;
    for (std::uint64_t rank = 0; rank < 2; ++rank) {
      const auto mine = sampler->for_rank(rank);
      std::vector<std::uint64_t> samples(mine->first_of_step(steps));
      mine->next_batch(samples);
      sum += EpochAudit::Sum::of(samples, data.fingerprint());
    }
    if (token.position > 0) token.audit = sum;
    all.ask_token(token.to_text());
    Words words{index, "--token", token.to_text(), "--world", "2"};
    if (std::holds_alternative<Mixture>(order.kind)) words[0] = "--mix=" + index + "=1.5";
    all.ask_epoch(words);
    if (std::holds_alternative<Wids>(order.kind)) continue;
    words.back() = "6";
    all.ask_order(joined(words, {"--rank", "5"}));
    const std::string later = dir / (std::to_string(number++) + ".skip");
    random.write_skip(later, data.size());
    all.ask_order(joined(words, {"--skip", later}));
  }
  all.expect_one_answer(25);
}

TEST(SpecificationTest, OrdersOfTheCorpusFollowFromThePages) {
  if (!has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  const auto shared = corpus_dir();
  if (!shared)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  Generator random(random_seed());
  const TempDir dir;
  ProgramQuestions all;
  int number = 0;
  for (const json& line : json_lines(read_file(*shared / "corpus/expected.jsonl"))) {
    const std::string path = *shared / "corpus" / line["file"].get<std::string>();
    const std::string index = dir / (std::to_string(number++) + ".idx");
    if (shardwise({"index", "--quiet", "--on-bad", "skip", "-o", index, path}).code != 0) continue;
    const std::uint64_t n = Dataset::open(index).size();
    for (int i = 0; i < 2; ++i) {
      const Words words = random.order(n);
      all.ask_order(joined({index}, words));
      // An epoch without samples is an error, which EpochCommandTest tests.
      if (i == 0 && n > 0 && !read_file(path).starts_with("\x1f\x8b")) {
        all.ask_epoch(joined({index}, words));
      }
    }
  }
  EXPECT_GE(number, 50);
  all.expect_one_answer(70);  // random options of tiny data sets are often refused
}

}  // namespace
}  // namespace shardwise::test
