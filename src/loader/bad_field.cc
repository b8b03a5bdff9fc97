#include "loader/bad_field.h"

#include <string>

#include "base/counted.h"
#include "base/spelling.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

void throw_bad_field(const Sample& sample, std::size_t place, std::string_view type,
                     std::string_view reason) {
  throw BadField("cannot decode field " + in_quotes(sample.field(place).name) + " as " +
                     std::string(type) + " (" + escaped(reason) + ")",
                 sample.describe(),
                 "repair the member, or leave the sample out with " + spelled("max_bad"));
}

void throw_too_many_bad(std::size_t found, std::uint64_t max_bad, const std::string& which) {
  throw BadField(counted(found, "bad sample") + ", more than the " + human_count(max_bad) +
                     " that " + spelled("max_bad") + " allows",
                 which, "or raise " + spelled("max_bad"));
}

void throw_all_bad(const std::string& which, const std::string& first) {
  throw BadField(which, "the first: " + first,
                 spelled("max_bad") +
                     " is meant for a few bad samples: correct the columns and their functions, "
                     "or leave the bad samples out of the data");
}

}  // namespace shardwise::detail
