#include "base/agreement.h"
#include "libtorch/rendezvous/wire.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

using detail::MessageBuffer;
using detail::MessageKind;
using detail::MessageReader;
using detail::MessageWriter;
using detail::Record;

/// Tests that a parsed record is serialized to the same bytes, and that it is compatible with a
/// copy of itself.
void check_record(std::string_view bytes) {
  const auto record = detail::record_from(bytes);
  if (!record) return;
  SHARDWISE_FUZZ_REQUIRE(detail::to_bytes(*record) == bytes);
  SHARDWISE_FUZZ_REQUIRE(!detail::find_disagreement({*record, *record}));
  SHARDWISE_FUZZ_REQUIRE(record->empty() || detail::find_disagreement({*record, Record()}));
}

}  // namespace

void rendezvous_target(std::string_view input) {
  if (input.empty()) return;
  const auto control = static_cast<unsigned char>(input[0]);
  input.remove_prefix(1);
  MessageBuffer buffer((control & 1) != 0 ? detail::kRankGreeting : detail::kHubGreeting);
  const std::size_t piece = 1 + (control >> 1);
  for (std::size_t at = 0; at < input.size(); at += piece) {
    if (!buffer.add(input.substr(at, piece))) return;
    while (const auto message = buffer.next()) {
      MessageReader reader(*message);
      const MessageKind kind = reader.kind();
      if (kind == MessageKind::kHello) check_record(reader.text());
      while (reader.ok()) {
        const std::string text = reader.text();
        SHARDWISE_FUZZ_REQUIRE(text.size() <= message->size());
        if (reader.ok()) reader.number();
      }
    }
  }
}

std::vector<std::string> rendezvous_seeds() {
  const std::string record = detail::to_bytes({{"version", "1"}, {"batch size", "32"}});
  const std::string hello =
      MessageWriter(MessageKind::kHello).text(record).number(3).text("host").number(4).take();
  const std::string set = MessageWriter(MessageKind::kSet).text("key").text("value").take();
  return {"\xff" + std::string(detail::kRankGreeting) + hello + set,
          "\x10" + std::string(detail::kHubGreeting) + set + hello};
}

}  // namespace shardwise::fuzz
