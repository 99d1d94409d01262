// Reads past the page cache on a real disk, and through it where the file system knows no other way.
#include "checkpoint/io/direct_reader.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <system_error>

#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;

/// On the disk of temporary files, and in memory, which some kernels cannot read directly.
std::vector<fs::path> folders() { return {fs::temp_directory_path(), "/dev/shm"}; }

struct Scratch {
  explicit Scratch(const fs::path& parent) {
    std::string name = (parent / "holdfast-direct-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path = name;
  }
  ~Scratch() { fs::remove_all(path); }
  fs::path path;
};

TEST(DirectReader, readsToTheLastByteAndNoFurther) {
  for (const fs::path& parent : folders()) {
    const Scratch scratch(parent);
    for (const std::size_t size : {0u, 1u, 4095u, 4096u, 4097u, 300'001u}) {
      std::string bytes(size, '\0');
      for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
      write_file(scratch.path / "file", bytes);
      const DirectReader file(scratch.path / "file");
      EXPECT_TRUE(file.is_regular());
      EXPECT_EQ(file.bytes(), static_cast<std::int64_t>(size));
      const AlignedBuffer room(file.bytes() + 2 * direct_alignment);
      ASSERT_EQ(file.read(room.span(), 0), file.bytes()) << parent << size;
      EXPECT_EQ(0, std::memcmp(room.span().data(), bytes.data(), size));
      if (size < 4097) continue;
      ASSERT_EQ(file.read(room.span().first(4096), 4096), std::min<std::int64_t>(4096, file.bytes() - 4096));
      EXPECT_EQ(
          0, std::memcmp(room.span().data(), bytes.data() + 4096, std::min<std::size_t>(4096, size - 4096)));
    }
  }
}

TEST(DirectReader, saysWhatIsThere) {
  const Scratch scratch(fs::temp_directory_path());
  try {
    const DirectReader file(scratch.path / "nothing");
    FAIL();
  } catch (const std::system_error& e) {
    EXPECT_EQ(e.code().value(), ENOENT);
  }
  EXPECT_FALSE(DirectReader(scratch.path).is_regular());
  ASSERT_EQ(::mkfifo((scratch.path / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(DirectReader(scratch.path / "pipe").is_regular()) << "and does not wait for a writer";
}

/// Runs of 8 MiB, several to a shard, read by several threads.
TEST(DirectReader, aCheckpointOnADiskIsLoadedAndItsDamageFound) {
  const Scratch scratch(fs::temp_directory_path());
  Whole whole({{"model/a", 1500, 4096}, {"model/b", 1, 1'000'003, DType::bf16}}, 3);
  const fs::path path = save(scratch.path, whole, 3, {0, 1}, even_layout(whole.tensors, 2)).path;
  for (const int readers : {1, 3})
    EXPECT_EQ(load_all(path, whole.tensors, even_layout(whole.tensors, readers)), whole.values);
  const ShardInfo shard = read_manifest(path).shards[1];
  flip_bit(path / shard.file, static_cast<std::uint64_t>(8 * (shard.bytes - 100'000)));
  flip_bit(path / shard.file, static_cast<std::uint64_t>(8 * (shard.payload_offset + 10'000'000)));
  for (int i = 0; i < 5; ++i) {
    try {
      load_all(path, whole.tensors, even_layout(whole.tensors, 1));
      FAIL() << "loaded damaged blocks";
    } catch (const Damaged& e) {
      EXPECT_THAT(e.why(), ::testing::HasSubstr(shard.file + ": block 152 of ")) << "always the first one";
    }
  }
}

}  // namespace
}  // namespace holdfast::checkpoint
