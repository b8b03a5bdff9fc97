// faults.md 72: shards on servers that require credentials are indexed, signed again, copied,
// edited, moved, merged, relocated and read at random. A simple model predicts the results: every
// read returns the version that was indexed, or the right error. Unchanged shards are not scanned
// again. No file that this project writes ever contains a secret.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/url.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/index_export.h"
#include "shardwise/ingest/relocate.h"
#include "shardwise/ingest/verify.h"
#include "storage/fetch_support.h"
#include "storage/signing.h"
#include "storage/test_http_server.h"
#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShards = 4;
constexpr const char* kSecret = "swordfish";

std::string text_of(std::size_t shard, int version) {
  return "text " + std::to_string(shard) + " of version " + std::to_string(version);
}
std::string tar_of(std::size_t shard, int version) {
  const std::string key = "s" + std::to_string(shard);
  return test::TarBuilder().file(key + ".txt", text_of(shard, version)).end().bytes();
}

/// A folder on a server, which serves its files only to requests with the folder's current secret.
struct Place {
  test::TestHttpServer* server = nullptr;
  std::string path = {};  // "/data/"
  std::string url = {};   // URL of the folder; its shards' URLs begin with it
  int season = 1;
  std::map<std::size_t, int> versions = {};  // version of each shard that exists

  bool is_s3() const { return url.starts_with("s3://"); }
  std::string secret() const { return kSecret + std::to_string(season); }
  std::string url_of(std::size_t shard) const { return url + std::to_string(shard) + ".tar"; }
};

/// How the shards of a read are fetched: where they are, and with which credentials.
struct Fetching {
  std::string what = {};
  Fetchers::Options options = test::quick_options();
  std::vector<std::string> urls = {};  // Index::Lookup::urls
  // Where all shards are looked for; nullopt means where they were indexed.
  std::optional<std::size_t> place = {};
  bool is_let_in = false;
};

class UrlModel : test::Dice {
 public:
  explicit UrlModel(std::uint64_t seed) : Dice(seed) {
    const std::array<std::pair<int, const char*>, 4> at = {
        {{0, "/data/"}, {0, "/data/more/"}, {1, "/mirror/of/data/"}, {2, "/bucket/data/"}}};
    for (const auto& [server, path] : at) {
      Place place{.server = &servers_[static_cast<std::size_t>(server)], .path = path};
      place.url = server == 2 ? "s3://bucket/data/" : place.server->url(path);
      places_.push_back(place);
    }
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      servers_[i].set_gate(
          [this, i](const test::LoggedRequest& request) { return gate(i, request); });
    }
    for (std::size_t i = 0; i < kShards; ++i) {
      edit(0, i);
      for (std::size_t other = 1; other < places_.size(); ++other) put(other, i, num_versions_);
    }
    index_anew();
  }

  /// Returns how often each kind of event occurred, by its name.
  const std::map<std::string, int>& counts() const noexcept { return counts_; }

  void step() {
    ++step_;
    switch (below(14)) {
      case 0:
        ++places_[below(places_.size())].season;
        break;
      case 1:
      case 2:
        copy_place();
        break;
      case 3:
        edit(below(places_.size()), below(kShards));
        break;
      case 4:
        if (below(6) == 0) remove(below(places_.size()), below(kShards));
        break;
      case 5:
        index_anew();
        break;
      case 6:
        merge();
        break;
      case 7:
        update();
        break;
      case 8:
      case 9:
        relocate();
        break;
      case 10:
        read_sources();
        break;
      default:
        read();
    }
    expect_no_secret();
  }

 private:
  std::string trace(const std::string& what) const {
    return "step " + std::to_string(step_) + ": " + what;
  }
  std::string index() const { return dir_ / "x.idx"; }

  // ------------------------------------------------------------------------------------- servers

  std::optional<std::pair<int, std::string>> gate(std::size_t server,
                                                  const test::LoggedRequest& request) const {
    const std::string path = request.target.substr(0, request.target.find('?'));
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    for (const Place& place : places_) {
      if (place.server != &servers_[server] || place.path != folder) continue;
      const std::string asks = request.header("authorization");
      if (place.is_s3()) {
        if (asks.find("Credential=" + place.secret() + "/") != std::string::npos) return {};
        continue;
      }
      if (asks == "Basic " + base64("me:" + place.secret())) return {};
      const std::string query = request.target.substr(path.size());
      if (query == "?X-Amz-Date=1&X-Amz-Signature=" + place.secret()) return {};
      if (query == "?sv=1&sig=" + place.secret()) return {};
    }
    return std::pair(403, std::string("who asks?"));
  }

  void put(std::size_t at, std::size_t shard, int version) {
    Place& place = places_[at];
    place.versions[shard] = version;
    const std::string path = place.path + std::to_string(shard) + ".tar";
    place.server->serve(
        path, {.body = tar_of(shard, version), .etag = "\"v" + std::to_string(version) + "\""});
  }
  void edit(std::size_t at, std::size_t shard) { put(at, shard, ++num_versions_); }
  void remove(std::size_t at, std::size_t shard) {
    places_[at].versions.erase(shard);
    places_[at].server->remove(places_[at].path + std::to_string(shard) + ".tar");
  }
  /// Copies all shards of one place to another place.
  void copy_place() {
    const std::size_t from = below(places_.size()), to = below(places_.size());
    if (from == to) return;
    const std::map<std::size_t, int> versions = places_[from].versions;
    for (const auto& [shard, version] : versions) put(to, shard, version);
  }

  // ------------------------------------------------------------------------------------- signing

  /// Returns the shard's URL at a place, signed by a user. For s3 the user has keys instead of a
  /// signature.
  std::string signed_url(std::size_t at, std::size_t shard, bool is_valid) {
    return as_signed(at, places_[at].url_of(shard), is_valid);
  }
  std::string as_signed(std::size_t at, std::string url, bool is_valid) {
    const Place& place = places_[at];
    if (place.is_s3()) return url;
    const std::string secret = place.secret() + (is_valid ? "" : "-expired");
    switch (below(3)) {
      case 0:
        return url.insert(url.find("://") + 3, "me:" + secret + "@");
      case 1:
        return url + "?X-Amz-Date=1&X-Amz-Signature=" + secret;
      default:
        return url + "?sv=1&sig=" + secret;
    }
  }
  /// Returns options with keys for s3 URLs.
  Fetchers::Options with_keys(bool is_valid) const {
    Fetchers::Options options = test::quick_options();
    const Place& place = places_.back();
    options.s3.endpoint = place.server->url("");
    options.s3.region = "eu-test-1";
    options.s3.access_key_id = place.secret() + (is_valid ? "" : "-expired");
    options.s3.secret_access_key = "swordfish-key";
    return options;
  }
  static RemoteAccess access_of(const Fetchers::Options& options) {
    return make_remote_access(std::make_shared<const Fetchers>(options));
  }

  // --------------------------------------------------------------------------------------- index

  /// Chooses where each shard is indexed: at its present place, all at one place, or sometimes at
  /// two.
  std::array<std::size_t, kShards> choose_places() {
    if (has_index_ && flip()) return indexed_at_;
    std::array<std::size_t, kShards> chosen;
    const std::size_t one = below(places_.size()), other = below(places_.size());
    const bool are_two = below(4) == 0;
    for (std::size_t& at : chosen) at = are_two && flip() ? other : one;
    return chosen;
  }
  std::vector<std::string> signed_urls(const std::array<std::size_t, kShards>& at, bool is_valid) {
    std::vector<std::string> urls;
    for (std::size_t i = 0; i < kShards; ++i) urls.push_back(signed_url(at[i], i, is_valid));
    return urls;
  }
  bool are_there(const std::array<std::size_t, kShards>& at) const {
    for (std::size_t i = 0; i < kShards; ++i) {
      if (!places_[at[i]].versions.contains(i)) return false;
    }
    return true;
  }
  /// Returns the error of looking up these shards, if there is one.
  std::optional<ErrorCode> error_at(const std::array<std::size_t, kShards>& at,
                                    bool is_let_in) const {
    if (!is_let_in) return ErrorCode::kFetch;
    if (!are_there(at)) return ErrorCode::kNotFound;
    return std::nullopt;
  }
  /// Returns the number of shards that differ from the index's shard with the same URL.
  std::uint64_t num_other(const std::array<std::size_t, kShards>& at) const {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < kShards; ++i) {
      const bool is_known =
          has_index_ && indexed_at_[i] == at[i] && indexed_[i] == places_[at[i]].versions.at(i);
      count += is_known ? 0 : 1;
    }
    return count;
  }
  void took(const std::array<std::size_t, kShards>& at) {
    has_index_ = true;
    indexed_at_ = at;
    for (std::size_t i = 0; i < kShards; ++i) indexed_[i] = places_[at[i]].versions.at(i);
    expect_urls();
  }
  /// Checks that the stored base is the longest folder with which all URLs begin. The expected base
  /// is computed by a simple method.
  void expect_urls() const {
    const auto opened = Index::open(index());
    std::string base;
    const std::string first = places_[indexed_at_[0]].url_of(0);
    for (std::size_t end = first.find('/', first.find("://") + 3); end != std::string::npos;
         end = first.find('/', end + 1)) {
      const std::string folder = first.substr(0, end + 1);
      bool is_of_all = true;
      for (std::size_t i = 0; i < kShards; ++i) {
        is_of_all &= places_[indexed_at_[i]].url_of(i).starts_with(folder);
      }
      if (is_of_all) base = folder;
    }
    EXPECT_EQ(opened->summary().url_base, base) << trace("base");
    for (std::size_t i = 0; i < kShards; ++i) {
      EXPECT_EQ(opened->shard(i).url, places_[indexed_at_[i]].url_of(i)) << trace("url");
    }
  }

  void index_anew() {
    const auto at = choose_places();
    const bool is_valid = below(5) > 0;
    const std::string what = trace("index");
    const auto run = [&] {
      return build_index(index(), signed_urls(at, is_valid),
                         {.threads = 1, .remote = access_of(with_keys(is_valid))});
    };
    if (const auto error = error_at(at, is_valid)) {
      EXPECT_EQ(test::error_code(run), *error) << what;
      return;
    }
    EXPECT_EQ(run().shards_scanned, num_other(at)) << what;
    ++counts_[num_other(at) == 0 ? "indexed without reading" : "indexed"];
    took(at);
  }

  void merge() {
    const auto at = choose_places();
    if (!are_there(at)) return;
    std::vector<std::string> parts;
    for (std::uint64_t number = 1; number <= 2; ++number) {
      parts.push_back(dir_ / "part" + std::to_string(number));
      // The parts' lists have the same shards, but each with new signatures.
      build_index(parts.back(), signed_urls(at, true),
                  {.threads = 1,
                   .part = BuildOptions::Part{number, 2},
                   .remote = access_of(with_keys(true))});
    }
    expect_no_secret();
    merge_indexes(index(), parts);
    took(at);
    ++counts_["merged"];
    for (const std::string& part : parts) fs::remove(part);
    for (const std::string& name : dir_.list()) {
      if (name.starts_with("part")) fs::remove(dir_ / name);
    }
  }

  void update() {
    if (!has_index_) return;
    const Fetching how = choose_fetching(/*by_urls=*/false);
    const std::string what = trace("update " + how.what);
    const auto run = [&] {
      return update_index(index(), {.threads = 1, .remote = access_of(how.options)});
    };
    std::array<std::size_t, kShards> at = indexed_at_;
    if (how.place) at.fill(*how.place);
    if (const auto error = error_at(at, how.is_let_in)) {
      EXPECT_EQ(test::error_code(run), *error) << what;
      return;
    }
    std::uint64_t changed = 0;
    for (std::size_t i = 0; i < kShards; ++i) {
      const int now = places_[at[i]].versions.at(i);
      changed += now == indexed_[i] ? 0 : 1;
      indexed_[i] = now;
    }
    EXPECT_EQ(run().shards_scanned, changed) << what;
    expect_urls();
    ++counts_["updated"];
  }

  void relocate() {
    if (!has_index_) return;
    const std::size_t from = indexed_at_[0], to = below(places_.size());
    const bool is_valid = below(5) > 0;
    const std::string what = trace("relocate " + places_[from].url + " to " + places_[to].url);
    const auto run = [&] {
      return relocate_index(index(),
                            {{places_[from].url, as_signed(to, places_[to].url, is_valid)}},
                            {.threads = 1, .remote = access_of(with_keys(is_valid))});
    };
    bool is_same = true, is_there = true;
    std::array<std::size_t, kShards> at = indexed_at_;
    for (std::size_t i = 0; i < kShards; ++i) {
      // Some places are inside others.
      if (!places_[indexed_at_[i]].url.starts_with(places_[from].url)) continue;
      if (indexed_at_[i] != from) return;
      at[i] = to;
      is_there &= places_[to].versions.contains(i);
      is_same &= is_there && places_[to].versions.at(i) == indexed_[i];
    }
    if (!is_valid) {
      EXPECT_EQ(test::error_code(run), ErrorCode::kFetch) << what;
    } else if (!is_there) {
      EXPECT_EQ(test::error_code(run), ErrorCode::kNotFound) << what;
    } else if (!is_same) {
      EXPECT_EQ(test::error_code(run), ErrorCode::kStaleIndex) << what;
    } else {
      EXPECT_EQ(run().shards_scanned, 0U) << what;
      indexed_at_ = at;
      expect_urls();
      counts_["relocated"] += from == to ? 0 : 1;
    }
  }

  // ---------------------------------------------------------------------------------------- read

  Fetching choose_fetching(bool by_urls) {
    Fetching how;
    const bool is_valid = below(4) > 0;
    const std::size_t place = below(places_.size());
    switch (below(by_urls ? 5 : 4)) {
      case 0: {  // without credentials
        how.what = "plainly";
        how.options.s3.anonymous = true;
        how.options.s3.endpoint = places_.back().server->url("");
        return how;
      }
      case 1: {  // all shards are at one place, for which one signature is valid
        how.what = "from " + places_[place].url;
        how.options = with_keys(is_valid);
        std::vector<std::string> bases;
        for (const std::size_t at : indexed_at_) bases.push_back(places_[at].url);
        // Sort the deeper folders first, because the first match is used.
        std::ranges::sort(bases, std::greater<>(), &std::string::size);
        const bool is_one = std::ranges::equal(bases, std::vector(kShards, bases[0]));
        if (is_one) bases = {Index::open(index())->summary().url_base};
        for (const std::string& base : bases) {
          how.options.moved.push_back({base, as_signed(place, places_[place].url, is_valid)});
        }
        how.place = place;
        break;
      }
      case 2:
      case 3: {  // a function signs each URL, and may name another place
        const bool moves = flip();
        how.what = std::string("by a resolver") + (moves ? ", from " + places_[place].url : "");
        how.options = with_keys(is_valid);
        if (moves) how.place = place;
        how.options.resolve = [this, place = how.place, is_valid](const std::string& url) {
          for (std::size_t i = 0; i < kShards; ++i) {
            const std::size_t known = indexed_at_[i];
            if (places_[known].url_of(i) != url) continue;
            const std::size_t at = place.value_or(known);
            const std::string today = places_[at].url_of(i);
            const std::string secret = places_[at].secret() + (is_valid ? "" : "-expired");
            return places_[at].is_s3() ? today : today + "?sv=1&sig=" + secret;
          }
          ADD_FAILURE() << trace("the resolver is asked for " + url);
          return url;
        };
        break;
      }
      default: {  // by URLs that are signed today
        how.what = "by URLs of today";
        how.options = with_keys(is_valid);
        how.urls = signed_urls(indexed_at_, is_valid);
      }
    }
    how.is_let_in = is_valid;
    return how;
  }

  void read() {
    if (!has_index_) return;
    const Fetching how = choose_fetching(/*by_urls=*/true);
    const auto fetchers = std::make_shared<const Fetchers>(how.options);
    const bool by_cache = flip();
    const std::string what = trace("read " + how.what + (by_cache ? ", by a cache" : ""));
    Dataset::Options options{.access = Dataset::Access::kRange, .fetchers = fetchers};
    if (by_cache) {
      options.access = Dataset::Access::kMap;
      options.cache = ShardCache::open({.directory = dir_ / "cache", .fetchers = fetchers});
    }
    const auto opened = Index::open(index(), {.urls = how.urls});
    const Dataset data(opened, options);
    for (std::size_t i = 0; i < kShards; ++i) {
      const Place& place = places_[how.place.value_or(indexed_at_[i])];
      const auto version = place.versions.find(i);
      const auto bytes = [&] { return data[i].copy("txt"); };
      const std::string one = what + ", shard " + std::to_string(i);
      const bool is_kept = cached_.contains({places_[indexed_at_[i]].url_of(i), indexed_[i]});
      if (!(by_cache && is_kept)) {
        std::optional<ErrorCode> error;
        if (!how.is_let_in) {
          error = ErrorCode::kFetch;
        } else if (version == place.versions.end()) {
          error = ErrorCode::kNotFound;
        } else if (version->second != indexed_[i]) {
          error = ErrorCode::kStaleIndex;
        }
        if (error) {
          EXPECT_EQ(test::error_code(bytes), *error) << one;
          ++counts_["refused: " + std::string(error_code_name(*error))];
          if (how.what == "plainly" && !place.is_s3()) {
            const std::string text = test::error_text(bytes);
            EXPECT_THAT(text, testing::HasSubstr("HTTP status 403")) << one;
            EXPECT_THAT(text, testing::HasSubstr("add credentials (")) << one;
          }
          continue;
        }
      }
      EXPECT_EQ(bytes(), text_of(i, indexed_[i])) << one;
      ++counts_["read " + how.what.substr(0, how.what.find(' '))];
      if (!how.urls.empty()) ++counts_["read by URLs of today"];
      if (by_cache) cached_.insert({places_[indexed_at_[i]].url_of(i), indexed_[i]});
    }
    if (flip()) {
      write_wids_descriptor(*opened, dir_ / "export.json");
      EXPECT_THAT(test::read_file(dir_ / "export.json"),
                  testing::HasSubstr("\"" + places_[indexed_at_[1]].url_of(1) + "\""));
    }
  }

  /// Opens a dataset from sources instead of an index. The sources are signed as of today.
  void read_sources() {
    const auto at = choose_places();
    const bool is_valid = below(5) > 0;
    const std::string what = trace("read sources");
    const auto open = [&] {
      Dataset::Options options{.access = Dataset::Access::kRange,
                               .fetchers = std::make_shared<const Fetchers>(with_keys(is_valid))};
      options.index_cache.directory = dir_ / "indexes";
      options.index_cache.build.threads = 1;
      return Dataset::open_sources(signed_urls(at, is_valid), options);
    };
    if (const auto error = error_at(at, is_valid)) {
      EXPECT_EQ(test::error_code(open), *error) << what;
      return;
    }
    const Dataset data = open();
    for (std::size_t i = 0; i < kShards; ++i) {
      EXPECT_EQ(data[i].copy("txt"), text_of(i, places_[at[i]].versions.at(i))) << what;
    }
    ++counts_["read sources"];
  }

  void expect_no_secret() const {
    for (const auto& entry : fs::recursive_directory_iterator(dir_.path())) {
      if (!entry.is_regular_file()) continue;
      EXPECT_EQ(test::read_file(entry.path()).find(kSecret), std::string::npos)
          << trace(entry.path());
    }
  }

  const test::TempDir dir_;
  std::array<test::TestHttpServer, 3> servers_;
  std::vector<Place> places_;
  int step_ = 0;
  int num_versions_ = 0;
  std::map<std::string, int> counts_;
  bool has_index_ = false;
  std::array<std::size_t, kShards> indexed_at_ = {};
  std::array<int, kShards> indexed_ = {};
  std::set<std::pair<std::string, int>> cached_;
};

TEST(UrlModelTest, RandomChainsGiveTheIndexedBytesAndNoFileEverHoldsASecret) {
  std::map<std::string, int> counts;
  test::for_each_seed(3, 60, [&](std::uint64_t seed) {
    UrlModel model(seed);
    for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
      try {
        model.step();
      } catch (const Error& e) {
        ADD_FAILURE() << "step " << i + 1 << ": " << e.what();
      }
    }
    for (const auto& [what, count] : model.counts()) counts[what] += count;
  });
  for (const auto& [what, count] : counts) std::cout << what << ": " << count << "\n";
  EXPECT_GE(static_cast<int>(counts.size()), test::repeats(1, 13))
      << "a kind of step was never taken";
}

}  // namespace
}  // namespace shardwise
