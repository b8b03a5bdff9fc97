#include "loader/field_bytes.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/ascii.h"
#include "base/text.h"
#include "data/sample_access.h"
#include "loader/bad_field.h"

namespace shardwise::detail {
namespace {

/// Limit for the window of a compressed field: enough for `zstd -19`, `xz -9` and `zstd --long`.
constexpr std::uint64_t kMaxWindowBytes = std::uint64_t{128} << 20;

}  // namespace

bool any_compressed(const FieldChoice& fields) noexcept {
  return std::ranges::any_of(fields.names(), [](const std::string& name) {
    return compression_by_suffix(name) != Compression::kNone;
  });
}

FieldBytes::FieldBytes(const RowInput& input, std::size_t place)
    : sample_(input.sample), place_(place), view_(input.sample.field(place).bytes) {
  input.add_bytes(view_.size());
  const Compression compression = compression_by_suffix(input.sample.field(place).name);
  if (compression != Compression::kNone) expand(input, compression);
}

void FieldBytes::expand(const RowInput& input, Compression compression) {
  ExpansionLimits limits;
  // Keep the limit below the maximum, because one byte more is requested to detect an excess.
  limits.max_bytes = std::min(input.max_expanded_bytes, std::uint64_t{1} << 62);
  limits.max_window_bytes = kMaxWindowBytes;
  if (input.times != nullptr) read_pages(view_);
  input.enter(Stage::kDecoding);
  try {
    expanded_ = expand_all(view_, compression, limits);
  } catch (const ExpansionFailure& failure) {
    std::string reason = failure.what();
    if (failure.is_beyond_max_bytes()) reason += ", the limit of max_expanded_bytes";
    const Compression found = detect_compression(view_);
    if (found != compression && found != Compression::kNone) {
      reason += ", but is " + std::string(compression_name(found)) + " by its first bytes";
    }
    throw_bad_field(sample_, place_, compression_name(compression), reason);
  }
  input.enter(Stage::kReading);
  view_ = {expanded_.bytes.get(), expanded_.size};
}

void FieldBytes::copy(std::span<std::byte> to) const {
  if (view_.data() == nullptr || view_.data() == expanded_.bytes.get()) {
    if (!to.empty()) std::memcpy(to.data(), view_.data(), to.size());
  } else {
    SampleAccess::copy(sample_, place_, to);
  }
}

std::int64_t integer_of(const RowInput& input, std::size_t place) {
  const Sample::Field field = input.sample.field(place);
  if (compression_by_suffix(field.name) == Compression::kNone) {
    input.add_bytes(field.bytes.size());
    return input.sample.integer(field.name);
  }
  const FieldBytes bytes(input, place);
  if (const auto value = parse_int64(trimmed(bytes.view()))) return *value;
  throw_bad_field(input.sample, place, "an integer",
                  "not an integer: \"" + std::string(bytes.view().substr(0, 40)) + "\"");
}

}  // namespace shardwise::detail
