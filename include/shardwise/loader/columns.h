#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

/// What a Loader makes of each sample: one array of its batches. Columns are made by the functions
/// of namespace columns.
///
/// A field is named as in the data set, several with semicolons between them stand for the first
/// that a sample has: "jpg;png". Blanks around a name do not count. The column has the first one's
/// name, unless it is given another.
/// Cheap to copy; immutable.
class SHARDWISE_EXPORT Column {
 public:
  /// Where a clip begins in a video or sound, or in a part of it. A random start is a function of
  /// seed, epoch and sample, each place equally likely: docs/formats/transforms.md says which.
  enum class ClipStart : std::uint8_t { kFirst, kCentre, kRandom };
  struct VideoClip;  ///< see media_columns.h
  struct AudioClip;

  /// For the loader, and for columns of other libraries of this project.
  Column(std::string name, std::shared_ptr<const detail::ColumnMaker> maker)
      : name_(std::move(name)), maker_(std::move(maker)) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The same column under another name.
  [[nodiscard]] Column named(std::string name) const { return {std::move(name), maker_}; }
  [[nodiscard]] const std::shared_ptr<const detail::ColumnMaker>& maker() const noexcept {
    return maker_;
  }

 private:
  std::string name_;
  std::shared_ptr<const detail::ColumnMaker> maker_;
};

/// How images are decoded.
struct ImageDecoding {
  /// Larger images are refused before memory is taken for them (2^28 pixels are 768 MiB, 1,536 of
  /// 16 bits); so are results of a transform, where their size depends on the image. An image with
  /// a side of more than 2^20 pixels is refused whatever this says.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
  /// Refuse what is otherwise forgiven, as Pillow forgives it: damaged codes, a missing end marker.
  /// Scaling 16 bits to 8 is not among it; see ImageTransform::Type::kUint16.
  bool strict = false;
  /// Turn the image as its orientation says, which is read from Exif, else from XMP, as by Pillow's
  /// exif_transpose.
  bool apply_orientation = false;
  /// Decode JPEGs at 1/2, 1/4 or 1/8 of their size where they are shrunk anyway. Quicker; the
  /// pixels are others.
  enum class Scaling : std::uint8_t {
    kExact,       ///< not at all
    kNotSmaller,  ///< while the decoded image is not smaller than the result
    kFast         ///< down to 3/4 of the result's size, which is then a little less sharp
  };
  Scaling scaling = Scaling::kExact;
};

/// The columns that a Loader can make. Each says what array it gives.
///
/// Errors, when a sample is loaded: NotFound (no such field); BadField, if its bytes are not what
/// the column says. See Loader::Options::max_bad.
///
/// A field that is compressed by its name (.gz, .zst, .xz, .bz2 or .lz4 at the end, as "json.gz")
/// is expanded, and every checksum in it is checked. It is a BadField if it is cut, damaged, of
/// another compression, or expands to more than Loader::Options::max_expanded_bytes, to more than
/// 1,100 times its size (beyond 64 MiB), or with a window of more than 128 MiB. Only bytes() gives
/// it as it is.
///
/// Pickles (.pt, .pth, .pkl, .pickle) can run code when they are read. Only bytes() takes fields of
/// such names; the others refuse them with InvalidArgument when the column is made.
namespace columns {

/// The bytes of a field: uint8, ragged.
SHARDWISE_EXPORT Column bytes(const std::string& fields);
/// As bytes(), checked to be UTF-8.
SHARDWISE_EXPORT Column text(const std::string& fields);
/// As text(), checked to be valid JSON: one value, of any kind.
SHARDWISE_EXPORT Column json(const std::string& fields);
/// A field that is an array of little-endian integers and nothing else, as numpy.tofile() writes
/// token ids: ragged. A size in bytes that is no multiple of an integer's is a BadField.
/// @param dtype  kUInt16, kInt32, kUInt32 or kInt64; nothing in the field tells it.
/// Errors: InvalidArgument for another type.
SHARDWISE_EXPORT Column tokens(const std::string& fields, DType dtype = DType::kInt32);
/// A field that holds a decimal number: int64 [N].
SHARDWISE_EXPORT Column integer(const std::string& fields);
/// The keys of the samples: uint8, ragged.
SHARDWISE_EXPORT Column key(const std::string& name = "__key__");
/// A field that is a NumPy .npy file; see decode_npy() for its types. Ragged, unless `shape` says
/// what the shape of every array is: then [N, ...], and another shape is a BadField.
/// @param dtype  of every array; another is a BadField.
SHARDWISE_EXPORT Column array(const std::string& fields, DType dtype,
                              std::vector<std::int64_t> shape = {});
/// One array of a field that is a NumPy .npz file, as numpy.savez() and savez_compressed() write
/// it; otherwise as array(). The column has the array's name.
/// @param array  as it was saved: "tokens". A file without it is a BadField that lists what it has.
/// Cost: a copy of the array, or inflating it, up to Loader::Options::max_expanded_bytes.
SHARDWISE_EXPORT Column npz(const std::string& fields, const std::string& array, DType dtype,
                            std::vector<std::int64_t> shape = {});

/// An image: [N, 3, H, W] or [N, H, W, 3], of the type that the transform says. Unless it gives all
/// images one size, those of a batch must be of one.
/// @param fields  empty: the sample's one field that is an image by its name; a sample with several
///   is a BadField.
/// Only the part of an image that the transform shows is decoded.
/// Errors: InvalidArgument if the transform cannot be.
SHARDWISE_EXPORT Column image(const std::string& fields, const ImageTransform& transform = {},
                              const ImageDecoding& decoding = {});

/// What a function makes a row in.
class SHARDWISE_EXPORT Row {
 public:
  /// The row's memory; of a ragged column none, until resize(): without it the row is empty.
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return bytes_; }
  /// The same as values of T, which is the column's type, as of Batch::Array::values().
  /// Errors: InvalidArgument for another type.
  template <class T>
  [[nodiscard]] std::span<T> values() {
    detail::require_type(dtype_, {}, sizeof(T), alignof(T), detail::kind_of_number<T>);
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  /// Of a ragged column: gives the row this shape, and memory for it, which is not set to anything.
  /// Once. Errors: InvalidArgument if the column is not ragged.
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

/// What `make` writes for each sample. It is called by several threads at once. `random` is a key
/// of its own for each epoch and sample, whatever thread, batch and rank: the seed of whatever is
/// random in it.
/// Errors: what `make` throws is thrown by the loader's next(); throw BadField for a sample that
/// may be left out. To the texts of BadField and InvalidArgument the column and the sample are
/// added.
using MakeRow = std::function<void(const Sample& sample, const Hash128& random, Row& row)>;
/// [N, ...], each row of `shape`.
SHARDWISE_EXPORT Column function(const std::string& name, DType dtype,
                                 std::vector<std::int64_t> shape, MakeRow make);
/// Ragged.
SHARDWISE_EXPORT Column ragged_function(const std::string& name, DType dtype, MakeRow make);

/// A decoder of your own: writes the row that the bytes of a field stand for. `bytes` are those of
/// the field, expanded if it is compressed, and valid for the call; `random` and the threads are as
/// of MakeRow. What it does not write of a row is undefined.
/// Errors: BadField, and whatever else derives from std::exception, say that these bytes are bad:
/// next() throws a BadField with field, sample and that text, or the sample is left out. Other
/// errors of Shardwise (InvalidArgument, say) and std::bad_alloc are not the sample's fault, and
/// are thrown by next(); to the text of InvalidArgument field and sample are added.
using DecodeField = std::function<void(std::string_view bytes, const Hash128& random, Row& row)>;
/// [N, ...], each row of `shape`.
SHARDWISE_EXPORT Column decoded(const std::string& fields, DType dtype,
                                std::vector<std::int64_t> shape, DecodeField decode);
/// Ragged.
SHARDWISE_EXPORT Column ragged_decoded(const std::string& fields, DType dtype, DecodeField decode);

}  // namespace columns

}  // namespace shardwise
