#include "loader/trace_text.h"

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace shardwise::detail {

namespace {

double as_us(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

const char* name_of(TraceEvent::Kind kind) {
  switch (kind) {
    case TraceEvent::Kind::kPlan:
      return "plan batch";
    case TraceEvent::Kind::kCollate:
      return "collate batch";
    case TraceEvent::Kind::kWait:
      return "wait for batch";
    case TraceEvent::Kind::kRows:
      break;
  }
  return "load samples";
}

nlohmann::ordered_json details_of(const TraceEvent& event) {
  if (event.kind != TraceEvent::Kind::kRows) return nlohmann::ordered_json::object();
  constexpr std::array<const char*, kNumStages> kNames = {
      "planning_us",     "opening_us",   "reading_us",  "decoding_us",
      "transforming_us", "functions_us", "collating_us"};
  nlohmann::ordered_json details = {{"samples", event.rows}, {"first_sample", event.first_sample}};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (event.stages[i].count() > 0) details[kNames[i]] = as_us(event.stages[i]);
  }
  return details;
}

}  // namespace

std::string trace_text(const std::vector<TraceEvent>& events,
                       std::chrono::steady_clock::time_point start) {
  std::string text = "[";
  const auto add = [&](const nlohmann::ordered_json& event) {
    text += text.size() == 1 ? "\n" : ",\n";
    text += event.dump();
  };
  std::set<unsigned> threads;
  for (const TraceEvent& event : events) threads.insert(event.thread);
  for (const unsigned thread : threads) {
    const std::string name = thread == 0 ? "consumer" : "sw-load-" + std::to_string(thread - 1);
    add({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", 1},
         {"tid", thread},
         {"args", {{"name", name}}}});
  }
  for (const TraceEvent& event : events) {
    add({{"name", name_of(event.kind)},
         {"ph", "X"},
         {"pid", 1},
         {"tid", event.thread},
         {"ts", as_us(event.begin - start)},
         {"dur", as_us(event.duration)},
         {"args", details_of(event)}});
  }
  return text + "\n]\n";
}

}  // namespace shardwise::detail
