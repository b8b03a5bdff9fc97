#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "loaded_epoch.h"
#include "options.h"
#include "shardwise/base/error.h"
#include "skip_file.h"

namespace shardwise::tools {
namespace {

/// Whether `text` has the form "224x224".
bool is_image_size(const std::string& text) {
  const std::size_t x = text.find('x');
  if (x == std::string::npos) return false;
  const auto is_side = [](const std::string& side) {
    return !side.empty() && side.size() <= 5 && side.front() != '0' &&
           side.find_first_not_of("0123456789") == std::string::npos;
  };
  return is_side(text.substr(0, x)) && is_side(text.substr(x + 1));
}

/// Throws unless `path` can be written and is new, empty, or a file from an earlier run, which
/// begins with `begin`.
void require_own_file(const char* option, const std::string& path, std::string_view begin) {
  if (std::filesystem::is_directory(path)) {
    throw InvalidArgument("the path names a folder, not a file", in_quotes(path),
                          std::string("name a file in the folder with ") + option);
  }
  AtomicFile{path};  // throws if the file cannot be created, or is a device
  std::ifstream file(path, std::ios::binary);
  std::string found(begin.size(), '\0');
  file.read(found.data(), static_cast<std::streamsize>(found.size()));
  found.resize(static_cast<std::size_t>(file.gcount()));
  if (found.empty() || found == begin) return;
  throw InvalidArgument("will not replace a file that this option did not write", in_quotes(path),
                        std::string("name another file with ") + option + ", or remove the file");
}

}  // namespace

void add_decode_options(CLI::App& command, DecodeArguments& arguments) {
  command
      .add_option("--decode", arguments.decode,
                  "fields to decode; none reads the bytes only; rgb decodes each sample's image to "
                  "RGB; auto decodes every field by its name (images, npy, integers; text is "
                  "checked to be UTF-8, and JSON to be valid)")
      ->check(CLI::IsMember({"none", "rgb", "auto"}))
      ->capture_default_str();
  command
      .add_option("--image-field", arguments.image_field,
                  "field with the image, for --decode rgb; 'jpg;png' means the field jpg, or png "
                  "in samples without jpg (default: the only field with the name of an image)")
      ->type_name("FIELD");
  command
      .add_option("--resize", arguments.resize,
                  "resize images to this height and width (default: keep the size of each)")
      ->type_name("HxW");
  command
      .add_option("--crop", arguments.crop,
                  "crop images (default: no crop); random crops a random rectangle before "
                  "resizing, as in training; centre resizes the shorter side to 8/7 of the "
                  "larger side of --resize, then crops the centre")
      ->check(CLI::IsMember({"random", "centre"}));
  command
      .add_option("--trace", arguments.trace,
                  "write a timeline of the last 100,000 events, for chrome://tracing or Perfetto")
      ->type_name("FILE");
  command
      .add_option("--replay", arguments.replay,
                  "load one batch, and deliver this batch N times, to measure the reading loop "
                  "without loading; the epoch is not proven")
      ->transform(kPositiveNumber)
      ->type_name("N");
  command
      .add_option("--max-bad", arguments.max_bad,
                  "maximum number of bad samples to leave out and list at the end; more bad "
                  "samples are an error (default: 0, or no limit with --bad-list)")
      ->transform(kWholeNumber)
      ->type_name("N");
  command
      .add_option("--bad-list", arguments.bad_list,
                  "write the bad samples and the reasons to this file, in the format of --skip")
      ->type_name("FILE");
}

void check_decode_options(const DecodeArguments& arguments) {
  const bool resizes = !arguments.resize.empty();
  const std::pair<const char*, bool> needing[] = {{"--resize", resizes},
                                                  {"--crop", !arguments.crop.empty()},
                                                  {"--trace", !arguments.trace.empty()},
                                                  {"--replay", arguments.replay.has_value()},
                                                  {"--max-bad", arguments.max_bad.has_value()},
                                                  {"--bad-list", !arguments.bad_list.empty()}};
  for (const auto& [option, is_given] : needing) {
    if (is_given && !arguments.is_on()) {
      throw_usage(std::string(option) + " needs --decode rgb or --decode auto");
    }
  }
  if (!arguments.image_field.empty() && arguments.decode != "rgb") {
    throw_usage("--image-field needs --decode rgb");
  }
  if (resizes && !is_image_size(arguments.resize)) {
    throw_usage("--resize: expected HEIGHTxWIDTH, each from 1 to 99999, e.g. 224x224; got " +
                in_quotes(arguments.resize));
  }
  if (!arguments.crop.empty() && !resizes) throw_usage("--crop needs --resize HxW");
  const char* const of_an_epoch = !arguments.trace.empty()      ? "--trace"
                                  : arguments.max_bad           ? "--max-bad"
                                  : !arguments.bad_list.empty() ? "--bad-list"
                                                                : nullptr;
  if (of_an_epoch != nullptr && arguments.replay) {
    throw_usage(std::string(of_an_epoch) +
                " cannot be given with --replay, which loads one batch; leave out "
                "--replay");
  }
  // Check it now, not after an epoch.
  if (!arguments.trace.empty()) require_own_file("--trace", arguments.trace, kTraceBegin);
  if (!arguments.bad_list.empty()) {
    require_own_file("--bad-list", arguments.bad_list, kBadListBegin);
  }
}

}  // namespace shardwise::tools
