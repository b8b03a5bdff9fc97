#include "loader/length_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/spelling.h"
#include "base/text.h"
#include "loader/field_choice.h"
#include "order/arithmetic.h"
#include "order/key.h"
#include "order/permutation.h"

namespace shardwise::detail {
namespace {

/// Converts a column's numbers to lengths. Errors: InvalidArgument, with the sample's number.
std::vector<std::uint64_t> as_lengths(const std::vector<double>& numbers,
                                      const std::string& column) {
  constexpr double kMax = 4503599627370496.0;  // 2^52
  std::vector<std::uint64_t> lengths(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!(numbers[i] >= 0 && numbers[i] <= kMax)) {
      throw InvalidArgument("a value is not a length",
                            "sample " + std::to_string(i) + ", column " + in_quotes(column) + ": " +
                                std::to_string(numbers[i]),
                            "give lengths from 0 to 2^52");
    }
    lengths[i] = static_cast<std::uint64_t>(std::ceil(numbers[i]));
  }
  return lengths;
}

/// Throws InvalidArgument if the list of an epoch's windows would take more than 1 GiB.
void require_memory_for(std::uint64_t num_windows, std::uint64_t num_positions) {
  if (num_windows <= std::uint64_t{1} << 27) return;
  throw InvalidArgument("batches by length cannot be made",
                        "an epoch of " + counted(num_positions, "position") + " has " +
                            counted(num_windows, "window") + ", more than 2^27",
                        "choose a larger window, or a smaller epoch_size");
}

/// Cuts samples, sorted from short to long, into batches.
std::vector<std::vector<std::uint32_t>> cut(std::span<const std::uint32_t> sorted,
                                            std::span<const std::uint64_t> lengths,
                                            std::uint64_t max_rows, std::uint64_t max_tokens) {
  std::vector<std::vector<std::uint32_t>> batches;
  for (const std::uint32_t sample : sorted) {
    const std::uint64_t length = std::max<std::uint64_t>(lengths[sample], 1);
    bool fits = !batches.empty() && batches.back().size() < max_rows;
    // (rows + 1) * length <= max_tokens, without overflow; the new sample is the longest so far.
    if (fits && max_tokens != 0) fits = max_tokens / length > batches.back().size();
    if (!fits) batches.emplace_back();
    batches.back().push_back(sample);
  }
  return batches;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> length_batches(std::span<const std::uint64_t> lengths,
                                                       std::uint64_t max_rows,
                                                       std::uint64_t max_tokens, std::uint64_t seed,
                                                       std::uint64_t epoch, std::uint64_t window) {
  std::vector<std::uint32_t> sorted(lengths.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return lengths[a] < lengths[b]; });
  std::vector<std::vector<std::uint32_t>> by_length = cut(sorted, lengths, max_rows, max_tokens);
  const Permutation shuffled(by_length.size(),
                             derive_key(seed, epoch, KeyPurpose::kWindow, window));
  std::vector<std::vector<std::uint32_t>> batches;
  batches.reserve(by_length.size());
  for (std::uint64_t i = 0; i < by_length.size(); ++i) {
    batches.push_back(std::move(by_length[shuffled(i)]));
  }
  return batches;
}

SampleLengths::SampleLengths(const MixedDataset& data, const Loader::ByLength& rule) {
  if (rule.field.empty() == rule.column.empty()) {
    throw InvalidArgument(
        "by_length needs a field or a column",
        rule.field.empty() ? "neither is set" : "both are set",
        "set field (its bytes are the length), or column (its values are the lengths)");
  }
  if (!rule.column.empty()) {
    const std::vector<double> numbers = data.numbers(rule.column);
    numbers_ = as_lengths(numbers, rule.column);
    // Hash the numbers: the data set's fingerprint does not cover its columns.
    const std::string_view bytes(reinterpret_cast<const char*>(numbers_.data()),
                                 numbers_.size() * sizeof(std::uint64_t));
    name_ = "column " + rule.column + " (hash " + std::to_string(hash64(bytes)) + ")";
    return;
  }
  if (rule.unit == 0) {
    throw InvalidArgument("the unit of by_length is 0", {},
                          "set unit to the bytes per token, 1 or more");
  }
  unit_ = rule.unit;
  fields_ = FieldChoice(rule.field).names();
  name_ = "field " + rule.field + ", unit " + std::to_string(rule.unit);
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    sizes_.emplace_back(data.part(part));
    first_.push_back(data.first_sample(part));
  }
  if (data.size() == 0) return;
  const auto has_one = [&](const FieldSizes& part) { return part.has_any(fields_); };
  if (std::ranges::any_of(sizes_, has_one)) return;
  throw NotFound("no shard has the field of by_length",
                 in_quotes(rule.field) + " in " + in_quotes(data.part(0).index().path()) +
                     (data.num_parts() > 1 ? " and the other indexes" : ""),
                 spelled("`shardwise info`") + " lists the fields");
}

void SampleLengths::of(std::span<const std::uint64_t> samples,
                       std::span<std::uint64_t> lengths) const {
  if (sizes_.empty()) {
    std::transform(samples.begin(), samples.end(), lengths.begin(),
                   [&](std::uint64_t sample) { return numbers_[sample]; });
    return;
  }
  if (sizes_.size() == 1) {
    sizes_[0].of(samples, fields_, lengths);
  } else {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto next = std::upper_bound(first_.begin(), first_.end(), samples[i]);
      const auto part = static_cast<std::size_t>(next - first_.begin()) - 1;
      const std::uint64_t sample = samples[i] - first_[part];
      sizes_[part].of(std::span(&sample, 1), fields_, lengths.subspan(i, 1));
    }
  }
  for (std::uint64_t& length : lengths) length = ceil_div(length, unit_);
}

LengthBatches::LengthBatches(std::shared_ptr<const SampleLengths> lengths,
                             const Loader::ByLength& rule, std::uint64_t batch_size,
                             const Sampler& kept, std::shared_ptr<const Sampler> whole, Point begin)
    : lengths_(std::move(lengths)),
      window_size_(rule.window),
      max_rows_(batch_size),
      max_tokens_(rule.max_tokens),
      pack_to_(rule.pack_to),
      kept_(kept),
      whole_(std::move(whole)),
      begin_(begin) {
  const std::uint64_t left = whole_->size() - begin_.position;
  const std::uint64_t num_windows = ceil_div(left, window_size_);
  require_memory_for(num_windows, left);
  first_.push_back(0);
  for (std::uint64_t window = 0; window < num_windows; ++window) {
    std::uint64_t batches = ceil_div(rows_of(window), max_rows_);
    if (max_tokens_ != 0 || pack_to_ != 0) {
      load(window);
      batches = window_.batches.size();
    }
    first_.push_back(first_.back() + batches);
  }
  const std::uint64_t in_first = first_.size() > 1 ? first_[1] : 0;
  if (begin_.batches > in_first) {
    throw Mismatch("the resume token claims " + std::to_string(begin_.batches) +
                       " delivered batches of a window, which has only " + std::to_string(in_first),
                   "position " + std::to_string(begin_.position),
                   "take tokens from the loader's state()");
  }
}

std::uint64_t LengthBatches::rows_of(std::uint64_t window) const noexcept {
  return std::min(window_size_, whole_->size() - position_of(window));
}

std::uint64_t LengthBatches::window_of(std::uint64_t batch) const noexcept {
  const auto next = std::upper_bound(first_.begin(), first_.end(), batch);
  return static_cast<std::uint64_t>(next - first_.begin()) - 1;
}

LengthBatches::Point LengthBatches::point_after(std::uint64_t number) const noexcept {
  const std::uint64_t batch = number + begin_.batches;
  if (batch == first_.back()) return {whole_->size(), 0};
  const std::uint64_t window = window_of(batch);
  return {position_of(window), batch - first_[window]};
}

void LengthBatches::load(std::uint64_t window) {
  if (window_.number == window) return;
  window_.number = ~std::uint64_t{0};  // no window, in case the following throws
  window_.samples.resize(rows_of(window));
  const auto samples = whole_->clone();
  samples->seek(position_of(window));
  samples->next_batch(window_.samples);
  window_.lengths.resize(window_.samples.size());
  lengths_->of(window_.samples, window_.lengths);
  const std::uint64_t number = position_of(window) / window_size_;
  if (pack_to_ != 0) {
    pack(number);
  } else {
    window_.batches = length_batches(window_.lengths, max_rows_, max_tokens_, whole_->order().seed,
                                     whole_->epoch(), number);
  }
  window_.number = window;
}

void LengthBatches::pack(std::uint64_t window) {
  const std::uint64_t most = max_rows_ * pack_to_;
  for (std::size_t i = 0; i < window_.lengths.size(); ++i) {
    if (window_.lengths[i] <= most) continue;
    throw InvalidArgument("a sequence does not fit into a batch",
                          "sample " + std::to_string(window_.samples[i]) + " has " +
                              counted(window_.lengths[i], "token") + ", but a batch has " +
                              counted(max_rows_, "row") + " of " + std::to_string(pack_to_),
                          "raise batch_size or pack_to, or leave out the sample with a view");
  }
  window_.batches.clear();
  window_.starts.clear();
  for (PackedBatch& batch : packed_batches(window_.lengths, max_rows_, pack_to_,
                                           whole_->order().seed, whole_->epoch(), window)) {
    window_.batches.push_back(std::move(batch.samples));
    window_.starts.push_back(std::move(batch.starts));
  }
}

BatchPlan LengthBatches::from_first(std::uint64_t batch) {
  const std::uint64_t window = window_of(batch);
  load(window);
  BatchPlan plan;
  const std::uint64_t in_window = batch - first_[window];
  const std::vector<std::uint32_t>& rows = window_.batches[in_window];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t position = position_of(window) + rows[i];
    if (kept_.deliveries_before(position) == kept_.deliveries_before(position + 1)) continue;
    plan.samples.push_back(window_.samples[rows[i]]);
    plan.positions.push_back(position);
    if (pack_to_ == 0) continue;
    plan.starts.push_back(window_.starts[in_window][i]);
    plan.lengths.push_back(window_.lengths[rows[i]]);
  }
  return plan;
}

std::uint64_t LengthBatches::delivered_before() {
  std::uint64_t count = 0;
  for (std::uint64_t batch = 0; batch < begin_.batches; ++batch) {
    count += from_first(batch).samples.size();
  }
  return count;
}

}  // namespace shardwise::detail
