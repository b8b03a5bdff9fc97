#include <utility>

#include "data/dataset_impl.h"
#include "data/sample_cursor.h"

namespace shardwise::detail {

namespace {
/// Number of bytes of each field to prefetch. Small, because some users do not read all fields.
constexpr std::uint64_t kAheadBytes = 128;
}  // namespace

SampleRange::SampleRange(Dataset data, std::span<const std::uint64_t> numbers)
    : data_(std::move(data)),
      cursor_(std::make_unique<SampleCursor>(data_, numbers, data_.impl_->max_pinned_shards(),
                                             kAheadBytes)) {}

SampleRange::~SampleRange() = default;

const Sample* SampleRange::next_run() {
  const std::span<const Sample> run = cursor_->next_run();
  if (run.empty()) return nullptr;
  left_ = run.size() - 1;
  return sample_ = run.data();
}

}  // namespace shardwise::detail
