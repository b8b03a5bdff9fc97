#include "index/sample_tables.h"

#include <sqlite3.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "shardwise/base/text.h"

// SQLite's virtual table interface is C: tables and cursors are structs that begin with SQLite's
// own, and every function here returns a code and lets no exception out.

namespace shardwise {
namespace {

/// Columns that both tables have, under their numbers there.
enum SampleColumn { kSample, kKey, kShard, kMembers, kBytes, kFirstMetadata };
enum MemberColumn { kMemberSample, kMember, kMemberKey, kField, kMemberShard, kOffset, kSize };

/// What a plan looks up; bits of idxNum, in the order of their arguments.
enum Constraint {
  kSampleEquals = 1,
  kSampleFrom = 2,  // >= or >: one row too many is filtered by SQLite
  kSampleUpTo = 4,  // <= or <
  kShardEquals = 8,
  kKeyEquals = 16,
};

/// What one connection has registered.
struct TableSource {
  const Index& index;
  std::exception_ptr* error;
  std::vector<std::optional<SegmentView>> segments;  // by shard, checked when first touched

  const SegmentView& segment(std::uint64_t shard) {
    if (!segments[shard]) segments[shard] = index.segment(shard);
    return *segments[shard];
  }
};

struct Table {
  sqlite3_vtab base{};
  TableSource* source = nullptr;
  bool of_members = false;
};

struct Cursor {
  sqlite3_vtab_cursor base{};
  TableSource* source = nullptr;
  // The samples to visit: a range, or a list.
  std::uint64_t next = 0;  // in the range, or the list
  std::uint64_t end = 0;
  bool listed = false;
  std::vector<std::uint64_t> list;
  // Where it stands.
  bool at_end = true;
  std::uint64_t sample = 0;
  std::uint64_t shard = 0;
  std::uint64_t shard_first = 0;
  std::uint64_t shard_end = 0;
  SegmentView segment;
  std::uint32_t local = 0;
  std::span<const MemberRecord> members;
  std::uint32_t member = 0;  // members table only

  /// Moves to the next sample that has something to show.
  void next_sample(bool of_members) {
    for (;;) {
      at_end = next >= end;
      if (at_end) return;
      sample = listed ? list[next] : next;
      ++next;
      if (sample < shard_first || sample >= shard_end) {
        shard = source->index.shard_of(sample);
        shard_first = source->index.first_sample(shard);
        shard_end = source->index.first_sample(shard + 1);
        segment = source->segment(shard);
      }
      local = static_cast<std::uint32_t>(sample - shard_first);
      members = segment.members(local);
      member = 0;
      if (!of_members || !members.empty()) return;
    }
  }
};

bool is_of_members(const Cursor& cursor) {
  return reinterpret_cast<const Table*>(cursor.base.pVtab)->of_members;
}

/// Runs `body`, which returns a code; keeps what it throws for the caller of the query.
template <class Body>
int guarded(TableSource& source, const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return SQLITE_NOMEM;
  } catch (...) {
    *source.error = std::current_exception();
    return SQLITE_ERROR;
  }
}

int connect(sqlite3* db, void* aux, bool of_members, sqlite3_vtab** out) noexcept {
  auto& source = *static_cast<TableSource*>(aux);
  return guarded(source, [&] {
    std::string schema = of_members ? "CREATE TABLE members (sample INTEGER, member INTEGER, key, "
                                      "field, shard INTEGER, offset INTEGER, size INTEGER)"
                                    : "CREATE TABLE samples (sample INTEGER, key, shard INTEGER, "
                                      "members INTEGER, bytes INTEGER";
    if (!of_members) {
      for (const Column& column : source.index.columns()) schema += ", \"" + column.name + "\"";
      schema += ")";
    }
    if (const int code = sqlite3_declare_vtab(db, schema.c_str()); code != SQLITE_OK) return code;
    sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
    auto table = std::make_unique<Table>();
    table->source = &source;
    table->of_members = of_members;
    *out = &table.release()->base;
    return SQLITE_OK;
  });
}

int connect_samples(sqlite3* db, void* aux, int, const char* const*, sqlite3_vtab** out, char**) {
  return connect(db, aux, false, out);
}

int connect_members(sqlite3* db, void* aux, int, const char* const*, sqlite3_vtab** out, char**) {
  return connect(db, aux, true, out);
}

int disconnect(sqlite3_vtab* table) {
  delete reinterpret_cast<Table*>(table);
  return SQLITE_OK;
}

/// The constraint that a condition on a column is good for, or 0.
int constraint_of(bool of_members, int column, unsigned char op) {
  const int sample = of_members ? int{kMemberSample} : int{kSample};
  const int shard = of_members ? int{kMemberShard} : int{kShard};
  const int key = of_members ? int{kMemberKey} : int{kKey};
  if (column == sample || (column == -1 && !of_members)) {
    switch (op) {
      case SQLITE_INDEX_CONSTRAINT_EQ:
        return kSampleEquals;
      case SQLITE_INDEX_CONSTRAINT_GE:
      case SQLITE_INDEX_CONSTRAINT_GT:
        return kSampleFrom;
      case SQLITE_INDEX_CONSTRAINT_LE:
      case SQLITE_INDEX_CONSTRAINT_LT:
        return kSampleUpTo;
      default:
        return 0;
    }
  }
  if (op != SQLITE_INDEX_CONSTRAINT_EQ) return 0;
  if (column == shard) return kShardEquals;
  if (column == key) return kKeyEquals;
  return 0;
}

int best_index(sqlite3_vtab* base, sqlite3_index_info* info) {
  const auto& table = *reinterpret_cast<const Table*>(base);
  const Index& index = table.source->index;
  const double samples = static_cast<double>(index.size());
  int usable[32] = {};  // by constraint: 1 + the number of its condition
  for (int i = 0; i < info->nConstraint; ++i) {
    const auto& condition = info->aConstraint[i];
    if (condition.usable == 0) continue;
    const int which = constraint_of(table.of_members, condition.iColumn, condition.op);
    if (which != 0 && usable[which] == 0) usable[which] = i + 1;
  }
  int arguments = 0;
  double rows = samples;
  const auto use = [&](int constraint, double rows_then) {
    if (usable[constraint] == 0) return;
    info->idxNum |= constraint;
    info->aConstraintUsage[usable[constraint] - 1].argvIndex = ++arguments;
    rows = std::min(rows, rows_then);
  };
  use(kSampleEquals, 1);
  use(kSampleFrom, samples / 2);
  use(kSampleUpTo, samples / 2);
  use(kShardEquals, samples / static_cast<double>(std::max<std::uint64_t>(1, index.num_shards())));
  use(kKeyEquals, 1);
  if (table.of_members) {
    rows *= static_cast<double>(index.num_members()) / std::max(1.0, samples);
  }
  info->estimatedRows = static_cast<sqlite3_int64>(rows) + 1;
  info->estimatedCost = rows + 1;
  // Rows come in order of sample.
  const int sample = table.of_members ? int{kMemberSample} : int{kSample};
  if (info->nOrderBy == 1 && info->aOrderBy[0].iColumn == sample && info->aOrderBy[0].desc == 0) {
    info->orderByConsumed = 1;
  }
  return SQLITE_OK;
}

int open(sqlite3_vtab* base, sqlite3_vtab_cursor** out) {
  auto& table = *reinterpret_cast<Table*>(base);
  return guarded(*table.source, [&] {
    auto cursor = std::make_unique<Cursor>();
    cursor->source = table.source;
    *out = &cursor.release()->base;
    return SQLITE_OK;
  });
}

int close(sqlite3_vtab_cursor* base) {
  delete reinterpret_cast<Cursor*>(base);
  return SQLITE_OK;
}

/// Narrows [begin, end) to what `value` as a bound lets through. Where it is no integer nothing is
/// narrowed: SQLite checks every row itself.
void narrow(int constraint, sqlite3_value* value, const Index& index, std::uint64_t& begin,
            std::uint64_t& end) {
  if (sqlite3_value_type(value) != SQLITE_INTEGER) return;
  const std::int64_t n = sqlite3_value_int64(value);
  const auto clamped = static_cast<std::uint64_t>(
      std::clamp<std::int64_t>(n, 0, static_cast<std::int64_t>(index.size())));
  switch (constraint) {
    case kSampleEquals:
      begin = std::max(begin, clamped);
      end = n < 0 ? begin : std::min(end, clamped + 1);
      break;
    case kSampleFrom:
      begin = std::max(begin, clamped);
      break;
    case kSampleUpTo:
      end = n < 0 ? begin : std::min(end, clamped + 1);
      break;
    case kShardEquals:
      if (n < 0 || static_cast<std::uint64_t>(n) >= index.num_shards()) {
        end = begin;
      } else {
        begin = std::max(begin, index.first_sample(static_cast<std::uint64_t>(n)));
        end = std::min(end, index.first_sample(static_cast<std::uint64_t>(n) + 1));
      }
      break;
    default:
      break;
  }
}

int filter(sqlite3_vtab_cursor* base, int plan, const char*, int, sqlite3_value** arguments) {
  auto& cursor = *reinterpret_cast<Cursor*>(base);
  return guarded(*cursor.source, [&] {
    const Index& index = cursor.source->index;
    std::uint64_t begin = 0;
    std::uint64_t end = index.size();
    cursor.listed = false;
    int next_argument = 0;
    for (const int constraint : {kSampleEquals, kSampleFrom, kSampleUpTo, kShardEquals}) {
      if ((plan & constraint) != 0)
        narrow(constraint, arguments[next_argument++], index, begin, end);
    }
    if ((plan & kKeyEquals) != 0) {
      sqlite3_value* key = arguments[next_argument];
      const int type = sqlite3_value_type(key);
      if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
        const auto* bytes = static_cast<const char*>(sqlite3_value_blob(key));
        const auto size = static_cast<std::size_t>(sqlite3_value_bytes(key));
        cursor.list =
            index.find_all(bytes == nullptr ? std::string_view() : std::string_view(bytes, size));
        std::erase_if(cursor.list, [&](std::uint64_t s) { return s < begin || s >= end; });
        cursor.listed = true;
        begin = 0;
        end = cursor.list.size();
      }
    }
    cursor.next = begin;
    cursor.end = std::max(begin, end);
    cursor.next_sample(is_of_members(cursor));
    return SQLITE_OK;
  });
}

int next(sqlite3_vtab_cursor* base) {
  auto& cursor = *reinterpret_cast<Cursor*>(base);
  return guarded(*cursor.source, [&] {
    const bool of_members = is_of_members(cursor);
    if (of_members && ++cursor.member < cursor.members.size()) return SQLITE_OK;
    cursor.next_sample(of_members);
    return SQLITE_OK;
  });
}

int eof(sqlite3_vtab_cursor* base) { return reinterpret_cast<Cursor*>(base)->at_end ? 1 : 0; }

void result_number(sqlite3_context* context, std::uint64_t value) {
  sqlite3_result_int64(context, static_cast<sqlite3_int64>(value));
}

/// What it points to outlives the query.
void result_text(sqlite3_context* context, std::string_view text) {
  sqlite3_result_text64(context, text.empty() ? "" : text.data(), text.size(), SQLITE_STATIC,
                        SQLITE_UTF8);
}

void result_blob(sqlite3_context* context, std::string_view bytes) {
  sqlite3_result_blob64(context, bytes.empty() ? "" : bytes.data(), bytes.size(), SQLITE_STATIC);
}

void result_name(sqlite3_context* context, std::string_view name) {
  if (is_utf8(name) && name.find('\0') == std::string_view::npos) {
    result_text(context, name);
  } else {
    result_blob(context, name);
  }
}

void result_value(sqlite3_context* context, const MetadataValue& value) {
  switch (value.type) {
    case ValueType::kNull:
      sqlite3_result_null(context);
      break;
    case ValueType::kInteger:
      sqlite3_result_int64(context, value.integer);
      break;
    case ValueType::kReal:
      sqlite3_result_double(context, value.real);
      break;
    case ValueType::kText:
      result_text(context, value.bytes);
      break;
    case ValueType::kBlob:
      result_blob(context, value.bytes);
      break;
  }
}

void sample_column(const Cursor& cursor, sqlite3_context* context, int column) {
  switch (column) {
    case kSample:
      result_number(context, cursor.sample);
      break;
    case kKey:
      result_name(context, cursor.segment.key(cursor.local));
      break;
    case kShard:
      result_number(context, cursor.shard);
      break;
    case kMembers:
      result_number(context, cursor.members.size());
      break;
    case kBytes: {
      std::uint64_t bytes = 0;
      for (const MemberRecord& member : cursor.members) bytes += member.size_bytes;
      result_number(context, bytes);
      break;
    }
    default:
      result_value(context, cursor.segment.value(
                                static_cast<std::uint32_t>(column - kFirstMetadata), cursor.local));
  }
}

void member_column(const Cursor& cursor, sqlite3_context* context, int column) {
  const MemberRecord& member = cursor.members[cursor.member];
  switch (column) {
    case kMemberSample:
      result_number(context, cursor.sample);
      break;
    case kMember:
      result_number(context, cursor.member);
      break;
    case kMemberKey:
      result_name(context, cursor.segment.key(cursor.local));
      break;
    case kField:
      result_name(context, cursor.segment.field_name(member.field()));
      break;
    case kMemberShard:
      result_number(context, cursor.shard);
      break;
    case kOffset:
      result_number(context, member.data_offset());
      break;
    case kSize:
      result_number(context, member.size_bytes);
      break;
    default:
      break;
  }
}

int column(sqlite3_vtab_cursor* base, sqlite3_context* context, int number) {
  const auto& cursor = *reinterpret_cast<const Cursor*>(base);
  (is_of_members(cursor) ? member_column : sample_column)(cursor, context, number);
  return SQLITE_OK;
}

/// Of a sample its number; of a member its number among all.
int row_id(sqlite3_vtab_cursor* base, sqlite3_int64* out) {
  const auto& cursor = *reinterpret_cast<const Cursor*>(base);
  if (!is_of_members(cursor)) {
    *out = static_cast<sqlite3_int64>(cursor.sample);
    return SQLITE_OK;
  }
  const auto in_shard = &cursor.members[cursor.member] - cursor.segment.members().data();
  *out = static_cast<sqlite3_int64>(cursor.shard) << 32 | in_shard;
  return SQLITE_OK;
}

sqlite3_module module_of(bool of_members) {
  sqlite3_module module{};
  module.xCreate = nullptr;  // eponymous only: it exists by its name, in no schema
  module.xConnect = of_members ? connect_members : connect_samples;
  module.xBestIndex = best_index;
  module.xDisconnect = disconnect;
  module.xOpen = open;
  module.xClose = close;
  module.xFilter = filter;
  module.xNext = next;
  module.xEof = eof;
  module.xColumn = column;
  module.xRowid = row_id;
  return module;
}

void delete_source(void* source) { delete static_cast<TableSource*>(source); }

}  // namespace

void register_sample_tables(sqlite3* db, const Index& index, std::exception_ptr* error) {
  static const sqlite3_module kSamplesModule = module_of(false);
  static const sqlite3_module kMembersModule = module_of(true);
  for (const bool of_members : {false, true}) {
    auto source = std::make_unique<TableSource>(TableSource{index, error, {}});
    source->segments.resize(index.num_shards());
    const int code = sqlite3_create_module_v2(db, of_members ? "members" : "samples",
                                              of_members ? &kMembersModule : &kSamplesModule,
                                              source.release(), delete_source);
    if (code != SQLITE_OK) throw std::bad_alloc();
  }
}

}  // namespace shardwise
