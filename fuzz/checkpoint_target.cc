#include "order/checkpoint_format.h"

#include <cstdint>

#include "base/hasher.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

/// Replaces the first line "#" by the hash of the bytes before it.
std::string with_right_hash(std::string bytes) {
  const std::size_t at = bytes.find("\n#\n");
  if (at == std::string::npos) return bytes;
  const std::string hash = to_string(hash128(std::string_view(bytes).substr(0, at + 1)));
  return bytes.replace(at + 1, 1, hash);
}

}  // namespace

void checkpoint_target(std::string_view input) {
  if (input.empty()) return;
  std::string bytes(input.substr(1));
  if ((input[0] & 1) != 0) bytes = with_right_hash(std::move(bytes));
  try {
    const auto content = detail::parse_checkpoint(bytes, "run.pt");
    std::size_t size = detail::checkpoint_front(content).size();
    for (const auto& part : content.parts) {
      SHARDWISE_FUZZ_REQUIRE(part.bytes.data() >= bytes.data() &&
                             part.bytes.data() + part.bytes.size() <= bytes.data() + bytes.size());
      for (const std::int64_t side : part.shape) SHARDWISE_FUZZ_REQUIRE(side >= 0);
      size += part.bytes.size();
    }
    SHARDWISE_FUZZ_REQUIRE(size > 0);
  } catch (const Error&) {
    // The input may be refused.
  }
}

std::vector<std::string> checkpoint_seeds() {
  detail::CheckpointContent content{.token = {}, .writer = "somebody", .parts = {}};
  content.parts.push_back({"model/weight", "float32", {2, 3}, "123456789012345678901234"});
  content.parts.push_back({"kind", "text", {}, "SGD"});
  const std::string front = detail::checkpoint_front(content);
  std::string values;
  for (const auto& part : content.parts) values += part.bytes;
  // The last line of the front is its hash.
  const std::size_t hash = front.rfind('\n', front.size() - 2) + 1;
  return {std::string(1, '\0') + front + values, "\1" + front.substr(0, hash) + "#\n" + values,
          "\1shardwise checkpoint 2\n" + ResumeToken().to_text() + "\n\n0\n#\n"};
}

}  // namespace shardwise::fuzz
