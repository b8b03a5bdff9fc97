#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "shardwise/data/dataset.h"

namespace shardwise::python {

// In Python, samples are selected by integers, never by bools: a mask read as the numbers 0 and 1
// would silently select the wrong samples.

/// True for a masked array of NumPy. Its buffer and its values would ignore the mask.
bool is_masked_array(nanobind::handle object);

/// True for a single number, including a 0-dimensional array of NumPy or torch.
bool is_number(nanobind::handle object);

/// Converts an object to an integer, which may be negative.
/// Errors: TypeError, also for bools and masked arrays of NumPy; IndexError if it is too large.
Py_ssize_t index_of(nanobind::handle number);

/// Returns the number of a sample in `data`. A negative argument counts from the end, as in a list.
/// Errors: those of index_of(); OutOfRange.
std::uint64_t sample_number(nanobind::handle number, const Dataset& data);

/// Returns the sample numbers in a sequence, or in a buffer such as a NumPy array.
/// Errors: those of sample_number(), also for a mask.
std::vector<std::uint64_t> sample_numbers(nanobind::handle numbers, const Dataset& data);

/// Returns the sample numbers in a sequence, when the data is unknown. Refuses negative numbers.
/// Errors: those of index_of(); OutOfRange.
std::vector<std::uint64_t> plain_numbers(nanobind::handle numbers);

/// Throws Dataset's OutOfRange with the number that the caller gave, which may be negative.
[[noreturn]] void throw_out_of_range(Py_ssize_t number, const Dataset& data);

}  // namespace shardwise::python
