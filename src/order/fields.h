#pragma once

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/fields.h"
#include "shardwise/order/order.h"

// The options of an order. A token stores these fields in this sequence, so a new field requires a
// new version of the token.

namespace shardwise {

constexpr std::array<std::string_view, 3> choices(std::type_identity<Order::Tail> /*of*/) {
  return {"exact", "drop", "pad"};
}
constexpr std::array<std::string_view, 2> choices(std::type_identity<Resampled::Unit> /*of*/) {
  return {"sample", "shard"};
}

constexpr auto fields(std::type_identity<Chunked> /*of*/) {
  using detail::field;
  return std::tuple{field("chunk_size", &Chunked::chunk_size,
                          {.words = "samples per chunk",
                           .option = "--chunk",
                           .unit = "samples",
                           .least = 1,
                           .advice = "1000 is usual"}),
                    field("window", &Chunked::window,
                          {.words = "number of chunks that are shuffled together",
                           .option = "--window",
                           .unit = "chunks",
                           .least = 1,
                           .advice = "1 shuffles inside each chunk, and N mixes N chunks"}),
                    field("phase", &Chunked::phase,
                          {.words = "shift the borders of the chunks in each epoch",
                           .option = "--phase",
                           .is_rare = true})};
}
constexpr auto fields(std::type_identity<Sharded> /*of*/) {
  return std::tuple{
      detail::field("window", &Sharded::window,
                    {.words = "number of shards that are shuffled together",
                     .option = "--window",
                     .unit = "shards",
                     .least = 1,
                     .advice = "1 shuffles inside each shard, and N mixes N shards"})};
}
constexpr auto fields(std::type_identity<Sequential> /*of*/) { return std::tuple{}; }
constexpr auto fields(std::type_identity<Resampled> /*of*/) {
  using detail::field;
  return std::tuple{field("unit", &Resampled::unit,
                          {.words = "unit of a draw: a sample or a whole shard",
                           .option = "--resample",
                           .key = "resample",
                           .is_rare = true}),
                    field("weights", &Resampled::weights,
                          {.words = "draw samples in proportion to this column of the index",
                           .option = "--weights",
                           .value = "COLUMN",
                           .is_rare = true})};
}
constexpr auto fields(std::type_identity<Wids> /*of*/) {
  using detail::field;
  return std::tuple{
      field("chunk_size", &Wids::chunk_size,
            {.words = "0 means the chunk size of Python wids", .option = "--chunk"}),
      field("shuffle", &Wids::shuffle, {.words = "shuffle the samples", .option = "--no-shuffle"}),
      field("shufflefirst", &Wids::shufflefirst,
            {.words = "shuffle the chunks in epoch 0, too",
             .option = "--shufflefirst",
             .is_rare = true})};
}
constexpr auto fields(std::type_identity<Mixture::Part> /*of*/) {
  using detail::field;
  return std::tuple{field("num_samples", &Mixture::Part::num_samples, {.key = "samples"}),
                    field("weight", &Mixture::Part::weight),
                    field("kind", &Mixture::Part::kind, {.key = "sampler"})};
}
constexpr auto fields(std::type_identity<Mixture::Change> /*of*/) {
  using detail::field;
  return std::tuple{field("from", &Mixture::Change::from,
                          {.words = "position of the run from which the weights apply"}),
                    field("weights", &Mixture::Change::weights,
                          {.words = "weights of the data sets", .key = "part_weights"})};
}
constexpr auto fields(std::type_identity<Mixture> /*of*/) {
  using detail::field;
  return std::tuple{field("parts", &Mixture::parts),
                    field("schedule", &Mixture::schedule,
                          {.words = "weights from later positions of the run on"})};
}
constexpr auto fields(std::type_identity<Order> /*of*/) {
  using detail::field;
  return std::tuple{
      field("seed", &Order::seed, {.words = "shuffle seed", .option = "--seed"}),
      field("streams", &Order::streams,
            {.words = "number of segments of the epoch that ranks read in parallel; with 1, a run "
                      "can resume on any number of ranks; with one per node, each node reads "
                      "shards of its own",
             .option = "--streams",
             .is_rare = true}),
      field("tail", &Order::tail,
            {.words = "rule for an epoch that the ranks cannot share evenly; exact: the first "
                      "ranks read one sample more; drop: the last samples are not read; pad: the "
                      "first samples are repeated",
             .option = "--tail"}),
      field("balance_bytes", &Order::balance_bytes,
            {.words = "distribute the samples of each step so that all ranks read nearly the same "
                      "number of bytes",
             .option = "--balance-bytes",
             .is_rare = true}),
      field("epoch_size", &Order::epoch_size,
            {.words = "samples per epoch, of all ranks together; 0 means one pass over the data",
             .option = "--epoch-size",
             .is_rare = true}),
      field("kind", &Order::kind, {.key = "sampler"}),
      field("skip", &Order::skip, {.words = "samples to leave out, by number"})};
}

namespace detail {

/// Calls visit.operator()<Kind>() for each kind of order, in the order of OrderKind.
template <class Visit>
constexpr void visit_kinds(Visit&& visit) {
  [&]<class... Kinds>(std::type_identity<std::variant<Kinds...>>) {
    (visit.template operator()<Kinds>(), ...);
  }(std::type_identity<OrderKind>{});
}

/// An option that some kinds of order have.
struct KindOption {
  std::string_view name;
  std::string_view option;  ///< on the command line
  std::vector<std::string_view> kinds;
  std::string words;  ///< the description for all these kinds, with their defaults
};
/// Lists each option once, in the sequence of the kinds.
SHARDWISE_EXPORT std::vector<KindOption> kind_options();

/// Returns the value in the form that comparisons and help texts use.
inline std::string shown(std::uint64_t value) { return std::to_string(value); }
inline std::string shown(bool value) { return value ? "true" : "false"; }
template <Choice Enum>
std::string shown(Enum value) {
  return std::string(choice_name(value));
}

}  // namespace detail

}  // namespace shardwise
