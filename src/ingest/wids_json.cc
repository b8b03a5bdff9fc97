#include "ingest/wids_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/json.h"
#include "base/text.h"

namespace shardwise::wids_json {
namespace {

using Token = JsonReader::Token;

constexpr std::size_t kMd5Digits = 32;

/// A JSON value that is neither an object nor an array.
struct Scalar {
  enum class Type : unsigned char { kNull, kBoolean, kWhole, kNegative, kReal, kString };
  Type type = Type::kNull;
  std::uint64_t whole = 0;  ///< for kWhole
  double real = 0;          ///< for kWhole, kNegative and kReal
  std::string text = {};    ///< for kString

  std::string_view type_name() const {
    static constexpr std::array<std::string_view, 6> kNames = {
        "null",
        "a boolean",
        "a number",
        "a negative number",
        "a number with a fraction or too big",
        "a string"};
    return kNames[static_cast<std::size_t>(type)];
  }
};

/// The keys of a descriptor. Each may occur at most once in an object.
enum class Key : unsigned char {
  kVersion,
  kName,
  kBase,
  kWeight,
  kShardlist,
  kDatasets,
  kSourceUrl,
  kUrl,
  kSamples,
  kMd5,
  kFileSize,
  kOther
};
constexpr std::array<std::string_view, 11> kKeyNames = {
    "wids_version", "name", "base",     "weight", "shardlist", "datasets",
    "source_url",   "url",  "nsamples", "md5sum", "filesize"};

/// Reads the document token by token; `places_` is the path to the current token. Skips values of
/// unknown keys.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void take(Token token, JsonReader& json) {
    switch (token) {
      case Token::kObject:
      case Token::kArray:
        return open(token == Token::kObject);
      case Token::kEndOfObject:
        if (unread_depth_ == 0) check_complete();
        return close();
      case Token::kEndOfArray:
        return close();
      case Token::kKey:
        return key(json.text());
      default:
        if (unread_depth_ == 0) scalar(scalar_of(token, json));
    }
  }

  Descriptor take_result() { return std::move(descriptor_); }

 private:
  /// An object or array that has been opened and not closed.
  struct Place {
    enum class Kind : unsigned char { kFile, kShardlist, kShard, kDatasets, kDataset };
    Kind kind = Kind::kFile;
    Key key = Key::kOther;  ///< in an object: the last key read
    unsigned seen = 0;      ///< in an object: one bit for each key read so far
  };
  using Kind = Place::Kind;

  static bool has(const Place& place, Key key) {
    return (place.seen >> static_cast<unsigned>(key) & 1) != 0;
  }

  static bool means_something(const Place& place) {
    const bool of_shard = place.key >= Key::kUrl && place.key <= Key::kFileSize;
    return place.key != Key::kOther && of_shard == (place.kind == Kind::kShard);
  }

  Dataset& dataset() {
    return descriptor_.datasets && places_.size() > 1 && places_[1].kind == Kind::kDatasets
               ? descriptor_.datasets->back()
               : descriptor_.own;
  }
  Shard& shard() { return dataset().shards->back(); }

  /// Describes the current place for error texts, e.g. "'d.json',
  /// datasets[1].shardlist[0].nsamples".
  std::string where() {
    std::string path;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      if (place.kind == Kind::kShardlist || place.kind == Kind::kDatasets) {
        const std::size_t begun = place.kind == Kind::kShardlist ? dataset().shards->size()
                                                                 : descriptor_.datasets->size();
        const bool in_entry = i + 1 < places_.size();
        path += "[" + std::to_string(begun - (in_entry ? 1 : 0)) + "]";
      } else if (place.key != Key::kOther) {
        if (!path.empty()) path += ".";
        path += kKeyNames[static_cast<std::size_t>(place.key)];
      }
    }
    return in_quotes(file_) + (path.empty() ? "" : ", " + path);
  }

  [[noreturn]] void wrong(std::string_view what, std::string_view remedy) {
    throw InvalidArgument("the descriptor is not valid: " + std::string(what), where(), remedy);
  }
  [[noreturn]] void wrong_type(std::string_view is, std::string_view wanted) {
    wrong(std::string(is) + " where " + std::string(wanted) + " is expected", "correct the value");
  }

  static Scalar scalar_of(Token token, JsonReader& json) {
    if (token == Token::kNull) return {};
    if (token == Token::kString) {
      return {.type = Scalar::Type::kString, .text = std::string(json.text())};
    }
    if (token != Token::kNumber) return {.type = Scalar::Type::kBoolean};
    if (const auto whole = json.whole()) {
      return {.type = Scalar::Type::kWhole, .whole = *whole, .real = static_cast<double>(*whole)};
    }
    const bool is_negative = json.integer().has_value();
    return {.type = is_negative ? Scalar::Type::kNegative : Scalar::Type::kReal,
            .real = json.real()};
  }

  void key(std::string_view name) {
    if (unread_depth_ > 0) return;
    Place& place = places_.back();
    place.key = static_cast<Key>(std::ranges::find(kKeyNames, name) - kKeyNames.begin());
    if (!means_something(place)) place.key = Key::kOther;
    if (place.key == Key::kOther) return;
    if (has(place, place.key)) wrong("a key is repeated", "remove one of the two keys");
    place.seen |= 1U << static_cast<unsigned>(place.key);
  }

  void open(bool object) {
    if (places_.size() + unread_depth_ >= kMaxDepth) {
      throw InvalidArgument("the descriptor is nested too deep", where(),
                            "use at most five levels, as wids does");
    }
    if (unread_depth_ > 0) {
      ++unread_depth_;
      return;
    }
    const std::string_view is = object ? "an object" : "a list";
    if (places_.empty()) {
      if (!object) wrong_type(is, "an object");
      places_.push_back({.kind = Kind::kFile});
      return;
    }
    Place& place = places_.back();
    if (place.kind == Kind::kShardlist || place.kind == Kind::kDatasets) {
      if (!object) wrong_type(is, "an object");
      place.kind == Kind::kShardlist ? begin_shard() : begin_dataset();
    } else if (place.key == Key::kShardlist) {
      if (object) wrong_type(is, "a list of shards");
      dataset().shards.emplace();
      places_.push_back({.kind = Kind::kShardlist});
    } else if (place.key == Key::kDatasets) {
      if (object) wrong_type(is, "a list of data sets");
      if (place.kind == Kind::kDataset)
        wrong("data sets in a data set", "list the data sets side by side");
      descriptor_.datasets.emplace();
      places_.push_back({.kind = Kind::kDatasets});
    } else if (place.key != Key::kOther) {
      wrong_type(is, place.key == Key::kName || place.key == Key::kBase ||
                             place.key == Key::kSourceUrl || place.key == Key::kUrl ||
                             place.key == Key::kMd5
                         ? "a string"
                         : "a number");
    } else {
      unread_depth_ = 1;
    }
  }

  void close() {
    if (unread_depth_ > 0) {
      --unread_depth_;
    } else {
      places_.pop_back();
    }
  }

  void begin_shard() {
    if (++num_shards_ > kMaxShards) wrong("more than 10 million shards", "make larger shards");
    dataset().shards->emplace_back();
    places_.push_back({.kind = Kind::kShard});
  }

  void begin_dataset() {
    if (descriptor_.datasets->size() >= kMaxDatasets) {
      wrong("more than 65,536 data sets", "join some data sets");
    }
    descriptor_.datasets->emplace_back();
    places_.push_back({.kind = Kind::kDataset});
  }

  /// Called at the end of an object. Throws if a required key is missing.
  void check_complete() {
    Place& place = places_.back();
    place.key = Key::kOther;  // the error concerns the object, not a key
    if (place.kind == Kind::kShard) {
      if (!has(place, Key::kUrl))
        wrong("a shard without a url", "add url, the path or URL of the shard");
      if (!has(place, Key::kSamples))
        wrong("a shard without nsamples", "add nsamples, the shard's number of samples");
      return;
    }
    const Dataset& set = dataset();
    if (place.kind == Kind::kFile) {
      if (!has(place, Key::kVersion)) {
        wrong("the file has no wids_version", "check that the path names a wids descriptor");
      }
      if (set.source_url) {
        place.key = Key::kSourceUrl;
        wrong("a source_url outside of datasets", "move the source_url into an entry of datasets");
      }
      if (!set.shards && !descriptor_.datasets) {
        wrong("the file has neither shardlist nor datasets",
              "check that the path names a wids descriptor");
      }
    } else if (set.source_url && set.shards) {
      wrong("a data set with both a shardlist and a source_url",
            "leave out the shardlist or the source_url");
    } else if (!set.source_url && !set.shards) {
      wrong("a data set with neither a shardlist nor a source_url",
            "add a shardlist or a source_url");
    }
  }

  void scalar(Scalar value) {
    if (places_.empty()) wrong_type(value.type_name(), "an object");
    const Place& place = places_.back();
    if (place.kind == Kind::kShardlist || place.kind == Kind::kDatasets) {
      wrong_type(value.type_name(), "an object");
    }
    switch (place.key) {
      case Key::kVersion:
        check_version(value);
        break;
      case Key::kName:
        take_text(std::move(value), dataset().name);
        break;
      case Key::kBase:
        take_text(std::move(value), dataset().base);
        break;
      case Key::kSourceUrl:
        take_text(std::move(value), dataset().source_url);
        break;
      case Key::kWeight:
        take_weight(value);
        break;
      case Key::kShardlist:
        wrong_type(value.type_name(), "a list of shards");
      case Key::kDatasets:
        wrong_type(value.type_name(), "a list of data sets");
      case Key::kUrl:
        if (value.type != Scalar::Type::kString) wrong_type(value.type_name(), "a string");
        shard().url = std::move(value.text);
        break;
      case Key::kSamples:
        shard().num_samples = whole(value);
        break;
      case Key::kFileSize:
        if (value.type != Scalar::Type::kNull) shard().size_bytes = whole(value);
        break;
      case Key::kMd5:
        take_md5(std::move(value));
        break;
      case Key::kOther:
        break;
    }
  }

  void check_version(const Scalar& value) {
    if (value.type == Scalar::Type::kWhole && value.whole == 1) return;
    const std::string version = value.type == Scalar::Type::kWhole ? std::to_string(value.whole)
                                                                   : std::string(value.type_name());
    throw VersionMismatch(
        "the descriptor's wids_version is " + version, where(),
        "use a descriptor of version 1, the only version that Python wids writes");
  }

  void take_text(Scalar value, std::optional<std::string>& into) {
    if (value.type == Scalar::Type::kNull) return;
    if (value.type != Scalar::Type::kString) wrong_type(value.type_name(), "a string");
    into = std::move(value.text);
  }

  void take_weight(const Scalar& value) {
    if (value.type == Scalar::Type::kNull) return;
    if (value.type != Scalar::Type::kWhole && value.type != Scalar::Type::kReal) {
      wrong_type(value.type_name(), "a number from 0 on");
    }
    if (!std::isfinite(value.real) || value.real < 0) {
      wrong_type("a number that is negative or not finite", "a number from 0 on");
    }
    dataset().weight = value.real;
  }

  std::uint64_t whole(const Scalar& value) {
    if (value.type != Scalar::Type::kWhole || value.whole > INT64_MAX) {
      wrong_type(value.type == Scalar::Type::kWhole ? "a number too big" : value.type_name(),
                 "a whole number from 0 on");
    }
    return value.whole;
  }

  void take_md5(Scalar value) {
    if (value.type == Scalar::Type::kNull) return;
    if (value.type != Scalar::Type::kString) wrong_type(value.type_name(), "a string");
    value.text = to_lower(value.text);
    if (value.text.size() != kMd5Digits || !is_hex(value.text)) {
      wrong("an md5sum that is not of 32 hexadecimal digits",
            "correct the md5sum, or leave out md5sum");
    }
    shard().md5 = std::move(value.text);
  }

  const std::string& file_;
  Descriptor descriptor_;
  std::vector<Place> places_;
  std::size_t unread_depth_ = 0;  ///< nesting depth inside a skipped value; 0 if none is skipped
  std::size_t num_shards_ = 0;
};

}  // namespace

Descriptor parse(std::string_view json, const std::string& file) {
  Reader reader(file);
  try {
    JsonReader tokens(json);
    for (Token token = tokens.next(); token != Token::kEnd; token = tokens.next()) {
      reader.take(token, tokens);
    }
  } catch (const JsonFault& fault) {
    throw InvalidArgument("the descriptor is not JSON: " + escaped(fault.what),
                          in_quotes(file) + ", offset " + std::to_string(fault.offset),
                          "check that the file is a complete wids descriptor");
  }
  return reader.take_result();
}

}  // namespace shardwise::wids_json
