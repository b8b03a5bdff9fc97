#include "loader/sample_groups.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "loader/column_maker.h"
#include "shardwise/index/query.h"

namespace shardwise::detail {
namespace {

constexpr std::size_t kMaxGroups = std::size_t{1} << 16;

/// The numbers of groups, by key.
class GroupNumbers {
 public:
  /// @param groups  the only groups; empty means that each new key is a group.
  explicit GroupNumbers(const std::vector<Loader::ByGroup::Group>& groups)
      : is_open_(groups.empty()) {
    for (const Loader::ByGroup::Group& group : groups) {
      if (numbers_.emplace(group.key, add()).second) continue;
      throw InvalidArgument("two groups have the same key", in_quotes(group.key),
                            "give each group another key");
    }
  }

  std::uint16_t number_of(std::string_view key, std::uint64_t sample) {
    const auto found = numbers_.find(key);
    if (found != numbers_.end()) return found->second;
    if (is_open_) return numbers_.emplace(key, add()).first->second;
    std::string keys;
    for (const auto& [known, number] : numbers_) {
      keys += (keys.empty() ? "" : ", ") + in_quotes(known);
      if (keys.size() > 200) {
        keys += ", ...";
        break;
      }
    }
    throw InvalidArgument(
        "a sample belongs to no group",
        "sample " + std::to_string(sample) + " has the key " + in_quotes(std::string(key)),
        "the groups are " + keys + "; add a group, or leave the sample out with a view (where())");
  }
  const std::map<std::string, std::uint16_t, std::less<>>& numbers() const { return numbers_; }

 private:
  std::uint16_t add() const {
    if (numbers_.size() < kMaxGroups) return static_cast<std::uint16_t>(numbers_.size());
    throw InvalidArgument("the expression of " + spelled("by_group") + " has too many values",
                          "more than " + std::to_string(kMaxGroups),
                          "use an expression with few values, e.g. CASE WHEN ... END");
  }

  const bool is_open_;
  std::map<std::string, std::uint16_t, std::less<>> numbers_;
};

/// Calls visit(sample, key) for each sample of the data set, in order.
/// Errors: those of Query; InvalidArgument if the expression does not have one value for each
/// sample.
template <class Visit>
void visit_keys(const Dataset& data, const std::string& expression, const Visit& visit) {
  if (data.empty()) return;
  // The line breaks end comments in the expression. The first query refuses an expression with
  // unbalanced brackets.
  static_cast<void>(Query(data.shared_index(), "SELECT " + expression + "\nFROM samples"));
  Query query(data.shared_index(),
              "SELECT sample, CAST((" + expression + "\n) AS TEXT) FROM samples WHERE sample >= " +
                  std::to_string(data.number_in_index(0)) + " AND sample <= " +
                  std::to_string(data.number_in_index(data.size() - 1)) + " ORDER BY sample");
  query.set_cancel(detail::CancelScope::joined({}));
  for (std::uint64_t sample = 0; sample < data.size(); ++sample) {
    const std::uint64_t number = data.number_in_index(sample);
    bool has_row = query.next();
    while (has_row && static_cast<std::uint64_t>(query.value(0).integer) < number) {
      has_row = query.next();
    }
    const auto place = [&] { return "sample " + std::to_string(sample) + ": " + expression; };
    if (!has_row) {
      throw InvalidArgument(
          "the expression of " + spelled("by_group") + " does not have one value for each sample",
          place(),
          "give an SQL expression of the columns of `samples`, e.g. CASE WHEN width > height THEN "
          "'wide' ELSE 'tall' END");
    }
    const Query::Value key = query.value(1);
    if (key.type == Query::Value::Type::kNull) {
      throw InvalidArgument("the expression of " + spelled("by_group") + " is NULL", place(),
                            "use e.g. COALESCE(kind, 'none'), or leave such samples out by a "
                            "condition");
    }
    visit(sample, key.bytes);
  }
}

}  // namespace

SampleGroups::SampleGroups(const MixedDataset& data, const Loader::ByGroup& rule,
                           std::uint64_t batch_size)
    : groups_(rule.groups) {
  if (rule.expression.empty()) {
    throw InvalidArgument("by_group needs an expression", {},
                          "give an SQL expression, e.g. the name of a metadata column");
  }
  GroupNumbers numbers(groups_);
  numbers_.reserve(data.size());
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    visit_keys(data.part(part), rule.expression, [&](std::uint64_t sample, std::string_view key) {
      numbers_.push_back(numbers.number_of(key, data.first_sample(part) + sample));
    });
  }
  if (groups_.empty()) {
    // Number the groups by their keys, not by their first samples.
    std::vector<std::uint16_t> places(numbers.numbers().size());
    for (const auto& [key, number] : numbers.numbers()) {
      places[number] = static_cast<std::uint16_t>(groups_.size());
      groups_.push_back({.key = key});
    }
    for (std::uint16_t& number : numbers_) number = places[number];
  }
  if (groups_.empty()) groups_.emplace_back();  // the data set has no samples
  for (Loader::ByGroup::Group& group : groups_) {
    if (group.batch_size == 0) group.batch_size = batch_size;
  }
  // Hash the groups: the data set's fingerprint does not cover its columns.
  const std::string_view bytes(reinterpret_cast<const char*>(numbers_.data()),
                               numbers_.size() * sizeof(std::uint16_t));
  name_ = "groups (hash " + std::to_string(hash64(bytes)) + ")";
}

void SampleGroups::of(std::span<const std::uint64_t> samples,
                      std::span<std::uint16_t> groups) const {
  std::transform(samples.begin(), samples.end(), groups.begin(),
                 [&](std::uint64_t sample) { return numbers_[sample]; });
}

std::vector<std::vector<Column>> columns_by_group(const std::vector<Column>& columns,
                                                  std::span<const Loader::ByGroup::Group> groups) {
  const Loader::ByGroup::Group none;
  if (groups.empty()) groups = {&none, 1};
  std::vector<std::vector<Column>> all;
  for (const Loader::ByGroup::Group& group : groups) {
    std::vector<Column>& own = all.emplace_back();
    for (const Column& column : columns) {
      if (!column.maker()->has_size_by_group()) {
        own.push_back(column);
        continue;
      }
      if (group.size.empty()) {
        throw InvalidArgument("a column has a size by group, but its group has no size",
                              "column " + in_quotes(column.name()) +
                                  (group.key.empty() ? "" : ", group " + in_quotes(group.key)),
                              "give by_group groups with sizes");
      }
      own.emplace_back(column.name(), column.maker()->of_size(group.size));
    }
  }
  return all;
}

void require_size(const Column& column) {
  if (!column.maker()->has_size_by_group()) return;
  throw InvalidArgument("a column has a size by group, but a single sample has no group",
                        "column " + in_quotes(column.name()),
                        "give the column one size, or use a Loader with by_group");
}

}  // namespace shardwise::detail
