// Updates of an index: they equal a new index, and read and write no more than they must.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ingest/index_text.h"
#include "shardwise/ingest/index_builder.h"
#include "support/chain.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::Dice;
using test::TempDir;

/// Shards that change between builds. Keys may be repeated in several shards.
class ChangingShards {
 public:
  ChangingShards(const TempDir& dir, Dice& dice) : dir_(dir), dice_(dice) {}

  const std::vector<std::string>& paths() const { return paths_; }
  void add() {
    const std::string path = dir_ / ("s" + std::to_string(num_made_++) + ".tar");
    paths_.insert(paths_.begin() + static_cast<std::ptrdiff_t>(dice_.below(paths_.size() + 1)),
                  path);
    write(path);
  }
  void change() {
    if (!paths_.empty()) write(dice_.one_of(paths_));
  }
  void remove() {
    if (paths_.size() > 1) {
      paths_.erase(paths_.begin() + static_cast<std::ptrdiff_t>(dice_.below(paths_.size())));
    }
  }
  void shuffle() { dice_.shuffle(paths_); }
  /// Renames a shard, or adds a copy of it. The copy has another time, which accept_times ignores.
  void move_or_copy(bool moves) {
    if (paths_.empty()) return;
    const std::string old = dice_.one_of(paths_);
    const std::string now = dir_ / ("s" + std::to_string(num_made_++) + ".tar");
    if (moves) {
      std::filesystem::rename(old, now);
      std::ranges::replace(paths_, old, now);
    } else {
      std::filesystem::copy_file(old, now);
      paths_.push_back(now);
    }
  }

 private:
  void write(const std::string& path) {
    test::TarBuilder tar;
    const std::uint64_t first = dice_.below(40);
    const std::uint64_t count = dice_.one_in(4) ? dice_.below(200) : dice_.below(12);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string key = "k" + std::to_string(first + i);
      tar.file(key + ".txt", std::string(1 + dice_.below(30), 'x'));
      if (dice_.one_in(3)) tar.file(key + ".cls", std::to_string(dice_.below(10)));
      if (dice_.one_in(50)) tar.file(key + ".rare", "");
    }
    test::write_file(path, tar.end().bytes());
  }

  const TempDir& dir_;
  Dice& dice_;
  int num_made_ = 0;
  std::vector<std::string> paths_;
};

std::string table_bytes(const TempDir& dir, const std::string& index) {
  return test::read_file(dir / test::table_of(dir, index));
}

TEST(UpdateTest, AnUpdatedIndexHasTheBytesOfANewOne) {
  test::for_each_seed(40, 2000, [&](std::uint64_t seed) {
    const TempDir dir;
    Dice dice(seed);
    ChangingShards shards(dir, dice);
    BuildOptions options{.threads = static_cast<unsigned>(dice.below(3))};
    options.content.hashes = dice.flip();
    options.accept_times = dice.flip();
    if (dice.flip()) options.content.columns.push_back(parse_column("cls"));
    for (std::uint64_t i = dice.below(12); i > 0; --i) shards.add();
    for (int round = 0; round < 6; ++round) {
      switch (dice.below(7)) {
        case 0:
          shards.shuffle();
          break;
        case 1:
          shards.remove();
          break;
        case 2:
          shards.move_or_copy(dice.flip());
          break;
        case 3:
          shards.change();
          break;
        default:
          for (std::uint64_t i = dice.below(5); i > 0; --i) shards.add();
      }
      if (shards.paths().empty()) continue;
      build_index(dir / "old.idx", shards.paths(), options);
      std::filesystem::remove(dir / "new.idx");
      build_index(dir / "new.idx", shards.paths(), options);
      ASSERT_EQ(table_bytes(dir, "old.idx"), table_bytes(dir, "new.idx")) << "round " << round;
      ASSERT_EQ(test::index_text(dir / "old.idx"), test::index_text(dir / "new.idx"));
      const Index::Summary old = Index::open(dir / "old.idx")->summary();
      const Index::Summary now = Index::open(dir / "new.idx")->summary();
      ASSERT_EQ(old.content_bytes, now.content_bytes);
      ASSERT_EQ(old.fields.size(), now.fields.size());
      for (std::size_t i = 0; i < now.fields.size(); ++i) {
        ASSERT_EQ(old.fields[i].name, now.fields[i].name);
        ASSERT_EQ(old.fields[i].num_members, now.fields[i].num_members);
        ASSERT_EQ(old.fields[i].bytes, now.fields[i].bytes);
      }
    }
  });
}

/// An index of four shards, one byte of whose table is wrong.
class DamagedIndex {
 public:
  /// @param of  position of the wrong byte, as a fraction of the table's size.
  explicit DamagedIndex(double of) : paths_(test::write_shards(dir_, 4, 50)) {
    build_index(index(), paths_);
    right_ = test::index_text(index());
    const std::string path = dir_ / test::table_of(dir_, "t.idx");
    std::string bytes = test::read_file(path);
    char& byte = bytes[static_cast<std::size_t>(of * static_cast<double>(bytes.size()))];
    byte = static_cast<char>(byte ^ 1);
    test::write_file(path, bytes);
  }

  std::string index() const { return dir_ / "t.idx"; }
  const std::vector<std::string>& paths() const { return paths_; }
  const std::string& right() const { return right_; }

 private:
  TempDir dir_;
  std::vector<std::string> paths_;
  std::string right_;
};

TEST(UpdateTest, ADamagedIndexIsScannedAgain) {
  for (const double of : {0.1, 0.3, 0.8, 0.95}) {  // in segments, and in keys
    {
      const DamagedIndex damaged(of);
      const BuildReport report =
          build_index(damaged.index(), damaged.paths(), {.check_index = true});
      EXPECT_EQ(report.shards_scanned, 4U) << of;
      EXPECT_EQ(test::index_text(damaged.index()), damaged.right()) << of;
    }
    const DamagedIndex damaged(of);
    test::write_file(damaged.paths().back(), test::tar_of("other"));
    const BuildReport report = build_index(damaged.index(), damaged.paths());
    Index::open(damaged.index())->validate();
    EXPECT_EQ(Index::open(damaged.index())->find("other"), 150U) << of;
  }
}

}  // namespace
}  // namespace shardwise
