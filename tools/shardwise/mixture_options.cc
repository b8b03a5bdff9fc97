#include "mixture_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <charconv>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/text.h"
#include "options.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {

namespace {

/// Parses one value of --schedule.
Mixture::Change parse_change(const std::string& text) {
  const auto refuse = [&] {
    throw_usage(fmt::format("--schedule: {} is not POSITION=WEIGHT,...; write e.g. 1000000=0.5,0.5",
                            in_quotes(text)));
  };
  const char* const end = text.data() + text.size();
  Mixture::Change change;
  auto at = std::from_chars(text.data(), end, change.from);
  if (at.ec != std::errc() || at.ptr == end || *at.ptr != '=') refuse();
  do {
    at = std::from_chars(at.ptr + 1, end, change.weights.emplace_back());
    if (at.ec != std::errc() || (at.ptr != end && *at.ptr != ',')) refuse();
  } while (at.ptr != end);
  return change;
}

}  // namespace

std::vector<Mixture::Change> parse_schedule(const std::vector<std::string>& schedule,
                                            const std::vector<std::string>& mix) {
  if (!schedule.empty() && mix.empty()) {
    throw_usage("--schedule can only be given with --mix; give --mix, or leave out --schedule");
  }
  std::vector<Mixture::Change> changes;
  changes.reserve(schedule.size());
  for (const std::string& text : schedule) changes.push_back(parse_change(text));
  return changes;
}

MixedIndexes parse_mix(const std::vector<std::string>& mix) {
  MixedIndexes parsed;
  for (const std::string& part : mix) {
    const std::size_t mark = part.rfind('=');
    const std::string text = mark == std::string::npos ? "" : part.substr(mark + 1);
    double weight = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
    if (error != std::errc() || end != text.data() + text.size() || mark == 0) {
      throw_usage(
          fmt::format("--mix: {} is not INDEX=WEIGHT; write e.g. "
                      "web.idx=0.7,books.idx=0.3",
                      in_quotes(part)));
    }
    parsed.indexes.push_back(part.substr(0, mark));
    parsed.weights.push_back(weight);
  }
  return parsed;
}

std::vector<ResumeToken::Progress> data_sets_read(const ResumeToken& token) {
  if (!std::holds_alternative<Mixture>(token.spec.order.kind)) return {};
  try {
    return token.progress();
  } catch (const InvalidArgument&) {
    return {};
  }
}

nlohmann::ordered_json json_of_read(const std::vector<ResumeToken::Progress>& read) {
  auto list = nlohmann::ordered_json::array();
  for (const ResumeToken::Progress& data : read) {
    list.push_back({{"samples", data.num_samples},
                    {"samples_read", data.samples},
                    {"passes", data.passes},
                    {"remainder", data.remainder}});
  }
  return list;
}

void print_read(const std::vector<ResumeToken::Progress>& read, Output& out) {
  for (std::size_t i = 0; i < read.size(); ++i) {
    const auto& [num_samples, samples, passes, remainder] = read[i];
    out.print("data set {:<5} {} read so far: {} and {} of {}\n", i, counted(samples, "sample"),
              counted(passes, "whole pass"), human_count(remainder), human_count(num_samples));
  }
}

}  // namespace shardwise::tools
