#include "loader/packing.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <utility>

#include "base/counted.h"
#include "base/error_types.h"
#include "base/text.h"
#include "loader/batch_builder.h"
#include "loader/column_maker.h"
#include "order/key.h"
#include "order/permutation.h"

namespace shardwise::detail {
namespace {

/// Consecutive rows that must stay in one batch: the rows of a long sequence, or a single row.
struct RowGroup {
  std::uint64_t num_rows = 1;
  std::uint64_t used = 0;  // tokens in the last row
  PackedBatch content;     // starts count tokens from the group's first row
};

/// Fills rows by best fit, the longest sequences first.
std::vector<RowGroup> fill_rows(std::span<const std::uint64_t> lengths, std::uint64_t row_length) {
  std::vector<std::uint32_t> sorted(lengths.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; });
  std::vector<RowGroup> groups;
  std::map<std::pair<std::uint64_t, std::size_t>, std::size_t> by_room;  // (tokens left, group)
  for (const std::uint32_t sample : sorted) {
    const std::uint64_t length = lengths[sample];
    std::size_t group = groups.size();
    if (const auto fit = by_room.lower_bound({length, 0}); fit != by_room.end()) {
      group = fit->second;
      by_room.erase(fit);
    } else {
      groups.emplace_back();
    }
    RowGroup& into = groups[group];
    into.content.samples.push_back(sample);
    into.content.starts.push_back((into.num_rows - 1) * row_length + into.used);
    into.used += length;
    while (into.used > row_length) {  // only a new group needs further rows
      into.used -= row_length;
      ++into.num_rows;
    }
    by_room.emplace(std::pair{row_length - into.used, group}, group);
  }
  return groups;
}

/// Writes the integer `value` `count` times, little-endian, in value_bytes each.
void fill_with(std::byte* out, std::size_t count, std::size_t value_bytes, std::int64_t value) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(out + i * value_bytes, &value, value_bytes);
}

/// Whether an integer type can represent the value. Errors: InvalidArgument for other types.
bool has_value(DType dtype, std::int64_t value, const std::string& column) {
  switch (dtype) {
    case DType::kUInt8:
      return std::in_range<std::uint8_t>(value);
    case DType::kInt8:
      return std::in_range<std::int8_t>(value);
    case DType::kUInt16:
      return std::in_range<std::uint16_t>(value);
    case DType::kInt16:
      return std::in_range<std::int16_t>(value);
    case DType::kUInt32:
      return std::in_range<std::uint32_t>(value);
    case DType::kInt32:
      return std::in_range<std::int32_t>(value);
    case DType::kUInt64:
      return std::in_range<std::uint64_t>(value);
    case DType::kInt64:
      return true;
    default:
      throw InvalidArgument("only ragged columns of integers can be packed", in_quotes(column),
                            "name a column of tokens");
  }
}

}  // namespace

std::vector<PackedBatch> packed_batches(std::span<const std::uint64_t> lengths,
                                        std::uint64_t num_rows, std::uint64_t row_length,
                                        std::uint64_t seed, std::uint64_t epoch,
                                        std::uint64_t window) {
  std::vector<RowGroup> groups = fill_rows(lengths, row_length);
  const Permutation shuffled(groups.size(), derive_key(seed, epoch, KeyPurpose::kWindow, window));
  std::vector<PackedBatch> batches;
  // Rows used in the last batch. There is no batch yet, so this makes the first group begin one.
  std::uint64_t rows = num_rows;
  for (std::uint64_t i = 0; i < groups.size(); ++i) {
    RowGroup& group = groups[shuffled(i)];
    if (rows + group.num_rows > num_rows) {
      batches.emplace_back();
      rows = 0;
    }
    PackedBatch& batch = batches.back();
    for (std::size_t s = 0; s < group.content.samples.size(); ++s) {
      batch.samples.push_back(group.content.samples[s]);
      batch.starts.push_back(rows * row_length + group.content.starts[s]);
    }
    rows += group.num_rows;
  }
  return batches;
}

void Packer::require(const Column& column, std::int64_t padding) {
  const ColumnMaker& maker = *column.maker();
  const bool is_ragged = maker.layout() == ColumnMaker::Layout::kRagged ||
                         maker.layout() == ColumnMaker::Layout::kSized;
  if (!is_ragged) {
    throw InvalidArgument("only ragged columns of integers can be packed", in_quotes(column.name()),
                          "name a column of tokens");
  }
  if (!has_value(maker.dtype(), padding, column.name())) {
    throw InvalidArgument("the padding is out of range for the packed column",
                          std::to_string(padding) + ", column " + in_quotes(column.name()) + ": " +
                              std::string(to_string(maker.dtype())),
                          "set by_length.padding to a value of this type");
  }
}

std::shared_ptr<std::byte> Packer::take(std::size_t size, BufferPool& pool) const {
  try {
    return pool.take(size);
  } catch (const std::bad_alloc&) {
    throw InvalidArgument("a batch does not fit into memory",
                          column_ + ", " + human_bytes(size) + " for " + counted(num_rows_, "row") +
                              " of " + std::to_string(row_length_) + " tokens",
                          "choose a smaller batch_size or pack_to");
  }
}

void Packer::pack(Batch& batch, std::span<const std::uint64_t> positions,
                  std::span<const std::uint64_t> starts, std::span<const std::uint64_t> lengths,
                  BufferPool& pool) const {
  const Batch::Array sequences = batch[column_];
  const std::size_t value_bytes = size_of(sequences.dtype());
  const std::uint64_t num_rows = batch.empty() ? 0 : num_rows_;
  const std::size_t size = num_rows * row_length_;
  const auto values = take(size * value_bytes, pool);
  const auto segments = take(size * sizeof(std::int32_t), pool);
  const auto places = take(size * sizeof(std::int32_t), pool);
  fill_with(values.get(), size, value_bytes, padding_);
  if (size > 0) {
    std::memset(segments.get(), 0, size * sizeof(std::int32_t));
    std::memset(places.get(), 0, size * sizeof(std::int32_t));
  }
  std::vector<std::int32_t> in_row(num_rows);  // number of sequences in each row so far
  std::size_t planned = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    while (positions[planned] != static_cast<std::uint64_t>(batch.positions()[i])) ++planned;
    const std::size_t length = sequences.bytes(i).size() / value_bytes;
    if (length != lengths[planned]) {
      throw InvalidArgument(
          "a sequence has another length than it was packed with",
          "column " + in_quotes(column_) + ", sample " + std::to_string(batch.samples()[i]) + ": " +
              std::to_string(length) + " values, but " + std::to_string(lengths[planned]) +
              " by by_length",
          "set by_length to a field or column with the number of values in this column");
    }
    const std::size_t start = starts[planned];
    if (length > 0) {
      std::memcpy(values.get() + start * value_bytes, sequences.bytes(i).data(),
                  length * value_bytes);
    }
    auto* const segment = reinterpret_cast<std::int32_t*>(segments.get());
    auto* const place = reinterpret_cast<std::int32_t*>(places.get());
    std::int32_t number = 0;
    for (std::size_t k = 0; k < length; ++k) {
      const std::size_t at = start + k;
      if (k == 0 || at % row_length_ == 0) number = ++in_row[at / row_length_];
      segment[at] = number;
      place[at] = static_cast<std::int32_t>(k);
    }
  }
  const auto shape = static_cast<std::int64_t>(row_length_);
  BatchBuilder::set_array(batch, column_, sequences.dtype(), num_rows, {shape}, values);
  BatchBuilder::set_array(batch, column_ + "_segments", DType::kInt32, num_rows, {shape}, segments);
  BatchBuilder::set_array(batch, column_ + "_positions", DType::kInt32, num_rows, {shape}, places);
}

}  // namespace shardwise::detail
