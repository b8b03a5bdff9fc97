#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/field_sizes.h"
#include "loader/batch_builder.h"
#include "loader/buffer_pool.h"
#include "loader/engine.h"
#include "shardwise/loader/columns.h"

namespace shardwise::detail {

/// A batch in production.
struct Engine::Work {
  static constexpr std::size_t kNoRow = ~std::size_t{0};

  Work(BatchPlan content, std::span<const std::vector<Column>> by_group, BufferPool& pool)
      : plan(std::move(content)),
        columns(by_group[plan.group]),
        builder(columns, plan.samples.size(), pool),
        places(columns.size()),
        read(plan.samples.size()) {}

  [[nodiscard]] std::size_t num_rows() const noexcept { return plan.samples.size(); }

  BatchPlan plan;
  const std::span<const Column> columns;
  BatchBuilder builder;
  std::vector<std::vector<FieldPlace>> places;  // by column; empty for a column that needs samples
  std::vector<std::uint64_t> read;  // samples that were read; must equal those of the plan
  std::uint64_t first_row = 0;      // the first row's number, counted over all plans
  std::size_t next_row = 0;         // first unclaimed row
  std::size_t rows_left = 0;        // rows not yet made
  std::atomic<std::size_t> failed_row{kNoRow};  // the first failed row; written under mutex_
  std::exception_ptr error;
  std::vector<std::pair<std::size_t, std::string>> bad;  // bad rows, with the reason
  MadeBatch made;
  bool ready = false;
};

}  // namespace shardwise::detail
