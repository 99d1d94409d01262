// Each public function that calls HDF5 first silences the error stack (Silence), and calls it through
// checked(), which turns a failure into an Error with the innermost entry of that stack. Ids are held by Id,
// so an exception leaves nothing open.
//
// - Writing: create_file() fixes format, alignment and the place of metadata, and switches off times, so that
//   the same calls give the same bytes. ContiguousMaker makes datasets that are allocated at once and never
//   filled, and returns the offset of each; their data is written without HDF5. create_virtual() maps ranges
//   of other files.
// - Reading: open_file() takes no lock and loads no plugin. datasets_of() visits every link, and describe()
//   refuses what no file of Holdfast has. HDF5 calls visit() from C, so it keeps an exception as text, and
//   datasets_of() throws that.
#include "checkpoint/shards/h5.hpp"

#include <algorithm>
#include <limits>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint::h5 {
namespace {

/// HDF5 prints its error stack unless told otherwise, per thread.
class Silence {
 public:
  Silence() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Silence() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// The innermost entry of the error stack: what really went wrong.
std::string innermost() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* entry, void* out) -> herr_t {
        if (n == 0) *static_cast<std::string*>(out) = std::string(entry->func_name) + ": " + entry->desc;
        return 0;
      },
      &text);
  return text.empty() ? "HDF5 gave no reason" : text;
}

/// HDF5 says "failed" with a negative number, whatever the call.
template <class Result>
Result checked(Result result, const std::string& what) {
  if (result < 0) throw Error(Exit::runtime, "cannot " + what, innermost());
  return result;
}

hsize_t size(std::int64_t n) { return static_cast<hsize_t>(n); }

Id property_list(hid_t kind) { return {checked(H5Pcreate(kind), "make a property list"), H5Pclose}; }

Id space(std::span<const hsize_t> shape) {
  return {
      checked(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), "make a dataspace"),
      H5Sclose};
}

/// No times in object headers: the same plan gives the same bytes.
Id untimed_dataset() {
  Id creation = property_list(H5P_DATASET_CREATE);
  checked(H5Pset_obj_track_times(creation.get(), false), "switch off times");
  return creation;
}

/// Groups on the way to a name. HDF5 would make them itself, but with times in them.
void create_groups(hid_t file, const std::string& name) {
  const Id creation = property_list(H5P_GROUP_CREATE);
  checked(H5Pset_obj_track_times(creation.get(), false), "switch off times");
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string group = name.substr(0, slash);
    if (checked(H5Lexists(file, group.c_str(), H5P_DEFAULT), "look for group " + group) > 0) continue;
    const Id made(checked(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                          "create group " + group),
                  H5Gclose);
  }
}

Id create_dataset(hid_t file, const std::string& name, hid_t type, hid_t shape, hid_t creation) {
  create_groups(file, name);
  return {checked(H5Dcreate2(file, name.c_str(), type, shape, H5P_DEFAULT, creation, H5P_DEFAULT),
                  "create dataset " + name),
          H5Dclose};
}

/// Adds the box [row, row + rows) x [col, col + cols) to a selection.
void add_box(hid_t selection, bool is_first, hsize_t row, hsize_t col, hsize_t rows, hsize_t cols) {
  const hsize_t start[2] = {row, col}, block[2] = {rows, cols}, one[2] = {1, 1};
  checked(
      H5Sselect_hyperslab(selection, is_first ? H5S_SELECT_SET : H5S_SELECT_OR, start, nullptr, one, block),
      "select a box");
}

/// A range of a vector; or a row-major range of a matrix: the rest of its first row, whole rows, the start of
/// its last one; at most three boxes.
void select_range(hid_t selection, std::span<const hsize_t> shape, hsize_t first, hsize_t count) {
  if (shape.size() == 1) {
    const hsize_t one = 1;
    checked(H5Sselect_hyperslab(selection, H5S_SELECT_SET, &first, nullptr, &one, &count), "select a range");
    return;
  }
  const hsize_t cols = shape[1];
  bool is_first = true;
  for (hsize_t at = first, end = first + count; at < end;) {
    const hsize_t row = at / cols, col = at % cols;
    const hsize_t whole_rows = col == 0 ? (end - at) / cols : 0;
    const hsize_t width = whole_rows > 0 ? cols : std::min(cols - col, end - at);
    add_box(selection, is_first, row, col, std::max<hsize_t>(whole_rows, 1), width);
    is_first = false;
    at += whole_rows > 0 ? whole_rows * cols : width;
  }
}

std::string text_of(ssize_t (*get)(hid_t, std::size_t, char*, std::size_t), hid_t list, std::size_t i) {
  std::string text(checked(get(list, i, nullptr, 0), "read a virtual mapping"), '\0');
  checked(get(list, i, text.data(), text.size() + 1), "read a virtual mapping");
  return text;
}

void read_sources(hid_t creation, Dataset& dataset) {
  std::size_t count = 0;
  checked(H5Pget_virtual_count(creation, &count), "read virtual mappings");
  for (std::size_t i = 0; i < count; ++i) {
    const Id selection(checked(H5Pget_virtual_vspace(creation, i), "read a virtual mapping"), H5Sclose);
    const hssize_t elements = checked(H5Sget_select_npoints(selection.get()), "read a virtual mapping");
    dataset.sources.push_back({text_of(H5Pget_virtual_filename, creation, i),
                               text_of(H5Pget_virtual_dsetname, creation, i), -1, elements});
  }
}

/// The element as it lies in a file; a copy that the caller closes.
Id file_type(Element element) {
  Id type(checked(H5Tcopy(element == Element::int64 ? H5T_STD_I64LE : H5T_IEEE_F32LE), "copy a type"),
          H5Tclose);
  if (element != Element::bf16) return type;
  checked(H5Tset_fields(type.get(), 15, 7, 8, 0, 7), "make the bf16 type");  // sign, exponent, mantissa
  checked(H5Tset_size(type.get(), 2), "make the bf16 type");
  checked(H5Tset_ebias(type.get(), 127), "make the bf16 type");
  return type;
}

Dataset describe(hid_t file, const char* name) {
  const Id dataset(checked(H5Dopen2(file, name, H5P_DEFAULT), std::string("open dataset ") + name), H5Dclose);
  const Id type(checked(H5Dget_type(dataset.get()), "read a type"), H5Tclose);
  const Id shape(checked(H5Dget_space(dataset.get()), "read a shape"), H5Sclose);
  const Id creation(checked(H5Dget_create_plist(dataset.get()), "read a layout"), H5Pclose);
  const auto refuse = [&](const char* why) -> void {
    throw Error(Exit::runtime, std::string("dataset ") + name + " does not belong here", why);
  };

  Dataset seen;
  seen.name = name;
  const Element known[] = {Element::float32, Element::bf16, Element::int64};
  const auto same = std::find_if(std::begin(known), std::end(known), [&](Element element) {
    return checked(H5Tequal(type.get(), file_type(element).get()), "compare types") > 0;
  });
  if (same == std::end(known))
    refuse("its elements are neither fp32, bf16 nor int64");
  else
    seen.element = *same;
  hsize_t dims[H5S_MAX_RANK];
  const int rank = checked(H5Sget_simple_extent_dims(shape.get(), dims, nullptr), "read a shape");
  for (int i = 0; i < rank; ++i) seen.shape.push_back(static_cast<std::int64_t>(dims[i]));
  const H5D_layout_t layout = checked(H5Pget_layout(creation.get()), "read a layout");
  if (checked(H5Pget_nfilters(creation.get()), "read filters") > 0) refuse("it has filters");
  if (checked(H5Pget_external_count(creation.get()), "read external files") > 0)
    refuse("its data is in another file");
  if (layout == H5D_VIRTUAL) {
    seen.is_virtual = true;
    read_sources(creation.get(), seen);
  } else if (layout == H5D_CONTIGUOUS) {
    const haddr_t offset = H5Dget_offset(dataset.get());
    seen.offset = offset == HADDR_UNDEF ? -1 : static_cast<std::int64_t>(offset);
  } else {
    refuse("it is neither contiguous nor virtual");
  }
  return seen;
}

struct Walk {
  std::vector<Dataset> found;
  std::string problem;
};

/// HDF5 calls this from C: nothing may be thrown through it.
herr_t visit(hid_t group, const char* name, const H5L_info_t* link, void* data) noexcept {
  auto& walk = *static_cast<Walk*>(data);
  try {
    if (link->type != H5L_TYPE_HARD)
      throw Error(Exit::runtime, std::string("link ") + name + " does not belong here",
                  "it is soft or external");
    H5O_info_t object;
    checked(H5Oget_info_by_name(group, name, &object, H5P_DEFAULT), std::string("look at ") + name);
    if (object.type == H5O_TYPE_DATASET)
      walk.found.push_back(describe(group, name));
    else if (object.type != H5O_TYPE_GROUP)
      throw Error(Exit::runtime, std::string(name) + " does not belong here", "it is a named type");
    return 0;
  } catch (const std::exception& e) {
    walk.problem = e.what();
    return 1;
  }
}

}  // namespace

Id& Id::operator=(Id&& other) noexcept {
  if (this != &other) {
    reset();
    std::swap(id_, other.id_);
    close_ = other.close_;
  }
  return *this;
}

void Id::reset() {
  if (id_ < 0) return;
  const Silence silence;
  close_(id_);
  id_ = -1;
}

Element element_of(DType type) { return type == DType::fp32 ? Element::float32 : Element::bf16; }

Id create_file(const fs::path& path, const FileSpace& file_space) {
  const Silence silence;
  const Id access = property_list(H5P_FILE_ACCESS), creation = property_list(H5P_FILE_CREATE);
  checked(H5Pset_fapl_stdio(access.get()), "choose the driver");
  checked(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "choose the HDF5 format");
  checked(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "choose how to close");
  checked(H5Pset_alignment(access.get(), file_space.aligned_from, file_space.alignment),
          "choose the alignment");
  checked(H5Pset_meta_block_size(access.get(), file_space.metadata_bytes), "choose the metadata block");
  checked(H5Pset_userblock(creation.get(), file_space.user_block), "choose the user block");
  checked(H5Pset_small_data_block_size(access.get(), 0), "choose the data block");
  checked(H5Pset_obj_track_times(creation.get(), false), "switch off times");
  return {checked(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
                  "create " + path.string()),
          H5Fclose};
}

Id open_file(const fs::path& path) {
  const Silence silence;
  // A file may name a filter, and HDF5 would look for its code in HDF5_PLUGIN_PATH: nothing of ours needs
  // any.
  checked(H5PLset_loading_state(0), "switch off plugins");
  const Id access = property_list(H5P_FILE_ACCESS);
  checked(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "choose how to close");
  // Committed files never change, and parallel file systems often have no locks.
  checked(H5Pset_file_locking(access.get(), false, true), "switch off locks");
  return {checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), "open " + path.string()), H5Fclose};
}

void close_file(Id file) {
  const Silence silence;
  checked(H5Fclose(file.release()), "close an HDF5 file");
}

void write_attribute(hid_t file, const char* name, std::int64_t value) {
  const Silence silence;
  const Id scalar(checked(H5Screate(H5S_SCALAR), "make a dataspace"), H5Sclose);
  const Id attribute(checked(H5Acreate2(file, name, H5T_STD_I64LE, scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
                             "create an attribute"),
                     H5Aclose);
  checked(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), "write an attribute");
}

void write_attribute(hid_t file, const char* name, const std::string& text) {
  const Silence silence;
  const Id type(checked(H5Tcopy(H5T_C_S1), "copy a type"), H5Tclose);
  checked(H5Tset_size(type.get(), text.size() + 1), "make a text type");
  checked(H5Tset_cset(type.get(), H5T_CSET_UTF8), "make a text type");
  const Id scalar(checked(H5Screate(H5S_SCALAR), "make a dataspace"), H5Sclose);
  const Id attribute(checked(H5Acreate2(file, name, type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
                             "create an attribute"),
                     H5Aclose);
  checked(H5Awrite(attribute.get(), type.get(), text.c_str()), "write an attribute");
}

ContiguousMaker::ContiguousMaker(hid_t file) : file_(file) {
  const Silence silence;
  creation_ = untimed_dataset();
  group_creation_ = property_list(H5P_GROUP_CREATE);
  checked(H5Pset_obj_track_times(group_creation_.get(), false), "switch off times");
  checked(H5Pset_layout(creation_.get(), H5D_CONTIGUOUS), "choose a layout");
  checked(H5Pset_alloc_time(creation_.get(), H5D_ALLOC_TIME_EARLY), "choose early allocation");
  checked(H5Pset_fill_time(creation_.get(), H5D_FILL_TIME_NEVER), "choose never to fill");
  for (const Element element : {Element::float32, Element::bf16, Element::int64})
    types_[as_size(element)] = file_type(element);
}

hid_t ContiguousMaker::group(const std::string& name) {
  if (name.empty()) return file_;
  const auto known = groups_.find(name);
  if (known != groups_.end()) return known->second.get();
  const std::size_t slash = name.rfind('/');
  const hid_t parent = group(slash == std::string::npos ? "" : name.substr(0, slash));
  const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
  Id made(checked(H5Gcreate2(parent, last.c_str(), H5P_DEFAULT, group_creation_.get(), H5P_DEFAULT),
                  "create group " + name),
          H5Gclose);
  return groups_.emplace(name, std::move(made)).first->second.get();
}

std::int64_t ContiguousMaker::make(const std::string& name, Element element,
                                   std::span<const std::int64_t> shape) {
  const Silence silence;
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Id extent = space(extents);
  const std::size_t slash = name.rfind('/');
  const hid_t parent = group(slash == std::string::npos ? "" : name.substr(0, slash));
  const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
  const Id dataset(checked(H5Dcreate2(parent, last.c_str(), types_[as_size(element)].get(), extent.get(),
                                      H5P_DEFAULT, creation_.get(), H5P_DEFAULT),
                           "create dataset " + name),
                   H5Dclose);
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF)
    throw Error(Exit::runtime, "cannot find a dataset's place in its file", innermost());
  return static_cast<std::int64_t>(offset);
}

void create_virtual(hid_t file, const std::string& name, Element element, std::span<const std::int64_t> shape,
                    std::span<const VirtualPart> sources) {
  const Silence silence;
  std::vector<hsize_t> extents;
  for (const std::int64_t n : shape) extents.push_back(size(n));
  const Id extent = space(extents), creation = untimed_dataset();
  for (const VirtualPart& source : sources) {
    const hsize_t count[1] = {size(source.count)};
    const Id whole = space(count), range = space(extents);
    select_range(range.get(), extents, size(source.first), size(source.count));
    checked(
        H5Pset_virtual(creation.get(), range.get(), source.file.c_str(), source.dataset.c_str(), whole.get()),
        "map " + source.dataset);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  checked(H5Pset_fill_value(creation.get(), H5T_NATIVE_FLOAT, &nan), "choose the fill value");
  create_dataset(file, name, file_type(element).get(), extent.get(), creation.get());
}

std::vector<Dataset> datasets_of(hid_t file) {
  const Silence silence;
  Walk walk;
  const herr_t result = H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, &walk);
  if (!walk.problem.empty()) throw Error(Exit::runtime, walk.problem);
  checked(result, "list the datasets");
  return std::move(walk.found);
}

}  // namespace holdfast::checkpoint::h5
