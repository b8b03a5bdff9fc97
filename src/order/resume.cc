#include "shardwise/order/resume.h"

#include "order/algorithms.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>
#include <variant>

#include "base/ascii.h"
#include "base/bytes.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/text.h"
#include "order/deal.h"
#include "order/epoch_order.h"
#include "order/fields.h"
#include "order/mixture_slots.h"
#include "order/permutation.h"
#include "order/resampled_slots.h"
#include "order/spec.h"
#include "order/wids_sampler.h"

namespace shardwise {

constexpr auto fields(std::type_identity<ResumeToken::OrderSpec> /*of*/) {
  using detail::field;
  return std::tuple{field("versions", &ResumeToken::OrderSpec::versions),
                    field("num_samples", &ResumeToken::OrderSpec::num_samples),
                    field("layout", &ResumeToken::OrderSpec::layout),
                    field("world_size", &ResumeToken::OrderSpec::world_size),
                    field("order", &ResumeToken::OrderSpec::order)};
}

namespace {

using detail::Choice;
using detail::HasFields;
using detail::shown;
using detail::visit_fields;

/// The prefixes of the versions from kVersion on.
constexpr std::array<std::string_view, 3> kPrefixes = {"sw2.", "sw3.", "sw4."};
static_assert(kPrefixes.size() == ResumeToken::kScheduleVersion - ResumeToken::kVersion + 1);
constexpr const char* kPrefixesText = "\"sw2.\", \"sw3.\" or \"sw4.\"";
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

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
  throw InvalidArgument("the text is not a resume token", why,
                        std::string("copy the whole token, which begins with ") + kPrefixesText);
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned num_bits = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) throw_damaged("a character that tokens do not use");
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes += static_cast<char>((bits >> num_bits) & 0xff);
    }
  }
  // Refuse unused bits that are not 0; otherwise several texts would decode to the same token.
  const std::uint32_t left = bits & ((1U << num_bits) - 1);
  if (num_bits == 6 || left != 0) throw_damaged("the last character is wrong");
  return bytes;
}

class Writer {
 public:
  /// @param version  format of the token.
  explicit Writer(unsigned version) : version_(version) { byte(version); }

  bool has_schedules() const { return version_ >= ResumeToken::kScheduleVersion; }
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
  void string(std::string_view text) {
    varint(text.size());
    bytes_ += text;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  unsigned version_;
  std::string bytes_;
};

/// Reads the output of Writer. Every read is checked against the end of the bytes.
class Reader {
 public:
  /// @param version  format of the token.
  Reader(std::string_view bytes, unsigned version) : version_(version), bytes_(bytes) {}

  bool has_schedules() const { return version_ >= ResumeToken::kScheduleVersion; }
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
      if (shift == 63 && part > 1) throw_damaged("a number is too large");
      value |= (part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
  }
  std::string string() {
    const std::uint64_t size = count();
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  /// Reads the number of items that follow, each of at least one byte.
  std::uint64_t count() {
    const std::uint64_t number = varint();
    need(number);
    return number;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  void need(std::uint64_t size) const {
    if (size > bytes_.size()) throw_damaged("the text ends too early");
  }
  unsigned version_;
  std::string_view bytes_;
};

// put() and take() write and read a value by its type. A type with fields() is written as its
// fields, one after another.

void put(Writer& out, std::uint64_t value) { out.varint(value); }
void put(Writer& out, bool value) { out.varint(value ? 1 : 0); }
template <Choice Enum>
void put(Writer& out, Enum value) {
  out.varint(static_cast<std::uint64_t>(value));
}
void put(Writer& /*out*/, const SkipList& /*skip*/) {}  // see put_skip()
void put(Writer& out, const std::string& value) { out.string(value); }
void put(Writer& out, double value) { out.fixed(std::bit_cast<std::uint64_t>(value)); }
void put(Writer& out, const std::array<unsigned, kNumAlgorithms>& versions) {
  for (const unsigned version : versions) out.varint(version);
}
template <HasFields Owner>
void put(Writer& out, const Owner& owner);
template <class... Kinds>
void put(Writer& out, const std::variant<Kinds...>& kind) {
  out.varint(kind.index());
  std::visit([&](const auto& chosen) { put(out, chosen); }, kind);
}
template <class Item>
void put(Writer& out, const std::vector<Item>& items) {
  if (std::is_same_v<Item, Mixture::Change> && !out.has_schedules()) return;
  out.varint(items.size());
  for (const Item& item : items) put(out, item);
}
template <HasFields Owner>
void put(Writer& out, const Owner& owner) {
  visit_fields<Owner>([&](const auto& field) { put(out, owner.*field.member); });
}

[[noreturn]] void throw_no_order() { throw_damaged("the token names an unknown order"); }

/// Reads a number, which must be below `end`.
std::uint64_t take_below(Reader& in, std::uint64_t end) {
  const std::uint64_t value = in.varint();
  if (value >= end) throw_no_order();
  return value;
}

void take(Reader& in, std::uint64_t& value) { value = in.varint(); }
void take(Reader& in, bool& value) { value = take_below(in, 2) == 1; }
template <Choice Enum>
void take(Reader& in, Enum& value) {
  value = static_cast<Enum>(take_below(in, choices(std::type_identity<Enum>{}).size()));
}
void take(Reader& /*in*/, SkipList& /*skip*/) {}  // see take_skip()
void take(Reader& in, std::string& value) { value = in.string(); }
void take(Reader& in, double& value) { value = std::bit_cast<double>(in.fixed()); }
void take(Reader& in, std::array<unsigned, kNumAlgorithms>& versions) {
  for (unsigned& version : versions) {
    version = static_cast<unsigned>(take_below(in, std::uint64_t{1} << 31));
  }
}
template <HasFields Owner>
void take(Reader& in, Owner& owner);
template <class... Kinds>
void take(Reader& in, std::variant<Kinds...>& kind) {
  const std::uint64_t chosen = take_below(in, sizeof...(Kinds));
  std::uint64_t number = 0;
  const auto take_if = [&]<class Kind>(std::type_identity<Kind>) {
    if (number++ != chosen) return;
    take(in, kind.template emplace<Kind>());
  };
  (take_if(std::type_identity<Kinds>{}), ...);
}
template <class Item>
void take(Reader& in, std::vector<Item>& items) {
  if (std::is_same_v<Item, Mixture::Change> && !in.has_schedules()) return;
  items.resize(in.count());
  for (Item& item : items) take(in, item);
}
template <HasFields Owner>
void take(Reader& in, Owner& owner) {
  visit_fields<Owner>([&](const auto& field) { take(in, owner.*field.member); });
}

// Comparison: texts that describe differences.

std::string shown(const std::string& value) { return in_quotes(value); }

class Comparison {
 public:
  template <class Owner>
  void compare(const Owner& there, const Owner& here) {
    visit_fields<Owner>([&](const auto& field) {
      compare_field(field.text.key.empty() ? spelled(spelling_of(field)) : std::string(field.key()),
                    there.*field.member, here.*field.member);
    });
  }
  void say(std::string_view what) {
    if (!text_.empty()) text_ += ", ";
    text_ += what;
  }
  void say_both(std::string_view name, std::string_view there, std::string_view here) {
    say(std::string(name) + " " + std::string(there) + " in the token, " + std::string(here) +
        " in this run");
  }
  const std::string& text() const { return text_; }

 private:
  template <class Value>
  void compare_field(std::string_view name, const Value& there, const Value& here) {
    if (there == here) return;
    say_both(name, shown(there), shown(here));
  }
  void compare_field(std::string_view /*name*/, const SkipList& /*there*/,
                     const SkipList& /*here*/) {}  // the skip list of a spec is empty
  void compare_field(std::string_view name, const OrderKind& there, const OrderKind& here) {
    if (there.index() != here.index()) {
      return say_both(name, name_of(there), name_of(here));
    }
    std::visit(
        [&](const auto& kind) { compare(kind, std::get<std::decay_t<decltype(kind)>>(here)); },
        there);
  }
  void compare_field(std::string_view /*name*/, const std::vector<Mixture::Part>& there,
                     const std::vector<Mixture::Part>& here) {
    if (there != here) say("data sets or weights differ");
  }
  void compare_field(std::string_view /*name*/, const std::vector<Mixture::Change>& there,
                     const std::vector<Mixture::Change>& here) {
    if (there != here) say("schedules of weights differ");
  }

  std::string text_;
};

void put_stage(Writer& out, const Hash128& fingerprint, const ResumeToken::OrderSpec& spec) {
  out.fixed(fingerprint);
  put(out, spec);
}

void put_skip(Writer& out, const SkipList& skip) {
  out.varint(skip.samples().size());
  std::uint64_t before = 0;
  for (const auto& [sample, entry] : skip.samples()) {
    out.varint(sample - before);
    before = sample;
    out.varint(entry.from.epoch);
    out.varint(entry.from.position);
    out.string(entry.reason);
  }
  out.varint(skip.ranges().size());
  for (const auto& [begin, end] : skip.ranges()) {
    out.varint(begin.first);
    out.varint(begin.second);
    out.varint(end - begin.second);
  }
}

SkipList take_skip(Reader& in) {
  SkipList skip;
  std::uint64_t sample = 0;
  for (std::uint64_t left = in.count(); left > 0; --left) {
    sample += in.varint();
    const std::uint64_t epoch = in.varint();
    const std::uint64_t position = in.varint();
    skip.add_sample(sample, in.string(), {epoch, position});
  }
  for (std::uint64_t left = in.count(); left > 0; --left) {
    const std::uint64_t epoch = in.varint();
    const std::uint64_t begin = in.varint();
    const std::uint64_t length = in.varint();
    if (length > std::numeric_limits<std::uint64_t>::max() - begin) {
      throw_damaged("a number is too large");
    }
    skip.add_positions(epoch, begin, begin + length);
  }
  return skip;
}

bool has_schedule(const ResumeToken::OrderSpec& spec) {
  const auto* const mixture = std::get_if<Mixture>(&spec.order.kind);
  return mixture != nullptr && !mixture->schedule.empty();
}

/// Returns the version of the format in which the token is written: the lowest version that can
/// represent the whole token.
unsigned version_for(const ResumeToken& token) {
  const bool has_schedules =
      has_schedule(token.spec) ||
      std::ranges::any_of(token.history, has_schedule, &ResumeToken::Stage::spec);
  if (has_schedules) return ResumeToken::kScheduleVersion;
  return token.batches ? ResumeToken::kBatchesVersion : ResumeToken::kVersion;
}

/// Returns the prefix of a token, e.g. "sw2.", or an empty text if `text` does not begin with such
/// a prefix.
std::string_view version_of(std::string_view text) {
  const std::string_view version = text.substr(0, text.find('.') + 1);
  const bool is_one = version.size() > 3 && version.starts_with("sw") &&
                      std::all_of(version.begin() + 2, version.end() - 1,
                                  [](char c) { return c >= '0' && c <= '9'; });
  return is_one ? version : std::string_view();
}

}  // namespace

namespace detail {

std::string_view algorithm_name(Algorithm algorithm) noexcept {
  constexpr std::array<std::string_view, kNumAlgorithms> kNames = {
      "permutation", "epoch order", "balance", "mixture", "resampled", "wids", "skip"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

unsigned algorithm_version(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kPermutation:
      return Permutation::kVersion;
    case Algorithm::kEpochOrder:
      return EpochOrder::kVersion;
    case Algorithm::kBalance:
      return Dealer::kVersion;
    case Algorithm::kMixture:
      return MixtureSlots::kVersion;
    case Algorithm::kResampled:
      return ResampledSlots::kVersion;
    case Algorithm::kWids:
      return WidsSampler::kVersion;
    case Algorithm::kSkip:
      return SkipList::kVersion;
  }
  return 0;
}

}  // namespace detail

std::string difference(const ResumeToken::OrderSpec& there, const ResumeToken::OrderSpec& here) {
  Comparison comparison;
  comparison.compare(there.order, here.order);
  if (there.num_samples != here.num_samples) {
    comparison.say_both("num_samples", shown(there.num_samples), shown(here.num_samples));
  }
  if (there.order.kind.index() != here.order.kind.index()) return comparison.text();
  if (there.world_size != here.world_size) {
    comparison.say_both(spelled("world_size"), shown(there.world_size), shown(here.world_size));
  }
  if (there.layout != here.layout) {
    const bool is_weighted = std::holds_alternative<Resampled>(here.order.kind) &&
                             !std::get<Resampled>(here.order.kind).weights.empty();
    comparison.say(is_weighted ? "weights differ" : "shard lengths differ");
  }
  return comparison.text();
}

std::string ResumeToken::to_text() const {
  const unsigned version = version_for(*this);
  Writer out(version);
  put_stage(out, fingerprint, spec);
  out.varint(epoch);
  out.varint(position);
  put_skip(out, skip);
  out.varint(audit ? 1 : 0);
  if (audit) {
    out.varint(audit->count);
    out.fixed(audit->hashes);
    out.fixed(audit->numbers);
  }
  out.varint(history.size());
  for (const Stage& stage : history) {
    out.varint(stage.end_epoch);
    put_stage(out, stage.fingerprint, stage.spec);
  }
  if (version == kScheduleVersion) out.varint(batches ? 1 : 0);
  if (batches) {
    out.string(batches->rule);
    out.varint(batches->delivered);
  }
  const std::uint64_t checksum = hash64(out.bytes());
  out.fixed(checksum);
  return std::string(kPrefixes[version - kVersion]) + base64(out.bytes());
}

ResumeToken ResumeToken::from_text(std::string_view text) {
  text = trimmed(text);
  const std::string_view version = version_of(text);
  if (version.empty()) throw_damaged("the beginning is wrong");
  const auto* const known = std::ranges::find(kPrefixes, version);
  if (known == kPrefixes.end()) {
    throw VersionMismatch(
        "cannot read this resume token", "the token begins with " + in_quotes(version),
        std::string("resume with the Shardwise version that wrote the token, or start the epoch "
                    "again; this version reads tokens that begin with ") +
            kPrefixesText);
  }
  const unsigned expected = kVersion + static_cast<unsigned>(known - kPrefixes.begin());
  const std::string bytes = from_base64(text.substr(version.size()));
  if (bytes.size() < 8) throw_damaged("the text ends too early");
  const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - 8);
  if (hash64(body) != load_le64(bytes.data() + body.size())) throw_damaged("the checksum is wrong");
  Reader in(body, expected);
  ResumeToken token;
  if (const unsigned format = in.byte(); format != expected) {
    throw VersionMismatch(
        "cannot read this resume token",
        "version " + std::to_string(format) + " after " + in_quotes(version) + " instead of " +
            std::to_string(expected),
        "resume with the Shardwise version that wrote the token, or start the epoch again");
  }
  token.fingerprint = in.hash();
  take(in, token.spec);
  token.epoch = in.varint();
  token.position = in.varint();
  token.skip = take_skip(in);
  if (take_below(in, 2) == 1) {
    EpochAudit::Sum sum;
    sum.count = in.varint();
    sum.hashes = in.hash();
    sum.numbers = in.hash();
    token.audit = sum;
  }
  token.history.resize(in.count());
  for (Stage& stage : token.history) {
    stage.end_epoch = in.varint();
    stage.fingerprint = in.hash();
    take(in, stage.spec);
  }
  if (expected == kBatchesVersion || (expected == kScheduleVersion && take_below(in, 2) == 1)) {
    Batches window;
    window.rule = in.string();
    window.delivered = in.varint();
    token.batches = std::move(window);
  }
  if (!in.at_end()) throw_damaged("bytes follow the end");
  return token;
}

std::vector<ResumeToken::Progress> ResumeToken::progress() const {
  return detail::progress_of(spec, {epoch, position});
}

void ResumeToken::require(const ResumeToken::OrderSpec& here,
                          const Hash128& fingerprint_here) const {
  std::string text;
  if (fingerprint != fingerprint_here) {
    text = "data set " + to_string(fingerprint) + " in the token, " + to_string(fingerprint_here) +
           " in this run";
  }
  const std::string order_text = difference(spec, here);
  if (!text.empty() && !order_text.empty()) text += ", ";
  text += order_text;
  if (!text.empty()) {
    throw Mismatch("cannot resume this run from the token", text,
                   "resume with the data set and the order of the token's run, or start a new run");
  }
  for (std::size_t i = 0; i < kNumAlgorithms; ++i) {
    if (spec.versions[i] == here.versions[i]) continue;
    throw VersionMismatch("cannot resume this run from the token",
                          "version " + std::to_string(spec.versions[i]) + " of the " +
                              std::string(algorithm_name(static_cast<Algorithm>(i))) +
                              " algorithm in the token, " + std::to_string(here.versions[i]) +
                              " in this run",
                          "finish the epoch with the Shardwise version that wrote the token");
  }
}

}  // namespace shardwise
