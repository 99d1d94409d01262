// What others see in a checkpoint: h5py reads every value of every tensor, whole and in pieces. And what we
// say when others have been at a file with their own tools.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "checkpoint/exchange/index_file.hpp"
#include "checkpoint/verify/verify.hpp"
#include "checkpoint/verify/verify_h5.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/files.hpp"
#include "src/base/subprocess.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::HasSubstr;

/// Debian's interpreter, which has Debian's h5py (scripts/setup.sh installs it).
Finished python(const std::string& script, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"/usr/bin/python3",
                                   std::string(HOLDFAST_SOURCE_DIR) + "/tests/checkpoint/shards/" + script};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run({argv, {}, {}, {}, false}, std::chrono::seconds(60));
}

/// Writes the list that h5py_values.py reads, and the values.
class Expected {
 public:
  explicit Expected(fs::path folder) : folder_(std::move(folder)) { fs::create_directories(folder_); }
  void add(const fs::path& file, const std::string& dataset, const std::string& shape,
           std::span<const float> values) {
    const fs::path path = folder_ / std::to_string(count_++);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size_bytes()));
    list_ += file.string() + "\t" + dataset + "\t" + shape + "\t" + path.string() + "\n";
  }
  fs::path list() const {
    write_file(folder_ / "list", list_);
    return folder_ / "list";
  }
  int count() const { return count_; }

 private:
  fs::path folder_;
  std::string list_;
  int count_ = 0;
};

/// A checkpoint with an index.
fs::path save_with_index(const fs::path& checkpoints, Whole& whole, const WriterLayout& layout) {
  const fs::path path = save(checkpoints, whole, 4, {0, 1}, layout).path;
  write_index(path, read_manifest(path));
  return path;
}

/// All tensors of the index, and all pieces of all shards.
Expected all_of(const fs::path& step_dir, const Whole& whole, const fs::path& folder) {
  Expected expected(folder);
  for (std::size_t t = 0; t < whole.tensors.size(); ++t) {
    const LogicalTensor& tensor = whole.tensors[t];
    std::string shape;
    for (const std::int64_t n : shape_of(tensor)) shape += (shape.empty() ? "" : ",") + std::to_string(n);
    expected.add(step_dir / index_file_name, tensor.name, shape, whole.as_floats(t));
  }
  const Manifest manifest = read_manifest(step_dir);
  for (std::size_t rank = 0; rank < manifest.shards.size(); ++rank)
    for (const StoredPiece& piece : pieces_of(manifest, rank)) {
      const auto t = as_size(piece.span.tensor);
      const std::vector<float> values = whole.as_floats(t);
      expected.add(step_dir / manifest.shards[rank].file,
                   whole.tensors[t].name + "@" + std::to_string(piece.span.first),
                   std::to_string(piece.span.count),
                   std::span(values).subspan(piece.span.first, piece.span.count));
    }
  return expected;
}

TEST(H5py, readsEveryValueOfEveryTensorAndPiece) {
  const Folder folder;
  Whole whole(odd_tensors(), 4);
  for (const WriterLayout& layout : {even_layout(whole.tensors, 3), ragged_layout(whole.tensors, 4, 8)}) {
    const fs::path path = save_with_index(folder.path(), whole, layout);
    const Expected expected = all_of(path, whole, folder.path() / "values");
    const Finished seen = python("h5py_values.py", {expected.list().string()});
    EXPECT_EQ(seen.status, 0) << seen.out << seen.err;
    EXPECT_THAT(seen.out, HasSubstr(std::to_string(expected.count()) + " datasets, 0 problems"));
    fs::remove_all(path);
  }
}

TEST(H5py, h5dumpReadsTheSameBytes) {
  const Folder folder;
  Whole whole(odd_tensors(), 4);
  const fs::path path = save_with_index(folder.path(), whole, ragged_layout(whole.tensors, 4, 8));
  const fs::path out = folder.path() / "bytes";
  const auto dumped = [&](const std::string& file, const std::string& dataset) {
    const Finished dump =
        run({{"h5dump", "-d", "/" + dataset, "-b", "FILE", "-o", out.string(), (path / file).string()},
             {},
             {},
             {},
             false},
            std::chrono::seconds(60));
    EXPECT_EQ(dump.status, 0) << dataset << dump.err;
    return read_file(out);
  };
  const auto truth = [&](std::size_t t, std::int64_t first, std::int64_t count) {
    const std::int64_t each = bytes_of(whole.tensors[t].type);
    return std::string(reinterpret_cast<const char*>(whole.values[t].data()) + first * each,
                       as_size(count * each));
  };
  for (std::size_t t = 0; t < whole.tensors.size(); ++t) {
    const LogicalTensor& tensor = whole.tensors[t];
    if (tensor.elements() == 0) continue;
    EXPECT_TRUE(dumped(index_file_name, tensor.name) == truth(t, 0, tensor.elements())) << tensor.name;
  }
  const Manifest manifest = read_manifest(path);
  for (const StoredPiece& piece : pieces_of(manifest, 2)) {
    const auto t = as_size(piece.span.tensor);
    const std::string name = whole.tensors[t].name + "@" + std::to_string(piece.span.first);
    EXPECT_TRUE(dumped(manifest.shards[2].file, name) == truth(t, piece.span.first, piece.span.count))
        << name;
  }
}

/// As in safetensors files.
TEST(H5py, normsHaveOneDimension) {
  EXPECT_EQ(shape_of({"model/model.norm.weight", 1, 64}), std::vector<std::int64_t>{64});
  EXPECT_EQ(shape_of({"optim/exp_avg/model.layers.0.self_attn.q_proj.bias", 64, 1}),
            std::vector<std::int64_t>{64});
  EXPECT_EQ(shape_of({"model/lm_head.weight", 1, 64}), (std::vector<std::int64_t>{1, 64}));
}

TEST(H5py, theComparisonNoticesAWrongValue) {
  const Folder folder;
  Whole whole(odd_tensors(), 4);
  const fs::path path = save_with_index(folder.path(), whole, even_layout(whole.tensors, 3));
  whole.values[5][40] ^= std::byte{1};
  const Finished seen =
      python("h5py_values.py", {all_of(path, whole, folder.path() / "values").list().string()});
  EXPECT_EQ(seen.status, 1);
  EXPECT_THAT(seen.out, HasSubstr(whole.tensors[5].name + " has other values"));
}

TEST(H5py, whatOthersDidToTheIndexIsFoundByVerify) {
  const Folder folder;
  Whole whole({{"model/a", 17, 19}, {"model/norm", 1, 64}}, 4);
  const fs::path path = save_with_index(folder.path(), whole, even_layout(whole.tensors, 2));
  const fs::path index = path / index_file_name, foreign = folder.path() / "foreign";
  fs::create_directory(foreign);
  const Finished made = python("foreign_files.py", {index.string(), foreign.string()});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::map<std::string, std::string> said = {
      {"external_link", "it is soft or external"},
      {"soft_link", "it is soft or external"},
      {"external_storage", "its data is in another file"},
      {"chunks", "neither contiguous nor virtual"},
      {"gzip", "it has filters"},
      {"unknown_filter", "it has filters"},
      {"compact", "neither contiguous nor virtual"},
      {"text", "neither fp32, bf16 nor int64"},
      {"double", "neither fp32, bf16 nor int64"},
      {"named_type", "a named type"},
      {"one_more", "model/extra is not in the manifest"},
      {"huge", "model/extra is not in the manifest"},
      {"many_dimensions", "model/extra is not in the manifest"},
      {"another_source", "shows other pieces"},
      {"missing", "is missing"},
  };
  std::size_t tried = 0;
  for (const auto& file : fs::directory_iterator(foreign)) {
    const std::string kind = file.path().stem().string(), bytes = read_file(file.path());
    ASSERT_TRUE(said.contains(kind)) << kind;
    write_file(index, bytes);
    EXPECT_THAT(verify(path).problems, ::testing::ElementsAre(HasSubstr(said.at(kind)))) << kind;
    EXPECT_TRUE(holds(path, whole.tensors, 4)) << "the loader looks at no HDF5: " << kind;
    ++tried;
  }
  EXPECT_EQ(tried, said.size());
}

/// Metadata that kills or stops HDF5 stops a child only.
TEST(H5py, anIndexThatIsNoHdf5IsAFinding) {
  const Folder folder;
  Whole whole({{"model/a", 17, 19}}, 4);
  const fs::path path = save_with_index(folder.path(), whole, even_layout(whole.tensors, 2));
  const std::string good = read_file(path / index_file_name);
  std::uint64_t state = 1;
  for (int i = 0; i < 40; ++i) {
    std::string bytes = good;
    for (int k = 0; k < 1 << i % 8; ++k) {
      state = mix64(state + 1);
      bytes[state % bytes.size()] = static_cast<char>(state >> 32);
    }
    write_file(path / index_file_name, bytes);
    verify(path);  // whatever it says, it comes back
    EXPECT_TRUE(holds(path, whole.tensors, 4));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Whether a child of this process is in a seccomp filter.
bool has_sandboxed_child() {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream status(entry.path() / "status");
    std::string text{std::istreambuf_iterator<char>(status), {}};
    if (text.find("\nPPid:\t" + std::to_string(::getpid()) + "\n") != std::string::npos &&
        text.find("\nSeccomp:\t2\n") != std::string::npos)
      return true;
  }
  return false;
}

/// A file that HDF5 waits for, to look at who reads it.
TEST(H5py, filesAreReadInASandbox) {
  if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) GTEST_SKIP() << "this kernel has no seccomp";
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "waits.h5").c_str(), 0600), 0);
  bool seen = false;
  std::thread watch([&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!seen && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      seen = has_sandboxed_child();
    }
    const files::Fd free(::open((folder.path() / "waits.h5").c_str(), O_RDWR));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  EXPECT_EQ(problems_seen_by_hdf5(folder.path(), {}, {"waits.h5"}).size(), 1u);
  watch.join();
  EXPECT_TRUE(seen);
}
#endif

}  // namespace
}  // namespace holdfast::checkpoint
