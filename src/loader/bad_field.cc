#include "loader/bad_field.h"

#include <string>

#include "base/spelling.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

void throw_bad_field(const Sample& sample, std::size_t place, std::string_view type,
                     std::string_view reason) {
  throw BadField("cannot decode field " + in_quotes(sample.field(place).name) + " as " +
                     std::string(type) + " (" + escaped(reason) + ")",
                 sample.describe(),
                 "mend the member, or leave the sample out with " + spelled("max_bad"));
}

}  // namespace shardwise::detail
