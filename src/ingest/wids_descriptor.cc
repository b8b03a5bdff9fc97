#include "shardwise/ingest/wids_descriptor.h"

#include <unordered_map>
#include <utility>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/claimed_index.h"
#include "ingest/md5.h"
#include "ingest/remote_shards.h"
#include "ingest/shard_url.h"
#include "ingest/wids_claims.h"
#include "ingest/wids_json.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kMaxClaimedSamples = std::uint64_t{1} << 63;

/// Reads a descriptor and the files that it refers to. The limits on bytes, shards and samples
/// apply to all of them together.
class Resolver {
 public:
  explicit Resolver(const RemoteAccess& remote) : remote_(remote) {}

  WidsDescriptor read(const std::string& path) { return resolve(load(path), path); }

  WidsDescriptor parse(std::string_view json, const std::string& path) {
    spend(json.size(), path);
    return resolve(wids_json::parse(json, path), path);
  }

 private:
  void spend(std::uint64_t num_bytes, const std::string& path) {
    if (num_bytes > bytes_left_) {
      throw InvalidArgument("the descriptor and the files that it refers to exceed 256 MiB",
                            in_quotes(without_secrets(path)),
                            "check that the path names a wids descriptor");
    }
    bytes_left_ -= num_bytes;
  }

  wids_json::Descriptor load(const std::string& path) {
    if (is_remote_url(path)) return wids_json::parse(fetch(path), redacted_url(path));
    const File file = File::open_read(path);
    const std::uint64_t size = file_identity(file.fd(), path).size_bytes;
    spend(size, path);
    std::string json(size, '\0');
    json.resize(file.read_at(0, json.data(), json.size()));
    return wids_json::parse(json, path);
  }

  std::string fetch(const std::string& url) {
    if (remote_ == nullptr) {
      throw Unsupported("cannot read a remote descriptor without a RemoteAccess",
                        in_quotes(redacted_url(url)),
                        "give a RemoteAccess, or copy the descriptor and give the copy's path");
    }
    std::string json;
    remote_->read(url, remote_->state(url), 0, std::nullopt, [&](std::string_view bytes) {
      spend(bytes.size(), redacted_url(url));
      json += bytes;
    });
    return json;
  }

  WidsDescriptor resolve(wids_json::Descriptor raw, const std::string& path) {
    WidsDescriptor descriptor{.path = path, .name = raw.own.name.value_or(""), .datasets = {}};
    const std::string home =
        base_of(raw.own, base_of_reference(path), in_quotes(without_secrets(path)) + ", base");
    if (raw.own.shards) {
      descriptor.datasets.push_back(
          to_dataset(raw.own, home, in_quotes(without_secrets(path)) + ", shardlist"));
    }
    for (std::size_t i = 0; raw.datasets && i < raw.datasets->size(); ++i) {
      wids_json::Dataset& set = (*raw.datasets)[i];
      const std::string where =
          in_quotes(without_secrets(path)) + ", datasets[" + std::to_string(i) + "]";
      descriptor.datasets.push_back(
          set.source_url
              ? referred(set, home, where)
              : to_dataset(set, base_of(set, home, where + ".base"), where + ".shardlist"));
      set.shards.reset();
    }
    if (num_shards_ == 0) {
      throw InvalidArgument("the descriptor names no shards", in_quotes(without_secrets(path)),
                            "check that the descriptor is complete");
    }
    return descriptor;
  }

  WidsDescriptor::Set referred(const wids_json::Dataset& reference, const std::string& home,
                               const std::string& where) {
    const std::string path = resolve_reference(*reference.source_url, home, where + ".source_url");
    wids_json::Descriptor raw = load(path);
    if (raw.datasets || !raw.own.shards) {
      throw InvalidArgument("a referenced descriptor has no shardlist, or has datasets",
                            in_quotes(without_secrets(path)) + " from " + where,
                            "refer to files with a shardlist and without datasets");
    }
    raw.own.weight = reference.weight;
    if (reference.name) raw.own.name = reference.name;
    return to_dataset(
        raw.own,
        base_of(raw.own, base_of_reference(path), in_quotes(without_secrets(path)) + ", base"),
        in_quotes(without_secrets(path)) + ", shardlist");
  }

  static std::string base_of(const wids_json::Dataset& set, const std::string& otherwise,
                             const std::string& where) {
    return set.base ? resolve_reference(*set.base, otherwise, where) : otherwise;
  }

  WidsDescriptor::Set to_dataset(wids_json::Dataset& raw, const std::string& base,
                                 const std::string& where) {
    WidsDescriptor::Set set{
        .name = raw.name.value_or(""), .weight = raw.weight.value_or(1), .shards = {}};
    num_shards_ += raw.shards->size();
    if (num_shards_ > wids_json::kMaxShards) {
      throw InvalidArgument("the descriptor names more than 10 million shards", where,
                            "make larger shards");
    }
    set.shards.reserve(raw.shards->size());
    for (wids_json::Shard& shard : *raw.shards) {
      const auto entry = [&](const char* key) {
        return where + "[" + std::to_string(set.shards.size()) + "]." + key;
      };
      if (shard.num_samples > kMaxClaimedSamples - num_samples_) {
        throw InvalidArgument("the counts of samples add up to more than 2^63", entry("nsamples"),
                              "correct the counts in nsamples");
      }
      num_samples_ += shard.num_samples;
      std::string path = resolve_reference(shard.url, base, entry("url"));
      set.shards.push_back({.url = std::move(shard.url),
                            .path = std::move(path),
                            .num_samples = shard.num_samples,
                            .md5 = std::move(shard.md5),
                            .size_bytes = shard.size_bytes});
    }
    return set;
  }

  const RemoteAccess& remote_;
  std::uint64_t bytes_left_ = wids_json::kMaxBytes;
  std::uint64_t num_shards_ = 0;
  std::uint64_t num_samples_ = 0;
};

/// Returns the last component of a path or URL, without the query and fragment of a web URL.
std::string_view file_name(std::string_view path) {
  path = without_query(path);
  return path.substr(path.rfind('/') + 1);
}

/// One shard, both as in the index and as the descriptor claims.
struct Claim {
  const WidsDescriptor::Shard* claimed;
  Index::Shard shard;
};

/// Returns the normal spelling of a path, or a URL without secrets, as the index stores them.
std::string absolute_path(const std::string& path) {
  return is_fetched_url(path) ? unsigned_url(path) : normal_absolute_path(path);
}

/// Describes how the claimed size differs; empty if it does not, or if no size is claimed.
std::string difference(const WidsDescriptor::Shard& claimed, std::uint64_t size_bytes) {
  if (!claimed.size_bytes || *claimed.size_bytes == size_bytes) return {};
  return "is " + counted(size_bytes, "byte") + " long, not " + human_count(*claimed.size_bytes);
}

/// Describes how the claimed size and number of samples differ; empty if they do not.
std::string difference(const WidsDescriptor::Shard& claimed, std::uint64_t size_bytes,
                       std::uint64_t num_samples) {
  if (claimed.num_samples != num_samples) {
    return "has " + counted(num_samples, "sample") + ", not " + human_count(claimed.num_samples);
  }
  return difference(claimed, size_bytes);
}

[[noreturn]] void refuse(const std::string& descriptor, const std::string& shard,
                         const std::string& difference, std::uint64_t num_others) {
  throw Mismatch("a shard differs from its descriptor",
                 in_quotes(without_secrets(shard)) + " " + difference + " as in " +
                     in_quotes(without_secrets(descriptor)) +
                     (num_others == 0 ? "" : " (and " + counted(num_others, "more shard") + ")"),
                 "restore the original shard, or make a new descriptor with " +
                     spelled("`shardwise export --format wids`"));
}

std::string remote_md5(const Index::Shard& shard, const WidsDescriptor::CheckOptions& options,
                       const std::function<void(std::uint64_t)>& progress) {
  if (options.remote == nullptr) {
    throw Unsupported("the shard is remote, but no remote access was given",
                      in_quotes(redacted_url(shard.path)), "check without md5");
  }
  Md5 md5;
  std::uint64_t done = 0;
  options.remote->read(shard.path, {shard.size_bytes, shard.validator, false}, 0, std::nullopt,
                       [&](std::string_view bytes) {
                         options.cancel.throw_if_cancelled();
                         md5.update(bytes);
                         progress(done += bytes.size());
                       });
  return md5.digest();
}

void check_md5(const WidsDescriptor& descriptor, const std::vector<Claim>& claims,
               const WidsDescriptor::CheckOptions& options) {
  std::uint64_t num_bytes = 0;
  for (const Claim& claim : claims) {
    if (claim.claimed->md5) num_bytes += claim.shard.size_bytes;
  }
  std::uint64_t before = 0;
  for (const Claim& claim : claims) {
    if (!claim.claimed->md5) continue;
    const auto progress = [&](std::uint64_t done) {
      if (options.progress) {
        options.progress({.bytes_done = before + done, .num_bytes = num_bytes});
      }
    };
    const std::string md5 = is_remote_url(claim.shard.path)
                                ? remote_md5(claim.shard, options, progress)
                                : local_md5(claim.shard, progress, options.cancel);
    if (md5 != *claim.claimed->md5) {
      refuse(descriptor.path, claim.shard.path, "has md5 " + md5 + ", not " + *claim.claimed->md5,
             0);
    }
    before += claim.shard.size_bytes;
  }
}

}  // namespace

std::vector<std::string> WidsDescriptor::Set::paths() const {
  std::vector<std::string> all;
  all.reserve(shards.size());
  for (const WidsDescriptor::Shard& shard : shards) all.push_back(shard.path);
  return all;
}

std::uint64_t WidsDescriptor::Set::num_samples() const noexcept {
  std::uint64_t sum = 0;
  for (const WidsDescriptor::Shard& shard : shards) sum += shard.num_samples;
  return sum;
}

WidsDescriptor read_wids_descriptor(const std::string& path, const RemoteAccess& remote) {
  require_no_command(path, "");
  return Resolver(remote).read(at_home(path));
}

WidsDescriptor parse_wids_descriptor(std::string_view json, const std::string& path) {
  return Resolver(nullptr).parse(json, path);
}

void check_against_descriptor(const Index& index, const WidsDescriptor& descriptor,
                              const WidsDescriptor::CheckOptions& options) {
  IndexAccess::require_records(index);
  std::unordered_map<std::string, std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    numbers.emplace(absolute_path(index.shard(i).path), i);
  }
  std::vector<Claim> claims;
  std::string first;
  std::string first_path;
  std::uint64_t num_different = 0;
  for (const WidsDescriptor::Set& set : descriptor.datasets) {
    for (const WidsDescriptor::Shard& claimed : set.shards) {
      const auto it = numbers.find(absolute_path(claimed.path));
      std::string different = "is not in " + in_quotes(index.path());
      if (it != numbers.end()) {
        claims.push_back({&claimed, index.shard(it->second)});
        if (is_fetched_url(claimed.path)) claims.back().shard.path = claimed.path;
        different =
            difference(claimed, claims.back().shard.size_bytes, claims.back().shard.num_samples);
      }
      if (!different.empty() && num_different++ == 0) {
        first = std::move(different);
        first_path = claimed.path;
      }
    }
  }
  if (num_different > 0) refuse(descriptor.path, first_path, first, num_different - 1);
  if (options.md5) check_md5(descriptor, claims, options);
}

void check_remote_sizes(const WidsDescriptor& descriptor, const RemoteAccess& remote) {
  std::string first;
  std::string first_path;
  std::uint64_t num_different = 0;
  for (const WidsDescriptor::Set& set : descriptor.datasets) {
    for (const WidsDescriptor::Shard& claimed : set.shards) {
      if (remote == nullptr || !claimed.size_bytes || !is_remote_url(claimed.path)) continue;
      const auto size_bytes = remote->state(claimed.path).size_bytes;
      std::string different = size_bytes ? difference(claimed, *size_bytes) : std::string();
      if (different.empty() || num_different++ > 0) continue;
      first = std::move(different);
      first_path = claimed.path;
    }
  }
  if (num_different > 0) refuse(descriptor.path, first_path, first, num_different - 1);
}

void detail::require_claimed(const std::string& descriptor, const WidsDescriptor::Shard& claimed,
                             std::uint64_t size_bytes, std::uint64_t num_samples) {
  const std::string different = difference(claimed, size_bytes, num_samples);
  if (!different.empty()) refuse(descriptor, claimed.path, different, 0);
}

Hash128 detail::claimed_fingerprint(const std::vector<WidsDescriptor::Shard>& shards) {
  Hasher128 hasher;
  const auto add = [&](std::string_view text) {
    hasher.update_u64(text.size());
    hasher.update(text);
  };
  add("shardwise claimed numbering 1");
  for (const WidsDescriptor::Shard& shard : shards) {
    add(file_name(shard.path));
    hasher.update_u64(shard.num_samples);
    hasher.update_u64(shard.size_bytes ? 1 : 0);
    hasher.update_u64(shard.size_bytes.value_or(0));
    add(shard.md5.value_or(""));
  }
  return hasher.digest();
}

}  // namespace shardwise
