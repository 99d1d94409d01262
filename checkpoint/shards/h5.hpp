#pragma once
// The HDF5 calls we need, each wrapped once: ids that close themselves, and Error instead of an error stack
// on stderr. The only file (with what sits directly on it) that knows HDF5. Everything is serial; nothing
// here is on the save path.
#include <hdf5.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/dtype.hpp"

namespace holdfast::checkpoint::h5 {

namespace fs = std::filesystem;

/// An HDF5 id of any kind; closes itself.
class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id() = default;
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  Id(Id&& other) noexcept : id_(other.id_), close_(other.close_) { other.id_ = -1; }
  Id& operator=(Id&& other) noexcept;
  ~Id() { reset(); }
  hid_t get() const { return id_; }
  hid_t release() { return std::exchange(id_, -1); }
  void reset();

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

/// Where HDF5 puts what it writes into a new file.
struct FileSpace {
  std::uint64_t metadata_bytes = 4096;                     ///< its metadata is collected in blocks of so many
  std::uint64_t user_block = 0;                            ///< left free before everything: 0, or 512 * 2^k
  std::uint64_t aligned_from = 1 << 20, alignment = 4096;  ///< data of so many bytes begin on a multiple
};
/// A new file in format 1.10. By the stdio driver, which alone follows the link to a file without a name.
Id create_file(const fs::path& path, const FileSpace& file_space);
inline Id create_file(const fs::path& path, std::uint64_t metadata_bytes) {
  return create_file(path, FileSpace{metadata_bytes});
}
Id open_file(const fs::path& path);  ///< for reading; does not lock
/// Closes and says so when it fails (the destructor would not).
void close_file(Id file);

void write_attribute(hid_t file, const char* name, std::int64_t value);
void write_attribute(hid_t file, const char* name, const std::string& text);

/// bf16 is a 2-byte floating-point type of its own (8 bits of exponent, bias 127, 7 of mantissa), which HDF5
/// converts and prints like any other.
enum class Element { float32, bf16, int64 };
Element element_of(DType type);
/// Makes contiguous datasets of one file, allocated at once and never filled. A file has thousands of
/// them: what they share is made once. Ends before the file is closed.
class ContiguousMaker {
 public:
  explicit ContiguousMaker(hid_t file);
  /// Missing groups of its name are made. No extent may be 0. Returns its byte offset in the file.
  std::int64_t make(const std::string& name, Element element, std::span<const std::int64_t> shape);
  std::int64_t make(const std::string& name, Element element, std::int64_t count) {
    return make(name, element, std::span(&count, 1));
  }

 private:
  hid_t group(const std::string& name);

  hid_t file_;
  Id creation_, group_creation_;
  std::array<Id, 3> types_;  ///< by Element
  std::map<std::string, Id> groups_;
};

/// Elements [first, first + count) of a virtual dataset, row-major, are the whole of 1-D `dataset` in `file`.
struct VirtualPart {
  std::string file, dataset;
  std::int64_t first = 0, count = 0;
};
/// A virtual dataset of one or two dimensions, fill value NaN.
void create_virtual(hid_t file, const std::string& name, Element element, std::span<const std::int64_t> shape,
                    std::span<const VirtualPart> sources);

/// A dataset as HDF5 sees it.
struct Dataset {
  std::string name;  ///< without the leading '/'
  std::vector<std::int64_t> shape;
  Element element = Element::float32;
  bool is_virtual = false;
  std::int64_t offset = -1;          ///< contiguous ones
  std::vector<VirtualPart> sources;  ///< virtual ones; first = -1: only the number of elements is told
};
/// All datasets of a file. Throws Error on anything that does not belong into a file of ours: soft or
/// external links, other element types, chunks, filters, external storage.
std::vector<Dataset> datasets_of(hid_t file);

}  // namespace holdfast::checkpoint::h5
