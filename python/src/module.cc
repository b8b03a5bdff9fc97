#include <nanobind/nanobind.h>

#include "columns.h"
#include "errors.h"
#include "loading.h"
#include "objects.h"
#include "orders.h"
#include "retry_notes.h"

namespace nb = nanobind;

// The package's extension. The package's Python files define the public interface.
NB_MODULE(_core, module) {
  using namespace shardwise::python;
  module.attr("version") = SHARDWISE_VERSION;
#ifndef SHARDWISE_LEAK_WARNINGS
  // If the interpreter ends while threads run, e.g. in a spawned worker, objects remain alive.
  // nanobind would report them as leaks.
  nb::set_leak_warnings(false);
#endif
  translate_errors();
  log_retries();
  add_caches(module);
  add_samples(module);
  add_sample_ranges(module);
  add_datasets(module);
  add_opening(module);
  add_orders(module);
  add_samplers(module);
  add_explaining(module);
  add_sums(module);
  add_building(module);
  add_attaching(module);
  add_writing(module);
  add_decoding(module);
  add_columns(module);
  add_batches(module);
  add_loaders(module);
  add_wids_samples(module);
  add_wids_orders(module);
}
