#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <stdexcept>

#include "index_files.h"
#include "tar_bytes.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

std::string with_control(char control, std::string bytes) { return bytes.insert(0, 1, control); }

}  // namespace

std::string tar_bytes(const std::string& format, const Files& files) {
  const std::unique_ptr<archive, int (*)(archive*)> writer(archive_write_new(), archive_write_free);
  const auto require = [&](int result) {
    if (result < ARCHIVE_WARN) throw std::runtime_error(archive_error_string(writer.get()));
  };
  std::string bytes(1 << 16, '\0');
  std::size_t used = 0;
  require(archive_write_set_format_by_name(writer.get(), format.c_str()));
  require(archive_write_set_bytes_per_block(writer.get(), 0));
  require(archive_write_open_memory(writer.get(), bytes.data(), bytes.size(), &used));
  for (const auto& [name, content] : files) {
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                         archive_entry_free);
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(content.size()));
    require(archive_write_header(writer.get(), entry.get()));
    if (archive_write_data(writer.get(), content.data(), content.size()) < 0)
      require(ARCHIVE_FATAL);
  }
  require(archive_write_close(writer.get()));
  bytes.resize(used);
  return bytes;
}

std::vector<std::string> scan_tar_seeds() {
  const Files plain = {{"a.jpg", "image"}, {"a.cls", "7"}, {"d/b.jpg", ""}};
  const Files long_name = {{std::string(120, 'x') + ".jpg", "image"}, {"a.cls", "7"}};
  std::vector<std::string> seeds;
  for (const char* format : {"ustar", "pax", "gnutar", "v7tar"}) {
    seeds.push_back(with_control('\0', tar_bytes(format, plain)));
    seeds.push_back(with_control('\1', tar_bytes(format, plain)));
  }
  for (const char* format : {"pax", "gnutar"}) {
    seeds.push_back(with_control('\1', tar_bytes(format, long_name)));
  }
  const std::string once = tar_bytes("ustar", plain);
  // Two concatenated archives.
  seeds.push_back(with_control('\1', once + once));
  // An archive without end marker.
  seeds.push_back(with_control('\1', once.substr(0, once.size() - 1024)));
  seeds.push_back(with_control('\1', once + "trailing"));
  for (const char type : std::string("1256gxSD")) {  // the type of the second entry
    std::string odd =
        tar_bytes("ustar", {{"a.jpg", "image"}, {"d/", "9 path=x\n"}, {"c.jpg", "x"}});
    odd[1024 + 156] = type;
    seeds.push_back(with_control('\1', std::move(odd)));
  }
  return seeds;
}

std::vector<std::string> sparse_tar_image_seeds() {
  std::vector<std::string> seeds = scan_tar_seeds();
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    seeds[i][0] = static_cast<char>(static_cast<unsigned char>(seeds[i][0]) |
                                    (i * 2 & 0x3E));  // the bytes arrive in pieces of various sizes
  }
  return seeds;
}

std::vector<std::string> offset_table_seeds() {
  const IndexFolder& folder = IndexFolder::get();
  std::vector<std::string> seeds;
  for (const char control : {'\0', '\1', '\3'}) {
    for (const std::uint64_t shard : {0U, 1U}) {
      seeds.push_back(with_control(control, folder.segment_bytes(shard)));
    }
  }
  seeds.push_back(with_control('\2', folder.table_bytes()));
  return seeds;
}

/// Returns a catalogue in which the same shards are remote, in one folder.
std::string catalogue_of_urls(const IndexFolder& folder) {
  CatalogueMeta meta = folder.meta();
  meta.summary.url_base = "https://host/data/";
  std::vector<Index::Shard> rows = folder.rows();
  for (Index::Shard& row : rows) row.url = meta.summary.url_base + row.url;
  const std::string path = folder.path("urls.idx");
  write_catalogue(path, meta, rows, folder.fields());
  return read_whole(path);
}

std::vector<std::string> catalogue_seeds() {
  const IndexFolder& folder = IndexFolder::get();
  return {
      with_control('\0', folder.catalogue_bytes()), with_control('\0', catalogue_of_urls(folder)),
      with_control('\1', std::string(8, '\0')),     with_control('\1', std::string(200, '\0')),
      with_control('\1', std::string(200, '\1')),   with_control('\1', std::string(400, '\2'))};
}

std::vector<std::string> descriptor_seeds() {
  return {
      R"({"__kind__":"wids-shard-index-v1","wids_version":1,"name":"n","shardlist":[)"
      R"({"url":"a.tar","nsamples":3,"md5sum":"d41d8cd98f00b204e9800998ecf8427e","filesize":7},)"
      R"({"url":"sub/b.tar","nsamples":0}]})",
      R"({"wids_version":1,"base":"b","datasets":[{"name":"x","weight":0.5,"base":"../y",)"
      R"("shardlist":[{"url":"file:///x%20y.tar","nsamples":1}]},)"
      R"({"weight":2,"source_url":"none.json"}],"info":{"a":[1,-2,3e4,null,true,"\u00e9"]}})",
      R"({"wids_version":1,"shardlist":[{"url":"pipe:cat","nsamples":1}]})",
      R"({"wids_version":1,"shardlist":[{"url":"https://h/a.tar","nsamples":-1}]})",
      R"([[[[[[{"a":{"b":[]}}]]]]]])",
  };
}

}  // namespace shardwise::fuzz
