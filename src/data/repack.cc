#include "shardwise/data/repack.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/cores.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/ordered_pipeline.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "data/dataset_access.h"
#include "data/joins.h"
#include "order/key.h"
#include "order/permutation.h"
#include "shardwise/base/hash.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/tar/shard_writer.h"
#include "tar/shard_set.h"
#include "tar/tar_writer.h"

namespace shardwise {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kPlanFile = "repack.json";

/// The numbers of all samples in the order of the new shards.
class SampleOrder {
 public:
  SampleOrder(std::uint64_t n, const std::optional<std::uint64_t>& seed) {
    if (seed) shuffled_.emplace(n, derive_key(*seed, 0, KeyPurpose::kRepack));
  }
  std::uint64_t operator()(std::uint64_t i) const noexcept {
    return shuffled_ ? (*shuffled_)(i) : i;
  }

 private:
  std::optional<detail::Permutation> shuffled_;
};

/// Returns the bytes that a sample occupies in a shard of ShardWriter.
std::uint64_t bytes_in_shard(const Dataset& data, std::uint64_t sample) {
  const std::uint64_t number = data.number_in_index(sample);
  const std::uint64_t shard = data.index().shard_of(number);
  std::uint64_t bytes = 0;
  for (const MemberRecord& member : DatasetAccess::records(data)->of(shard).members(
           static_cast<std::uint32_t>(number - data.index().first_sample(shard)))) {
    bytes += TarWriter::member_bytes(member.size_bytes);
  }
  for (const auto& side : DatasetAccess::joins(data)) {
    if (const auto match = side->matches.of(number)) bytes += bytes_in_shard(side->other, *match);
  }
  return bytes;
}

/// Returns the places in the order at which new shards begin, then the number of samples.
std::vector<std::uint64_t> cut(const Dataset& data, const SampleOrder& order,
                               const Repacking::Options& options) {
  constexpr std::uint64_t kPace = 4096;
  std::vector<std::uint64_t> starts{0};
  if (options.max_bytes == std::numeric_limits<std::uint64_t>::max()) {
    while (data.size() - starts.back() > options.max_samples) {
      starts.push_back(starts.back() + options.max_samples);
    }
    starts.push_back(data.size());
    return starts;
  }
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    if (i % kPace == 0) options.cancel.throw_if_cancelled();
    const std::uint64_t more = bytes_in_shard(data, order(i));
    const bool is_full =
        i - starts.back() == options.max_samples || more > options.max_bytes - bytes;
    if (is_full && i > starts.back()) {
      starts.push_back(i);
      bytes = 0;
    }
    bytes = std::min(bytes + more, options.max_bytes);
  }
  starts.push_back(data.size());
  return starts;
}

/// Returns a hash of the versions of all shards. Shards with other contents may have the same
/// headers, and so the same fingerprint.
Hash128 versions_of(const Index& index) {
  Hasher128 hasher;
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    const Index::Shard shard = index.shard(i);
    hasher.update_u64(shard.size_bytes);
    hasher.update_u64(static_cast<std::uint64_t>(shard.mtime_ns));
    hasher.update_u64(shard.validator.size());
    hasher.update(shard.validator);
    const Hash128 content = shard.content_hash.value_or(Hash128{});
    hasher.update_u64(content.high);
    hasher.update_u64(content.low);
  }
  return hasher.digest();
}

/// Throws if one of these files is a shard of the index.
void require_no_source(const Index& index, const std::vector<std::string>& files) {
  const auto identity = [](const std::string& path) {
    struct stat status {};
    const bool is_found = ::stat(path.c_str(), &status) == 0;
    return is_found ? std::optional(std::pair(status.st_dev, status.st_ino)) : std::nullopt;
  };
  std::set<std::pair<dev_t, ino_t>> found;
  for (const std::string& file : files) {
    if (const auto one = identity(file)) found.insert(*one);
  }
  for (std::uint64_t i = 0; i < index.num_shards() && !found.empty(); ++i) {
    const std::string path = index.shard(i).path;
    const auto one = is_fetched_url(path) ? std::nullopt : identity(path);
    if (!one || !found.contains(*one)) continue;
    throw InvalidArgument("the new shards would replace a shard that is read", in_quotes(path),
                          "choose another folder or prefix");
  }
}

}  // namespace

struct Repacking::Impl {
  Impl(Dataset from, std::string to, Repacking::Options how, std::string_view function)
      : data(std::move(from)),
        directory(at_home(std::move(to))),
        options(std::move(how)),
        order(data.size(), options.shuffle) {
    if (options.max_samples == 0 || options.max_bytes == 0) {
      throw InvalidOption(
          "a limit of the new shards is 0", in_quotes(directory),
          "set " + spelled("max_samples") + " and " + spelled("max_bytes") + " to at least 1");
    }
    if (data.empty()) {
      throw InvalidArgument("there is no sample to repack", in_quotes(data.index().path()),
                            "choose a condition that some samples satisfy");
    }
    options.index =
        options.index.empty() ? directory + "/shards.idx" : at_home(std::move(options.index));
    std::error_code error;
    if (fs::equivalent(options.index, data.index().path(), error)) {
      throw InvalidArgument("the new index would replace the index that is read",
                            in_quotes(options.index), "choose another path for the new index");
    }
    starts = cut(data, order, options);
    if (!options.dry_run) begin(function);
  }

  ShardWriter::Names names() const { return {.before = directory + "/" + options.prefix}; }
  std::string plan_path() const { return directory + "/" + std::string(kPlanFile); }

  /// Returns the text of the plan file. Calls with equal texts write equal shards.
  std::string plan(std::string_view function) const {
    nlohmann::ordered_json plan = {{"data", to_string(data.fingerprint())},
                                   {"versions", to_string(versions_of(data.index()))},
                                   {"samples", data.size()},
                                   {"shards", starts.size() - 1},
                                   {"max_samples", options.max_samples},
                                   {"max_bytes", options.max_bytes},
                                   {"shuffle", nullptr},
                                   {"prefix", escaped(options.prefix)},
                                   {"function", escaped(function)}};
    if (options.shuffle) plan["shuffle"] = *options.shuffle;
    return plan.dump(1) + "\n";
  }

  /// Locks the folder. Writes the plan, or checks that of an interrupted call.
  void begin(std::string_view function) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) throw_errno(error.value(), "cannot make the folder", directory);
    std::vector<std::string> there = shards_there();
    require_no_source(data.index(), there);
    if (::access(plan_path().c_str(), F_OK) != 0 && !options.restart) require_none(there);
    lock_plan();
    SHARDWISE_FAULT_POINT("repack.locked");
    there = shards_there();  // a call that ended meanwhile may have written more
    const std::string text = plan(function);
    std::string earlier(text.size() + 1, '\0');
    earlier.resize(lock.read_at(0, earlier.data(), earlier.size()));
    if (options.restart) {
      replace(there);
    } else if (earlier.empty()) {
      // The file is new, or a call was killed while it removed these shards.
      require_none(there);
    } else if (earlier != text) {
      throw InvalidArgument(
          "the folder has files of an interrupted call with other data or options",
          in_quotes(directory),
          "repeat that call to finish it, choose another folder, or begin again "
          "with " +
              spelled("Repacking::Options::restart"));
    }
    if (options.restart || earlier.empty()) write_plan(text);
    SHARDWISE_FAULT_POINT("repack.planned");
    for (std::uint64_t shard = 0; shard < starts.size() - 1; ++shard) {
      if (is_written(shard)) ++num_resumed;
    }
  }

  std::vector<std::string> shards_there() const {
    const std::vector<std::uint64_t> numbers = detail::numbers_there(names());
    std::vector<std::string> paths;
    paths.reserve(numbers.size());
    for (const std::uint64_t number : numbers) paths.push_back(names().name(number));
    return paths;
  }

  void require_none(const std::vector<std::string>& there) const {
    if (there.empty()) return;
    throw InvalidArgument("the folder already holds shards",
                          in_quotes(*std::ranges::min_element(there)),
                          "choose another folder or prefix, or replace them with " +
                              spelled("Repacking::Options::restart"));
  }

  void lock_plan() {
    do {
      lock = File::open_or_create(plan_path());
      if (lock.try_lock() == FileLock::kHeldByAnother) {
        throw InvalidArgument("another process repacks into the folder", in_quotes(directory),
                              "wait until it ends, or choose another folder");
      }
    } while (!lock.has_name());  // another process finished, and removed the file
  }

  void write_plan(const std::string& text) {
    try {
      lock.resize(0);
      lock.write_at(0, text);
      lock.sync();
    } catch (...) {
      ::unlink(plan_path().c_str());  // an incomplete plan would be taken for that of another call
      throw;
    }
  }

  /// Removes the shards of an earlier call.
  void replace(const std::vector<std::string>& there) {
    for (const std::string& path : there) {
      if (detail::is_of_shard_writer(path)) continue;
      throw InvalidArgument("will not replace a file that ShardWriter did not write",
                            in_quotes(path), "move the file, or choose another folder or prefix");
    }
    lock.resize(0);  // if this call is killed now, no other call continues these shards
    for (const std::string& path : there) {
      if (::unlink(path.c_str()) != 0) throw_errno(errno, "cannot remove the old shard", path);
      SHARDWISE_FAULT_POINT("repack.removed");
    }
  }

  bool is_written(std::uint64_t shard) const {
    return ::access(names().name(shard).c_str(), F_OK) == 0;
  }

  void write(std::uint64_t shard) const {
    ShardWriter writer(names(), {.max_samples = starts[shard + 1] - starts[shard], .first = shard});
    std::vector<std::string> bytes;
    std::vector<ShardWriter::Field> fields;
    for (std::uint64_t i = starts[shard]; i < starts[shard + 1]; ++i) {
      options.cancel.throw_if_cancelled();
      const Sample sample = data[order(i)];
      bytes.clear();
      fields.clear();
      // Copy the fields, because reading a view of a truncated shard would raise SIGBUS.
      for (std::size_t j = 0; j < sample.num_fields(); ++j) {
        bytes.push_back(sample.copy(sample.field(j).name));
      }
      for (std::size_t j = 0; j < sample.num_fields(); ++j) {
        fields.push_back({.name = std::string(sample.field(j).name), .bytes = bytes[j]});
      }
      writer.write(sample.key(), fields);
    }
    writer.close();
  }

  const Dataset data;
  const std::string directory;
  Repacking::Options options;
  const SampleOrder order;
  std::vector<std::uint64_t> starts;
  std::uint64_t num_resumed = 0;
  File lock;
};

Repacking::Repacking(Dataset data, std::string directory, Repacking::Options options,
                     std::string_view function)
    : impl_(std::make_unique<Impl>(std::move(data), std::move(directory), std::move(options),
                                   function)) {}
Repacking::~Repacking() = default;
Repacking::Repacking(Repacking&&) noexcept = default;
Repacking& Repacking::operator=(Repacking&&) noexcept = default;

std::uint64_t Repacking::num_shards() const noexcept { return impl_->starts.size() - 1; }
std::string Repacking::path(std::uint64_t shard) const { return impl_->names().name(shard); }
bool Repacking::is_written(std::uint64_t shard) const { return impl_->is_written(shard); }

std::uint64_t Repacking::num_samples(std::uint64_t shard) const {
  return impl_->starts.at(shard + 1) - impl_->starts.at(shard);
}

std::vector<std::uint64_t> Repacking::samples(std::uint64_t shard) const {
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = impl_->starts.at(shard); i < impl_->starts.at(shard + 1); ++i) {
    samples.push_back(impl_->order(i));
  }
  return samples;
}

void Repacking::write(std::uint64_t shard) const { impl_->write(shard); }

void Repacking::unlock() noexcept { impl_->lock.close(); }

void Repacking::set_cancel(CancelToken cancel) { impl_->options.cancel = std::move(cancel); }

Repacking::Report Repacking::finish() {
  const Repacking::Options& options = impl_->options;
  if (options.dry_run) {
    return {.shards = num_shards(), .samples = impl_->data.size(), .index = options.index};
  }
  std::vector<std::string> shards;
  for (std::uint64_t shard = 0; shard < num_shards(); ++shard) {
    if (is_written(shard)) shards.push_back(path(shard));
  }
  if (shards.empty()) {
    throw InvalidArgument("no sample was written", in_quotes(impl_->directory),
                          "keep at least one sample");
  }
  BuildOptions build;
  build.threads = options.threads;
  build.content = impl_->data.index().content();
  // The new shards satisfy the strict policies, except for malformed JSON in a column's field.
  build.content.policies = {.damage = build.content.policies.damage};
  build.cancel = options.cancel;
  const Index::Summary summary = build_index(options.index, shards, build).summary;
  SHARDWISE_FAULT_POINT("repack.indexed");
  if (::unlink(impl_->plan_path().c_str()) != 0) {
    throw_errno(errno, "cannot remove the file", impl_->plan_path());
  }
  return {.shards = shards.size(),
          .shards_resumed = impl_->num_resumed,
          .samples = summary.num_samples,
          .shard_bytes = summary.shard_bytes,
          .index = options.index};
}

Repacking::Report repack(const Dataset& data, const std::string& directory,
                         const Repacking::Options& options) {
  Repacking work(data, directory, options);
  if (options.dry_run) return work.finish();
  Progress done{.num_shards = work.num_shards()};
  std::uint64_t next = 0;
  OrderedPipeline<std::uint64_t, std::uint64_t> pipeline(
      [&]() -> std::optional<std::uint64_t> {
        if (next == work.num_shards()) return std::nullopt;
        return next++;
      },
      [&](std::uint64_t shard) {
        if (!work.is_written(shard)) work.write(shard);
        return shard;
      },
      {.threads = options.threads.value_or(usable_cores())});
  while (const auto shard = pipeline.next()) {
    done.shards_done = *shard + 1;
    done.samples += work.num_samples(*shard);
    if (options.progress) options.progress(done);
  }
  return work.finish();
}

}  // namespace shardwise
