#include "index_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/bytes.h"
#include "base/file.h"
#include "index/index_files.h"
#include "index/segment_of.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "tar_bytes.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace fs = std::filesystem;
namespace {

/// Largest number of samples, shards and rows that walk_index() reads, so that a hostile count does
/// not take hours.
constexpr std::uint64_t kMaxWalked = 64;

void walk_shard(const Index& index, std::uint64_t number) {
  allow_errors([&] { touch(index.shard(number).path); });
  allow_errors([&] {
    const SegmentView segment = segment_of(index, number);
    SHARDWISE_FUZZ_REQUIRE(segment.num_samples() ==
                           index.first_sample(number + 1) - index.first_sample(number));
    for (std::uint32_t i = 0; i < std::min<std::uint64_t>(segment.num_samples(), kMaxWalked); ++i) {
      touch(segment.key(i));
      allow_errors([&] { static_cast<void>(index.find(segment.key(i))); });
      for (std::uint32_t c = 0; c < segment.num_columns(); ++c) touch(segment.value(c, i).bytes);
    }
  });
}

void walk_sample(const Dataset& data, std::uint64_t number) {
  SHARDWISE_FUZZ_REQUIRE(data.index().shard_of(number) < data.index().num_shards());
  allow_errors([&] {
    const Sample sample = data[number];
    touch(sample.key());
    touch(sample.describe());
    for (std::size_t i = 0; i < sample.num_fields(); ++i) {
      const Sample::Field field = sample.field(i);
      touch(field.name);
      touch(field.bytes);
      SHARDWISE_FUZZ_REQUIRE(sample.contains(field.name));
    }
  });
}

}  // namespace

void touch(std::string_view bytes) {
  unsigned sum = 0;
  for (const char c : bytes) sum += static_cast<unsigned char>(c);
  volatile unsigned sink = sum;
  static_cast<void>(sink);
}

bool lies_within(std::string_view part, std::string_view whole) {
  return part.empty() || (part.data() >= whole.data() &&
                          range_fits(static_cast<std::uint64_t>(part.data() - whole.data()),
                                     part.size(), whole.size()));
}

IndexFolder::IndexFolder()
    : folder_((fs::temp_directory_path() / ("shardwise-fuzz-" + random_name(16))).string()) {
  fs::create_directory(folder_);
  write_whole(path("a.tar"),
              tar_bytes("ustar", {{"a.jpg", "image"}, {"a.cls", "7"}, {"b.jpg", ""}}));
  write_whole(path("b.tar"), tar_bytes("ustar", {{"d/c.jpg", "more"}, {"d/c.seg.png", "mask"}}));
  const std::string index = path("whole.idx");
  BuildOptions options;
  options.threads = 1;
  options.content.columns = {parse_column("cls"), parse_column("text=txt")};
  options.content.hashes = true;
  build_index(index, {path("a.tar"), path("b.tar")}, options);
  const IndexFiles files(index);
  meta_ = files.catalogue().meta();
  fields_ = files.catalogue().fields();
  for (std::uint64_t i = 0; i < meta_.summary.num_shards; ++i)
    rows_.push_back(files.catalogue().shard(i));
  catalogue_bytes_ = read_whole(index);
  table_name_ = meta_.table_file;
  table_bytes_ = read_whole(path(table_name_));
}

IndexFolder::~IndexFolder() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

const IndexFolder& IndexFolder::get() {
  static const IndexFolder kFolder;
  return kFolder;
}

std::string IndexFolder::segment_bytes(std::uint64_t shard) const {
  return std::string(IndexFiles(path("whole.idx")).segment_bytes(shard));
}

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_whole(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

void write_catalogue(const std::string& path, const CatalogueMeta& meta,
                     const std::vector<Index::Shard>& rows,
                     const std::vector<Index::Summary::Field>& fields,
                     const std::vector<Index::SkippedMember>& skipped) {
  CatalogueWriter writer(path, meta.summary.url_base);
  for (const Index::Shard& row : rows) writer.add_shard(row);
  for (const Index::Summary::Field& field : fields) writer.add_field(field);
  for (const Index::SkippedMember& member : skipped) writer.add_skipped(member);
  writer.finish(meta);
  writer.commit();
}

void walk_segment(const SegmentView& segment, std::string_view bytes) {
  for (std::uint32_t i = 0; i < segment.num_fields(); ++i) {
    SHARDWISE_FUZZ_REQUIRE(lies_within(segment.field_name(i), bytes));
    touch(segment.field_name(i));
  }
  std::uint64_t num_members = 0;
  for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
    SHARDWISE_FUZZ_REQUIRE(lies_within(segment.key(i), bytes));
    touch(segment.key(i));
    SHARDWISE_FUZZ_REQUIRE(SegmentView::find_key(bytes, i) == segment.key(i));
    num_members += segment.members(i).size();
    for (const MemberRecord& member : segment.members(i)) {
      SHARDWISE_FUZZ_REQUIRE(member.field() < segment.num_fields());
    }
  }
  SHARDWISE_FUZZ_REQUIRE(num_members == segment.num_members());
  SHARDWISE_FUZZ_REQUIRE(segment.members().size() == segment.num_members());
  SHARDWISE_FUZZ_REQUIRE(!SegmentView::find_key(bytes, segment.num_samples()));
  std::uint64_t end = 0;
  bool wraps = false;
  for (const MemberRecord& member : segment.members()) {
    wraps = wraps || member.data_offset() + member.size_bytes < member.size_bytes;
    end = std::max(end, member.data_offset() + member.size_bytes);
  }
  if (!wraps) {
    SHARDWISE_FUZZ_REQUIRE(segment.fits_shard(end));
    SHARDWISE_FUZZ_REQUIRE(end == 0 || !segment.fits_shard(end - 1));
  } else {
    SHARDWISE_FUZZ_REQUIRE(!segment.fits_shard(UINT64_MAX));
  }
}

void walk_index(const std::string& path) {
  allow_errors([&] {
    const std::shared_ptr<const Index> index = Index::open(path);
    allow_errors([&] { static_cast<void>(index->summary()); });
    allow_errors([&] {
      for (const Index::SkippedMember& member : index->skipped(kMaxWalked)) touch(member.reason);
    });
    for (std::uint64_t i = 0; i < std::min(index->num_shards(), kMaxWalked); ++i) {
      walk_shard(*index, i);
    }
    for (const char* key : {"", "a", "d/c", "none"}) {
      allow_errors([&] {
        const auto found = index->find(key);
        SHARDWISE_FUZZ_REQUIRE(!found || *found < index->size());
      });
    }
    const Dataset data(index);
    for (std::uint64_t i = 0; i < std::min(data.size(), kMaxWalked); ++i) walk_sample(data, i);
    if (!data.empty()) walk_sample(data, data.size() - 1);
    if (index->size() <= kMaxWalked) allow_errors([&] { index->validate(); });
  });
}

}  // namespace shardwise::fuzz
