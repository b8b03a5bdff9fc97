// Indexes at a URL: fetching, versions, wrong files, hostile indexes, and several processes.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/fault_point.h"
#include "ingest/remote_shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_cache.h"
#include "shardwise/ingest/relocate.h"
#include "shardwise/ingest/verify.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::error_code;
using test::error_text;
using test::read_file;
using test::ServedFile;
using test::TarBuilder;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// A folder with an index and its shards, of which a server has a copy at /team/set/.
class FetchedIndexTest : public ::testing::Test {
 protected:
  static constexpr int kSamples = 7;  // per shard

  FetchedIndexTest() : fetchers_(std::make_shared<const Fetchers>(test::quick_options())) {
    fs::create_directory(data());
    for (int i = 0; i < 3; ++i) write_shard(i, "one");
    build();
    upload();
  }

  std::string data() const { return dir_ / "data"; }
  std::string index_path() const { return data() + "/train.idx"; }
  static std::string shard_name(int i) { return "part " + std::to_string(i) + "%a.tar"; }
  void write_shard(int i, const std::string& text) const {
    TarBuilder tar;
    for (int k = 0; k < kSamples; ++k) {
      tar.file("s" + std::to_string(kSamples * i + k) + ".txt", text);
    }
    write_file(data() + "/" + shard_name(i), tar.end().bytes());
  }
  void build() const { build_index(index_path(), shards_in(data())); }
  static std::vector<std::string> shards_in(const std::string& folder) {
    std::vector<std::string> shards;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".tar") shards.push_back(entry.path());
    }
    std::sort(shards.begin(), shards.end());
    return shards;
  }

  static std::string encoded(const std::string& name) {
    std::string text;
    for (const char c : name) text += c == ' ' ? "%20" : c == '%' ? "%25" : std::string(1, c);
    return text;
  }
  std::string path_of(const std::string& name) const { return "/team/set/" + encoded(name); }
  std::string url() const { return server_.url(path_of("train.idx")); }
  std::string table_name() const {
    for (const auto& entry : fs::directory_iterator(data())) {
      if (entry.path().extension() == ".table") return entry.path().filename();
    }
    return "";
  }
  std::string table_path() const { return path_of(table_name()); }
  /// Copies all files to the server. Each file's ETag is new.
  void upload() {
    for (const auto& entry : fs::directory_iterator(data())) {
      const std::string name = entry.path().filename();
      server_.serve(path_of(name), {.body = read_file(entry.path()),
                                    .etag = '"' + std::to_string(++version_) + '"'});
    }
  }
  /// Adds a shard to the folder, indexes it, and copies all files to the server.
  void grow() {
    const std::string old_table = table_path();
    write_shard(static_cast<int>(shards_in(data()).size()), "more");
    build();
    server_.remove(old_table);
    upload();
  }

  std::string folder() const { return dir_ / "kept"; }
  Dataset::Options options() {
    return {.cache = ShardCache::open({.directory = dir_ / "cache", .fetchers = fetchers_}),
            .index_cache = {.directory = folder()}};
  }
  Dataset open(const std::string& at) { return Dataset::open(at, options()); }
  Dataset open() { return open(url()); }
  /// Returns the names of the files of copied indexes, without their folders, which are named after
  /// URLs.
  std::vector<std::string> kept() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
      if (entry.path().parent_path().extension() == ".fetched") {
        names.push_back(entry.path().filename());
      }
    }
    return names;
  }
  std::size_t kept_with(const std::string& end) const {
    std::size_t count = 0;
    for (const std::string& name : kept()) count += name.ends_with(end) ? 1 : 0;
    return count;
  }
  int num_requests() const { return static_cast<int>(server_.requests().size()); }
  static std::string text_of(const Dataset& data, std::uint64_t number) {
    const Sample sample = data[number];
    return std::string(sample["txt"]);
  }

  test::TempDir dir_;
  test::TestHttpServer server_;
  std::shared_ptr<const Fetchers> fetchers_;
  int version_ = 0;
};

TEST_F(FetchedIndexTest, OneUrlIsADataset) {
  const Dataset data = open();
  ASSERT_EQ(data.size(), 3U * kSamples);
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    const Sample sample = data[i];
    EXPECT_EQ(sample.key(), "s" + std::to_string(i));
    EXPECT_EQ(sample["txt"], "one");
  }
  EXPECT_EQ(data.index().origin(), url());
  EXPECT_EQ(data.index().shard(1).path, server_.url(path_of(shard_name(1))));
  EXPECT_EQ(data.index().shard(1).url, shard_name(1));
  EXPECT_EQ(data.fingerprint(), Dataset::open(index_path()).fingerprint());
  // All ways to open the copied file find the same shards.
  EXPECT_EQ(Index::open(data.index().path())->shard(2).path, data.index().shard(2).path);
  EXPECT_EQ(server_.gets(path_of("train.idx")), 1);
  EXPECT_EQ(server_.gets(path_of(table_name())), 1);

  const int before = num_requests();
  EXPECT_EQ(open().size(), data.size());
  ASSERT_EQ(num_requests(), before + 1) << "only the server's version is requested";
  EXPECT_EQ(server_.requests().back().method, "HEAD");
}

/// Sends the files of a folder in pieces of 10 bytes.
class InPieces : public RemoteShards {
 public:
  explicit InPieces(std::string folder) : folder_(std::move(folder)) {}

  State state(const std::string& url) override {
    return {.size_bytes = content(url).size(), .validator = "\"v\""};
  }
  void read(const std::string& url, const State&, std::uint64_t, std::optional<std::uint64_t>,
            const std::function<void(std::string_view)>& take) override {
    const std::string bytes = content(url);
    for (std::size_t at = 0; at < bytes.size(); at += 10) take(bytes.substr(at, 10));
  }
  std::optional<Copy> copy(const std::string&, const State&) override { return std::nullopt; }
  void keep_expanded(const std::string&, const State&, const std::string&, Compression,
                     std::uint64_t) override {}

 private:
  std::string content(const std::string& url) const {
    return read_file(folder_ + url.substr(url.rfind('/')));
  }
  const std::string folder_;
};

TEST_F(FetchedIndexTest, TheServerMaySendPiecesOfAnySize) {
  const std::string path =
      index_for("https://h/train.idx",
                {.directory = folder(), .build = {.remote = std::make_shared<InPieces>(data())}});
  EXPECT_EQ(Index::open(path)->size(), 3U * kSamples);
}

TEST_F(FetchedIndexTest, AnotherVersionIsFetchedAndTheLastOneStays) {
  const Dataset first = open();
  grow();
  const Dataset second = open();
  EXPECT_EQ(second.size(), 4U * kSamples);
  EXPECT_EQ(text_of(second, 3 * kSamples), "more");
  EXPECT_EQ(first.size(), 3U * kSamples);
  EXPECT_EQ(text_of(first, 0), "one");
  EXPECT_EQ(kept_with(".idx"), 2U);
  // A worker of a running job opens the version of the job, without asking the server.
  const int before = num_requests();
  Dataset::Options wanted = options();
  wanted.index_cache.fingerprint = first.fingerprint();
  EXPECT_EQ(Dataset::open(url(), wanted).fingerprint(), first.fingerprint());
  wanted.index_cache.fingerprint = second.fingerprint();
  EXPECT_EQ(Dataset::open(url(), wanted).fingerprint(), second.fingerprint());
  EXPECT_EQ(num_requests(), before);

  grow();
  EXPECT_EQ(open().size(), 5U * kSamples);
  EXPECT_EQ(kept_with(".idx"), 2U) << "the current version and the one before";
  EXPECT_EQ(kept_with(".table"), 2U);
  EXPECT_EQ(kept().size(), 5U);
  wanted.index_cache.fingerprint = first.fingerprint();
  EXPECT_EQ(Dataset::open(url(), wanted).size(), 5U * kSamples)
      << "the caller compares the fingerprints";
}

TEST_F(FetchedIndexTest, OfTwoVersionsWithOneFingerprintTheCurrentOneIsOpened) {
  const std::string fingerprint = to_string(open().fingerprint());
  Dataset::Options wanted = options();
  wanted.index_cache.fingerprint = open().fingerprint();
  // Each of the two versions is the current one once, because their folder may be listed in any
  // order.
  for (const bool has_column : {true, false}) {
    build_index(index_path(), shards_in(data()),
                {.content = {.columns = {has_column ? std::vector<Index::Column>{{"txt", "txt", ""}}
                                                    : std::vector<Index::Column>{}}}});
    upload();
    const Dataset current = open();
    ASSERT_EQ(to_string(current.fingerprint()), fingerprint);
    EXPECT_EQ(kept_with(".idx"), 2U);
    EXPECT_EQ(Dataset::open(url(), wanted).index().path(), current.index().path());
  }
}

TEST_F(FetchedIndexTest, ATableThatIsThereIsNotFetchedAgain) {
  open();
  upload();  // new ETags, the same bytes
  open();
  EXPECT_EQ(server_.gets(path_of("train.idx")), 2);
  EXPECT_EQ(server_.gets(table_path()), 1);
  EXPECT_EQ(kept_with(".idx"), 1U);
}

TEST_F(FetchedIndexTest, AServerWithoutVersionsSendsTheCatalogueEachTime) {
  server_.serve(
      path_of("train.idx"),
      {.body = read_file(index_path()), .etag = "", .has_ranges = false, .has_head = false});
  const auto gets = [&] { return server_.gets(path_of("train.idx")); };
  open();
  const int first = gets();
  EXPECT_EQ(open().size(), 3U * kSamples);
  EXPECT_GT(gets(), first);
  EXPECT_EQ(server_.gets(table_path()), 1);
  EXPECT_EQ(kept_with(".idx"), 1U);
}

TEST_F(FetchedIndexTest, TheVersionBeforeStaysIfTheCurrentOneIsFetchedAgain) {
  Dataset::Options wanted = options();
  wanted.index_cache.fingerprint = open().fingerprint();
  grow();
  const std::string path = open().index().path();
  const auto opens_before = [&] {
    const int before = num_requests();
    return Dataset::open(url(), wanted).size() == 3U * kSamples && num_requests() == before;
  };
  EXPECT_TRUE(opens_before());
  upload();  // the same files, as new versions
  open();
  EXPECT_TRUE(opens_before());
  write_file(path, "damaged");
  open();
  EXPECT_TRUE(opens_before());
  server_.serve(path_of("train.idx"), {.body = read_file(index_path()), .etag = ""});
  for (int i = 0; i < 2; ++i) open();
  EXPECT_TRUE(opens_before());
}

TEST_F(FetchedIndexTest, TheCopyIsUsedIfTheServerIsAway) {
  test::TestHttpServer other;
  other.serve("/x.idx", {.body = read_file(index_path())});
  other.serve("/" + table_name(), {.body = read_file(data() + "/" + table_name())});
  const std::string at = other.url("/x.idx"), missing = other.url("/y.idx");
  std::string told;
  Dataset::Options how = options();
  how.index_cache.on_unreached = [&](const std::string& url, const std::string& reason) {
    told = url + ": " + reason;
  };
  Dataset::open(at, how);
  other.set_gate([](const auto&) { return std::optional(std::pair(503, std::string("busy"))); });
  EXPECT_THAT(error_text([&] { Dataset::open(at, how); }),
              AllOf(HasSubstr("503"), HasSubstr("IndexCacheOptions::offline")));
  EXPECT_EQ(told, "");
  const auto gone = [&] {  // nothing listens at this port any more
    test::TestHttpServer server;
    return server.url("/x.idx");
  }();
  Fetchers::Options moved = test::quick_options();
  moved.moved = {{other.url("/x.idx"), gone}, {missing, gone}};
  fetchers_ = std::make_shared<const Fetchers>(moved);
  how.cache = options().cache;
  EXPECT_EQ(Dataset::open(at, how).size(), 3U * kSamples);
  EXPECT_THAT(told, AllOf(StartsWith(at + ": cannot fetch: '" + gone), HasSubstr("attempt")));
  EXPECT_EQ(error_code([&] { Dataset::open(missing, how); }), ErrorCode::kFetch);

  how.index_cache.offline = true;
  told.clear();
  const auto before = other.requests().size();
  EXPECT_EQ(Dataset::open(at, how).size(), 3U * kSamples);
  EXPECT_EQ(other.requests().size(), before);
  EXPECT_EQ(told, "") << "nobody tried to reach it";
  EXPECT_THAT(error_text([&] { Dataset::open(missing, how); }),
              AllOf(StartsWith("this machine has no copy of the index: '" + missing),
                    HasSubstr("IndexCacheOptions::offline")));
}

// Faults under test: tests/faults.md 10, 11.
TEST_F(FetchedIndexTest, WrongFilesAreErrorsThatSayWhatToDo) {
  const std::string idx = path_of("train.idx"), table = table_path();
  const std::string catalogue = read_file(index_path());
  const std::string bytes = read_file(data() + "/" + table_name());
  // Another index, whose table is then served under the name of this index's table.
  write_shard(0, "other");
  build_index(dir_ / "other.idx", {data() + "/" + shard_name(0)});
  std::string other_table;
  for (const std::string& name : dir_.list()) {
    if (name.ends_with(".table")) other_table = read_file(dir_ / name);
  }
  std::string flipped = bytes;
  flipped[flipped.size() / 3] = static_cast<char>(flipped[flipped.size() / 3] ^ 1);
  struct Case {
    const char* what;
    std::optional<ServedFile> idx, table;
    ErrorCode code;
    std::vector<std::string> says;
    int gets;  // requests for the table; one more if the index may have been replaced meanwhile
  };
  const std::string both = "upload both files of the index, the table first";
  const ServedFile good{.body = catalogue}, good_table{.body = bytes};
  const std::vector<Case> cases = {
      {"no index",
       std::nullopt,
       good_table,
       ErrorCode::kNotFound,
       {"no index is at this URL: '" + url(), "404", "check the URL", both},
       0},
      {"no table",
       good,
       std::nullopt,
       ErrorCode::kCorruptIndex,
       {"the index's table is missing at the URL: '" + url(), table_name(), "404", both},
       0},
      {"a page",
       ServedFile{.body = "<!DOCTYPE html><p>Log in</p>"},
       good_table,
       ErrorCode::kCorruptIndex,
       {"the file at the URL is not an index: '" + url(), "<!DOCTYPE html><p>Lo", "login"},
       0},
      {"an empty file",
       ServedFile{.body = ""},
       good_table,
       ErrorCode::kCorruptIndex,
       {url(), both},
       0},
      {"another index's table",
       good,
       ServedFile{.body = other_table},
       ErrorCode::kCorruptIndex,
       {"do not belong together: '" + url(), "another index", both},
       2},
      {"a damaged table",
       good,
       ServedFile{.body = flipped},
       ErrorCode::kCorruptIndex,
       {"the index at the URL is damaged", url(), both},
       2},
      {"a truncated table",
       good,
       ServedFile{.body = bytes.substr(0, bytes.size() - 8)},
       ErrorCode::kCorruptIndex,
       {url(), both},
       2},
      {"a truncated catalogue",
       ServedFile{.body = catalogue.substr(0, catalogue.size() / 2)},
       good_table,
       ErrorCode::kCorruptIndex,
       {url(), both},
       0},
      {"refused",
       ServedFile{.statuses = std::vector<int>(9, 403)},
       good_table,
       ErrorCode::kFetch,
       {url(), "403", "add credentials"},
       0},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    fs::remove_all(folder());
    for (const auto& [path, file] : {std::pair(idx, each.idx), std::pair(table, each.table)}) {
      server_.remove(path);
      if (file) server_.serve(path, *file);
    }
    const int gets = server_.gets(table);
    std::string text;
    EXPECT_EQ(error_code([&] {
                text = error_text([&] { open(); });
                open();
              }),
              each.code);
    for (const std::string& says : each.says) EXPECT_THAT(text, HasSubstr(says));
    EXPECT_EQ(server_.gets(table) - gets, 2 * each.gets);
    // Files that were refused are not used when the server has the right ones.
    server_.serve(idx, {.body = catalogue, .etag = "\"right\""});
    server_.serve(table, {.body = bytes, .etag = "\"right\""});
    EXPECT_EQ(open().size(), 3U * kSamples);
    EXPECT_EQ(kept().size(), 3U);
  }
}

TEST_F(FetchedIndexTest, AnIndexThatIsReplacedDuringTheFetchIsFetchedAgain) {
  // Before the table is requested, both files are replaced, as `aws s3 sync --delete` does.
  const std::string old_table = table_path();
  const std::string old_catalogue = read_file(index_path());
  const std::string old_bytes = read_file(data() + "/" + table_name());
  grow();
  const std::string new_catalogue = read_file(index_path());
  server_.serve(path_of("train.idx"), {.body = old_catalogue, .etag = "\"old\""});
  server_.serve(old_table, {.body = old_bytes});
  Dataset::Options how = options();
  how.index_cache.on_fetch = [&](const std::string&, std::uint64_t) {
    server_.remove(old_table);
    server_.serve(path_of("train.idx"), {.body = new_catalogue, .etag = "\"new\""});
  };
  EXPECT_EQ(Dataset::open(url(), how).size(), 4U * kSamples);
  EXPECT_EQ(kept_with(".idx"), 1U);
}

TEST_F(FetchedIndexTest, ASignatureOpensBothFilesAndIsStoredNowhere) {
  server_.set_gate(
      [](const test::LoggedRequest& request) -> std::optional<std::pair<int, std::string>> {
        if (request.target.ends_with("?sv=1&sig=sesame")) return std::nullopt;
        return std::pair(403, std::string("no"));
      });
  const Dataset data = open(url() + "?sv=1&sig=sesame");
  EXPECT_EQ(data.size(), 3U * kSamples);
  EXPECT_EQ(data.index().origin(), url());
  for (const auto& entry : fs::recursive_directory_iterator(folder())) {
    if (entry.is_regular_file()) {
      EXPECT_THAT(read_file(entry.path()), Not(HasSubstr("sesame"))) << entry.path();
    }
  }
  EXPECT_THAT(error_text([&] { text_of(data, 0); }),
              AllOf(HasSubstr("403"), Not(HasSubstr("sesame"))));
  // With another signature, or none, the URL means the same copy.
  server_.set_gate({});
  open();
  EXPECT_EQ(kept_with(".idx"), 1U);
}

TEST_F(FetchedIndexTest, ShardsAreBelowTheUrlAlsoAfterARedirect) {
  server_.serve("/go/latest.idx", {.redirect_to = url()});
  server_.serve("/go/" + table_name(), {.redirect_to = server_.url(table_path())});
  const Dataset data = open(server_.url("/go/latest.idx"));
  EXPECT_EQ(data.index().shard(0).path, server_.url("/go/" + encoded(shard_name(0))));
}

// Fault under test: tests/faults.md 47.
TEST_F(FetchedIndexTest, AShardThatWasIndexedAgainIsNotTakenFromTheCache) {
  EXPECT_EQ(text_of(open(), 0), "one");
  write_shard(0, "two");  // the same size, names and headers
  build();
  upload();
  const Dataset data = open();
  EXPECT_EQ(text_of(data, 0), "two");
  EXPECT_EQ(text_of(data, kSamples), "one");
}

TEST_F(FetchedIndexTest, ShardsAreVerifiedAndQueriedByUrl) {
  const Dataset data = open();
  const auto problems = [&] {
    int count = 0;
    verify_shards(data.index(), {.remote = make_remote_access(fetchers_)},
                  [&](std::uint64_t, const auto& problem) { count += problem ? 1 : 0; });
    return count;
  };
  EXPECT_EQ(problems(), 0);
  server_.serve(path_of(shard_name(1)), {.body = "not the shard"});
  EXPECT_EQ(problems(), 1);
  server_.remove(path_of(shard_name(2)));
  EXPECT_EQ(problems(), 2);
  Query query(Index::open(data.index().path()), "SELECT count(*) FROM samples");
  ASSERT_TRUE(query.next());
  EXPECT_EQ(query.value(0).integer, 3 * kSamples);
}

TEST_F(FetchedIndexTest, SingleSamplesNeedHashesOrVersions) {
  Dataset::Options ranged = options();
  ranged.access = Dataset::Access::kRange;
  EXPECT_THAT(error_text([&] { text_of(Dataset::open(url(), ranged), 0); }),
              HasSubstr("the index has neither hashes nor a version of the shard"));
  build_index(index_path(), shards_in(data()), {.content = {.hashes = true}});
  upload();
  EXPECT_EQ(text_of(Dataset::open(url(), ranged), 5), "one");
  write_shard(0, "two");
  upload();
  EXPECT_EQ(error_code([&] { text_of(Dataset::open(url(), ranged), 5); }), ErrorCode::kStaleIndex);
}

// Faults under test: tests/faults.md 43, 44.
TEST_F(FetchedIndexTest, AnIndexOfAStrangerNamesNeitherLocalPathsNorCommands) {
  const std::string away = dir_ / "away";
  fs::create_directory(away);
  fs::copy_file(data() + "/" + shard_name(0), away + "/0.tar");
  build_index(index_path(), {away + "/0.tar"});
  upload();
  const Dataset data = open();
  EXPECT_THAT(error_text([&] { text_of(data, 0); }),
              AllOf(StartsWith("an index from a URL contains a path on this machine: '" + away),
                    HasSubstr("in '" + url()), HasSubstr("Dataset::Options::root")));
  Dataset::Options rooted = options();
  rooted.root = away;
  EXPECT_EQ(text_of(Dataset::open(url(), rooted), 0), "one");

  Fetchers::Options piped = test::quick_options();
  piped.allow_pipe = true;
  fetchers_ = std::make_shared<const Fetchers>(piped);
  build_index(index_path(), {"pipe:cat '" + away + "/0.tar'"},
              {.remote = make_remote_access(fetchers_)});
  EXPECT_EQ(text_of(Dataset::open(index_path(), options()), 0), "one");
  upload();
  EXPECT_THAT(error_text([&] { text_of(open(), 0); }),
              StartsWith("an index from a URL contains a command: 'pipe:"));
}

TEST_F(FetchedIndexTest, NoIndexIsWrittenToAUrl) {
  const std::vector<std::string> shards = shards_in(data());
  const std::vector<std::function<void()>> writers = {
      [&] { build_index(url(), shards); }, [&] { plan_index(url(), shards); },
      [&] { merge_indexes(url(), {index_path()}); },
      [&] {
        relocate_index(url(), {{data(), "/elsewhere"}});
      },
      [&] { update_index(url()); }};
  for (const auto& write : writers) {
    EXPECT_THAT(error_text(write),
                AllOf(StartsWith("an index cannot be written to a URL: '" + url()),
                      HasSubstr("then upload both files")));
  }
  EXPECT_THAT(error_text([&] { Index::open(url()); }),
              AllOf(StartsWith("the index is at a URL"), HasSubstr("Dataset::open")));
  EXPECT_THAT(error_text([&] {
                Dataset::open_sources({url(), shards[0]}, options());
              }),
              StartsWith("an index cannot be one of several sources"));
  EXPECT_EQ(num_requests(), 0);
}

// Fault under test: tests/faults.md 5.
TEST_F(FetchedIndexTest, NoRoomIsATypedErrorAndLeavesNothingInTheWay) {
  const std::string result = test::in_child([&]() -> std::string {
    ::signal(SIGXFSZ, SIG_IGN);
    const Dataset::Options how = options();
    const rlim_t all = read_file(index_path()).size();
    for (const rlim_t limit : {all - 1, all / 2, rlim_t{100}}) {
      test::set_limit(RLIMIT_FSIZE, limit);
      try {
        Dataset::open(url(), how);
        return "no error";
      } catch (const Error& e) {
        const std::string text = e.what();
        if (e.code() != ErrorCode::kNoSpace) return "another error: " + text;
        if (text.find("IndexCacheOptions::directory") == std::string::npos) return text;
      }
    }
    return "";
  });
  EXPECT_EQ(result, "");
  EXPECT_EQ(kept_with(".tmp"), 0U);
  EXPECT_EQ(open().size(), 3U * kSamples);
}

// Fault under test: tests/faults.md 15.
TEST_F(FetchedIndexTest, OfManyProcessesAndThreadsOneFetches) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "needs a build without ThreadSanitizer; skipped because it starts no threads in "
                  "a forked child";
#endif
  constexpr int kProcesses = 6;
  const test::Shared<std::atomic<int>> arrived;
  for (int round = 0; round < test::repeats(3, 30); ++round) {
    const int idx = server_.gets(path_of("train.idx")), table = server_.gets(table_path());
    *arrived.operator->() = 0;
    std::deque<test::Child> children;
    for (int process = 0; process < kProcesses; ++process) {
      children.emplace_back([&]() -> std::string {
        const Dataset::Options how = options();
        ++*arrived.operator->();
        while (*arrived.operator->() < kProcesses) std::this_thread::yield();
        std::atomic<int> right{0};
        const auto work = [&] { right += Dataset::open(url(), how).size() == 3U * kSamples; };
        std::thread other(work);
        work();
        other.join();
        return right == 2 ? "" : "wrong size";
      });
    }
    for (test::Child& child : children) EXPECT_EQ(child.wait(), "");
    EXPECT_EQ(server_.gets(path_of("train.idx")) - idx, 1);
    EXPECT_EQ(server_.gets(table_path()) - table, 1);
    EXPECT_EQ(kept().size(), 3U);
    fs::remove_all(folder());
  }
}

// Faults under test: tests/faults.md 2, 17.
TEST_F(FetchedIndexTest, AProcessThatIsKilledAnywhereLeavesAWholeVersionOrNone) {
  static int left = 0;
  const auto kill_at = [&](int point, std::uint64_t samples) {
    left = point;
    return test::in_child([&]() -> std::string {
      set_fault_handler([](const char*) {
        if (--left == 0) ::kill(::getpid(), SIGKILL);
      });
      return Dataset::open(url(), {.index_cache = {.directory = folder()}}).size() == samples
                 ? ""
                 : "wrong size";
    });
  };
  const Dataset::Options offline{.index_cache = {.directory = folder(), .offline = true}};
  // First without a copy, then with a copy of an earlier version.
  for (const bool has_copy : {false, true}) {
    SCOPED_TRACE(has_copy);
    const fs::path backup = dir_ / "backup";
    const std::uint64_t old_size = Dataset::open(index_path()).size();
    if (has_copy) {
      open();
      fs::copy(folder(), backup, fs::copy_options::recursive);
      grow();
    }
    const std::uint64_t new_size = Dataset::open(index_path()).size();
    for (int point = 1;; ++point) {
      SCOPED_TRACE(point);
      fs::remove_all(folder());
      if (has_copy) fs::copy(backup, folder(), fs::copy_options::recursive);
      const std::string end = kill_at(point, new_size);
      if (has_copy || end.empty()) {
        const std::uint64_t size = Dataset::open(url(), offline).size();
        EXPECT_TRUE(size == new_size || size == old_size) << size;
      }
      EXPECT_EQ(open().size(), new_size);
      EXPECT_EQ(Dataset::open(url(), offline).size(), new_size);
      if (end.empty()) {
        EXPECT_GT(point, 10) << "there are points to be killed at";
        break;
      }
      ASSERT_EQ(end, "killed by signal 9");
    }
    EXPECT_EQ(kept_with(".tmp"), 0U);
    fs::remove_all(folder());
  }
}

TEST_F(FetchedIndexTest, ADamagedCopyIsFetchedAgain) {
  const std::string path = open().index().path();
  const std::string table = fs::path(path).parent_path() / table_name();
  for (const std::string& damaged : {path, table}) {
    write_file(damaged, read_file(damaged).substr(0, 600));
    EXPECT_EQ(text_of(open(), 0), "one");
    fs::remove(damaged);
    EXPECT_EQ(text_of(open(), 0), "one");
  }
  // Opening detects any damage to the catalogue.
  const std::string right = read_file(path);
  for (std::size_t at = 0; at < right.size(); at += 211) {
    std::string wrong = right;
    wrong[at] = static_cast<char>(wrong[at] ^ 4);
    write_file(path, wrong);
    EXPECT_EQ(text_of(open(), 0), "one") << at;
    EXPECT_EQ(read_file(path), right) << at;
  }
  write_file(path, right.substr(0, 600));
  Dataset::Options offline = options();
  offline.index_cache.offline = true;
  EXPECT_THAT(error_text([&] { Dataset::open(url(), offline); }),
              AllOf(HasSubstr("damaged"), HasSubstr(url()),
                    HasSubstr("without IndexCacheOptions::offline")));
  open();
  // If origin.json is damaged, the index is fetched again, even if the job requires this version.
  Dataset::Options wanted = options();
  wanted.index_cache.fingerprint = open().fingerprint();
  for (const auto& how : {options(), wanted}) {
    write_file(fs::path(path).parent_path() / "origin.json", "[]");
    EXPECT_EQ(text_of(Dataset::open(url(), how), 0), "one");
  }
  EXPECT_EQ(error_code([&] {
              fs::remove(fs::path(path).parent_path() / "origin.json");
              Index::open(path);
            }),
            ErrorCode::kCorruptIndex);
}

TEST_F(FetchedIndexTest, ADamagedTableIsFetchedAgain) {
  const std::string path = open().index().path();
  const std::string table = fs::path(path).parent_path() / table_name();
  const std::string right = read_file(table);
  for (std::size_t at = 0; at < 64; at += 4) {  // the magic, the version, ...
    std::string wrong = right;
    wrong[at] = static_cast<char>(wrong[at] ^ 4);
    write_file(table, wrong);
    EXPECT_EQ(text_of(open(), 0), "one") << at;
    EXPECT_EQ(read_file(table), right) << at;
  }
}

TEST_F(FetchedIndexTest, AWrongCatalogueDoesNotRemoveTheTableOfTheCurrentVersion) {
  open();
  std::string wrong = read_file(index_path());
  const std::size_t at = wrong.find(shard_name(1));  // in a row, which opening does not read
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(at, wrong.rfind(shard_name(1)));
  wrong[at] = 'q';
  server_.serve(path_of("train.idx"), {.body = wrong, .etag = "\"wrong\""});
  EXPECT_THAT(error_text([&] { open(); }), HasSubstr("the index at the URL is damaged"));
  Dataset::Options offline = options();
  offline.index_cache.offline = true;
  EXPECT_EQ(text_of(Dataset::open(url(), offline), 0), "one");
  EXPECT_EQ(server_.gets(table_path()), 1);
  EXPECT_EQ(kept_with(".idx"), 1U) << "the wrong catalogue does not stay";
}

TEST_F(FetchedIndexTest, TheErrorOfADamagedSegmentSaysHowTheIndexIsFetchedAgain) {
  const std::string path = open().index().path();
  const std::string home = fs::path(path).parent_path();
  const std::string table = home + "/" + table_name();
  std::string bytes = read_file(table);
  const std::size_t at = bytes.find("s0");  // the first key, which opening does not read
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'x';
  write_file(table, bytes);
  const Dataset data = open();
  for (const auto& text :
       {error_text([&] { text_of(data, 0); }), error_text([&] { data.index().validate(); })}) {
    EXPECT_THAT(text, AllOf(StartsWith("the index is damaged: '" + table),
                            HasSubstr("remove the folder '" + home + "'"), HasSubstr("URL")));
  }
  fs::remove_all(home);
  EXPECT_EQ(text_of(open(), 0), "one");
}

TEST_F(FetchedIndexTest, ACopyThatIsNotUsedForLongIsRemoved) {
  open();
  for (const auto& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() == ".lock") {
      fs::last_write_time(entry.path(),
                          fs::file_time_type::clock::now() - std::chrono::hours(24 * 31));
    }
  }
  index_for(data() + "/" + shard_name(0), {.directory = folder()});
  EXPECT_EQ(kept().size(), 0U);
}

}  // namespace
}  // namespace shardwise
