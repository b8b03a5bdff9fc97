#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/query_tables.h"

// SQLite's interface for virtual tables is C. Tables and cursors are structs that extend those of
// SQLite. Every function that SQLite calls returns a code and must not throw.

namespace shardwise {

/// The lookup for conditions on a column, if it has one. SQLite checks all other conditions row by
/// row.
enum class Lookup {
  kNone,
  kPlace,  ///< the column contains the row's place, see VirtualTable
  kShard,  ///< places are sample numbers, and the column contains the sample's shard
  kKey,    ///< places are sample numbers, and the column contains the sample's key
  kGroup,  ///< the rows can be listed in the order of this column, see Row::num_groups()
};

template <class Row>
struct TableColumn {
  const char* name;
  const char* type;  ///< affinity in SQL; "" if text or blobs are returned unchanged
  Lookup lookup;
  void (*give)(const Row& row, sqlite3_context* to);
};

/// A read-only virtual table. Its rows are at places 0, 1, 2, ..., usually one per place. Row is a
/// cursor over the rows:
///
///   static constexpr const char* kName;              // of the table
///   static constexpr bool kOneAPlace;                // the place is then its rowid
///   static std::span<const TableColumn<Row>> columns();
///   explicit Row(QueryTables& tables);
///   static std::uint64_t num_places(QueryTables& tables);
///   static double rows_a_place(const Index& index);  // for the planner
///   bool move_to(std::uint64_t place);               // false if it has no row
///   bool move_on();                                  // to the next row of that place
///   std::int64_t row_id() const;
///   static std::vector<std::string> more_columns(const Index& index);  // after columns(), in SQL
///   void give_more(std::size_t column, sqlite3_context* to) const;     // one of these, from 0
///   QueryTables& tables;
///
/// A Row with a column of Lookup::kGroup can list all rows with its first value, then all rows with
/// its second, and so on. A GROUP BY of this column then needs no sorting:
///
///   static std::uint64_t num_groups(QueryTables& tables);  // 0 if it cannot list them
///   void show_group(std::uint64_t group);                  // only rows of this group from now on
template <class Row>
class VirtualTable : public sqlite3_vtab {
 public:
  static void add_to(sqlite3* db, QueryTables& tables) {
    static const sqlite3_module kModule = module();
    if (sqlite3_create_module(db, Row::kName, &kModule, &tables) != SQLITE_OK) {
      throw std::bad_alloc();
    }
  }

 private:
  /// The conditions that a plan uses, as bits of idxNum. Arguments have this order.
  enum Use {
    kEquals = 1,
    kFrom = 2,  // >= or >; the lookup includes the bound, and SQLite then excludes it for >
    kUpTo = 4,  // <= or <
    kOfShard = 8,
    kOfKey = 16,
    kOfKeys = 32,   // the key equals any key of a list
    kByGroup = 64,  // an order, not a condition: group by group
  };

  struct Cursor : sqlite3_vtab_cursor {
    explicit Cursor(QueryTables& tables) : sqlite3_vtab_cursor{}, row(tables) {}

    /// Moves `next` to the first place from there on that has a row. If this group has no more
    /// rows, continues with the next groups.
    void settle() {
      for (;;) {
        for (; next < end; ++next) {
          if (row.move_to(listed ? list[next] : next)) return;
        }
        if (group + 1 >= num_groups) return;
        show(group + 1);
      }
    }
    void show([[maybe_unused]] std::uint64_t now) {
      if constexpr (requires { row.show_group(now); }) row.show_group(now);
      group = now;
      next = begin;
    }

    Row row;
    std::uint64_t group = 0;
    std::uint64_t num_groups = 0;  // 0 if rows are not listed by group
    std::uint64_t begin = 0;
    std::uint64_t next = 0;  // current place: a number, or an index into `list`
    std::uint64_t end = 0;
    bool listed = false;
    std::vector<std::uint64_t> list;
  };

  explicit VirtualTable(QueryTables& tables) : sqlite3_vtab{}, tables_(tables) {}

  static Cursor& cursor_of(sqlite3_vtab_cursor* base) { return *static_cast<Cursor*>(base); }
  static VirtualTable& table_of(sqlite3_vtab* base) { return *static_cast<VirtualTable*>(base); }

  /// Runs `body`. If it throws, stores the exception in `tables`, for the caller of the query.
  template <class Body>
  static int guarded(QueryTables& tables, const Body& body) noexcept {
    try {
      body();
      return SQLITE_OK;
    } catch (const std::bad_alloc&) {
      return SQLITE_NOMEM;
    } catch (...) {
      tables.keep_error(std::current_exception());
      return SQLITE_ERROR;
    }
  }

  static int connect(sqlite3* db, void* aux, int, const char* const*, sqlite3_vtab** out, char**) {
    auto& tables = *static_cast<QueryTables*>(aux);
    int code = SQLITE_OK;
    const int kept = guarded(tables, [&] {
      std::string schema;
      const auto add = [&](const std::string& column) {
        schema += (schema.empty() ? "" : ", ") + column;
      };
      for (const TableColumn<Row>& column : Row::columns()) {
        add(std::string(column.name) + " " + column.type);
      }
      for (const std::string& column : Row::more_columns(tables.index())) add(column);
      schema = std::string("CREATE TABLE ") + Row::kName + " (" + schema + ")";
      code = sqlite3_declare_vtab(db, schema.c_str());
      if (code != SQLITE_OK) return;
      sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
      *out = new VirtualTable(tables);
    });
    return kept == SQLITE_OK ? code : kept;
  }

  static int disconnect(sqlite3_vtab* base) {
    delete &table_of(base);
    return SQLITE_OK;
  }

  static int open(sqlite3_vtab* base, sqlite3_vtab_cursor** out) {
    QueryTables& tables = table_of(base).tables_;
    return guarded(tables, [&] { *out = new Cursor(tables); });
  }

  static int close(sqlite3_vtab_cursor* base) {
    delete &cursor_of(base);
    return SQLITE_OK;
  }

  static Lookup lookup_of(int column) {
    if (column < 0) return Row::kOneAPlace ? Lookup::kPlace : Lookup::kNone;
    const auto columns = Row::columns();
    const auto number = static_cast<std::size_t>(column);
    return number < columns.size() ? columns[number].lookup : Lookup::kNone;
  }

  /// Returns how a plan can use condition `i`, or 0 if it cannot.
  static int use_of(sqlite3_index_info* info, int i) {
    const auto& condition = info->aConstraint[i];
    if (condition.usable == 0) return 0;
    const bool equals = condition.op == SQLITE_INDEX_CONSTRAINT_EQ;
    switch (lookup_of(condition.iColumn)) {
      case Lookup::kPlace:
        if (equals) return kEquals;
        if (condition.op == SQLITE_INDEX_CONSTRAINT_GE ||
            condition.op == SQLITE_INDEX_CONSTRAINT_GT)
          return kFrom;
        if (condition.op == SQLITE_INDEX_CONSTRAINT_LE ||
            condition.op == SQLITE_INDEX_CONSTRAINT_LT)
          return kUpTo;
        return 0;
      case Lookup::kShard:
        return equals ? kOfShard : 0;
      case Lookup::kKey:
        return equals ? use_of_key(info, i) : 0;
      case Lookup::kNone:
      case Lookup::kGroup:
        break;
    }
    return 0;
  }

  static std::uint64_t num_groups([[maybe_unused]] QueryTables& tables) {
    if constexpr (requires { Row::num_groups(tables); }) return Row::num_groups(tables);
    return 0;
  }

  /// A lookup compares keys by their bytes, so it cannot be used with another collation. In `key IN
  /// (SELECT ...)`, SQLite may have to compare a key as a number. If SQLite iterates over the list
  /// itself, the lookup cannot detect this. The table therefore requests the whole list, which
  /// needs SQLite 3.38.
  static int use_of_key([[maybe_unused]] sqlite3_index_info* info, [[maybe_unused]] int i) {
#if SQLITE_VERSION_NUMBER >= 3038000
    if (sqlite3_stricmp(sqlite3_vtab_collation(info, i), "BINARY") == 0) {
      return sqlite3_vtab_in(info, i, -1) != 0 ? kOfKeys : kOfKey;
    }
#endif
    return 0;
  }

  static int best_index(sqlite3_vtab* base, sqlite3_index_info* info) {
    QueryTables& tables = table_of(base).tables_;
    return guarded(tables, [&] {
      const auto places = static_cast<double>(Row::num_places(tables));
      const auto shards = static_cast<double>(tables.index().num_shards());
      // For each Use: 1 + the number of its condition, or 0 without a condition.
      int condition[kOfKeys + 1] = {};
      for (int i = 0; i < info->nConstraint; ++i) {
        const int use = use_of(info, i);
        if (condition[use] == 0) condition[use] = i + 1;
      }
      int arguments = 0;
      double found = places;
      const auto take = [&](Use use, double found_then) {
        if (condition[use] == 0) return;
        info->idxNum |= use;
        info->aConstraintUsage[condition[use] - 1].argvIndex = ++arguments;
        found = std::min(found, found_then);
      };
      take(kEquals, 1);
      take(kFrom, places / 2);
      take(kUpTo, places / 2);
      take(kOfShard, places / std::max(1.0, shards));
      take(kOfKey, 1);
      if (condition[kOfKey] == 0) take(kOfKeys, 10);
#if SQLITE_VERSION_NUMBER >= 3038000
      if ((info->idxNum & kOfKeys) != 0) sqlite3_vtab_in(info, condition[kOfKeys] - 1, 1);
#endif
      const double rows = found * Row::rows_a_place(tables.index()) + 1;
      info->estimatedRows = static_cast<sqlite3_int64>(rows);
      info->estimatedCost = rows;
      // The cursor lists rows in the order of their places, or group by group.
      if (info->nOrderBy == 1 && info->aOrderBy[0].desc == 0) {
        const Lookup order = lookup_of(info->aOrderBy[0].iColumn);
        if (order == Lookup::kGroup && num_groups(tables) > 0) info->idxNum |= kByGroup;
        if (order == Lookup::kPlace || (info->idxNum & kByGroup) != 0) info->orderByConsumed = 1;
      }
    });
  }

  /// Narrows [begin, end) by the bound `value`. A value that is not an integer does not narrow it:
  /// SQLite checks every row itself.
  static void narrow(Use use, sqlite3_value* value, const Index& index, std::uint64_t& begin,
                     std::uint64_t& end) {
    if (sqlite3_value_type(value) != SQLITE_INTEGER) return;
    const std::int64_t n = sqlite3_value_int64(value);
    const auto number = static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0));
    const auto end_at = [&](std::uint64_t to) { end = n < 0 ? begin : std::min(end, to); };
    switch (use) {
      case kEquals:
        begin = std::max(begin, number);
        end_at(number + 1);
        break;
      case kFrom:
        begin = std::max(begin, number);
        break;
      case kUpTo:
        end_at(number + 1);
        break;
      case kOfShard:
        if (number >= index.num_shards()) {
          end = begin;
        } else {
          begin = std::max(begin, index.first_sample(number));
          end_at(index.first_sample(number + 1));
        }
        break;
      default:
        break;
    }
  }

  static int filter(sqlite3_vtab_cursor* base, int plan, const char*, int,
                    sqlite3_value** arguments) {
    Cursor& cursor = cursor_of(base);
    return guarded(cursor.row.tables, [&] {
      const Index& index = cursor.row.tables.index();
      std::uint64_t begin = 0;
      std::uint64_t end = Row::num_places(cursor.row.tables);
      for (const Use use : {kEquals, kFrom, kUpTo, kOfShard}) {
        if ((plan & use) != 0) narrow(use, *arguments++, index, begin, end);
      }
      cursor.listed = (plan & (kOfKey | kOfKeys)) != 0 &&
                      find_keys(index, *arguments, (plan & kOfKeys) != 0, cursor.list);
      if (cursor.listed) {
        std::erase_if(cursor.list, [&](std::uint64_t s) { return s < begin || s >= end; });
        begin = 0;
        end = cursor.list.size();
      }
      cursor.begin = begin;
      cursor.next = begin;
      cursor.end = end;
      cursor.num_groups = (plan & kByGroup) != 0 ? num_groups(cursor.row.tables) : 0;
      if (cursor.num_groups > 0) cursor.show(0);
      cursor.settle();
    });
  }

  /// Puts the samples with the given key, or with one of several keys, into `found`, ascending.
  /// Returns false if a key is a number, because SQLite may treat a number and a text as equal.
  static bool find_keys(const Index& index, sqlite3_value* given, [[maybe_unused]] bool several,
                        std::vector<std::uint64_t>& found) {
    found.clear();
    const auto find = [&](sqlite3_value* key) {
      const int type = sqlite3_value_type(key);
      if (type == SQLITE_NULL) return true;  // NULL equals nothing
      if (type != SQLITE_TEXT && type != SQLITE_BLOB) return false;
      const std::vector<std::uint64_t> samples = index.find_all(bytes_of(key));
      found.insert(found.end(), samples.begin(), samples.end());
      return true;
    };
#if SQLITE_VERSION_NUMBER >= 3038000
    if (several) {
      sqlite3_value* key = nullptr;
      int code = sqlite3_vtab_in_first(given, &key);
      for (; code == SQLITE_OK && key != nullptr; code = sqlite3_vtab_in_next(given, &key)) {
        if (!find(key)) return false;
      }
      if (code != SQLITE_DONE) return false;
      std::sort(found.begin(), found.end());
      found.erase(std::unique(found.begin(), found.end()), found.end());
      return true;
    }
#endif
    return find(given);
  }
  static std::string_view bytes_of(sqlite3_value* value) {
    const auto* bytes = static_cast<const char*>(sqlite3_value_blob(value));
    const auto size = static_cast<std::size_t>(sqlite3_value_bytes(value));
    return bytes == nullptr ? std::string_view() : std::string_view(bytes, size);
  }

  static int next(sqlite3_vtab_cursor* base) {
    Cursor& cursor = cursor_of(base);
    return guarded(cursor.row.tables, [&] {
      if (cursor.row.move_on()) return;
      ++cursor.next;
      cursor.settle();
    });
  }

  static int eof(sqlite3_vtab_cursor* base) {
    return cursor_of(base).next < cursor_of(base).end ? 0 : 1;
  }

  static int column(sqlite3_vtab_cursor* base, sqlite3_context* to, int column) {
    const Row& row = cursor_of(base).row;
    const auto columns = Row::columns();
    const auto number = static_cast<std::size_t>(column);
    if (number < columns.size()) {
      columns[number].give(row, to);
      return SQLITE_OK;
    }
    return guarded(row.tables, [&] { row.give_more(number - columns.size(), to); });
  }

  static int row_id(sqlite3_vtab_cursor* base, sqlite3_int64* out) {
    *out = cursor_of(base).row.row_id();
    return SQLITE_OK;
  }

  static sqlite3_module module() {
    // There is no xCreate: the table can be used by its name, without a schema entry.
    sqlite3_module module{};
    module.xConnect = connect;
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

  QueryTables& tables_;
};

}  // namespace shardwise
