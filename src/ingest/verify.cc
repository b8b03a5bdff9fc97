#include "shardwise/ingest/verify.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/cores.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/hasher.h"
#include "base/ordered_pipeline.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/claimed_index.h"
#include "index/missing_shards.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "ingest/earlier_members.h"
#include "ingest/remote_shards.h"
#include "ingest/shard_bytes.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/defect_policies.h"
#include "tar/sample_name.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

/// Compares the members that a scan finds with the index's records, in archive order. The data of
/// members is in the same order, except for resolved hard links.
class MemberComparison {
 public:
  MemberComparison(const SegmentView& segment, bool full) : segment_(segment), full_(full) {}

  void see(const TarMember& member, std::string_view data) {
    if (next_ == segment_.num_members() || changed_) return;
    const MemberRecord& record = segment_.members()[next_];
    while (next_ == end_of_sample()) ++sample_;
    const std::string_view field = segment_.field_name(record.field());
    const std::string place = " at offset " + std::to_string(member.data_offset);
    if (member.data_offset == record.data_offset() && member.size_bytes == record.size_bytes &&
        is_name_of(member.name, segment_.key(sample_), field)) {
      ++next_;
      other_.reset();
      if (full_ && hash64(data) != segment_.member_hash(next_ - 1)) {
        changed_ = "the content of " + in_quotes(member.name) + place + " differs";
      }
    } else if (!other_ && member.data_offset >= record.data_offset()) {
      // The index's member may still follow. This member may belong to no sample, or was skipped.
      other_ = in_quotes(member.name) + place + " with " + counted(member.size_bytes, "byte") +
               ", where the index has " + in_quotes(field) + " of sample " +
               in_quotes(segment_.key(sample_)) + " at offset " +
               std::to_string(record.data_offset()) + " with " + counted(record.size_bytes, "byte");
    }
  }

  /// Returns the first difference; nullopt if all members match the index.
  std::optional<std::string> problem() const {
    if (changed_ || next_ == segment_.num_members()) return changed_;
    if (other_) return other_;
    return "no member at offset " + std::to_string(segment_.members()[next_].data_offset()) +
           ", where the index has a member";
  }

 private:
  std::uint32_t end_of_sample() const {
    const auto members = segment_.members(sample_);
    return static_cast<std::uint32_t>(members.data() + members.size() - segment_.members().data());
  }

  const SegmentView segment_;
  const bool full_;
  std::uint32_t next_ = 0;    // number of the next expected member
  std::uint32_t sample_ = 0;  // sample of the next expected member
  std::optional<std::string> changed_;
  std::optional<std::string> other_;  // first differing member since the last match
};

/// The file to verify, and how it relates to the indexed shard.
struct Inspection {
  ShardPlace place;
  bool is_original = true;     ///< false if the file is a copy
  bool is_stored_form = true;  ///< false if the file is an expanded copy of a compressed shard
};

/// Returns the shard at the index's path or URL.
/// Errors: NotFound; StaleIndex if the shard has changed; Unsupported if it is remote and there is
///   no remote access; errors of RemoteShards.
Inspection original(const Index& index, const Index::Shard& info, const VerifyOptions& options) {
  if (!is_fetched_url(info.path)) {
    if (is_missing(info)) throw missing_shard_error(index, info);
    const FileIdentity identity = file_identity(info.path);
    require_unchanged(info, identity.size_bytes, identity.mtime_ns);
    return {{.path = info.path}};
  }
  if (options.remote == nullptr) {
    throw Unsupported("the shard is remote, but no remote access was given",
                      in_quotes(redacted_url(info.path)), "give VerifyOptions::remote");
  }
  const RemoteShards::State state = options.remote->state(info.path);
  // A shard that was indexed as a local file has a time, and no version of a server.
  const bool has_version = !info.validator.empty() || info.mtime_ns == 0;
  if ((state.size_bytes && *state.size_bytes != info.size_bytes) ||
      (has_version && state.validator != info.validator)) {
    const auto version = [](std::optional<std::uint64_t> size_bytes, const std::string& validator) {
      return (size_bytes ? counted(*size_bytes, "byte") : "unknown size") + ", " +
             (validator.empty() ? "no version" : "version " + in_quotes(validator));
    };
    throw StaleIndex("the shard changed at its source since it was indexed",
                     in_quotes(redacted_url(info.path)) + " (" +
                         version(info.size_bytes, info.validator) + " when indexed; " +
                         version(state.size_bytes, state.validator) + " now)",
                     "run " + spelled("`shardwise index` again"));
  }
  return {{.path = info.path, .remote = options.remote.get(), .state = state}};
}

/// Returns the beginning of the paths of temporary files, even if TMPDIR names no folder.
std::string temporary_beginning() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return (error ? std::filesystem::path("/tmp") : folder) / "shardwise-verify";
}

std::optional<std::string> difference(const Index& index, const Index::Shard& info,
                                      const Inspection& inspection, const VerifyOptions& options) {
  const auto went_through = [&](std::uint64_t stored_bytes) {
    if (!options.progress) return;
    options.progress({.bytes_done = std::min(stored_bytes, info.size_bytes),
                      .num_bytes = info.size_bytes,
                      .num_shards = 1});
  };
  ShardBytes shard(inspection.place,
                   {.temporary = temporary_beginning(),
                    .keep = [&](std::string_view, std::uint64_t) { return options.full; },
                    .hash = options.full && inspection.is_stored_form,
                    .tick =
                        [&](std::uint64_t stored_bytes) {
                          options.cancel.throw_if_cancelled();
                          went_through(stored_bytes);
                        }});
  const std::string_view bytes = shard.bytes();
  if (inspection.is_original && inspection.place.remote == nullptr) {
    require_unchanged(info, shard.size_bytes(), shard.mtime_ns());
  }
  if (bytes.size() != info.expanded_bytes) {
    return counted(bytes.size(), "byte") + ", where the index has " +
           human_count(info.expanded_bytes);
  }
  MemberComparison members(segment_of(index, info.number), options.full);
  const bool expanded = info.compression != Compression::kNone;
  EarlierMembers earlier;
  const bool resolve = index.content().policies.link == DefectPolicies::OnLink::kResolve;
  const auto see = [&](const TarMember& member) {
    members.see(member, bytes.substr(member.data_offset, member.size_bytes));
  };
  const TarScanOptions how{
      .lenient = index.content().policies.damage == DefectPolicies::OnDefect::kSkip,
      .expanded = expanded,
      .visit_other =
          [&](const TarOther& other) {
            if (const auto member = resolve ? earlier.resolve(other) : std::nullopt) see(*member);
          },
      .tick =
          [&](std::uint64_t offset) {
            options.cancel.throw_if_cancelled();
            // With `full`, the file is read again for its hash, so the headers are half of the
            // progress.
            if (shard.is_in_place()) went_through(options.full ? offset / 2 : offset);
            shard.forget_before(offset);
          }};
  const auto compare = [&](const TarMember& member) {
    if (resolve) earlier.add(member);
    see(member);
    shard.at_member(member.data_offset);
  };
  TarScanReport report;
  try {
    report = scan_tar(bytes, without_secrets(inspection.place.path), how, compare);
  } catch (const CorruptShard&) {
    shard.require_unchanged();  // a shard that was truncated during the scan is stale, not corrupt
    throw;
  }
  shard.require_unchanged();
  if (auto problem = members.problem()) return problem;
  if (report.header_hash != info.header_hash) return "headers differ from those that were indexed";
  if (!inspection.is_stored_form) return std::nullopt;
  if (shard.first_block_hash() != info.first_header_hash) {
    return "the first 512 bytes differ from those that were indexed";
  }
  if (options.full && shard.stored_hash() != info.content_hash) {
    shard.require_unchanged();
    return "bytes outside of headers and members differ from those that were indexed";
  }
  return std::nullopt;
}

void require_hashes(const Index& index, const VerifyOptions& options) {
  IndexAccess::require_records(index);
  if (!options.full || index.content().hashes) return;
  throw InvalidArgument("the index holds no hashes to verify content with", in_quotes(index.path()),
                        "build the index with " + spelled("`shardwise index --hash`") +
                            ", or verify the headers only");
}

/// Calls `compare`. Returns its result, or the text of an error that concerns the shard.
template <class Compare>
std::optional<std::string> problem_of(const Compare& compare) {
  try {
    return compare();
  } catch (const Cancelled&) {
    throw;
  } catch (const CorruptIndex&) {
    throw;
  } catch (const Error& e) {
    // These errors concern the access to the shard, not its content.
    const bool is_unread = e.code() == ErrorCode::kIo || e.code() == ErrorCode::kNoSpace ||
                           e.code() == ErrorCode::kFetch;
    return is_unread ? std::string(kNotVerified) + e.what() : e.what();
  }
}

/// Returns how a shard differs from the index; nullopt if it does not.
std::optional<std::string> problem_with(const Index& index, const Index::Shard& info,
                                        const VerifyOptions& options) {
  return problem_of([&] {
    const Inspection inspection = original(index, info, options);
    try {
      return difference(index, info, inspection, options);
    } catch (const CorruptShard&) {
      // Throws StaleIndex if the shard was truncated just before it was opened.
      original(index, info, options);
      throw;
    }
  });
}

/// With `full`, the temporary files of remote shards together take at most this many bytes, unless
/// a single shard is larger.
constexpr std::uint64_t kMaxTemporaryBytes = std::uint64_t{1} << 30;

/// Returns the number of threads that verify in addition to the calling thread.
unsigned num_threads(const Index& index, const VerifyOptions& options) {
  if (options.threads) return *options.threads;
  std::uint64_t num_remote = 0, largest = 1;
  for (std::uint64_t number = 0; number < index.num_shards(); ++number) {
    options.cancel.throw_if_cancelled();
    const Index::Shard info = index.shard(number);
    if (!is_fetched_url(info.path)) continue;
    ++num_remote;
    largest = std::max(largest, info.expanded_bytes);
  }
  std::uint64_t threads = num_remote == index.num_shards() ? 0 : usable_cores();
  threads = std::max(threads, std::min<std::uint64_t>(detail::kAskedAtOnce, num_remote));
  if (options.full && num_remote > 0) {
    threads = std::min(threads, std::max(kMaxTemporaryBytes / largest, std::uint64_t{1}));
  }
  return static_cast<unsigned>(threads);
}

}  // namespace

void verify_shards(const Index& index, const VerifyOptions& options,
                   const std::function<void(std::uint64_t shard,
                                            const std::optional<std::string>& problem)>& report) {
  require_hashes(index, options);
  const Index::Summary summary = index.summary();
  LongMutex mutex;  // held while the user's functions run
  Progress whole{.num_bytes = summary.shard_bytes, .num_shards = summary.num_shards};
  const auto add = [&](std::uint64_t bytes) {
    const Lock lock(mutex);
    whole.bytes_done += bytes;
    if (options.progress) options.progress(whole);
  };
  std::uint64_t next = 0;
  OrderedPipeline<std::uint64_t, std::optional<std::string>> pipeline(
      [&]() -> std::optional<std::uint64_t> {
        if (next == summary.num_shards) return std::nullopt;
        return next++;
      },
      [&](std::uint64_t number) {
        std::uint64_t counted = 0;
        VerifyOptions one = options;
        one.progress = [&](const Progress& at) {
          add(at.bytes_done - std::min(counted, at.bytes_done));
          counted = std::max(counted, at.bytes_done);
        };
        const Index::Shard info = index.shard(number);
        auto problem = problem_with(index, info, one);
        add(info.size_bytes - std::min(counted, info.size_bytes));
        return problem;
      },
      {.threads = num_threads(index, options)});
  for (std::uint64_t number = 0; number < summary.num_shards; ++number) {
    const auto problem = pipeline.next();
    const Lock lock(mutex);
    whole.shards_done = number + 1;
    report(number, *problem);
    if (options.progress) options.progress(whole);
  }
}

std::optional<std::string> verify_shard(const Index& index, std::uint64_t shard,
                                        const VerifyOptions& options) {
  require_hashes(index, options);
  return problem_with(index, index.shard(shard), options);
}

std::optional<std::string> verify_copy(const Index& index, std::uint64_t shard,
                                       const std::string& path, const VerifyOptions& options) {
  require_hashes(index, options);
  const Index::Shard info = index.shard(shard);
  const Inspection copy{{.path = path}, false, info.compression == Compression::kNone};
  return problem_of([&] { return difference(index, info, copy, options); });
}

}  // namespace shardwise
