#include "data/joins.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <utility>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "base/expanding_reader.h"
#include "base/hasher.h"
#include "base/text.h"
#include "data/checked_segments.h"
#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "data/sample_access.h"
#include "index/claimed_index.h"
#include "index/segment_of.h"
#include "index/side_tables.h"

namespace shardwise {

Dataset::JoinOptions::How parse_join(std::string_view name) {
  if (name == "inner") return Dataset::JoinOptions::How::kInner;
  if (name == "left") return Dataset::JoinOptions::How::kLeft;
  throw InvalidArgument("unknown kind of join", in_quotes(name), "choose inner or left");
}

namespace detail {

SampleMatches::SampleMatches(std::uint64_t num_samples, std::uint64_t num_others)
    : is_wide_(num_others >= std::numeric_limits<std::uint32_t>::max()),
      table_(
          std::calloc(num_samples + 1, is_wide_ ? sizeof(std::uint64_t) : sizeof(std::uint32_t))) {
  if (!table_) throw std::bad_alloc();
}

std::optional<std::string> JoinSide::original(std::string_view field) const {
  const auto name = names->original(field);
  if (!name || std::ranges::find(fields, *name) == fields.end()) return std::nullopt;
  return std::string(*name);
}

JoinSide::Matched JoinSide::matched(const Dataset& first,
                                    std::span<const std::uint64_t> numbers) const {
  Matched found;
  found.places.reserve(numbers.size());
  found.numbers.reserve(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto match = matches.of(first.number_in_index(numbers[i]));
    if (!match) continue;
    found.places.push_back(i);
    found.numbers.push_back(*match);
  }
  return found;
}

/// @param get  returns a sample of a dataset, or nullopt to end the call.
template <class Get>
bool Joins::add(Sample& sample, std::uint64_t number, const Get& get) const {
  std::unique_ptr<JoinedSample> first;
  std::unique_ptr<JoinedSample>* at = &first;
  for (const auto& side : sides) {
    *at = std::make_unique<JoinedSample>(side->names);
    if (const auto match = side->matches.of(number)) {
      std::optional<Sample> other = get(side->other, *match);
      if (!other) return false;
      (*at)->sample = *std::move(other);
    }
    at = &(*at)->next;
  }
  SampleAccess::set_joined(sample, std::move(first));
  return true;
}

void Joins::add_to(Sample& sample, std::uint64_t number) const {
  add(sample, number, [](const Dataset& data, std::uint64_t i) { return std::optional(data[i]); });
}

bool Joins::try_add_to(Sample& sample, std::uint64_t number) const {
  return add(sample, number, [](const Dataset& data, std::uint64_t i) { return data.try_get(i); });
}

const JoinSide* Joins::find_side(std::string_view field) const {
  for (const auto& side : sides) {
    if (side->original(field)) return side.get();
  }
  return nullptr;
}

ShardsMet shards_met(const Dataset& first, const JoinSide& side) {
  const Index& other = side.other.index();
  const std::vector<std::uint64_t> starts = first.shard_starts();
  ShardsMet met;
  met.of_shard_.resize(starts.size() - 1);
  std::vector<std::uint64_t> met_by(other.num_shards(), starts.size());  // last shard that met it
  for (std::uint64_t shard = 0; shard < met.of_shard_.size(); ++shard) {
    for (std::uint64_t i = starts[shard]; i < starts[shard + 1]; ++i) {
      const auto match = side.matches.of(first.number_in_index(i));
      if (!match) continue;
      const std::uint64_t found = other.shard_of(side.other.number_in_index(*match));
      if (met_by[found] == shard) continue;
      met_by[found] = shard;
      met.of_shard_[shard].push_back(found);
    }
  }
  return met;
}

std::optional<EpochSchedule> ShardsMet::uses(const EpochSchedule& first) const {
  constexpr std::uint64_t kMaxShardsPerShard = 8;
  EpochSchedule schedule{.num_slots = first.num_slots, .uses = {}};
  for (const UseInterval& use : first.uses) {
    for (const std::uint64_t shard : of_shard_[use.shard]) {
      schedule.uses.push_back({shard, use.begin, use.end});
    }
    if (schedule.uses.size() > kMaxShardsPerShard * first.uses.size()) return std::nullopt;
  }
  // Merge uses of one shard that overlap or are adjacent.
  std::vector<UseInterval>& uses = schedule.uses;
  std::ranges::sort(uses);
  std::size_t size = 0;
  for (const UseInterval& use : uses) {
    if (size > 0 && uses[size - 1].shard == use.shard && use.begin <= uses[size - 1].end) {
      uses[size - 1].end = std::max(uses[size - 1].end, use.end);
    } else {
      uses[size++] = use;
    }
  }
  uses.resize(size);
  std::ranges::sort(uses, [](const UseInterval& a, const UseInterval& b) {
    return std::pair(a.begin, a.shard) < std::pair(b.begin, b.shard);
  });
  return schedule;
}

std::vector<std::string> field_names(const Dataset& data) {
  std::vector<std::string> names;
  for (const Index::Summary::Field& field : data.index().summary().fields) {
    names.push_back(field.name);
  }
  for (const auto& side : DatasetAccess::joins(data)) {
    for (const std::string& field : side->fields) {
      names.emplace_back(side->names->shown(field));
    }
  }
  return names;
}

std::vector<std::string> column_names(const Dataset& data) {
  std::vector<std::string> names = metadata_columns(data.index());
  for (const auto& side : DatasetAccess::joins(data)) {
    for (std::string& name : column_names(side->other)) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace detail

namespace {

using detail::DatasetAccess;
using detail::JoinSide;
using detail::SampleMatches;

/// Number of samples between two checks of the cancel token.
constexpr std::uint64_t kSamplesPerCheck = 4096;

/// The keys of a dataset's samples, by their numbers in its index. Fast for ascending numbers.
class KeysInOrder {
 public:
  explicit KeysInOrder(const Dataset& data)
      : index_(data.index()), segments_(DatasetAccess::records(data)) {}

  std::string_view of(std::uint64_t number) {
    if (number < begin_ || number >= end_) {
      const std::uint64_t shard = index_.shard_of(number);
      segment_ = &segments_->of(shard);
      begin_ = index_.first_sample(shard);
      end_ = index_.first_sample(shard + 1);
    }
    return segment_->key(static_cast<std::uint32_t>(number - begin_));
  }

 private:
  const Index& index_;
  const std::shared_ptr<detail::CheckedSegments> segments_;
  const SegmentView* segment_ = nullptr;
  std::uint64_t begin_ = 0, end_ = 0;  // samples of the segment
};

/// Finds samples by key. Fast if the keys come in the order of the dataset.
class KeyFinder {
 public:
  /// REQUIRES: no key is repeated in `data`.
  explicit KeyFinder(const Dataset& data) : data_(data) {}

  std::optional<std::uint64_t> find(std::string_view key) {
    if (next_ < data_.size() &&
        detail::key_of_sample(data_.index(), data_.number_in_index(next_)) == key) {
      return next_++;
    }
    const auto found = DatasetAccess::number_of(data_, key);
    if (found) next_ = *found + 1;
    return found;
  }

 private:
  const Dataset& data_;
  std::uint64_t next_ = 0;  // the sample after the last one that was found
};

void refuse_repeated_keys(const Dataset& data) {
  std::function<bool(std::uint64_t)> counts;
  if (data.is_view()) {
    counts = [&](std::uint64_t number) { return DatasetAccess::has(data, number); };
  }
  const auto twice = detail::IndexAccess::find_repeated_key(data.index(), counts);
  if (!twice) return;
  const auto [first, second] = *twice;
  throw InvalidArgument(
      "a key is repeated in the dataset to join",
      "key " + in_quotes(detail::key_of_sample(data.index(), first)) + ", samples " +
          std::to_string(first) + " and " + std::to_string(second) + " of " +
          in_quotes(data.index().path()),
      "join a view with one sample of each key, or swap the datasets, because only the keys of the "
      "second one must be unique");
}

/// Inserts the suffix before the last ending of a field's name.
std::string with_suffix(std::string_view field, std::string_view suffix) {
  const std::size_t dot = without_compression_suffix(field).rfind('.');
  const std::size_t at = dot == std::string_view::npos ? 0 : dot + 1;
  return std::string(field.substr(0, at)) + std::string(suffix) + "." +
         std::string(field.substr(at));
}

void require_valid_suffix(std::string_view suffix) {
  const auto is_valid = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  if (std::ranges::all_of(suffix, is_valid) && !suffix.starts_with('.') && !suffix.ends_with('.')) {
    return;
  }
  throw InvalidArgument("the suffix is not valid", "suffix " + in_quotes(suffix),
                        "use lower-case letters, digits, '_', '-' and inner dots, e.g. \"mask\"");
}

/// @param fields  all fields of `other`.
/// Errors: InvalidArgument.
std::shared_ptr<const detail::JoinedNames> joined_names(const Dataset& data, const Dataset& other,
                                                        const std::vector<std::string>& fields,
                                                        std::string_view suffix) {
  require_valid_suffix(suffix);
  const std::vector<std::string> own = detail::field_names(data);
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  auto names = std::make_shared<detail::JoinedNames>(detail::column_names(other));
  for (const std::string& field : fields) {
    if (!has(own, field)) continue;
    const std::string shown = suffix.empty() ? field : with_suffix(field, suffix);
    if (has(own, shown) || has(fields, shown)) {
      throw InvalidArgument(
          "both datasets of a join have a field of the same name", "field " + in_quotes(shown),
          suffix.empty() ? "give suffix=, which renames the field of the second dataset"
                         : "choose another suffix");
    }
    names->add(field, shown);
  }
  return names;
}

/// Matches all samples of `data`. Fills `side.matches` and `side.report`.
void match(const Dataset& data, JoinSide& side, const CancelToken& cancel) {
  Dataset::JoinReport& report = side.report;
  report.num_samples = data.size();
  report.num_other_samples = side.other.size();
  KeysInOrder keys(data);
  KeyFinder finder(side.other);
  std::vector<bool> has_match(side.other.size());
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    if (i % kSamplesPerCheck == 0) cancel.throw_if_cancelled();
    const std::uint64_t number = data.number_in_index(i);
    const std::string_view key = keys.of(number);
    if (const auto found = finder.find(key)) {
      side.matches.set(number, *found);
      has_match[*found] = true;
    } else if (report.num_samples_without_match++ == 0) {
      report.first_sample_without_match = key;
    }
  }
  report.num_other_samples_without_match =
      static_cast<std::uint64_t>(std::count(has_match.begin(), has_match.end(), false));
  if (report.num_other_samples_without_match > 0) {
    const auto first = std::find(has_match.begin(), has_match.end(), false);
    report.first_other_sample_without_match = detail::key_of_sample(
        side.other.index(),
        side.other.number_in_index(static_cast<std::uint64_t>(first - has_match.begin())));
  }
}

Hash128 joined_fingerprint(const Hash128& first, const Hash128& other) {
  Hasher128 hasher;
  hasher.update("join by key");
  for (const Hash128& one : {first, other}) {
    hasher.update_u64(one.high);
    hasher.update_u64(one.low);
  }
  return hasher.digest();
}

}  // namespace

Dataset Dataset::join(const Dataset& other) const { return join(other, {}); }

Dataset Dataset::join(const Dataset& other, const JoinOptions& options) const {
  detail::IndexAccess::require_records(*impl_->index);
  detail::IndexAccess::require_records(other.index());
  std::vector<std::string> fields = detail::field_names(other);
  auto names = joined_names(*this, other, fields, options.suffix);
  refuse_repeated_keys(other);
  auto side = std::make_shared<JoinSide>(JoinSide{other,
                                                  SampleMatches(impl_->index->size(), other.size()),
                                                  std::move(fields),
                                                  std::move(names),
                                                  {}});
  match(*this, *side, detail::CancelScope::joined(impl_->cancel));

  auto joins = std::make_shared<detail::Joins>();
  if (joins_) joins->sides = joins_->sides;
  joins->sides.push_back(side);
  joins->fingerprint = joined_fingerprint(whole_fingerprint(), other.fingerprint());
  Dataset joined = *this;
  joined.joins_ = std::move(joins);
  const bool drops =
      options.how == JoinOptions::How::kInner && side->report.num_samples_without_match > 0;
  if (!drops && !selection_) return joined;
  std::vector<std::uint64_t> numbers;
  numbers.reserve(size() - (drops ? side->report.num_samples_without_match : 0));
  for (std::uint64_t i = 0; i < size(); ++i) {
    const std::uint64_t number = number_in_index(i);
    if (!drops || side->matches.of(number)) numbers.push_back(number);
  }
  return joined.view_of(std::move(numbers));
}

std::optional<Dataset::JoinReport> Dataset::join_report() const {
  if (!joins_) return std::nullopt;
  return joins_->sides.back()->report;
}

}  // namespace shardwise
