// Compares random joins with a naive model: lists of samples with maps of fields.
//
// A chain makes small datasets with missing, repeated and foreign keys, and joins them: inner or
// left, twice, nested, with a suffix, or from views. It compares all samples and properties of the
// result, and of views of it, with the model. Then ranks read epochs of the result, with columns
// from all the joined datasets, and resume on another number of ranks.
//
//     tools/test.sh --thorough -R loader_join_chain_test    many more chains
//     SHARDWISE_SEED=17 loader_join_chain_test              one chain, in detail

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "loader/thread_ranks.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"
#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::Dice;
using test::must;
using test::must_equal;
using test::must_throw;

/// A sample of the model. Its number is that of the index of the first dataset.
struct Row {
  std::string key;
  std::map<std::string, std::string> fields;
  std::map<std::string, std::optional<std::int64_t>> columns;
  std::uint64_t number = 0;
};
using Rows = std::vector<Row>;

/// A dataset with its model, and the names of its fields and metadata columns.
struct Set {
  Dataset data;
  Rows rows;
  std::vector<std::string> fields;
  std::vector<std::string> columns;
};

std::string key_of(std::uint64_t i) { return "k" + std::to_string(1000 + i); }

class JoinChain {
 public:
  JoinChain(std::uint64_t seed, std::ostream* log, test::Tally& tally)
      : dice_(seed), log_(log), tally_(tally) {}

  void run() {
    Set set = made("a", "cls", /*may_repeat=*/true);
    set = joined(std::move(set), some_right("b"));
    if (dice_.one_in(3)) set = joined(std::move(set), some_right("c"));
    for (std::uint64_t views = dice_.below(3); views > 0; --views) {
      check(set);
      set = viewed(std::move(set));
    }
    check(set);
    if (!set.rows.empty()) read_epochs(set);
  }

 private:
  void say(const std::string& text) {
    if (log_ != nullptr) *log_ << text << "\n";
  }

  Set some_right(const std::string& name) {
    Set right = made(name, name + "cls", /*may_repeat=*/false);
    if (dice_.one_in(4)) right = joined(std::move(right), made(name + "n", name + "ncls", false));
    if (dice_.one_in(3)) right = viewed(std::move(right));
    return right;
  }

  /// Makes shards of samples with some of the keys, and their index.
  /// @param label  a field of integers, which is also a metadata column.
  Set made(const std::string& name, const std::string& label, bool may_repeat) {
    std::vector<std::uint64_t> numbers(30);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (dice_.flip()) dice_.shuffle(numbers);
    numbers.resize(dice_.between(1, dice_.one_in(4) ? 3 : 30));
    const bool has_png = dice_.flip();
    std::vector<Rows> shards(1);
    for (const std::uint64_t i : numbers) {
      if (dice_.one_in(6)) shards.emplace_back();
      Row row{.key = key_of(i), .fields = {}, .columns = {}};
      row.fields[label] = std::to_string(dice_.below(5));
      if (has_png) row.fields["png"] = name + " png " + row.key;
      if (dice_.percent(80)) row.fields[name + ".txt"] = name + " of " + row.key;
      shards.back().push_back(std::move(row));
    }
    if (may_repeat && dice_.flip()) {  // some keys once more, in another shard
      Rows again = shards.front();
      for (Row& row : again) row.fields[label] = "9";
      shards.push_back(std::move(again));
    }
    Set set = indexed(name, label, shards);
    set.fields = {label, name + ".txt"};
    if (has_png) set.fields.emplace_back("png");
    set.columns = {label};
    say("made " + name + ": " + std::to_string(set.rows.size()) + " samples in " +
        std::to_string(shards.size()) + " shards");
    return set;
  }

  Set indexed(const std::string& name, const std::string& label, const std::vector<Rows>& shards) {
    Rows rows;
    std::vector<std::string> paths;
    for (const Rows& shard : shards) {
      if (shard.empty()) continue;
      test::TarBuilder tar;
      for (const Row& row : shard) {
        for (const auto& [field, bytes] : row.fields) tar.file(row.key + "." + field, bytes);
        rows.push_back(row);
        rows.back().number = rows.size() - 1;
        rows.back().columns[label] = std::stoll(row.fields.at(label));
      }
      paths.push_back(dir_ / (name + "-" + std::to_string(paths.size()) + ".tar"));
      test::write_file(paths.back(), tar.end().bytes());
    }
    BuildOptions options;
    options.threads = 0;
    options.content.columns = {parse_column(label)};
    build_index(dir_ / (name + ".idx"), paths, options);
    const auto access = dice_.one_in(3) ? Dataset::Access::kRead : Dataset::Access::kMap;
    return {Dataset::open(dir_ / (name + ".idx"),
                          {.max_open_shards = dice_.one_in(4) ? 1U : 64U, .access = access}),
            std::move(rows),
            {},
            {}};
  }

  static bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  }

  static std::string with_suffix(const std::string& field, const std::string& suffix) {
    const std::size_t dot = field.rfind('.');
    if (dot == std::string::npos) return suffix + "." + field;
    return field.substr(0, dot) + "." + suffix + field.substr(dot);
  }

  Set joined(Set first, const Set& other) {
    const bool is_left = dice_.flip();
    const auto how = is_left ? Dataset::JoinOptions::How::kLeft : Dataset::JoinOptions::How::kInner;
    const std::string suffix = "s" + std::to_string(++num_joins_);
    const bool clashes = has(first.fields, "png") && has(other.fields, "png");
    if (clashes) {
      must_throw<InvalidArgument>(
          [&] { static_cast<void>(first.data.join(other.data, {.how = how})); },
          "a field in both datasets");
      ++tally_["clashes"];
    }
    const bool is_suffixed = clashes || dice_.one_in(4);
    Set set{first.data.join(other.data, {.how = how, .suffix = is_suffixed ? suffix : ""}),
            {},
            first.fields,
            first.columns};
    const auto shown = [&](const std::string& field) {
      return has(first.fields, field) ? with_suffix(field, suffix) : field;
    };
    for (const std::string& field : other.fields) set.fields.push_back(shown(field));
    set.columns.insert(set.columns.end(), other.columns.begin(), other.columns.end());
    std::map<std::string, const Row*> by_key;
    for (const Row& row : other.rows) by_key[row.key] = &row;
    Dataset::JoinReport report{.num_samples = first.rows.size(),
                               .num_other_samples = other.rows.size()};
    std::set<std::string> met;
    for (Row row : first.rows) {
      const auto match = by_key.find(row.key);
      if (match == by_key.end()) {
        if (report.num_samples_without_match++ == 0) report.first_sample_without_match = row.key;
        if (!is_left) continue;
        for (const std::string& column : other.columns) row.columns[column] = std::nullopt;
      } else {
        for (const auto& [field, bytes] : match->second->fields) row.fields[shown(field)] = bytes;
        row.columns.insert(match->second->columns.begin(), match->second->columns.end());
        met.insert(row.key);
      }
      set.rows.push_back(std::move(row));
    }
    for (const Row& row : other.rows) {
      if (met.contains(row.key)) continue;
      if (report.num_other_samples_without_match++ == 0) {
        report.first_other_sample_without_match = row.key;
      }
    }
    must(set.data.join_report() == report, "another report");
    must(set.data.fingerprint() != first.data.fingerprint(), "the fingerprint of the first");
    say(std::string(is_left ? "left" : "inner") + " join: " + std::to_string(set.rows.size()));
    ++tally_[is_left ? "left joins" : "inner joins"];
    return set;
  }

  Set viewed(Set set) {
    Set view = set;
    view.rows.clear();
    const std::string& label = set.columns.front();  // of the first dataset
    if (dice_.flip()) {
      view.data = set.data.where(label + " >= 2");
      for (Row& row : set.rows) {
        if (row.columns.at(label) >= 2) view.rows.push_back(std::move(row));
      }
    } else {
      std::vector<std::uint64_t> kept;
      for (std::uint64_t i = 0; i < set.rows.size(); ++i) {
        if (!dice_.percent(70)) continue;
        kept.push_back(i);
        view.rows.push_back(std::move(set.rows[i]));
      }
      view.data = set.data.subset(std::move(kept));
    }
    say("view: " + std::to_string(view.rows.size()));
    ++tally_["views"];
    return view;
  }

  // ------------------------------------------------------------------------------------- comparing

  static void check_sample(const Sample& sample, const Row& row) {
    must_equal(std::string(sample.key()), row.key, "key");
    must_equal(sample.number_in_index(), row.number, "number in the index");
    must_equal(sample.num_fields(), row.fields.size(), "number of fields of " + row.key);
    for (std::size_t i = 0; i < sample.num_fields(); ++i) {
      const Sample::Field field = sample.field(i);
      const auto expected = row.fields.find(std::string(field.name));
      must(expected != row.fields.end(), "the field " + std::string(field.name));
      must_equal(std::string(field.bytes), expected->second, "field " + expected->first);
    }
    for (const auto& [field, bytes] : row.fields) {
      must_equal(std::string(sample[field]), bytes, "the field " + field);
      must_equal(sample.copy(field), bytes, "a copy of " + field);
      if (field.ends_with("cls")) must_equal(std::to_string(sample.integer(field)), bytes, field);
    }
    must(!sample.contains("nothing"), "a field that no sample has");
  }

  void check(const Set& set) {
    must_equal(set.data.size(), std::uint64_t{set.rows.size()}, "size");
    const auto bytes_of = set.data.sample_bytes();
    std::optional<Sample> kept;
    for (std::uint64_t i = 0; i < set.rows.size(); ++i) {
      const Sample sample = set.data[i];
      check_sample(sample, set.rows[i]);
      must_equal(sample.index(), i, "index");
      if (const auto at_hand = set.data.try_get(i)) check_sample(*at_hand, set.rows[i]);
      std::uint64_t bytes = 0;
      for (const auto& [field, content] : set.rows[i].fields) bytes += content.size();
      must_equal(bytes_of(i), bytes, "bytes");
      must(set.data.find(set.rows[i].key).has_value(), "a key is not found");
      if (dice_.one_in(3)) kept = sample;
    }
    if (kept) check_sample(*kept, set.rows[kept->index()]);
    check_many(set);
  }

  void check_many(const Set& set) {
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t i = dice_.below(70); i > 0 && !set.rows.empty(); --i) {
      numbers.push_back(dice_.below(set.rows.size()));
    }
    std::vector<Sample> copies;
    std::size_t place = 0;
    for (const Sample& sample : set.data.samples(numbers)) {
      check_sample(sample, set.rows[numbers[place++]]);
      if (dice_.one_in(5)) copies.push_back(sample);
    }
    must_equal(place, numbers.size(), "number of samples");
    for (const Sample& copy : copies) check_sample(copy, set.rows[copy.index()]);
    for (const std::string& field : set.fields) check_field(set, numbers, field);
    for (const std::string& column : set.columns) {
      const std::vector<Query::Value> values = set.data.values(column, numbers);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto& expected = set.rows[numbers[i]].columns.at(column);
        const bool is_null = values[i].type == Query::Value::Type::kNull;
        must(is_null == !expected.has_value(), "NULL in " + column);
        if (expected) must_equal(values[i].integer, *expected, "value of " + column);
      }
    }
    must_throw<NotFound>([&] { static_cast<void>(set.data.numbers("nothing")); }, "no column");
  }

  void check_field(const Set& set, const std::vector<std::uint64_t>& numbers,
                   const std::string& field) {
    std::vector<std::uint64_t> sizes(numbers.size());
    set.data.sizes(numbers, field, sizes);
    std::vector<std::uint64_t> having;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto& fields = set.rows[numbers[i]].fields;
      const auto found = fields.find(field);
      must_equal(sizes[i], std::uint64_t{found == fields.end() ? 0 : found->second.size()}, "size");
      if (found != fields.end()) having.push_back(numbers[i]);
    }
    std::vector<std::int64_t> offsets;
    std::vector<std::byte> bytes;
    if (having.size() < numbers.size()) {
      must_throw<NotFound>([&] { set.data.gather(numbers, field, offsets, bytes); }, "gather");
    }
    set.data.gather(having, field, offsets, bytes);
    for (std::size_t i = 0; i < having.size(); ++i) {
      const std::string found(reinterpret_cast<const char*>(bytes.data()) + offsets[i],
                              static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
      must_equal(found, set.rows[having[i]].fields.at(field), "gathered " + field);
    }
  }

  // ---------------------------------------------------------------------------------------- epochs

  Order some_order(const Set& set) {
    Order order{.seed = dice_.number()};
    switch (dice_.below(3)) {
      case 0:
        order.kind = Sequential{};
        break;
      case 1:
        order.kind = Sharded{.window = dice_.between(1, 3)};
        break;
      default:
        order.kind = Chunked{.chunk_size = dice_.between(1, set.rows.size()), .window = 2};
    }
    return order;
  }

  /// Columns of each field. A field that a sample lacks has the text "-".
  static std::vector<Column> columns_of(const Set& set) {
    std::vector<Column> all{columns::key()};
    for (const std::string& field : set.fields) {
      all.push_back(columns::text(field, "-").named("f " + field));
    }
    for (const std::string& column : set.columns) {
      all.push_back(columns::metadata(column, -1).named("m " + column));
    }
    return all;
  }

  static void check_batch(const Batch& batch, const Set& set) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Row& row = set.rows.at(batch.samples()[i]);
      must_equal(std::string(batch["__key__"].text(i)), row.key, "key in a batch");
      for (const std::string& field : set.fields) {
        const auto found = row.fields.find(field);
        must_equal(std::string(batch["f " + field].text(i)),
                   found == row.fields.end() ? "-" : found->second, "column " + field);
      }
      for (const std::string& column : set.columns) {
        must_equal(batch["m " + column].values<std::int64_t>()[i],
                   row.columns.at(column).value_or(-1), "column " + column);
      }
    }
  }

  /// Reads an epoch in pieces, each by another number of ranks. Each piece ends with a token.
  void read_epochs(const Set& set) {
    const Order order = some_order(set);
    std::optional<ResumeToken> token;
    std::map<std::uint64_t, int> delivered;
    for (bool is_done = false; !is_done; ++tally_["pieces"]) {
      const std::uint64_t world = dice_.between(1, 3);
      const std::uint64_t steps = dice_.one_in(3) ? ~std::uint64_t{0} : dice_.between(1, 4);
      Loader::Options options{.columns = columns_of(set),
                              .order = order,
                              .batch_size = dice_.between(1, 6),
                              .threads = static_cast<unsigned>(dice_.below(3))};
      test::ThreadRanks ranks(world);
      std::mutex mutex;
      std::string wrong;
      std::optional<ResumeToken> next;
      test::on_ranks(world, [&](std::uint64_t rank) {
        try {
          Loader loader(set.data, options, ranks.rank(rank));
          if (token) loader.restore(*token);
          for (std::uint64_t step = 0; step < steps; ++step) {
            const auto batch = loader.next();
            if (!batch) break;
            const std::lock_guard lock(mutex);
            try {
              check_batch(*batch, set);
            } catch (const test::ChainBroken& broken) {
              wrong = broken.text;  // go on, because the other ranks wait for this one
            }
            for (const std::uint64_t sample : batch->samples()) ++delivered[sample];
          }
          const bool has_ended = loader.has_ended();
          ResumeToken state = loader.state();  // proves the epoch if it has ended
          const std::lock_guard lock(mutex);
          is_done = has_ended;
          next = std::move(state);
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          wrong = error.what();
        }
      });
      must_equal(wrong, std::string(), "a rank");
      token = std::move(next);
    }
    must_equal(delivered.size(), set.rows.size(), "samples delivered");
    for (const auto& [sample, count] : delivered) must_equal(count, 1, "deliveries");
    refuse_elsewhere(set, order, *token);
    ++tally_["epochs proven"];
  }

  /// Checks that a token of `set` is refused once `set` is joined with another dataset, although
  /// the samples' numbers stay the same.
  void refuse_elsewhere(const Set& set, const Order& order, const ResumeToken& token) {
    const Set other = made("z", "zcls", /*may_repeat=*/false);
    const Dataset another =
        set.data.join(other.data, {.how = Dataset::JoinOptions::How::kLeft, .suffix = "z"});
    must_equal(another.size(), set.data.size(), "size of a left join");
    must_throw<Mismatch>([&] { make_sampler(another, order)->resume(token); }, "a foreign token");
  }

  test::TempDir dir_;
  Dice dice_;
  std::ostream* const log_;
  test::Tally& tally_;
  int num_joins_ = 0;
};

TEST(JoinChainTest, JoinsAreThoseOfTheModel) { test::run_chains_of<JoinChain>(150, 5000); }

}  // namespace
}  // namespace shardwise
