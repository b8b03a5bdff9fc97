#include "order/partition.h"

#include <string>

#include "base/assert.h"
#include "base/counted.h"
#include "base/spelling.h"
#include "order/fields.h"
#include "order/spec.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

constexpr Spelling kStreams = spelling_of<Order>("streams");

/// Returns e.g. "1, 2, 4, 8, 16, 24": the numbers of streams near `streams` that are valid for
/// `world_size` ranks.
std::string valid_streams(std::uint64_t world_size, std::uint64_t streams) {
  std::string list;
  const auto add = [&list](std::uint64_t value) {
    list += (list.empty() ? "" : ", ") + std::to_string(value);
  };
  // Lists the divisors up to the square root and their cofactors, then the multiples below and
  // above `streams`.
  std::string large;
  for (std::uint64_t d = 1; d * d <= world_size; ++d) {
    if (world_size % d != 0) continue;
    add(d);
    if (d * d != world_size) {
      large.insert(0, ", " + std::to_string(world_size / d));
    }
  }
  list += large;
  const std::uint64_t below = streams / world_size * world_size;
  for (const std::uint64_t multiple : {below, below + world_size}) {
    if (multiple > world_size) add(multiple);
  }
  return list;
}

/// Returns e.g. "8 or 16": the nearest world sizes below and above `world_size` that are valid for
/// `streams` streams. It searches up to 100,000 ranks away. If it finds none, it names a multiple
/// of `streams`, or one rank.
std::string valid_world_sizes(std::uint64_t world_size, std::uint64_t streams) {
  constexpr std::uint64_t kFar = 100'000;
  const auto valid = [streams](std::uint64_t w) { return streams % w == 0 || w % streams == 0; };
  std::uint64_t below = world_size > streams ? world_size / streams * streams : 1;
  for (std::uint64_t w = world_size; w > below && w + kFar > world_size; --w) {
    if (valid(w)) below = w;
  }
  std::uint64_t above = (world_size / streams + 1) * streams;
  for (std::uint64_t w = world_size; w < above && w < world_size + kFar; ++w) {
    if (valid(w)) above = w;
  }
  return std::to_string(below) + " or " + std::to_string(above);
}

std::uint64_t checked_streams(std::uint64_t streams) {
  if (streams > 0) return streams;
  throw InvalidArgument(spelled(kStreams) + " is 0", {}, "choose at least 1");
}

}  // namespace

Streams::Streams(std::uint64_t num_positions, std::uint64_t streams)
    : streams_(checked_streams(streams)),
      run_length_(num_positions / streams),
      longer_runs_(num_positions % streams) {}

std::uint64_t Streams::position_of_slot(std::uint64_t slot) const noexcept {
  SHARDWISE_ASSERT_HOT(slot < run_begin(streams_));
  return run_begin(slot % streams_) + slot / streams_;
}

std::uint64_t Streams::slot_of_position(std::uint64_t position) const noexcept {
  SHARDWISE_ASSERT_HOT(position < run_begin(streams_));
  const std::uint64_t in_longer_runs = longer_runs_ * (run_length_ + 1);
  if (position < in_longer_runs) {
    return position % (run_length_ + 1) * streams_ + position / (run_length_ + 1);
  }
  const std::uint64_t rest = position - in_longer_runs;
  return rest % run_length_ * streams_ + longer_runs_ + rest / run_length_;
}

Partition::Partition(std::uint64_t num_slots, std::uint64_t world_size, std::uint64_t rank,
                     Order::Tail tail, std::uint64_t streams)
    : num_slots_(num_slots), world_size_(world_size), rank_(rank), delivered_slots_(num_slots) {
  if (num_slots > kMaxSamples) {
    throw InvalidArgument("cannot partition " + counted(num_slots, "sample"), {},
                          "choose at most 2^62 samples");
  }
  checked(RankOptions{.rank = rank, .world_size = world_size});
  checked_streams(streams);
  if (streams % world_size != 0 && world_size % streams != 0) {
    throw InvalidArgument(spelled(kStreams) + " " + std::to_string(streams) + " with " +
                              spelled("world_size") + " " + std::to_string(world_size),
                          "one number must divide the other",
                          "choose " + spelled(kStreams) + " " + valid_streams(world_size, streams) +
                              ", or with " + spelled(kStreams) + " " + std::to_string(streams) +
                              " " + spelled("world_size") + " " +
                              valid_world_sizes(world_size, streams));
  }
  const std::uint64_t left_over = num_slots % world_size;
  if (tail == Order::Tail::kDrop) delivered_slots_ -= left_over;
  if (tail == Order::Tail::kPad && left_over != 0) delivered_slots_ += world_size - left_over;
}

}  // namespace shardwise::detail
