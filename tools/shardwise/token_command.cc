#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "commands.h"
#include "json_names.h"
#include "mixture_options.h"
#include "order/algorithms.h"
#include "order/fields.h"
#include "output.h"
#include "token_file.h"
#include "version.h"

namespace shardwise::tools {
namespace {

struct TokenOptions {
  std::string token;
  bool json = false;
};

using Json = nlohmann::ordered_json;

template <detail::HasFields Owner>
void add_fields(Json& json, const Owner& owner);

template <class Value>
void add(Json& json, std::string_view key, const Value& value) {
  if constexpr (detail::Choice<Value>) {
    json[std::string(key)] = detail::choice_name(value);
  } else {
    json[std::string(key)] = value;
  }
}
void add(Json& /*json*/, std::string_view /*key*/, const SkipList& /*skip*/) {}  // "left_out"
/// Adds the kind, and the kind's options on the same level.
template <class... Kinds>
void add(Json& json, std::string_view key, const std::variant<Kinds...>& kind) {
  std::visit(
      [&](const auto& chosen) {
        json[std::string(key)] = name_of(chosen);
        add_fields(json, chosen);
      },
      kind);
}
template <detail::HasFields Item>
void add(Json& json, std::string_view key, const std::vector<Item>& items) {
  if (std::is_same_v<Item, Mixture::Change> && items.empty()) return;
  Json& list = json[std::string(key)] = Json::array();
  for (const Item& item : items) add_fields(list.emplace_back(Json::object()), item);
}
template <detail::HasFields Owner>
void add_fields(Json& json, const Owner& owner) {
  detail::visit_fields<Owner>(
      [&](const auto& field) { add(json, field.key(), owner.*field.member); });
}

Json json_of(const ResumeToken::OrderSpec& spec) {
  Json json = {{"sampler", nullptr}, {"samples", spec.num_samples}, {"seed", nullptr}};
  add(json, "sampler", spec.order.kind);
  add_fields(json, spec.order);
  if (spec.world_size > 0) json["world_size"] = spec.world_size;
  Json versions = Json::object();
  for (std::size_t i = 0; i < kNumAlgorithms; ++i) {
    if (spec.versions[i] == 0) continue;
    versions[json_name(static_cast<Algorithm>(i))] = spec.versions[i];
  }
  json["versions"] = std::move(versions);
  return json;
}

Json json_of(const ResumeToken& token) {
  Json left_out = Json::array();
  for (const auto& [sample, entry] : token.skip.samples()) {
    left_out.push_back({{"sample", sample},
                        {"from_epoch", entry.from.epoch},
                        {"from_position", entry.from.position},
                        {"reason", entry.reason}});
  }
  for (const auto& [begin, end] : token.skip.ranges()) {
    left_out.push_back({{"epoch", begin.first}, {"begin", begin.second}, {"end", end}});
  }
  Json history = Json::array();
  for (const ResumeToken::Stage& stage : token.history) {
    history.push_back({{"end_epoch", stage.end_epoch},
                       {"fingerprint", to_string(stage.fingerprint)},
                       {"order", json_of(stage.spec)}});
  }
  Json json = {{"epoch", token.epoch}, {"position", token.position}};
  if (token.batches) {
    json["batches"] = {{"rule", token.batches->rule}, {"delivered", token.batches->delivered}};
  }
  json["delivered"] = nullptr;
  if (token.audit) json["delivered"] = token.audit->count;
  json["fingerprint"] = to_string(token.fingerprint);
  if (const std::vector<ResumeToken::Progress> read = data_sets_read(token); !read.empty()) {
    json["data_sets"] = json_of_read(read);
  }
  json["order"] = json_of(token.spec);
  json["left_out"] = std::move(left_out);
  json["history"] = std::move(history);
  return json;
}

void print_order(const Json& order, Output& out) {
  for (const auto& [name, value] : order.items()) {
    out.print("  {:<14} {}\n", name,
              value.is_string() ? escaped(value.get<std::string>()) : json_text(value));
  }
}

void run(const TokenOptions& options, Output& out) {
  const ResumeToken token = read_token(options.token);
  if (options.json) {
    print_json(out, "token", json_of(token));
    return;
  }
  out.print("epoch          {}\nposition       {} over all ranks\n", token.epoch, token.position);
  if (token.batches) {
    out.print("batches        {} delivered of the current window; rule: {}\n",
              human_count(token.batches->delivered), escaped(token.batches->rule));
  }
  if (token.audit)
    out.print("delivered      {} of this epoch\n", counted(token.audit->count, "sample"));
  out.print("data set       {}\n", to_string(token.fingerprint));
  print_read(data_sets_read(token), out);
  out.print("order\n");
  print_order(json_of(token.spec), out);
  if (!token.skip.empty()) out.print("left out\n");
  for (const auto& [sample, entry] : token.skip.samples()) {
    out.print("  sample {} from epoch {}, position {} on{}{}\n", sample, entry.from.epoch,
              entry.from.position, entry.reason.empty() ? "" : ": ", escaped(entry.reason));
  }
  for (const auto& [begin, end] : token.skip.ranges()) {
    out.print("  positions [{}, {}) of epoch {}\n", begin.second, end, begin.first);
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
      program.add_subcommand("token",
                             "Print the contents of a resume token, or of the token in "
                             "a checkpoint");
  const auto options = std::make_shared<TokenOptions>();
  command
      ->add_option("TOKEN", options->token,
                   "file with a resume token or a checkpoint, or the text of a token")
      ->required()
      ->type_name("");
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer("Example:\n  shardwise token run.pt");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
