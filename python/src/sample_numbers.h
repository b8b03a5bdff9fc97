#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "shardwise/data/dataset.h"

namespace shardwise::python {

// Python names samples by whole numbers, never by bools. A mask of bools, read as the numbers 0 and
// 1, would silently select the wrong samples.

/// True for a masked array of NumPy, whose mask would be ignored by other readers.
bool is_masked_array(nanobind::handle object);

/// True for one number, including a 0-dimensional array of NumPy or torch.
bool is_number(nanobind::handle object);

/// Returns the whole number in an object; it may be negative.
/// Errors: TypeError, also for bools and masked arrays of NumPy; IndexError if it is too large.
Py_ssize_t index_of(nanobind::handle number);

/// Returns the number of a sample in `data`. A negative number counts from the end, as in a list.
/// Errors: those of index_of(); OutOfRange.
std::uint64_t sample_number(nanobind::handle number, const Dataset& data);

/// Returns the numbers in a sequence, or in a buffer such as a NumPy array.
/// Errors: those of sample_number(), also for a mask.
std::vector<std::uint64_t> sample_numbers(nanobind::handle numbers, const Dataset& data);

/// Returns sample numbers for unknown data; negative ones are refused.
/// Errors: those of index_of(); OutOfRange.
std::vector<std::uint64_t> plain_numbers(nanobind::handle numbers);

/// Throws like Dataset, with the number that the caller gave, which may be negative.
[[noreturn]] void throw_out_of_range(Py_ssize_t number, const Dataset& data);

}  // namespace shardwise::python
