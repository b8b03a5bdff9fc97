#include "shardwise/order/order.h"

#include <algorithm>
#include <array>

#include "base/counted.h"
#include "base/spelling.h"
#include "base/text.h"
#include "order/epoch_order.h"
#include "order/fields.h"
#include "order/spec.h"
#include "shardwise/base/error.h"

namespace shardwise {

namespace {

constexpr std::array<std::string_view, std::variant_size_v<OrderKind>> kKindNames = {
    "chunked", "sharded", "sequential", "resampled", "wids", "mixture"};

}  // namespace

std::string_view name_of(const OrderKind& kind) noexcept { return kKindNames[kind.index()]; }

OrderKind parse_order_kind(std::string_view name) {
  if (name == "chunked") return Chunked{};
  if (name == "sharded") return Sharded{};
  if (name == "sequential") return Sequential{};
  if (name == "resampled") return Resampled{};
  if (name == "wids") return Wids{};
  throw InvalidArgument("no sampler " + in_quotes(name), {},
                        "use chunked, sharded, sequential, resampled or wids");
}

std::string_view tail_name(Order::Tail tail) noexcept { return detail::choice_name(tail); }

Order::Tail parse_tail(std::string_view name) {
  if (const auto tail = detail::find_choice<Order::Tail>(name)) return *tail;
  throw InvalidArgument("no tail policy " + in_quotes(name), {},
                        "use " + detail::list_of_choices<Order::Tail>());
}

namespace {

/// Returns the default of a field that is a number, e.g. "64", and an empty text for other types.
template <class Owner, class Value>
std::string default_number(const detail::Field<Owner, Value>& field) {
  if constexpr (std::is_same_v<Value, std::uint64_t>) return detail::shown(Owner{}.*field.member);
  return {};
}

}  // namespace

std::vector<detail::KindOption> detail::kind_options() {
  std::vector<KindOption> all;
  visit_kinds([&]<class Kind>() {
    visit_fields<Kind>([&]<class Value>(const Field<Kind, Value>& field) {
      if (field.text.option.empty()) return;
      auto at = std::ranges::find(all, field.name, &KindOption::name);
      if (at == all.end()) at = all.insert(at, {field.name, field.text.option, {}, {}});
      const std::string_view kind = name_of(Kind{});
      const std::string number = default_number(field);
      at->kinds.push_back(kind);
      at->words += (at->words.empty() ? "" : "; ") + std::string(field.text.words) + " (" +
                   std::string(kind) + (number.empty() ? "" : ": " + number + " by default") + ")";
    });
  });
  return all;
}

void SampleSet::throw_negative(std::int64_t n) {
  throw InvalidArgument("the number of samples is " + std::to_string(n), {}, "give 0 or more");
}

SampleSet SampleSet::with_shards(ShardOffsets starts) const {
  if (detail::checked(starts).back() != size_) {
    throw InvalidArgument(
        "the shards hold " + counted(starts->back(), "sample") + ", not " + human_count(size_), {},
        "give the shard offsets of this data set");
  }
  SampleSet set = *this;
  set.make_starts_ = [starts = std::move(starts)] { return starts; };
  return set;
}

SampleSet SampleSet::with_bytes(SampleBytes bytes) const {
  SampleSet set = *this;
  set.make_bytes_ = [bytes = std::move(bytes)] { return bytes; };
  return set;
}

SampleSet SampleSet::with_fingerprint(Hash128 fingerprint) const {
  SampleSet set = *this;
  set.fingerprint_ = fingerprint;
  return set;
}

SampleSet SampleSet::with_column(
    std::function<std::vector<double>(const std::string&)> column) const {
  SampleSet set = *this;
  set.make_column_ = std::move(column);
  return set;
}

SampleSet SampleSet::of_shards(std::span<const std::uint64_t> lengths) {
  ShardOffsets starts = shard_offsets_from_lengths(lengths);
  return SampleSet(starts->back()).with_shards(starts);
}

ShardOffsets SampleSet::shard_starts() const {
  if (!make_starts_) {
    throw InvalidArgument("the order needs the shards of the samples", {},
                          "give a data set, or the lengths of its shards");
  }
  return make_starts_();
}

SampleBytes SampleSet::sample_bytes() const {
  SampleBytes bytes = make_bytes_ ? make_bytes_() : nullptr;
  if (!bytes) {
    throw InvalidArgument(
        spelled(detail::spelling_of<Order>("balance_bytes")) + " needs the sizes of the samples",
        {}, "give a data set, or a function that returns the bytes of a sample");
  }
  return bytes;
}

std::vector<double> SampleSet::column(const std::string& name) const {
  if (!make_column_) {
    throw InvalidArgument("the samples have no columns", "column " + in_quotes(name),
                          "give a data set whose index has the column");
  }
  std::vector<double> numbers = make_column_(name);
  if (numbers.size() == size_) return numbers;
  throw InvalidArgument(
      "the column has " + human_count(numbers.size()) + " numbers for " + counted(size_, "sample"),
      "column " + in_quotes(name), "give one number per sample");
}

}  // namespace shardwise
