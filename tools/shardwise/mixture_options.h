#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "output.h"
#include "shardwise/order/order.h"
#include "shardwise/order/resume.h"

namespace shardwise::tools {

/// The parsed "INDEX=WEIGHT" pairs.
struct MixedIndexes {
  std::vector<std::string> indexes;
  std::vector<double> weights;
};
/// Parses the values of --mix. Errors: CLI::ValidationError.
MixedIndexes parse_mix(const std::vector<std::string>& mix);

/// Parses the values of --schedule. Errors: CLI::ValidationError, also without --mix.
std::vector<Mixture::Change> parse_schedule(const std::vector<std::string>& schedule,
                                            const std::vector<std::string>& mix);

/// Returns what the run has read of each data set of a mixture. Empty for other orders, and for a
/// mixture that is not valid.
std::vector<ResumeToken::Progress> data_sets_read(const ResumeToken& token);
/// json_of_read() returns this as JSON, and print_read() prints it as lines of text.
nlohmann::ordered_json json_of_read(const std::vector<ResumeToken::Progress>& read);
void print_read(const std::vector<ResumeToken::Progress>& read, Output& out);

}  // namespace shardwise::tools
