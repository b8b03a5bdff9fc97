#include <cstdint>

#include "loader/batch_builder.h"
#include "loader/buffer_pool.h"
#include "loader/column_maker.h"
#include "loader/sample_groups.h"

namespace shardwise::detail {

Batch make_row(const RowInput& input, std::span<const Column> columns) {
  BufferPool pool(nullptr, 0);
  BatchBuilder builder(columns, 1, pool);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const ColumnMaker& maker = *columns[c].maker();
    require_size(columns[c]);
    switch (maker.layout()) {
      case ColumnMaker::Layout::kFixed:
        builder.set_row_shape(c, maker.row_shape());
        break;
      case ColumnMaker::Layout::kLikeFirst:
        builder.set_row_shape(c, maker.row_shape_of(input));
        break;
      case ColumnMaker::Layout::kSized: {
        const FieldChoice* const fields = maker.fields();
        const std::uint64_t size = fields == nullptr
                                       ? input.sample.key().size()
                                       : input.sample.field(fields->in(input.sample)).bytes.size();
        builder.set_sizes(c, std::span(&size, 1));
        break;
      }
      case ColumnMaker::Layout::kRagged:
        break;
    }
    RowOutput output = builder.output(c, 0);
    maker.make(input, output);
  }
  const std::uint64_t position = 0;
  return builder.finish({true}, std::span(&input.number, 1), std::span(&position, 1));
}

}  // namespace shardwise::detail
