#include "shardwise/order/resume.h"

#include <array>
#include <limits>

#include "shardwise/base/bytes.h"
#include "shardwise/base/error.h"

namespace shardwise {

namespace {

constexpr std::string_view kPrefix = "sw1.";
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr unsigned kAuditBit = 1U << 6;

std::string base64(std::string_view bytes) {
  std::string text;
  std::uint32_t bits = 0;
  unsigned num_bits = 0;
  for (const char c : bytes) {
    bits = (bits << 8) | static_cast<unsigned char>(c);
    num_bits += 8;
    while (num_bits >= 6) {
      num_bits -= 6;
      text += kAlphabet[(bits >> num_bits) & 63];
    }
  }
  if (num_bits > 0) text += kAlphabet[(bits << (6 - num_bits)) & 63];
  return text;
}

[[noreturn]] void throw_damaged(std::string_view why) {
  throw InvalidArgument("not a resume token", why, "copy it whole; it begins with \"sw1.\"");
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned num_bits = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) throw_damaged("it holds characters that none has");
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes += static_cast<char>((bits >> num_bits) & 0xff);
    }
  }
  return bytes;
}

class Writer {
 public:
  void byte(unsigned value) { bytes_ += static_cast<char>(value); }
  void fixed(std::uint64_t value) {
    std::array<char, 8> raw{};
    store_le64(raw.data(), value);
    bytes_.append(raw.data(), raw.size());
  }
  void fixed(Hash128 value) {
    fixed(value.low);
    fixed(value.high);
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<unsigned>(value & 0x7f) | 0x80);
    byte(static_cast<unsigned>(value));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what Writer wrote; every read is checked against the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  unsigned byte() {
    need(1);
    const auto value = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    return value;
  }
  std::uint64_t fixed() {
    need(8);
    const std::uint64_t value = load_le64(bytes_.data());
    bytes_.remove_prefix(8);
    return value;
  }
  Hash128 hash() {
    const std::uint64_t low = fixed();
    return {fixed(), low};
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint64_t part = byte();
      if (shift == 63 && part > 1) throw_damaged("a number in it is too large");
      value |= (part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  void need(std::size_t size) const {
    if (size > bytes_.size()) throw_damaged("it ends too early");
  }
  std::string_view bytes_;
};

std::string sampler_text(SamplerKind kind) { return std::string(sampler_name(kind)); }
std::string flag_text(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string difference(const OrderSpec& there, const OrderSpec& here) {
  std::string text;
  const auto compare = [&text](std::string_view name, const std::string& x, const std::string& y) {
    if (x == y) return;
    if (!text.empty()) text += ", ";
    text += name;
    text += " " + x + " there, " + y + " here";
  };
  const auto numbers = [&compare](std::string_view name, std::uint64_t x, std::uint64_t y) {
    compare(name, std::to_string(x), std::to_string(y));
  };
  numbers("order_version", there.order_version, here.order_version);
  compare("sampler", sampler_text(there.sampler), sampler_text(here.sampler));
  numbers("num_samples", there.num_samples, here.num_samples);
  numbers("seed", there.seed, here.seed);
  if (there.sampler == here.sampler) {
    numbers("chunk_size", there.chunk_size, here.chunk_size);
    numbers("window", there.window, here.window);
    numbers("streams", there.streams, here.streams);
    compare("tail", std::string(tail_name(there.tail)), std::string(tail_name(here.tail)));
    compare("shuffle", flag_text(there.shuffle), flag_text(here.shuffle));
    compare("shufflefirst", flag_text(there.shufflefirst), flag_text(here.shufflefirst));
    compare("balance_bytes", flag_text(there.balance_bytes), flag_text(here.balance_bytes));
    compare("resample", there.resample == ResampleUnit::kShard ? "shard" : "sample",
            here.resample == ResampleUnit::kShard ? "shard" : "sample");
    numbers("epoch_size", there.epoch_size, here.epoch_size);
    numbers("world_size", there.world_size, here.world_size);
    if (there.layout != here.layout) {
      text += text.empty() ? "" : ", ";
      text += there.sampler == SamplerKind::kMixture ? "data sets or weights differ"
                                                     : "shard lengths differ";
    }
  }
  return text;
}

std::string ResumeToken::to_text() const {
  Writer out;
  out.byte(kVersion);
  out.byte(static_cast<unsigned>(order.sampler));
  out.byte(static_cast<unsigned>(order.tail) | (order.shuffle ? 1U << 2 : 0) |
           (order.shufflefirst ? 1U << 3 : 0) | (order.balance_bytes ? 1U << 4 : 0) |
           (order.resample == ResampleUnit::kShard ? 1U << 5 : 0) | (audit ? kAuditBit : 0));
  out.fixed(fingerprint);
  for (const std::uint64_t value :
       {order.order_version, order.num_samples, order.seed, order.chunk_size, order.window,
        order.streams, order.epoch_size, order.world_size, order.layout, epoch, slots}) {
    out.varint(value);
  }
  out.varint(skip.samples().size());
  std::uint64_t before = 0;
  for (const std::uint64_t sample : skip.samples()) {
    out.varint(sample - before);
    before = sample;
  }
  out.varint(skip.slots().size());
  for (const SkipList::Slots& range : skip.slots()) {
    out.varint(range.epoch);
    out.varint(range.begin);
    out.varint(range.end - range.begin);
  }
  if (audit) {
    out.varint(audit->count);
    out.fixed(audit->hashes);
    out.fixed(audit->numbers);
  }
  const std::uint64_t checksum = hash64(out.bytes());
  out.fixed(checksum);
  return std::string(kPrefix) + base64(out.bytes());
}

ResumeToken ResumeToken::from_text(std::string_view text) {
  if (!text.starts_with("sw")) throw_damaged("it does not begin as one");
  const std::string_view version = text.substr(0, text.find('.') + 1);
  if (version != kPrefix) {
    throw VersionMismatch("cannot read this resume token", {},
                          "this library reads tokens that begin with \"sw1.\"; use the one that "
                          "wrote it");
  }
  const std::string bytes = from_base64(text.substr(kPrefix.size()));
  if (bytes.size() < 8) throw_damaged("it ends too early");
  const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - 8);
  if (hash64(body) != load_le64(bytes.data() + body.size())) throw_damaged("its checksum is wrong");
  Reader in(body);
  ResumeToken token;
  if (const unsigned format = in.byte(); format != kVersion) {
    throw VersionMismatch("cannot read this resume token",
                          "its version is " + std::to_string(format),
                          "this library reads version " + std::to_string(kVersion));
  }
  const unsigned kind = in.byte();
  const unsigned flags = in.byte();
  if (kind > static_cast<unsigned>(SamplerKind::kMixture) || (flags & 3) == 3 || flags > 0x7f) {
    throw_damaged("it names an order that does not exist");
  }
  token.order.sampler = static_cast<SamplerKind>(kind);
  token.order.tail = static_cast<Tail>(flags & 3);
  token.order.shuffle = (flags & (1U << 2)) != 0;
  token.order.shufflefirst = (flags & (1U << 3)) != 0;
  token.order.balance_bytes = (flags & (1U << 4)) != 0;
  token.order.resample = (flags & (1U << 5)) != 0 ? ResampleUnit::kShard : ResampleUnit::kSample;
  token.fingerprint = in.hash();
  for (std::uint64_t* value :
       {&token.order.order_version, &token.order.num_samples, &token.order.seed,
        &token.order.chunk_size, &token.order.window, &token.order.streams, &token.order.epoch_size,
        &token.order.world_size, &token.order.layout, &token.epoch, &token.slots}) {
    *value = in.varint();
  }
  std::uint64_t sample = 0;
  for (std::uint64_t left = in.varint(); left > 0; --left) {
    sample += in.varint();
    token.skip.add_sample(sample);
  }
  for (std::uint64_t left = in.varint(); left > 0; --left) {
    const std::uint64_t epoch = in.varint();
    const std::uint64_t begin = in.varint();
    const std::uint64_t length = in.varint();
    if (length > std::numeric_limits<std::uint64_t>::max() - begin) {
      throw_damaged("a number in it is too large");
    }
    token.skip.add_slots(epoch, begin, begin + length);
  }
  if ((flags & kAuditBit) != 0) {
    AuditSum sum;
    sum.count = in.varint();
    sum.hashes = in.hash();
    sum.numbers = in.hash();
    token.audit = sum;
  }
  if (!in.at_end()) throw_damaged("it goes on after its end");
  return token;
}

void ResumeToken::require(const OrderSpec& here, Hash128 fingerprint_here) const {
  std::string text;
  if (fingerprint != fingerprint_here) {
    text =
        "data set " + to_string(fingerprint) + " there, " + to_string(fingerprint_here) + " here";
  }
  const std::string order_text = difference(order, here);
  if (!text.empty() && !order_text.empty()) text += ", ";
  text += order_text;
  if (text.empty()) return;
  throw Mismatch("cannot resume from this token", text,
                 "go on with the data set and the order of the run that made it, or start anew");
}

}  // namespace shardwise
