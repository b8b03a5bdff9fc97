// Folders of shards and their index are moved, copied, edited, indexed again and relocated at
// random, and read with and without a root. A simple model predicts the results: every read returns
// data of the file that was indexed, and unchanged shards are never scanned again.
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/relocate.h"
#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShards = 3;
constexpr std::uint64_t kSamples = 3;  // per shard

/// A version of a shard's file.
struct Version {
  int number = 0;  // distinguishes the version's bytes from all others
  int layout = 0;  // 0, 1 or 2: determines the members' sizes
  std::int64_t seconds = 0;

  friend bool operator==(const Version&, const Version&) = default;
};
using Files = std::array<Version, kShards>;

std::string data_of(const Version& version, std::uint64_t sample) {
  // Layouts 0 and 1 have the same total size; layout 2 has another.
  constexpr std::array<std::array<std::size_t, kSamples>, 3> kBytes = {
      {{300, 1400, 300}, {300, 300, 1400}, {300, 1400, 2500}}};
  std::string data;
  while (data.size() < 3000) {
    data += std::to_string(version.number) + "/" + std::to_string(sample) + ";";
  }
  return data.substr(0, kBytes[static_cast<std::size_t>(version.layout)][sample]);
}

std::string tar_of(std::size_t shard, const Version& version) {
  test::TarBuilder tar;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::string key = "s" + std::to_string(shard) + "-" + std::to_string(i);
    tar.file(key + ".bin", data_of(version, i)).file(key + ".cls", "1");
  }
  return tar.end().bytes();
}

class MovedModel : test::Dice {
 public:
  explicit MovedModel(std::uint64_t seed) : Dice(seed) {
    add_folder();
    index_home_ = new_name("home");
    fs::create_directories(index_home_);
    index_anew();
  }

  void step() {
    ++step_;
    switch (below(12)) {
      case 0:
        move_folder();
        return;
      case 1:
        return copy_folder();
      case 2:
        return add_folder();
      case 3:
        return move_index();
      case 4:
      case 5:
        return edit();
      case 6:
        return relocate();
      case 7:
        return index_anew();
      case 8:
        return update();
      default:
        return read();
    }
  }

 private:
  std::string new_name(const std::string& kind) {
    return dir_ / (kind + std::to_string(++num_names_));
  }
  std::string any_folder() {
    auto at = folders_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(folders_.size())));
    return at->first;
  }
  std::string index() const { return index_home_ + "/x.idx"; }
  static std::string path_of(const std::string& folder, std::size_t shard) {
    return folder + "/" + std::to_string(shard) + ".tar";
  }
  static std::vector<std::string> paths_in(const std::string& folder) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < kShards; ++i) paths.push_back(path_of(folder, i));
    return paths;
  }
  std::string trace(const std::string& what) const {
    return "step " + std::to_string(step_) + ": " + what;
  }

  void write(const std::string& folder, std::size_t shard) {
    Version& version = folders_[folder][shard];
    version.seconds = ++clock_;
    test::write_file(path_of(folder, shard), tar_of(shard, version));
    test::set_old_time(path_of(folder, shard), version.seconds);
  }

  /// Adds other shards with the same names, often with the same sizes. They may replace shards that
  /// were moved away.
  void add_folder() {
    std::string folder = looked_in_;
    if (folder.empty() || folders_.contains(folder) || flip()) folder = new_name("data");
    fs::create_directories(folder);
    for (std::size_t i = 0; i < kShards; ++i) {
      folders_[folder][i] = {++num_versions_, static_cast<int>(below(3)), 0};
      write(folder, i);
    }
    if (folders_.size() > 3) {
      const std::string victim = any_folder();
      if (victim == folder || victim == index_home_) return;
      fs::remove_all(victim);
      folders_.erase(victim);
    }
  }

  /// Moves a folder, with the index if it contains the index. Returns the folder's new path.
  std::string move_folder() {
    const std::string from = any_folder(), to = new_name("data");
    fs::rename(from, to);
    folders_[to] = folders_[from];
    folders_.erase(from);
    if (index_home_ == from) {
      index_home_ = to;
      if (is_relative_) looked_in_ = to;
    }
    return to;
  }

  /// Replaces a folder by a copy, whose shards have new times.
  void copy_folder() {
    const std::string folder = move_folder();
    for (std::size_t i = 0; i < kShards; ++i) write(folder, i);
  }

  /// Moves only the index, to a folder with or without shards.
  void move_index() {
    const std::string to = flip() ? any_folder() : new_name("home");
    if (to == index_home_) return;
    fs::create_directories(to);
    for (const auto& entry : fs::directory_iterator(index_home_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("x.idx")) fs::rename(entry.path(), to + "/" + name);
    }
    index_home_ = to;
    if (is_relative_) looked_in_ = to;
  }

  void edit() {
    const std::string folder = any_folder();
    const std::size_t shard = below(kShards);
    folders_[folder][shard].number = ++num_versions_;
    if (flip()) folders_[folder][shard].layout = static_cast<int>(below(3));
    write(folder, shard);
  }

  /// True if the file is accepted as the indexed one. As documented, a change of only the members'
  /// data is not detected if times are ignored.
  static bool passes(const Version& file, const Version& indexed, bool accept_times) {
    return file.seconds == indexed.seconds || (accept_times && file.layout == indexed.layout);
  }
  std::uint64_t num_changed(const Files& files, bool accept_times) const {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < kShards; ++i) {
      count += passes(files[i], indexed_[i], accept_times) ? 0 : 1;
    }
    return count;
  }
  void took(const std::string& folder) {
    indexed_ = folders_[folder];
    looked_in_ = folder;
    is_relative_ = folder == index_home_;
  }

  void relocate() {
    if (looked_in_.empty()) return;
    const std::string to = any_folder();
    const bool accept_times = flip();
    const std::string what = trace("relocate " + looked_in_ + " " + to);
    const std::uint64_t changed = num_changed(folders_[to], accept_times);
    const auto run = [&] {
      return relocate_index(index(), {{looked_in_, to}}, {.accept_times = accept_times});
    };
    if (changed > 0) {
      EXPECT_EQ(test::error_code(run), ErrorCode::kStaleIndex) << what;
    } else {
      EXPECT_EQ(run().shards_scanned, 0U) << what;
      took(to);
    }
  }

  void index_anew() {
    const std::string folder = any_folder();
    BuildOptions options{.threads = 1, .accept_times = flip()};
    if (flip()) options.sources = {folder + "/*.tar"};
    const std::uint64_t expected =
        looked_in_.empty() ? kShards : num_changed(folders_[folder], options.accept_times);
    EXPECT_EQ(build_index(index(), paths_in(folder), options).shards_scanned, expected)
        << trace("index " + folder);
    took(folder);
  }

  void update() {
    const BuildOptions options{.threads = 1, .accept_times = flip()};
    const auto run = [&] { return update_index(index(), options); };
    if (!folders_.contains(looked_in_)) {
      EXPECT_EQ(test::error_code(run), ErrorCode::kNotFound) << trace("update");
      return;
    }
    const std::uint64_t expected = num_changed(folders_[looked_in_], options.accept_times);
    EXPECT_EQ(run().shards_scanned, expected) << trace("update");
    took(looked_in_);
  }

  void read() {
    Dataset::Options options{.access = flip() ? Dataset::Access::kMap : Dataset::Access::kRead,
                             .accept_times = flip()};
    std::string folder = looked_in_;
    if (flip()) folder = options.root = any_folder();
    const Dataset data = Dataset::open(index(), options);
    for (std::uint64_t sample = 0; sample < data.size(); ++sample) {
      const std::size_t shard = sample / kSamples;
      const std::string what = trace("read sample " + std::to_string(sample) + " in " + folder);
      const auto bytes = [&] { return data[sample].copy("bin"); };
      if (!folders_.contains(folder)) {
        EXPECT_EQ(test::error_code(bytes), ErrorCode::kNotFound) << what;
        continue;
      }
      const Version& file = folders_[folder][shard];
      if (!passes(file, indexed_[shard], options.accept_times)) {
        EXPECT_EQ(test::error_code(bytes), ErrorCode::kStaleIndex) << what;
        continue;
      }
      EXPECT_EQ(bytes(), data_of(file, sample % kSamples)) << what;
      if (!options.accept_times) {
        EXPECT_EQ(file.number, indexed_[shard].number) << what;
      }
    }
  }

  const test::TempDir dir_;
  int step_ = 0;
  int num_names_ = 0;
  int num_versions_ = 0;
  std::int64_t clock_ = 1'000'000'000;
  std::map<std::string, Files> folders_;
  // The index: its location, the folder that it refers to, and the shards that it was made from.
  std::string index_home_, looked_in_;
  bool is_relative_ = false;
  Files indexed_;
};

TEST(MovedModelTest, RandomChainsNeverGiveOtherBytesAndNeverReadWhatDidNotChange) {
  test::for_each_seed(3, 100, [](std::uint64_t seed) {
    MovedModel model(seed);
    for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) model.step();
  });
}

}  // namespace
}  // namespace shardwise
