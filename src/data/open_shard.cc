#include "data/open_shard.h"

#include <algorithm>
#include <filesystem>

#include "base/counted.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/mapped_read.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/remedies.h"
#include "index/segment_of.h"
#include "shardwise/ingest/verify.h"

namespace shardwise::detail {
namespace {

/// Maps the shard and checks it against the index; nullopt if it cannot be mapped.
std::optional<MappedFile> map_shard(const Index::Shard& info, const SegmentView& segment) {
  std::optional<MappedFile> file;
  if (MappedFile::is_budget_spent()) return file;
  try {
    // Map without read-ahead: if the shard is not in the page cache, only one page is read now.
    file = MappedFile::open(info.path, MappedFile::Access::kRandom);
  } catch (const CannotMap&) {
    return std::nullopt;
  }
  require_indexed(info, segment, file->identity(), [&](std::uint64_t offset, std::size_t size) {
    const std::string_view bytes = file->bytes();
    if (offset > bytes.size()) return std::string();
    std::string copy(std::min<std::uint64_t>(size, bytes.size() - offset), '\0');
    if (!copy_mapped(copy.data(), bytes.data() + offset, copy.size())) {
      const FileIdentity now = file_identity(info.path);
      require_unchanged(info, now.size_bytes, now.mtime_ns);
      throw Error(ErrorCode::kIo, "cannot read a page of the mapped shard",
                  in_quotes(info.path) + ", offset " + std::to_string(offset),
                  "check the disk, then run again");
    }
    return copy;
  });
  file->advise(MappedFile::Access::kNormal);
  return file;
}

/// Returns the file's present time, if the shard's time may differ from the index's; otherwise the
/// index's time.
std::int64_t time_of(const Index::Shard& info) {
  if (!info.any_time) return info.mtime_ns;
  try {
    return file_identity(info.path).mtime_ns;
  } catch (const Error&) {
    return info.mtime_ns;  // opening the file reports the error
  }
}

bool is_in_place(const Index::Shard& info) {
  return info.compression == Compression::kNone && !is_fetched_url(info.path);
}

/// Throws if the fetched copy is not the indexed shard.
void require_copy(const Index& index, const Index::Shard& info, const std::string& path,
                  const VerifyOptions& how = {}) {
  if (const auto problem = verify_copy(index, info.number, path, how)) {
    throw StaleIndex("the fetched file is not the shard that was indexed (" + *problem + ")",
                     in_quotes(redacted_url(info.path)),
                     "fetch the shard again; if the shard changed at its source, run " +
                         spelled("`shardwise index` again"));
  }
}

[[noreturn]] void refuse_without_cache(const Index::Shard& info) {
  if (info.compression == Compression::kNone) {
    throw Unsupported("the shard is remote, and there is no shard cache",
                      in_quotes(redacted_url(info.path)),
                      "give a cache (" + spelled("Dataset::Options::cache") +
                          "), or read single samples (" + spelled("Dataset::Access::kRange") + ")");
  }
  throw Unsupported("the shard is compressed (" + std::string(compression_name(info.compression)) +
                        "), and there is no shard cache to expand it into",
                    in_quotes(redacted_url(info.path)),
                    "give a cache (" + spelled("Dataset::Options::cache") +
                        "), or expand the shard, and index the expanded file");
}

/// Throws if neither the server's validator nor hashes can prove that single samples are from the
/// indexed shard.
void require_known_ranges(const Index& index, const Index::Shard& info) {
  if (!info.validator.empty() || index.content().hashes) return;
  throw Unsupported(
      "cannot check single samples, because the index has neither hashes nor a version of the "
      "shard (ETag or Last-Modified)",
      in_quotes(redacted_url(info.path)),
      "give a cache (" + spelled("Dataset::Options::cache") +
          ") and choose another access, or index the shard with hashes (" +
          spelled("Index::Content::hashes") + ")");
}

/// True if single samples can be verified as reliably as the whole shard.
bool may_be_read_uncached(const Index& index, const Index::Shard& info) {
  const bool hashes = index.content().hashes;
  return info.compression == Compression::kNone && is_fetched_url(info.path) &&
         (hashes || (!info.validator.empty() && !info.content_hash));
}

/// Sets the members of `shard` that come from the index.
/// REQUIRES: `shard.segment` is set.
/// Errors: CorruptIndex.
void fill_in(OpenShard& shard, const std::shared_ptr<const Index>& index,
             const Index::Shard& info) {
  if (!shard.segment.fits_shard(info.expanded_bytes)) {
    throw CorruptIndex("the index is damaged",
                       in_quotes(index->path()) + " (shard " + std::to_string(info.number) +
                           ": a member lies outside the shard)",
                       rebuild_remedy(index->path()));
  }
  shard.index = index;
  shard.first_sample = info.first_sample;
  shard.path = info.path;
  shard.stored_bytes = info.size_bytes;
}

}  // namespace

bool OpenShard::is_unchanged() const {
  // A remote shard is mapped from the cache, whose files do not change.
  if (is_fetched_url(path)) return true;
  try {
    const FileIdentity now = file_identity(path), then = map->identity();
    if (now.device == then.device && now.inode == then.inode) {
      if (now != then) was_written_to = true;
      return now == then;
    }
  } catch (const Error&) {
  }
  return !was_written_to;  // the path leads to another file or to no file
}

std::unique_ptr<const OpenShard> open_coming(const std::shared_ptr<const Index>& index,
                                             const Index::Shard& info, CachedShard held,
                                             std::shared_ptr<ComingShard> coming,
                                             const CancelToken& cancel) {
  auto shard = std::make_unique<OpenShard>();
  shard->segment = segment_of(*index, info.number);
  fill_in(*shard, index, info);
  shard->cached = std::move(held);
  shard->map = coming->map(cancel);
  if (!shard->map) return nullptr;
  shard->coming = std::move(coming);
  shard->cached.share_with_children();
  return shard;
}

std::optional<CacheRequest> cache_request(const std::shared_ptr<const Index>& index,
                                          std::uint64_t number) {
  const Index::Shard info = index->shard(number);
  if (is_in_place(info)) return std::nullopt;
  CacheRequest request{.source = {.url = info.path,
                                  .validator = info.validator,
                                  .compression = info.compression,
                                  .size_bytes = info.expanded_bytes,
                                  .source_bytes = info.size_bytes,
                                  .source_hash = info.content_hash}};
  if (!is_fetched_url(info.path)) {
    std::error_code error;  // opening the file reports the error
    const auto path = std::filesystem::weakly_canonical(info.path, error);
    request.source.url = error ? info.path : path.string();
    request.source.validator = local_validator(info.size_bytes, time_of(info));
  } else if (info.validator.empty() && info.mtime_ns != 0) {
    request.source.indexed_as = local_validator(info.size_bytes, info.mtime_ns);
  }
  request.admission.checked_as = info.header_hash;
  request.admission.check = [index, info](const std::string& path) {
    require_copy(*index, info, path);
  };
  if (index->content().hashes) {
    request.admission.check_content = [index, info](const std::string& path,
                                                    const CancelToken& cancel) {
      require_copy(*index, info, path, {.full = true, .cancel = cancel});
    };
  }
  return request;
}

std::unique_ptr<const OpenShard> open_shard(const std::shared_ptr<const Index>& index,
                                            std::uint64_t number, const ShardOpening& how) {
  const Index::Shard info = index->shard(number);
  auto shard = std::make_unique<OpenShard>();
  shard->segment = segment_of(*index, number);
  if (is_in_place(info)) {
    if (how.access == Dataset::Access::kMap) {
      shard->map = finding(*index, info, [&] { return map_shard(info, shard->segment); });
    }
  } else if (how.access != Dataset::Access::kRange || info.compression != Compression::kNone) {
    if (!how.cache) refuse_without_cache(info);
    if (!is_fetched_url(info.path)) {
      const FileIdentity identity = finding(*index, info, [&] { return file_identity(info.path); });
      require_unchanged(info, identity.size_bytes, identity.mtime_ns);
    }
    CacheRequest request = *cache_request(index, number);
    request.cancel = how.cancel;
    request.was_followed = how.was_followed;
    request.may_read_uncached = [&] {
      return how.can_read_parts && may_be_read_uncached(*index, info) && how.can_read_parts(info);
    };
    shard->cached = CacheAccess::get(*how.cache, request, how.next_use);
    if (shard->cached.is_pinned()) {
      shard->map = shard->cached.map();
      shard->cached.share_with_children();
    } else {
      shard->uncached_name = CacheAccess::name_of(request);
      if (how.require_first_block) how.require_first_block(info);
    }
  } else {
    require_known_ranges(*index, info);
    if (how.require_first_block) how.require_first_block(info);
  }
  if (shard->map) shard->data = shard->map->bytes().data();
  fill_in(*shard, index, info);
  return shard;
}

void require_indexed(const Index::Shard& shard, const SegmentView& segment,
                     const FileIdentity& file, const ReadShard& read) {
  require_unchanged(shard, file.size_bytes, file.mtime_ns);
  const bool has_new_time = file.mtime_ns != shard.mtime_ns;
  const auto difference =
      has_new_time ? quick_check(shard, segment, read) : difference_at_start(shard, read);
  if (!difference) return;
  throw StaleIndex(has_new_time
                       ? std::string("the shard's content differs from the indexed shard")
                       : "the shard changed since it was indexed, although its size and " +
                             std::string(is_fetched_url(shard.path) ? "validator" : "time") +
                             " did not",
                   in_quotes(without_secrets(shard.path)) +
                       (has_new_time ? " (" + *difference + ")" : std::string(", offset 0")),
                   "run " + spelled("`shardwise index` again") + ", or restore the old shard");
}

void require_same_file(const FileIdentity& now, const FileIdentity& then,
                       const std::string& place) {
  if (now == then) return;
  const std::string how = now.size_bytes == then.size_bytes
                              ? "the time of the file changed, but not the size"
                              : counted(now.size_bytes, "byte") + " now, " +
                                    human_count(then.size_bytes) + " when opened";
  throw StaleIndex(
      "the shard changed while it was open", place + " (" + how + ")",
      "run " + spelled("`shardwise index` again") +
          " (only changed shards are read), or restore the old shard; then open the dataset again");
}

}  // namespace shardwise::detail
