#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/sample.h"
#include "shardwise/loader/batch.h"
#include "shardwise/loader/image_transform.h"

namespace shardwise {

namespace detail {
class ColumnMaker;
class RowBuffer;
}  // namespace detail

/// Describes one array of a Loader's batches, and how each sample's row is made. The functions of
/// namespace columns make Column objects.
///
/// Fields are named as in the data set. Several names with semicolons, e.g. "jpg;png", mean the
/// first of these fields that a sample has. Blanks around a name are ignored. The column has the
/// name of the first field, unless named() changes it.
///
/// Threads: immutable; safe from any thread.
/// Cost: cheap to copy.
class SHARDWISE_EXPORT Column {
 public:
  /// Where a clip begins in a video or sound, or in a time range of it. A random start depends only
  /// on seed, epoch and sample, and is uniformly distributed. docs/formats/transforms.md specifies
  /// it.
  enum class ClipStart : std::uint8_t { kFirst, kCentre, kRandom };
  struct VideoClip;  ///< see media_columns.h
  struct AudioClip;

  /// For the loader, and for columns of other libraries of this project.
  Column(std::string name, std::shared_ptr<const detail::ColumnMaker> maker)
      : name_(std::move(name)), maker_(std::move(maker)) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Returns the same column under another name.
  [[nodiscard]] Column named(std::string name) const { return {std::move(name), maker_}; }
  [[nodiscard]] const std::shared_ptr<const detail::ColumnMaker>& maker() const noexcept {
    return maker_;
  }

 private:
  std::string name_;
  std::shared_ptr<const detail::ColumnMaker> maker_;
};

/// Options for decoding images.
struct ImageDecoding {
  /// Largest image in pixels. Larger images are refused before memory is allocated (2^28 pixels
  /// take 768 MiB, or 1,536 MiB with 16 bits). The limit also applies to the result of a transform
  /// if its size depends on the image. Sides above 2^20 pixels are always refused.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
  /// Refuse images with damaged codes or without an end marker. Without this option they are
  /// accepted, like in Pillow. 16-bit images are scaled to 8 bits with and without it; see
  /// ImageTransform::Type::kUint16.
  bool strict = false;
  /// Rotate the image by the orientation in its Exif data, or else its XMP data, like Pillow's
  /// exif_transpose.
  bool apply_orientation = false;
  /// When to decode JPEGs at 1/2, 1/4 or 1/8 of their size because a transform shrinks them. This
  /// is faster, and gives slightly different pixels.
  enum class Scaling : std::uint8_t {
    kExact,       ///< never
    kNotSmaller,  ///< only while the decoded image is not smaller than the result
    kFast         ///< down to 3/4 of the result's size, which is then a little less sharp
  };
  Scaling scaling = Scaling::kExact;
};

/// The columns that a Loader can make. Each function states type and shape of its column's array.
///
/// Errors, when a sample is loaded: NotFound if there is no such field. BadField if its bytes are
/// not what the column expects. See Loader::Options::max_bad.
///
/// The fields of text(), json(), integer(), number(), tokens() and array() may have a JSON path,
/// e.g. "json:$.caption" or "json;json.gz:$.size[0]". It has SQLite's syntax, and applies to each
/// of the fields. The value is the one that a metadata column of the index with the same path has.
/// The column is named after the last key of the path.
///
/// A value is missing if the sample lacks the field, or if the path leads to nothing or to null.
/// The sample is then bad (NotFound), unless `missing` gives the value of its row.
///
/// Compressed fields have names that end in .gz, .zst, .xz, .bz2 or .lz4, e.g. "json.gz". All
/// columns except bytes() expand them and check their checksums; bytes() returns them unchanged. A
/// compressed field is a BadField if it is truncated, damaged, or not compressed as its name says.
/// It is also a BadField if it:
/// - expands to more than Loader::Options::max_expanded_bytes,
/// - expands to more than 64 MiB and to more than 1,100 times its size, or
/// - needs a window of more than 128 MiB.
///
/// Pickles (.pt, .pth, .pkl, .pickle) can run code when they are read. Only bytes() accepts fields
/// of such names. All other functions throw InvalidArgument.
namespace columns {

/// The bytes of a field: uint8, ragged.
SHARDWISE_EXPORT Column bytes(const std::string& fields);
/// Text in UTF-8: uint8, ragged. At a JSON path, the value must be a string, an object or an array.
/// Objects and arrays become JSON text without blanks.
SHARDWISE_EXPORT Column text(const std::string& fields, std::optional<std::string> missing = {});
/// Like text(), but the text must be one JSON value of any kind. A whole field is kept as written;
/// a value at a JSON path loses its blanks.
/// Errors: InvalidArgument if `missing` is not JSON.
SHARDWISE_EXPORT Column json(const std::string& fields, std::optional<std::string> missing = {});
/// A field that is an array of little-endian integers without a header, e.g. token ids written by
/// numpy.tofile(): ragged. If its size is not a multiple of the integer's size, it is a BadField.
/// At a JSON path: an array of integers.
/// @param dtype  kUInt16, kInt32, kUInt32 or kInt64. The field itself does not state it.
/// Errors: InvalidArgument for another type.
SHARDWISE_EXPORT Column tokens(const std::string& fields, DType dtype = DType::kInt32);
/// An integer in decimal digits: int64 [N]. At a JSON path, true is 1 and false is 0.
SHARDWISE_EXPORT Column integer(const std::string& fields,
                                std::optional<std::int64_t> missing = {});
/// An integer or a decimal number: float64 [N]. Integers are rounded to the nearest double.
SHARDWISE_EXPORT Column number(const std::string& fields, std::optional<double> missing = {});

/// The types of values in metadata columns: integers, numbers and texts.
template <class T>
concept MetadataType =
    std::same_as<T, std::int64_t> || std::same_as<T, double> || std::same_as<T, std::string>;
/// The samples' values in a metadata column of the index, with the array of integer(), number() or
/// text(). No shard is read for it. The value of a sample is missing if it is null.
///
///     columns::metadata("width"), columns::metadata<double>("score", 0.0)
///
/// Errors: a Loader throws NotFound if the index has no such column, and Unsupported if there is no
///   index.
template <MetadataType T = std::int64_t>
SHARDWISE_EXPORT Column metadata(const std::string& column,
                                 std::optional<std::type_identity_t<T>> missing = {});
extern template Column metadata<std::int64_t>(const std::string&, std::optional<std::int64_t>);
extern template Column metadata<double>(const std::string&, std::optional<double>);
extern template Column metadata<std::string>(const std::string&, std::optional<std::string>);
/// The keys of the samples: uint8, ragged.
SHARDWISE_EXPORT Column key(const std::string& name = "__key__");
/// A field that is a NumPy .npy file; decode_npy() lists the supported types. With a `shape` the
/// result is [N, ...], otherwise it is ragged. At a JSON path: nested arrays of numbers, without
/// bool, float16, bfloat16 and complex types.
/// @param dtype  the type of every array; an array of another type is a BadField.
/// @param shape  the shape of every array; an array of another shape is a BadField.
SHARDWISE_EXPORT Column array(const std::string& fields, DType dtype,
                              std::vector<std::int64_t> shape = {});
/// One array of a field that is a NumPy .npz file, as written by numpy.savez() and
/// savez_compressed(). The column has the array's name. Otherwise like array().
/// @param array  the name under which the array was saved, e.g. "tokens". A file without this array
///   is a BadField whose text lists the file's arrays.
/// Cost: copies or inflates the array, up to Loader::Options::max_expanded_bytes.
SHARDWISE_EXPORT Column npz(const std::string& fields, const std::string& array, DType dtype,
                            std::vector<std::int64_t> shape = {});

/// An image: [N, 3, H, W] or [N, H, W, 3], of the transform's type. Unless the transform gives all
/// images one size, the images of a batch must have equal sizes.
/// @param fields  empty means the sample's only field with the name of an image format. A sample
///   with several such fields is a BadField.
/// Cost: only the part of an image that the transform needs is decoded.
/// Errors: InvalidArgument if the transform is impossible.
SHARDWISE_EXPORT Column image(const std::string& fields, const ImageTransform& transform = {},
                              const ImageDecoding& decoding = {});

/// The memory of one row, which a function fills.
class SHARDWISE_EXPORT Row {
 public:
  /// The row's memory. In a ragged column it is empty until resize() is called. If resize() is
  /// never called, the row is empty.
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return bytes_; }
  /// The row's memory as values of T, which must fit the column's type, see Batch::Array::values().
  /// Errors: InvalidArgument for another type.
  template <class T>
  [[nodiscard]] std::span<T> values() {
    detail::require_type(dtype_, {}, sizeof(T), alignof(T), detail::kind_of_number<T>);
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  /// For a ragged column: sets the row's shape, and returns uninitialised memory for it. Call it
  /// once per row. Errors: InvalidArgument if the column is not ragged.
  std::span<std::byte> resize(std::span<const std::int64_t> shape);
  std::span<std::byte> resize(std::int64_t size) { return resize(std::span(&size, 1)); }

 private:
  friend class detail::RowBuffer;
  Row(std::span<std::byte> bytes, detail::RowBuffer* ragged, DType dtype)
      : bytes_(bytes), ragged_(ragged), dtype_(dtype) {}

  std::span<std::byte> bytes_;
  detail::RowBuffer* ragged_;
  DType dtype_;
};

/// Writes the row of a sample. `random` is a key for random numbers. It depends only on seed, epoch
/// and sample, not on thread, batch or rank.
/// Threads: called by several threads at once.
/// Errors: Loader::next() throws what the function throws. Throw BadField for a bad sample; the
///   loader may leave it out (Loader::Options::max_bad). The loader adds column and sample to the
///   texts of BadField and InvalidArgument.
using MakeRow = std::function<void(const Sample& sample, const Hash128& random, Row& row)>;
/// A column of shape [N, ...]; every row has `shape`.
SHARDWISE_EXPORT Column function(const std::string& name, DType dtype,
                                 std::vector<std::int64_t> shape, MakeRow make);
/// A ragged column.
SHARDWISE_EXPORT Column ragged_function(const std::string& name, DType dtype, MakeRow make);

/// A custom decoder: writes the row for the bytes of a field. `bytes` are expanded if the field is
/// compressed, and valid during the call. `random` is as in MakeRow. Parts of the row that the
/// decoder does not write are undefined.
/// Threads: called by several threads at once.
/// Errors: BadField, and any std::exception that is neither an Error of Shardwise nor
///   std::bad_alloc, mean that the bytes are bad. Then the sample is left out, or next() throws a
///   BadField with field, sample and the exception's text. next() always throws other errors of
///   Shardwise, e.g. InvalidArgument, and std::bad_alloc. Field and sample are added to the text of
///   InvalidArgument.
using DecodeField = std::function<void(std::string_view bytes, const Hash128& random, Row& row)>;
/// A column of shape [N, ...]; every row has `shape`.
SHARDWISE_EXPORT Column decoded(const std::string& fields, DType dtype,
                                std::vector<std::int64_t> shape, DecodeField decode);
/// A ragged column.
SHARDWISE_EXPORT Column ragged_decoded(const std::string& fields, DType dtype, DecodeField decode);

/// The columns that decode all fields of a sample, by the kinds that their names state. Kinds are
/// image(), integer(), text(), json(), bytes(), and array() with the type of the sample's array.
/// libtorch/decode.h lists the names of each kind. A compressed field has the kind of its name
/// without the ending.
/// Errors: BadField if an array's header is damaged.
SHARDWISE_EXPORT std::vector<Column> of_fields(const Sample& sample);

/// Decodes one sample outside of an epoch: a batch of one row. Random steps give the same result as
/// in a Loader whose order has this `seed`, in this `epoch`, if that order delivers each sample
/// once per epoch.
/// Threads: safe concurrently.
/// Errors: those of the columns.
SHARDWISE_EXPORT Batch decode(const Sample& sample, const std::vector<Column>& columns,
                              std::uint64_t seed = 0, std::uint64_t epoch = 0);
/// Decodes all fields by their kinds: the columns of of_fields().
SHARDWISE_EXPORT Batch decode(const Sample& sample);

}  // namespace columns

}  // namespace shardwise
