#include "ingest/rewrite_catalogue.h"

#include <variant>

#include "base/assert.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/private_file.h"
#include "index/catalogue.h"
#include "index/index_files.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

/// Opens and locks the table, so that no concurrent build removes it. Returns nullopt if it cannot
/// be locked.
std::optional<File> hold_table(const std::string& path, const IndexFiles& files) {
  const std::string& name = files.catalogue().meta().table_file;
  // Locking does not protect a table that is named after another index.
  if (owner_of_table(name) != std::string_view(path).substr(path.rfind('/') + 1)) {
    return std::nullopt;
  }
  try {
    File table = File::open_to_lock(files.table_path());
    if (table.try_lock() != FileLock::kTaken || !table.has_path()) return std::nullopt;
    return table;
  } catch (const NotFound&) {
    return std::nullopt;
  }
}

}  // namespace

bool rewrite_catalogue(const std::string& path, const BuildInputs& inputs, bool is_secret) {
  SHARDWISE_ASSERT(inputs.old != nullptr &&
                   inputs.sources.size() == inputs.old->summary().num_shards);
  const IndexFiles& files = inputs.old->files;
  const std::optional<File> table = hold_table(path, files);
  if (!table) return false;
  CatalogueWriter catalogue(path, url_base_of(inputs.sources));
  if (is_secret) make_private(catalogue.file());
  try {
    set_mode_as(catalogue.file(), *table);
  } catch (const Error&) {
    return false;  // the table belongs to another user
  }
  for (const Source& source : inputs.sources) catalogue.add_shard(std::get<Reuse>(source).row);
  for (const Index::SkippedMember& member : files.catalogue().skipped(UINT64_MAX)) {
    catalogue.add_skipped(member);
  }
  for (const Index::Summary::Field& field : files.catalogue().fields()) catalogue.add_field(field);
  CatalogueMeta meta = files.catalogue().meta();
  meta.sources = inputs.stored_sources;
  catalogue.finish(meta);
  catalogue.commit();
  SHARDWISE_FAULT_POINT("build.committed");
  return true;
}

}  // namespace shardwise
