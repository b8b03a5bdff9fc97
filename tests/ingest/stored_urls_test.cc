// How an index stores the URLs of its shards: without secrets, and relative to their common part.
// Also checks that shards are fetched by the URLs that the user gave.

#include <filesystem>
#include <map>

#include "base/url.h"
#include "index/catalogue.h"
#include "index/index_files.h"
#include "index/rows.h"
#include "index/sqlite.h"
#include "ingest/remote_shards.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_cache.h"
#include "shardwise/ingest/index_export.h"
#include "shardwise/ingest/verify.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;
using test::TarBuilder;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecret = "swordfish";

/// A remote source that serves files only if the URL contains the secret.
class PrivateShards : public RemoteShards {
 public:
  std::map<std::string, std::string> files;
  int num_reads = 0;

  void add(const std::string& url, int number) {
    const std::string key = "s" + std::to_string(number);
    files[url] = TarBuilder().file(key + ".txt", "text of " + key).end().bytes();
  }
  State state(const std::string& url) override {
    return {.size_bytes = bytes(url).size(), .validator = "\"v\"", .has_ranges = true};
  }
  void read(const std::string& url, const State&, std::uint64_t begin,
            std::optional<std::uint64_t> end,
            const std::function<void(std::string_view)>& take) override {
    ++num_reads;
    const std::string& whole = bytes(url);
    take(std::string_view(whole).substr(begin, end.value_or(whole.size()) - begin));
  }
  std::optional<Copy> copy(const std::string&, const State&) override { return std::nullopt; }
  void keep_expanded(const std::string&, const State&, const std::string&, Compression,
                     std::uint64_t) override {}

 private:
  const std::string& bytes(const std::string& url) const {
    const auto found = files.find(unsigned_url(url));
    if (found == files.end()) throw NotFound("no such file", without_secrets(url), "");
    if (url.find(kSecret) == std::string::npos) {
      throw FetchError("cannot fetch", without_secrets(url) + " (HTTP status 403)", "");
    }
    return found->second;
  }
};

/// The ways in which a URL can contain credentials.
const std::vector<std::pair<std::string, std::string>>& ways() {
  // The text before the host, and the text after the path.
  static const std::vector<std::pair<std::string, std::string>> kWays = {
      {"me:swordfish@", ""},
      {"", "?X-Amz-Date=1&X-Amz-Credential=me&X-Amz-Signature=swordfish"},
      {"", "?AWSAccessKeyId=me&Expires=1&Signature=swordfish"},
      {"", "?sv=2022-11-02&se=1&sr=c&sig=swordfish"},
      {"", "?X-Goog-Date=1&X-Goog-Signature=swordfish"},
      {"", "?Expires=1&KeyName=swordfish&Signature=swordfish"},
      {"", "?OSSAccessKeyId=swordfish&Expires=1&Signature=swordfish&security-token=swordfish"},
      {"", "?x-oss-credential=swordfish&x-oss-date=1&x-oss-signature=swordfish"},
      {"", "?q-ak=swordfish&q-sign-time=1;2&q-signature=swordfish&x-cos-security-token=swordfish"},
      {"", "#swordfish"}};
  return kWays;
}

std::string with(std::string url, const std::pair<std::string, std::string>& way) {
  url.insert(url.find("://") + 3, way.first);
  return url + way.second;
}
std::vector<std::string> with(std::vector<std::string> urls,
                              const std::pair<std::string, std::string>& way) {
  for (std::string& url : urls) url = with(url, way);
  return urls;
}

/// Returns the names of the files below `folder` that contain the secret.
std::vector<std::string> telling_files(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() &&
        test::read_file(entry.path()).find(kSecret) != std::string::npos) {
      found.push_back(entry.path().filename());
    }
  }
  return found;
}

/// Returns the column `url` of the shards as stored in the catalogue.
std::vector<std::string> stored_urls(const std::string& path) {
  const std::string bytes = test::read_file(path);
  const sqlite::Database db = sqlite::Database::over_bytes(bytes, path);
  std::vector<std::string> urls;
  sqlite::Statement select = db.prepare("SELECT url FROM shards ORDER BY shard");
  while (select.step()) urls.push_back(select.bytes(0));
  return urls;
}

class StoredUrlsTest : public testing::Test {
 protected:
  StoredUrlsTest() {
    for (int i = 0; i < 6; ++i) {
      plain_.push_back("https://host/data/" + std::string(i < 3 ? "a/" : "b/") + std::to_string(i) +
                       ".tar");
      server_->add(plain_.back(), i);
    }
  }
  std::string index() const { return dir_ / "x.idx"; }
  std::vector<std::string> all_signed(std::size_t way) const { return with(plain_, ways()[way]); }
  BuildOptions options() const { return {.threads = 1, .remote = server_}; }

  const TempDir dir_;
  const std::shared_ptr<PrivateShards> server_ = std::make_shared<PrivateShards>();
  std::vector<std::string> plain_;
};

TEST_F(StoredUrlsTest, NoSecretIsKeptAndWhatUrlsHaveInCommonOnce) {
  Hash128 fingerprint;
  for (const auto& way : ways()) {
    SCOPED_TRACE(way.first + way.second);
    const BuildReport report = build_index(index(), with(plain_, way), options());
    if (report.shards_scanned > 0) fingerprint = report.summary.fingerprint;
    EXPECT_EQ(report.summary.fingerprint, fingerprint);
    EXPECT_EQ(report.summary.url_base, "https://host/data/");
    EXPECT_THAT(stored_urls(index()), ElementsAre(":a/0.tar", ":a/1.tar", ":a/2.tar", ":b/3.tar",
                                                  ":b/4.tar", ":b/5.tar"));
    const auto opened = Index::open(index());
    opened->validate();
    EXPECT_EQ(opened->summary().url_base, "https://host/data/");
    for (std::size_t i = 0; i < plain_.size(); ++i) {
      EXPECT_EQ(opened->shard(i).url, plain_[i]);
      EXPECT_EQ(opened->shard(i).path, plain_[i]);
    }
    EXPECT_THAT(telling_files(dir_.path()), ElementsAre());
  }
  EXPECT_EQ(server_->num_reads, 6) << "signed anew, nothing was read again";
}

TEST_F(StoredUrlsTest, AnIndexOpenedByUrlsOfTodayFetchesByThem) {
  const auto first = with(plain_, ways()[1]), second = with(plain_, ways()[3]);
  build_index(index(), first, options());
  const auto opened = Index::open(index(), {.urls = second});
  for (std::size_t i = 0; i < plain_.size(); ++i) {
    EXPECT_EQ(opened->shard(i).path, second[i]);
    EXPECT_EQ(opened->shard(i).url, plain_[i]);
  }
  EXPECT_EQ(verify_shard(*opened, 4, {.remote = server_}), std::nullopt);
  const auto without = Index::open(index());
  EXPECT_THAT(verify_shard(*without, 4, {.remote = server_}).value_or(""),
              HasSubstr("https://host/data/b/4.tar (HTTP status 403)"));
  // Queries and exported files do not contain it either.
  Query query(opened, "SELECT url FROM shards WHERE shard = 4");
  ASSERT_TRUE(query.next());
  EXPECT_THAT(std::string(query.value(0).bytes), HasSubstr("https://host/data/b/4.tar"));
  EXPECT_THAT(std::string(query.value(0).bytes), Not(HasSubstr(kSecret)));
  write_wids_descriptor(*opened, dir_ / "out.json");
  EXPECT_THAT(test::read_file(dir_ / "out.json"), HasSubstr("\"https://host/data/b/4.tar\""));
  EXPECT_THAT(telling_files(dir_.path()), ElementsAre());
}

TEST_F(StoredUrlsTest, WhatOtherParametersSayStays) {
  for (const char* version : {"1", "2"}) {
    server_->add("https://host/data/x.tar?versionId=" + std::string(version), version[0]);
  }
  build_index(index(),
              {"https://me:swordfish@host/data/x.tar?versionId=1",
               "https://host/data/x.tar?X-Amz-Date=1&versionId=2&X-Amz-Signature=swordfish"},
              options());
  EXPECT_THAT(stored_urls(index()), ElementsAre(":x.tar?versionId=1", ":x.tar?versionId=2"));
  EXPECT_EQ(Index::open(index())->shard(1).url, "https://host/data/x.tar?versionId=2");
}

TEST_F(StoredUrlsTest, OtherHostsAreStoredWholeAndPathsAsBefore) {
  server_->add("https://other/0.tar", 7);
  const auto local = test::write_shards(dir_, 1, 3);
  const std::string odd = dir_ / ":odd.tar";
  fs::copy(local[0], odd);
  std::vector<std::string> shards = {with(plain_[0], ways()[0]), odd};
  build_index(index(), shards, options());
  EXPECT_THAT(stored_urls(index()), ElementsAre(":0.tar", "./:odd.tar"));
  EXPECT_EQ(Index::open(index())->shard(1).path, odd);
  shards.push_back(with("https://other/0.tar", ways()[2]));
  build_index(index(), shards, options());
  EXPECT_THAT(stored_urls(index()), ElementsAre(plain_[0], "./:odd.tar", "https://other/0.tar"));
  EXPECT_EQ(Index::open(index())->summary().url_base, "");
  EXPECT_EQ(Index::open(index())->shard(2).path, "https://other/0.tar");
  EXPECT_THAT(telling_files(dir_.path()), ElementsAre());
}

// Each part of the index may have another base and another signature.
TEST_F(StoredUrlsTest, PartsOfDifferentBasesMergeIntoWhatOneBuildMakes) {
  build_index(index(), all_signed(0), options());
  std::vector<std::string> parts;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    BuildOptions part = options();
    part.part = BuildOptions::Part{number, 2};
    parts.push_back(dir_ / "part" + std::to_string(number));
    build_index(parts.back(), all_signed(number), part);
  }
  EXPECT_EQ(Index::open(parts[0], {})->summary().url_base, "https://host/data/a/");
  EXPECT_EQ(Index::open(parts[1], {})->summary().url_base, "https://host/data/b/");
  merge_indexes(dir_ / "merged.idx", parts);
  const auto content = [](const std::string& path) {
    const std::string bytes = test::read_file(path);
    const sqlite::Database db = sqlite::Database::over_bytes(bytes, path);
    std::string columns = "quote(shard)";
    for (const std::string& name : columns_of<Index::Shard>())
      columns += "||'|'||quote(" + name + ")";
    std::string text;
    for (const std::string& sql :
         {"SELECT " + columns + "||quote(checksum) FROM shards ORDER BY shard",
          std::string("SELECT quote(field)||quote(members)||quote(checksum) FROM fields"),
          std::string("SELECT name||'|'||value FROM meta WHERE name NOT IN ('built_at', "
                      "'checksum', 'table_file') ORDER BY name")}) {
      sqlite::Statement select = db.prepare(sql);
      while (select.step()) text += select.bytes(0) + "\n";
    }
    return text;
  };
  EXPECT_EQ(content(dir_ / "merged.idx"), content(index()));
  EXPECT_THAT(content(index()), HasSubstr("url_base|https://host/data/\n"));
  EXPECT_EQ(test::read_file(dir_ / test::table_of(dir_, "merged.idx")),
            test::read_file(dir_ / test::table_of(dir_, "x.idx")));
  EXPECT_THAT(telling_files(dir_.path()), ElementsAre());
}

TEST_F(StoredUrlsTest, WordsAreKeptWithoutSecrets) {
  const auto words_of = [&](const std::vector<std::string>& given) {
    BuildOptions how = options();
    how.sources = given;
    build_index(index(), with(plain_, ways()[0]), how);
    EXPECT_THAT(telling_files(dir_.path()), ElementsAre());
    return index_sources(index());
  };
  EXPECT_THAT(words_of({"https://me:swordfish@host/train.json?sv=1&sig=swordfish", "s3://b/*.tar"}),
              ElementsAre("https://host/train.json", "s3://b/*.tar"));
  EXPECT_THAT(words_of({"https://me:swordfish@{a,b}/{0..2}.tar?X-Amz-Signature=swordfish&n=1"}),
              ElementsAre("https://{a,b}/{0..2}.tar?n=1"));
  // If the braces contain secrets, the pattern is replaced by the URLs that it expands to.
  EXPECT_THAT(words_of({"https://h/{0.tar?sv=1&sig=swordfish1,1.tar?sv=1&sig=swordfish2}"}),
              ElementsAre("https://h/0.tar", "https://h/1.tar"));
  EXPECT_THAT(words_of({"{https://me:swordfish@h,https://you:swordfish@i}/{0..1}.tar", "d/{0..9}"}),
              ElementsAre("https://h/0.tar", "https://h/1.tar", "https://i/0.tar",
                          "https://i/1.tar", fs::current_path().string() + "/d/{0..9}"));
}

TEST_F(StoredUrlsTest, AMissingShardIsRememberedWithoutThem) {
  std::vector<std::string> urls = with(plain_, ways()[2]);
  urls.push_back(with("https://host/data/gone.tar", ways()[2]));
  BuildOptions how = options();
  how.drop_missing = true;
  EXPECT_EQ(build_index(index(), urls, how).dropped.size(), 1U);
  EXPECT_THAT(index_sources(index()), testing::Contains("https://host/data/gone.tar"));
  EXPECT_THAT(telling_files(dir_.path()), ElementsAre());
}

TEST_F(StoredUrlsTest, AKilledBuildIsGoneOnWithByUrlsThatAreSignedAnew) {
  BuildOptions how = options();
  how.journal_bytes = 1;
  CancelToken::Flag stop = false;
  how.cancel = &stop;
  how.progress = [&](const Progress& at) {
    if (at.shards_done == 3) stop = true;
  };
  EXPECT_EQ(test::error_code([&] { build_index(index(), all_signed(0), how); }),
            ErrorCode::kCancelled);
  ASSERT_TRUE(has_journal(index()));
  EXPECT_THAT(telling_files(dir_.path()), ElementsAre()) << "the journal tells";
  EXPECT_EQ(build_index(index(), all_signed(1), options()).shards_resumed, 3U);
}

TEST_F(StoredUrlsTest, SourcesThatAreSignedAnewHaveOneIndex) {
  std::vector<std::string> indexes;
  for (const auto& way : ways()) {
    std::vector<std::string> urls;
    IndexCacheOptions how;
    how.directory = dir_ / "indexes";
    how.build = options();
    how.on_sources = [&](const SourceList& sources) { urls = sources.shards; };
    indexes.push_back(index_for(with(plain_, way), how));
    EXPECT_EQ(indexes.back(), indexes.front());
    EXPECT_EQ(urls, with(plain_, way));
  }
  EXPECT_EQ(server_->num_reads, 6);
  EXPECT_THAT(telling_files(dir_.path()), ElementsAre());
}

TEST_F(StoredUrlsTest, ADescriptorOfSignedUrlsIsHeldAgainstTheIndex) {
  std::string json = R"({"__kind__":"wids-shard-index-v1","wids_version":1,"shardlist":[)";
  for (const std::string& url : with(plain_, ways()[3])) {
    json += (json.ends_with('[') ? "" : ",") + (R"({"url":")" + url) + R"(","nsamples":1})";
  }
  fs::create_directories(dir_ / "in");
  test::write_file(dir_ / "in/signed.json", json + "]}");
  const SourceList list = read_sources({dir_ / "in/signed.json"}, server_);
  BuildOptions how = options();
  how.sources = list.sources;
  build_index(index(), list.shards, how);
  check_against_descriptor(*Index::open(index()), list.descriptors[0]);
  EXPECT_THAT(telling_files(dir_.path()), ElementsAre("signed.json"));
  EXPECT_EQ(update_index(index(), options()).shards_reused, 6U) << "the descriptor says how";
}

TEST_F(StoredUrlsTest, ErrorsAboutPatternsShowNone) {
  for (const char* pattern :
       {"{https://me:swordfish@h,x", "https://me:swordfish@h/{1..x}?sig=swordfish",
        "{a,https://me:swordfish@h/{3..1}}"}) {
    const std::string text = test::error_text([&] { read_sources({pattern}, server_); });
    EXPECT_THAT(text, AllOf(HasSubstr("https://"), Not(HasSubstr(kSecret)))) << pattern;
  }
}

// A hostile writer may have set the base. A reader must not build a URL without a base, and must
// not accept a command as the base.
TEST_F(StoredUrlsTest, ABaseThatIsNoneIsDamage) {
  const auto rewritten = [&](const std::string& base, const std::string& url) {
    build_index(index(), all_signed(0), options());
    const IndexFiles files(index());
    CatalogueWriter writer(index(), base);
    for (std::uint64_t i = 0; i < plain_.size(); ++i) {
      Index::Shard row = files.catalogue().shard(i);
      row.url = url;
      writer.add_shard(row);
    }
    for (const Index::Summary::Field& field : files.catalogue().fields()) writer.add_field(field);
    writer.finish(files.catalogue().meta());
    writer.commit();
  };
  rewritten("https://host/data/", ":0.tar");
  EXPECT_EQ(Index::open(index())->shard(2).path, "https://host/data/0.tar");
  rewritten("", ":0.tar");
  const auto opened = Index::open(index());
  EXPECT_THAT(test::error_text([&] { opened->shard(2); }),
              AllOf(HasSubstr("URL is relative"), HasSubstr("no base")));
  EXPECT_EQ(test::error_code([&] { opened->validate(); }), ErrorCode::kCorruptIndex);
  for (const char* base : {"pipe:touch x/", "/etc/", "file:///etc/", "https://host", "x"}) {
    rewritten(base, ":0.tar");
    EXPECT_EQ(test::error_code([&] { Index::open(index()); }), ErrorCode::kCorruptIndex) << base;
    EXPECT_THAT(test::error_text([&] { Index::open(index()); }), HasSubstr("base of the URLs"));
  }
}

// The hash of a part's list is computed from the URLs as the index stores them.
TEST_F(StoredUrlsTest, AGoldenListHash) {
  BuildOptions part = options();
  part.part = BuildOptions::Part{1, 2};
  build_index(index(), with({plain_[0], plain_[3]}, ways()[0]), part);
  EXPECT_EQ(to_string(Index::open(index())->summary().part->list_hash),
            "c2def9e243748089931f82db291e35e7");
}

}  // namespace
}  // namespace shardwise
