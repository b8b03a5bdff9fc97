#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "shardwise/data/dataset.h"

namespace shardwise::python {

// How Python names samples: by whole numbers, and never by bools. A mask of bools read as the
// numbers 0 and 1 would give other samples than were meant, without a word.

/// True for a masked array of NumPy, whose mask other readers of the array would not see.
bool is_masked_array(nanobind::handle object);

/// True for one number, also an array of NumPy or torch without dimensions.
bool is_number(nanobind::handle object);

/// The whole number that an object is, which may be less than 0.
/// Errors: TypeError, also for bools and for masked arrays of NumPy; IndexError if it is too large.
Py_ssize_t index_of(nanobind::handle number);

/// The number of a sample in `data`; one less than 0 counts from the end, as of a list.
/// Errors: those of index_of(); OutOfRange.
std::uint64_t sample_number(nanobind::handle number, const Dataset& data);

/// The numbers in a sequence of whole numbers, or in a buffer of them as of NumPy.
/// Errors: those of sample_number(), also for a mask.
std::vector<std::uint64_t> sample_numbers(nanobind::handle numbers, const Dataset& data);

/// Numbers of samples of data that is not known here: none is less than 0.
/// Errors: those of index_of(); OutOfRange.
std::vector<std::uint64_t> plain_numbers(nanobind::handle numbers);

/// As Dataset does, of what the caller asked for, which may be less than 0.
[[noreturn]] void throw_out_of_range(Py_ssize_t number, const Dataset& data);

}  // namespace shardwise::python
