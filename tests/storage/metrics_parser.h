#pragma once

#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

namespace shardwise::test {

/// A strict parser of Prometheus' text format, version 0.0.4, for counters and gauges without
/// timestamps. Throws for text that Prometheus would reject or only tolerate.
class MetricsText {
 public:
  using Labels = std::map<std::string, std::string>;

  explicit MetricsText(std::string_view text) {
    require(text.empty() || text.back() == '\n', "the last line has no line feed");
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      read_line(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    for (const auto& [name, type] : types_) {
      require(samples_with_.contains(name), "a family without a sample: " + name);
      require(helps_.contains(name), "a family without help: " + name);
      require((type == "counter") == name.ends_with("_total"),
              "counters, and only they, end in _total: " + name);
    }
  }

  /// The value of a family that has one sample.
  double value(const std::string& name) const { return values_.at(name).begin()->second; }
  const Labels& labels(const std::string& name) const { return values_.at(name).begin()->first; }
  std::size_t size() const { return values_.size(); }
  const std::string& type(const std::string& name) const { return types_.at(name); }

 private:
  static void require(bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
  }
  static std::string take_name(std::string_view& rest, bool is_label) {
    std::size_t size = 0;
    const auto fits = [&](char c) {
      const bool is_letter = std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
      const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
      return is_letter || (c == ':' && !is_label) || (is_digit && size > 0);
    };
    while (size < rest.size() && fits(rest[size])) ++size;
    require(size > 0, "no name at '" + std::string(rest) + "'");
    const std::string name(rest.substr(0, size));
    rest.remove_prefix(size);
    return name;
  }
  static void take(std::string_view& rest, std::string_view what) {
    require(rest.starts_with(what),
            "no '" + std::string(what) + "' at '" + std::string(rest) + "'");
    rest.remove_prefix(what.size());
  }
  static std::string take_value(std::string_view& rest) {
    std::string value;
    take(rest, "\"");
    for (;;) {
      require(!rest.empty(), "a label's value has no end");
      const char c = rest.front();
      rest.remove_prefix(1);
      if (c == '"') return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      require(!rest.empty() && (rest[0] == '\\' || rest[0] == '"' || rest[0] == 'n'),
              "an escape that the format does not have");
      value += rest[0] == 'n' ? '\n' : rest[0];
      rest.remove_prefix(1);
    }
  }

  void read_line(std::string_view line) {
    if (line.starts_with("# HELP ")) {
      line.remove_prefix(7);
      const std::string name = take_name(line, false);
      take(line, " ");
      require(!line.empty() && line.find('\\') == std::string_view::npos, "help of " + name);
      require(helps_.insert(name).second, "two helps of " + name);
      return;
    }
    if (line.starts_with("# TYPE ")) {
      line.remove_prefix(7);
      const std::string name = take_name(line, false);
      take(line, " ");
      require(line == "counter" || line == "gauge", "type of " + name);
      require(!samples_with_.contains(name), "the type comes after a sample of " + name);
      require(types_.emplace(name, line).second, "two types of " + name);
      return;
    }
    require(!line.starts_with('#'), "a comment");
    read_sample(line);
  }

  void read_sample(std::string_view line) {
    const std::string name = take_name(line, false);
    require(types_.contains(name), "a sample before its type: " + name);
    require(last_ == name || !samples_with_.contains(name), "a family in two places: " + name);
    Labels labels;
    if (line.starts_with('{')) {
      take(line, "{");
      for (bool is_first = true; !line.starts_with('}'); is_first = false) {
        if (!is_first) take(line, ",");
        const std::string label = take_name(line, true);
        take(line, "=");
        require(labels.emplace(label, take_value(line)).second, "two labels " + label);
      }
      take(line, "}");
    }
    take(line, " ");
    double value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    require(error == std::errc() && end == line.data() + line.size(),
            "not a number: '" + std::string(line) + "'");
    require(values_[name].emplace(labels, value).second, "two samples alike: " + name);
    samples_with_.insert(name);
    last_ = name;
  }

  std::set<std::string> helps_, samples_with_;
  std::map<std::string, std::string> types_;
  std::map<std::string, std::map<Labels, double>> values_;
  std::string last_;
};

}  // namespace shardwise::test
