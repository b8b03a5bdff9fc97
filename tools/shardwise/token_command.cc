#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "commands.h"
#include "order/algorithms.h"
#include "output.h"
#include "token_file.h"
#include "version.h"

namespace shardwise::tools {
namespace {

struct TokenOptions {
  std::string token;
  bool json = false;
};

nlohmann::ordered_json json_of(const Chunked& kind) {
  return {{"chunk_size", kind.chunk_size}, {"window", kind.window}, {"phase", kind.phase}};
}
nlohmann::ordered_json json_of(const Sharded& kind) { return {{"window", kind.window}}; }
nlohmann::ordered_json json_of(const Sequential& /*kind*/) {
  return nlohmann::ordered_json::object();
}
nlohmann::ordered_json json_of(const Resampled& kind) {
  return {{"resample", kind.unit == Resampled::Unit::kShard ? "shard" : "sample"},
          {"weights", kind.weights}};
}
nlohmann::ordered_json json_of(const Wids& kind) {
  return {{"chunk_size", kind.chunk_size},
          {"shuffle", kind.shuffle},
          {"shufflefirst", kind.shufflefirst}};
}
nlohmann::ordered_json json_of(const Mixture& kind) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const Mixture::Part& part : kind.parts) {
    nlohmann::ordered_json json = {{"samples", part.num_samples}, {"weight", part.weight}};
    std::visit(
        [&](const auto& chosen) {
          json["sampler"] = name_of(chosen);
          json.update(json_of(chosen));
        },
        part.kind);
    parts.push_back(std::move(json));
  }
  return {{"parts", std::move(parts)}};
}

nlohmann::ordered_json json_of(const ResumeToken::OrderSpec& spec) {
  const Order& order = spec.order;
  nlohmann::ordered_json json = {
      {"sampler", name_of(order.kind)}, {"samples", spec.num_samples}, {"seed", order.seed}};
  std::visit([&](const auto& kind) { json.update(json_of(kind)); }, order.kind);
  json["streams"] = order.streams;
  json["tail"] = tail_name(order.tail);
  json["balance_bytes"] = order.balance_bytes;
  json["epoch_size"] = order.epoch_size;
  if (spec.world_size > 0) json["world"] = spec.world_size;
  nlohmann::ordered_json versions = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kNumAlgorithms; ++i) {
    if (spec.versions[i] == 0) continue;
    versions[json_name(static_cast<Algorithm>(i))] = spec.versions[i];
  }
  json["versions"] = std::move(versions);
  return json;
}

nlohmann::ordered_json json_of(const ResumeToken& token) {
  nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
  for (const auto& [sample, entry] : token.skip.samples()) {
    left_out.push_back({{"sample", sample},
                        {"from_epoch", entry.from.epoch},
                        {"from_position", entry.from.position},
                        {"reason", entry.reason}});
  }
  for (const auto& [begin, end] : token.skip.ranges()) {
    left_out.push_back({{"epoch", begin.first}, {"begin", begin.second}, {"end", end}});
  }
  nlohmann::ordered_json history = nlohmann::ordered_json::array();
  for (const ResumeToken::Stage& stage : token.history) {
    history.push_back({{"end_epoch", stage.end_epoch},
                       {"fingerprint", to_string(stage.fingerprint)},
                       {"order", json_of(stage.spec)}});
  }
  nlohmann::ordered_json json = {{"epoch", token.epoch}, {"position", token.position}};
  if (token.batches) {
    json["batches"] = {{"rule", token.batches->rule}, {"delivered", token.batches->delivered}};
  }
  json["delivered"] = nullptr;
  if (token.audit) json["delivered"] = token.audit->count;
  json["fingerprint"] = to_string(token.fingerprint);
  json["order"] = json_of(token.spec);
  json["left_out"] = std::move(left_out);
  json["history"] = std::move(history);
  return json;
}

void print_order(const nlohmann::ordered_json& order, Output& out) {
  for (const auto& [name, value] : order.items()) {
    out.print("  {:<14} {}\n", name,
              value.is_string() ? escaped(value.get<std::string>()) : json_text(value));
  }
}

void run(const TokenOptions& options, Output& out) {
  const ResumeToken token = read_token(options.token);
  if (options.json) {
    out.print("{}\n", json_text(json_of(token)));
    return;
  }
  out.print("stands in      epoch {}, at position {} of all ranks\n", token.epoch, token.position);
  if (token.batches) {
    out.print("               {} batches of the window that begins there, by length: {}\n",
              token.batches->delivered, escaped(token.batches->rule));
  }
  if (token.audit) out.print("delivered      {} samples of this epoch\n", token.audit->count);
  out.print("data set       {}\n", to_string(token.fingerprint));
  out.print("order\n");
  print_order(json_of(token.spec), out);
  if (!token.skip.empty()) out.print("left out\n");
  for (const auto& [sample, entry] : token.skip.samples()) {
    out.print("  sample {} from epoch {}, position {} on{}{}\n", sample, entry.from.epoch,
              entry.from.position, entry.reason.empty() ? "" : ": ", escaped(entry.reason));
  }
  for (const auto& [begin, end] : token.skip.ranges()) {
    out.print("  positions {} to before {} of epoch {}\n", begin.second, end, begin.first);
  }
  for (const ResumeToken::Stage& stage : token.history) {
    out.print("before epoch {} with data set {}, in the order\n", stage.end_epoch,
              to_string(stage.fingerprint));
    print_order(json_of(stage.spec), out);
  }
}

}  // namespace

void add_token_command(CLI::App& program, Output& out) {
  CLI::App* command =
      program.add_subcommand("token", "Print a resume token, or that of a checkpoint");
  const auto options = std::make_shared<TokenOptions>();
  command
      ->add_option("TOKEN", options->token,
                   "file with a token or a checkpoint, or the text of a token")
      ->required()
      ->type_name("");
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer("Example:\n  shardwise token run.pt");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
