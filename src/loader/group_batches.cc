#include "loader/group_batches.h"

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
  throw InvalidArgument("batches by length or group cannot be made",
                        "an epoch of " + counted(num_positions, "position") + " has " +
                            counted(num_windows, "window") + ", more than 2^27",
                        "choose a larger window, or a smaller epoch_size");
}

bool is_full(std::span<const std::uint32_t> batch, const WindowSamples& samples,
             const BatchLimits& limits) {
  const std::uint32_t last = batch.back();  // the longest
  if (batch.size() >= limits.max_rows[samples.groups[last]]) return true;
  const std::uint64_t length = std::max<std::uint64_t>(samples.lengths[last], 1);
  return limits.max_tokens != 0 && limits.max_tokens / length <= batch.size();
}

/// Cuts samples, sorted by group and then from short to long, into batches.
std::vector<std::vector<std::uint32_t>> cut(std::span<const std::uint32_t> sorted,
                                            const WindowSamples& samples,
                                            const BatchLimits& limits) {
  std::vector<std::vector<std::uint32_t>> batches;
  for (const std::uint32_t sample : sorted) {
    const std::uint16_t group = samples.groups[sample];
    const std::uint64_t length = std::max<std::uint64_t>(samples.lengths[sample], 1);
    bool fits = !batches.empty() && samples.groups[batches.back().front()] == group &&
                batches.back().size() < limits.max_rows[group];
    // (rows + 1) * length <= max_tokens, without overflow; the new sample is the longest so far.
    if (fits && limits.max_tokens != 0) fits = limits.max_tokens / length > batches.back().size();
    if (!fits) batches.emplace_back();
    batches.back().push_back(sample);
  }
  return batches;
}

/// Removes the last batch of each group if it is not full. Returns the samples of these batches.
std::vector<std::uint32_t> hold_over_from(std::vector<std::vector<std::uint32_t>>& batches,
                                          const WindowSamples& samples, const BatchLimits& limits) {
  std::vector<std::uint32_t> held_over;
  std::vector<std::vector<std::uint32_t>> full;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::uint16_t group = samples.groups[batches[i].front()];
    const bool is_last = i + 1 == batches.size() || samples.groups[batches[i + 1].front()] != group;
    if (is_last && !is_full(batches[i], samples, limits)) {
      held_over.insert(held_over.end(), batches[i].begin(), batches[i].end());
    } else {
      full.push_back(std::move(batches[i]));
    }
  }
  batches = std::move(full);
  std::sort(held_over.begin(), held_over.end());
  return held_over;
}

/// Returns the rule as text for tokens.
std::string text_of(const BatchRule& rule, const Loader::Options& options) {
  std::string text;
  if (rule.groups) {
    text = rule.groups->name() + ", batch_sizes";
    for (const std::uint64_t rows : rule.limits.max_rows) text += " " + std::to_string(rows);
    text += rule.holds_over ? ", held over, " : ", not held over, ";
  }
  if (rule.lengths) text += rule.lengths->name() + ", ";
  text += "window " + std::to_string(rule.window);
  if (!rule.groups) text += ", batch_size " + std::to_string(options.batch_size);
  if (rule.lengths) text += ", max_tokens " + std::to_string(rule.limits.max_tokens);
  if (rule.pack_to != 0) text += ", pack_to " + std::to_string(rule.pack_to);
  return text;
}

}  // namespace

void WindowSamples::resize(std::size_t size) {
  positions.resize(size);
  samples.resize(size);
  lengths.resize(size);
  groups.resize(size);
}

WindowSamples WindowSamples::only(std::span<const std::uint32_t> places) const {
  WindowSamples some;
  for (const std::uint32_t place : places) {
    some.positions.push_back(positions[place]);
    some.samples.push_back(samples[place]);
    some.lengths.push_back(lengths[place]);
    some.groups.push_back(groups[place]);
  }
  return some;
}

WindowBatches group_batches(const WindowSamples& samples, const BatchLimits& limits, bool hold_over,
                            std::uint64_t seed, std::uint64_t epoch, std::uint64_t window) {
  std::vector<std::uint32_t> sorted(samples.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(samples.groups[a], samples.lengths[a]) <
           std::pair(samples.groups[b], samples.lengths[b]);
  });
  std::vector<std::vector<std::uint32_t>> in_sequence = cut(sorted, samples, limits);
  WindowBatches made;
  if (hold_over) made.held_over = hold_over_from(in_sequence, samples, limits);
  const Permutation shuffled(in_sequence.size(),
                             derive_key(seed, epoch, KeyPurpose::kWindow, window));
  made.batches.reserve(in_sequence.size());
  for (std::uint64_t i = 0; i < in_sequence.size(); ++i) {
    made.batches.push_back(std::move(in_sequence[shuffled(i)]));
  }
  return made;
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

BatchRule::BatchRule(const MixedDataset& data, const Loader::Options& options) {
  limits.max_rows = {options.batch_size};
  if (options.by_length) {
    lengths.emplace(data, *options.by_length);
    limits.max_tokens = options.by_length->max_tokens;
    window = options.by_length->window;
    pack_to = options.by_length->pack_to;
  }
  if (options.by_group) {
    groups.emplace(data, *options.by_group, options.batch_size);
    limits.max_rows.clear();
    for (const auto& group : groups->groups()) limits.max_rows.push_back(group.batch_size);
    window = options.by_group->window;
    holds_over = options.by_group->leftovers == Loader::ByGroup::Leftovers::kHoldOver;
  }
  text = text_of(*this, options);
}

GroupBatches::GroupBatches(std::shared_ptr<const BatchRule> rule, const Sampler& kept,
                           std::shared_ptr<const Sampler> whole, Point begin)
    : rule_(std::move(rule)),
      kept_(kept),
      whole_(std::move(whole)),
      begin_(begin),
      num_windows_(ceil_div(whole_->size(), rule_->window)),
      first_window_(0) {
  const std::uint64_t begin_window = ceil_div(begin_.position, rule_->window);
  require_memory_for(num_windows_ - begin_window, whole_->size() - begin_.position);
  if (rule_->holds_over && begin_window > 0 && begin_window < num_windows_) {
    load(begin_window - 1);
    held_at_first_ = std::move(window_.held_over);
  }
  first_window_ = begin_window;
  window_ = {};
  first_.push_back(0);
  for (std::uint64_t window = first_window_; window < num_windows_; ++window) {
    std::uint64_t batches = ceil_div(rows_of(window), rule_->limits.max_rows[0]);
    if (rule_->limits.max_tokens != 0 || rule_->pack_to != 0 || rule_->groups) {
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

std::uint64_t GroupBatches::rows_of(std::uint64_t window) const noexcept {
  return std::min(rule_->window, whole_->size() - window * rule_->window);
}

bool GroupBatches::is_kept(std::uint64_t position) const {
  return kept_.deliveries_before(position) != kept_.deliveries_before(position + 1);
}

std::uint64_t GroupBatches::window_of(std::uint64_t batch) const noexcept {
  const auto next = std::upper_bound(first_.begin(), first_.end(), batch);
  return first_window_ + static_cast<std::uint64_t>(next - first_.begin()) - 1;
}

GroupBatches::Point GroupBatches::point_after(std::uint64_t number) const noexcept {
  const std::uint64_t batch = number + begin_.batches;
  // The first windows of an epoch may have no batches, if all their samples are held over.
  if (batch == 0 && first_window_ == 0) return {};
  if (batch == first_.back()) return {whole_->size(), 0};
  const std::uint64_t window = window_of(batch);
  return {window * rule_->window, batch - first_[window - first_window_]};
}

void GroupBatches::load(std::uint64_t window) {
  if (window_.number == window) return;
  if (!rule_->holds_over) return make(window, {});
  // Make the windows in between, too, because their leftovers are held over to the next window.
  const bool is_ahead = window_.number != ~std::uint64_t{0} && window_.number < window;
  std::uint64_t next = is_ahead ? window_.number + 1 : first_window_;
  WindowSamples held_over = is_ahead ? std::move(window_.held_over) : held_at_first_;
  for (; next <= window; ++next) {
    make(next, std::exchange(held_over, {}));
    if (next < window) held_over = std::move(window_.held_over);
  }
}

void GroupBatches::make(std::uint64_t window, WindowSamples held_over) {
  window_ = {};  // no window, in case the following throws
  WindowSamples& content = window_.content;
  content = std::move(held_over);
  const std::size_t num_held = content.size();
  content.resize(num_held + rows_of(window));
  std::iota(content.positions.begin() + static_cast<std::ptrdiff_t>(num_held),
            content.positions.end(), window * rule_->window);
  const auto samples = std::span(content.samples).subspan(num_held);
  const auto order = whole_->clone();
  order->seek(window * rule_->window);
  order->next_batch(samples);
  if (rule_->lengths) rule_->lengths->of(samples, std::span(content.lengths).subspan(num_held));
  if (rule_->groups) rule_->groups->of(samples, std::span(content.groups).subspan(num_held));
  if (rule_->pack_to != 0) {
    pack(window);
  } else {
    const bool holds_over = rule_->holds_over && window + 1 < num_windows_;
    WindowBatches made = group_batches(content, rule_->limits, holds_over, whole_->order().seed,
                                       whole_->epoch(), window);
    window_.batches = std::move(made.batches);
    window_.held_over = content.only(made.held_over);
  }
  window_.number = window;
}

void GroupBatches::pack(std::uint64_t window) {
  const WindowSamples& content = window_.content;
  const std::uint64_t max_rows = rule_->limits.max_rows[0];
  const std::uint64_t most = max_rows * rule_->pack_to;
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (content.lengths[i] <= most) continue;
    throw InvalidArgument("a sequence does not fit into a batch",
                          "sample " + std::to_string(content.samples[i]) + " has " +
                              counted(content.lengths[i], "token") + ", but a batch has " +
                              counted(max_rows, "row") + " of " + std::to_string(rule_->pack_to),
                          "raise batch_size or pack_to, or leave out the sample with a view");
  }
  for (PackedBatch& batch : packed_batches(content.lengths, max_rows, rule_->pack_to,
                                           whole_->order().seed, whole_->epoch(), window)) {
    window_.batches.push_back(std::move(batch.samples));
    window_.starts.push_back(std::move(batch.starts));
  }
}

BatchPlan GroupBatches::from_first(std::uint64_t batch) {
  const std::uint64_t window = window_of(batch);
  load(window);
  const WindowSamples& content = window_.content;
  const std::uint64_t in_window = batch - first_[window - first_window_];
  const std::vector<std::uint32_t>& rows = window_.batches[in_window];
  BatchPlan plan;
  plan.group = content.groups[rows.front()];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t position = content.positions[rows[i]];
    if (!is_kept(position)) continue;
    plan.samples.push_back(content.samples[rows[i]]);
    plan.positions.push_back(position);
    if (rule_->pack_to == 0) continue;
    plan.starts.push_back(window_.starts[in_window][i]);
    plan.lengths.push_back(content.lengths[rows[i]]);
  }
  return plan;
}

std::uint64_t GroupBatches::delivered_before() {
  std::uint64_t count = kept_.deliveries_before(begin_.position);
  for (const std::uint64_t position : held_at_first_.positions) count -= is_kept(position) ? 1 : 0;
  for (std::uint64_t batch = 0; batch < begin_.batches; ++batch) {
    count += from_first(batch).samples.size();
  }
  return count;
}

}  // namespace shardwise::detail
