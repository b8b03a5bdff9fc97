// faults.md 4: power loss during a build. The operations of a build on its files are recorded. For
// every moment of the build, the test constructs the states that a device may have after a power
// loss. In such a state, each change that was not synced is present, missing or partial,
// independently for names and for bytes. (See "All File Systems Are Not Created Equal", OSDI 2014.)
// In each state the old or the new index must be complete, and the next build must succeed as
// usual.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "ingest/index_text.h"
#include "ingest/power_loss_log.h"
#include "shardwise/ingest/index_builder.h"
#include "support/process.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::index_text;
using test::Operation;
using test::OperationHeader;
using test::TempDir;

/// Use memory, because the power loss is only simulated, and a real device would only be slower.
[[maybe_unused]] const int in_memory =
    std::filesystem::is_directory("/dev/shm") ? ::setenv("TMPDIR", "/dev/shm", 0) : 0;

constexpr std::uint64_t kSeed = 1;
constexpr int kRandomStates = 20;  // number of random states at each moment
constexpr std::uint64_t kSectorBytes = 512;

struct Step {
  OperationHeader header;
  std::string name;
  std::string other_name;
  std::string data;
};

std::vector<Step> read_log(const std::string& path) {
  const std::string log = test::read_file(path);
  std::vector<Step> steps;
  std::size_t at = 0;
  const auto take = [&](std::size_t size) {
    const std::string bytes = log.substr(at, size);
    if (bytes.size() != size) throw std::runtime_error("the log is cut short");
    at += size;
    return bytes;
  };
  while (at < log.size()) {
    Step& step = steps.emplace_back();
    std::memcpy(&step.header, take(sizeof step.header).data(), sizeof step.header);
    step.name = take(step.header.name_bytes);
    step.other_name = take(step.header.other_name_bytes);
    step.data = take(step.header.data_bytes);
  }
  return steps;
}

/// The content of a directory: file contents by name.
using Files = std::map<std::string, std::string>;

Files read_directory(const TempDir& dir) {
  Files files;
  for (const std::string& name : dir.list()) files[name] = test::read_file(dir / name);
  return files;
}

/// A directory on a device: the durable state, and later changes that a power loss may undo.
class Device {
 public:
  /// Decides which of the changes that were not synced reached the device.
  class Choice {
   public:
    virtual ~Choice() = default;
    virtual bool keeps_next_name_change() = 0;
    virtual bool keeps_next_resize() = 0;
    virtual bool keeps_next_sector() = 0;
  };

  /// Starts with the files in `dir`, all of them durable.
  explicit Device(const TempDir& dir) {
    for (const std::string& name : dir.list()) {
      struct stat st {};
      ::stat((dir / name).c_str(), &st);
      by_inode_[st.st_ino] = files_.size();
      names_[name] = names_now_[name] = files_.size();
      files_.push_back({test::read_file(dir / name), {}});
    }
  }

  void run(const Step& step) {
    const std::uint64_t inode = step.header.inode;
    switch (step.header.operation) {
      case Operation::kCreate:
        by_inode_[inode] = files_.size();
        change_names({"", step.name, files_.size()});
        files_.emplace_back();
        break;
      case Operation::kWrite:
      case Operation::kResize:
        file(inode).changes.push_back(step);
        break;
      case Operation::kSyncFile:
        for (const Step& change : file(inode).changes) apply(change, file(inode).durable);
        file(inode).changes.clear();
        break;
      case Operation::kSyncDirectory:
        names_ = names_now_;
        name_changes_.clear();
        break;
      case Operation::kRename:
        change_names({step.name, step.other_name, names_now_.at(step.name)});
        break;
      case Operation::kUnlink:
        change_names({step.name, "", names_now_.at(step.name)});
        break;
    }
  }

  /// Returns the number of creations, renames and removals that are not durable.
  std::size_t num_name_changes() const noexcept { return name_changes_.size(); }

  /// Returns the files after a power loss at this moment.
  Files after_power_loss(Choice& choice) const {
    Names names = names_;
    for (const NameChange& change : name_changes_) {
      if (choice.keeps_next_name_change()) apply(change, names);
    }
    Files found;
    for (const auto& [name, number] : names) {
      std::string& content = found[name] = files_[number].durable;
      for (const Step& change : files_[number].changes) apply_in_part(change, content, choice);
    }
    return found;
  }

 private:
  struct File {
    std::string durable;
    std::vector<Step> changes;  // changes since the last sync
  };
  using Names = std::map<std::string, std::size_t>;  // name, and index in files_
  struct NameChange {
    std::string from;  // "" if the file was created
    std::string to;    // "" if the file was unlinked
    std::size_t file;
  };

  File& file(std::uint64_t inode) { return files_[by_inode_.at(inode)]; }

  void change_names(const NameChange& change) {
    apply(change, names_now_);
    name_changes_.push_back(change);
  }

  static void apply(const NameChange& change, Names& names) {
    if (const auto it = names.find(change.from); it != names.end() && it->second == change.file) {
      names.erase(it);
    }
    if (!change.to.empty()) names[change.to] = change.file;
  }

  static void write(std::string& content, std::uint64_t offset, std::string_view data) {
    if (content.size() < offset + data.size()) content.resize(offset + data.size());
    content.replace(offset, data.size(), data);
  }

  static void apply(const Step& change, std::string& content) {
    if (change.header.operation == Operation::kResize) {
      content.resize(change.header.offset);
    } else {
      write(content, change.header.offset, change.data);
    }
  }

  static void apply_in_part(const Step& change, std::string& content, Choice& choice) {
    if (change.header.operation == Operation::kResize) {
      if (choice.keeps_next_resize()) apply(change, content);
      return;
    }
    std::string_view left = change.data;
    for (std::uint64_t at = change.header.offset; !left.empty();) {
      const std::string_view piece = left.substr(0, kSectorBytes - at % kSectorBytes);
      if (choice.keeps_next_sector()) write(content, at, piece);
      at += piece.size();
      left.remove_prefix(piece.size());
    }
  }

  std::vector<File> files_;
  std::map<std::uint64_t, std::size_t> by_inode_;
  Names names_;      // the durable names
  Names names_now_;  // the names that the process sees
  std::vector<NameChange> name_changes_;
};

/// Keeps all or no name changes, and all or no bytes.
class Plain final : public Device::Choice {
 public:
  Plain(bool names, bool bytes) : names_(names), bytes_(bytes) {}
  bool keeps_next_name_change() override { return names_; }
  bool keeps_next_resize() override { return bytes_; }
  bool keeps_next_sector() override { return bytes_; }

 private:
  const bool names_;
  const bool bytes_;
};

/// Keeps all bytes. Keeps only the n-th name change, or all but the n-th, because name changes may
/// reach the device in any order.
class OneName final : public Device::Choice {
 public:
  OneName(std::size_t n, bool kept) : left_(n), kept_(kept) {}
  bool keeps_next_name_change() override { return (left_-- == 0) == kept_; }
  bool keeps_next_resize() override { return true; }
  bool keeps_next_sector() override { return true; }

 private:
  std::size_t left_;
  const bool kept_;
};

/// Keeps random changes. States with most changes and states with few changes are equally likely.
class Random final : public Device::Choice {
 public:
  explicit Random(std::mt19937_64& random) : random_(random) {
    names_of_8_ = random_() % 9;
    bytes_of_8_ = random_() % 9;
  }
  bool keeps_next_name_change() override { return random_() % 8 < names_of_8_; }
  bool keeps_next_resize() override { return random_() % 8 < bytes_of_8_; }
  bool keeps_next_sector() override { return random_() % 8 < bytes_of_8_; }

 private:
  std::mt19937_64& random_;
  std::uint64_t names_of_8_;
  std::uint64_t bytes_of_8_;
};

// Values of journal_bytes. kNoJournal is more than these builds write, so they write no journal.
constexpr std::uint64_t kNoJournal = std::uint64_t{8} << 20;
constexpr std::uint64_t kJournalAll = 1;

/// Recorded builds, and the indexes that are acceptable after a power loss at any moment.
class Recording {
 public:
  Recording() { std::filesystem::remove(log_); }

  std::vector<std::string> shards(std::size_t count) const {
    return {shards_.begin(), shards_.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  /// Builds an index that is durable before the recording starts.
  void build_old(std::size_t num_shards) { build_index(index_, shards(num_shards)); }

  /// Builds in a recorded process. If build_old() is used, call it first.
  /// @return  "", or how the process died.
  std::string build(std::size_t num_shards, std::uint64_t journal_bytes,
                    const std::string& deadly_point = "", int nth_time = 0) {
    if (!device_) {
      device_.emplace(directory_);
      if (std::filesystem::exists(index_)) old_ = index_text(index_);
    }
    num_shards_ = num_shards;
    journal_bytes_ = journal_bytes;
    std::vector<std::string> arguments{SHARDWISE_POWER_LOSS_BUILD, index_,
                                       std::to_string(journal_bytes), deadly_point,
                                       std::to_string(nth_time)};
    for (const std::string& shard : shards(num_shards)) arguments.push_back(shard);
    return test::in_child([&] {
      std::vector<char*> pointers;
      for (std::string& argument : arguments) pointers.push_back(argument.data());
      pointers.push_back(nullptr);
      ::setenv("LD_PRELOAD", SHARDWISE_POWER_LOSS_SHIM, 1);
      ::setenv(test::kRecordedDirectory, directory_.path().c_str(), 1);
      ::setenv(test::kOperationLog, log_.c_str(), 1);
      ::execv(pointers[0], pointers.data());
      return std::string("cannot run ") + pointers[0];
    });
  }

  /// Simulates a power loss at every moment of the recording. REQUIRES: the last build ended
  /// normally.
  void expect_every_power_loss_survived() {
    std::printf("seed %d\n", static_cast<int>(kSeed));
    new_ = index_text(index_);
    const Files now = read_directory(directory_);
    const std::vector<Step> steps = read_log(log_);
    std::map<Operation, int> counts;
    for (std::size_t done = 0; done <= steps.size() && !testing::Test::HasFailure(); ++done) {
      if (done > 0) {
        device_->run(steps[done - 1]);
        ++counts[steps[done - 1].header.operation];
      }
      const std::string moment =
          "after " + std::to_string(done) + " of " + std::to_string(steps.size()) + " operations";
      const bool at_end = done == steps.size();
      for (const bool names : {true, false}) {
        for (const bool bytes : {true, false}) {
          Plain choice(names, bytes);
          expect_survived(device_->after_power_loss(choice), at_end,
                          moment + (names ? ", all names" : ", synced names") +
                              (bytes ? ", all bytes" : ", synced bytes"));
        }
      }
      for (std::size_t i = 0; i < device_->num_name_changes(); ++i) {
        for (const bool kept : {true, false}) {
          OneName choice(i, kept);
          expect_survived(
              device_->after_power_loss(choice), at_end,
              moment + (kept ? ", only" : ", all but") + " name change " + std::to_string(i));
        }
      }
      for (int i = 0; i < kRandomStates; ++i) {
        Random choice(random_);
        expect_survived(device_->after_power_loss(choice), at_end,
                        moment + ", random state " + std::to_string(i));
      }
    }
    if (testing::Test::HasFailure()) return;
    Plain everything(true, true);
    EXPECT_TRUE(device_->after_power_loss(everything) == now) << "something was not recorded";
    EXPECT_GE(counts[Operation::kSyncFile], 2);
    EXPECT_GE(counts[Operation::kSyncDirectory], 2);
    std::printf("%zu operations, %zu different states\n", steps.size(), seen_.size());
  }

 private:
  void expect_survived(const Files& found, bool at_end, const std::string& moment) {
    if (!seen_.emplace(found, at_end).second || testing::Test::HasFailure()) return;
    const TempDir dir;
    const std::string index = dir / "t.idx";
    for (const auto& [name, content] : found) test::write_file(dir / name, content);
    try {
      const std::string text = index_text(index);
      EXPECT_TRUE(text == new_ || (text == old_ && !at_end)) << moment << ": it holds\n" << text;
    } catch (const NotFound& e) {
      EXPECT_TRUE(old_.empty() && !at_end) << moment << ": " << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << moment << ": " << e.what();
    }
    try {
      BuildOptions options;
      options.threads = 1;
      options.journal_bytes = journal_bytes_;
      build_index(index, shards(num_shards_), options);
      EXPECT_EQ(index_text(index), new_) << moment << ", built again";
      EXPECT_THAT(dir.list(),
                  testing::ElementsAre("t.idx", testing::MatchesRegex("t\\.idx\\..*\\.table")))
          << moment << ", built again";
    } catch (const std::exception& e) {
      ADD_FAILURE() << moment << ", built again: " << e.what();
    }
  }

  TempDir shard_directory_;
  std::vector<std::string> shards_ = test::write_shards(shard_directory_, 5, 12);
  TempDir directory_;
  std::string index_ = directory_ / "t.idx";
  std::string log_ = shard_directory_ / "operations";
  std::uint64_t journal_bytes_ = 0;
  std::size_t num_shards_ = 0;
  std::optional<Device> device_;
  std::string old_;
  std::string new_;
  std::mt19937_64 random_{kSeed};
  std::set<std::pair<Files, bool>> seen_;
};

TEST(PowerLossTest, AFirstBuildLeavesNoIndexOrAWholeOne) {
  Recording recording;
  ASSERT_EQ(recording.build(4, kNoJournal), "");
  recording.expect_every_power_loss_survived();
}

TEST(PowerLossTest, AnUpdateLeavesTheOldIndexOrTheNewOne) {
  Recording recording;
  recording.build_old(2);
  ASSERT_EQ(recording.build(5, kNoJournal), "");
  recording.expect_every_power_loss_survived();
}

TEST(PowerLossTest, AFirstBuildWithAJournalLeavesNoIndexOrAWholeOne) {
  Recording recording;
  ASSERT_EQ(recording.build(4, kJournalAll), "");
  recording.expect_every_power_loss_survived();
}

TEST(PowerLossTest, AnUpdateWithAJournalLeavesTheOldIndexOrTheNewOne) {
  Recording recording;
  recording.build_old(2);
  ASSERT_EQ(recording.build(5, kJournalAll), "");
  recording.expect_every_power_loss_survived();
}

TEST(PowerLossTest, ABuildThatGoesOnFromAKilledOnesJournalIsAsSafe) {
  Recording recording;
  recording.build_old(2);
  ASSERT_EQ(recording.build(5, kJournalAll, "journal.flushed", 2), "killed by signal 9");
  ASSERT_EQ(recording.build(5, kJournalAll), "");
  recording.expect_every_power_loss_survived();
}

// A killed build renamed the catalogue but did not sync the directory. The next build has nothing
// to scan, and removes the old table. That removal must not become durable before the rename.
TEST(PowerLossTest, ABuildAfterOneThatWasKilledOverItsLastRenameIsAsSafe) {
  Recording recording;
  recording.build_old(2);
  ASSERT_EQ(recording.build(5, kJournalAll, "atomic_file.after_rename", 2), "killed by signal 9");
  ASSERT_EQ(recording.build(5, kJournalAll), "");
  recording.expect_every_power_loss_survived();
}

}  // namespace
}  // namespace shardwise
