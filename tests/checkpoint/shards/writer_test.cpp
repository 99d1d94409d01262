// What a writer promises beside the right bytes: places, threads, reading back, room, and costs.
#include "checkpoint/shards/shard_writer.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>  // mkdtemp

#include "checkpoint/io/direct_file.hpp"
#include "checkpoint/shards/read_back.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "checkpoint/verify/verify.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string problem_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(ShardWriter, putsEveryPieceIntoAPlaceOfItsOwn) {
  Whole whole(odd_tensors(), 4);
  const WriterLayout layout = ragged_layout(whole.tensors, 3, 4);
  for (int rank = 0; rank < 3; ++rank) {
    const Folder folder;
    ShardWriter writer(folder.path(), rank, {0, 1}, whole.tensors, layout, some_facts(3));
    const std::vector<PieceSpan> spans = spans_of(whole.tensors, layout, rank);
    EXPECT_EQ(std::vector(writer.spans().begin(), writer.spans().end()), spans);
    const ShardInfo shard = parse_vote(write_shard(writer, whole, {1, 0, 0})).shard;
    const std::vector<StoredPiece> pieces = placed(whole.tensors, spans, shard.payload_offset);
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    std::int64_t bytes = 0;
    for (const StoredPiece& piece : pieces) {
      ranges.emplace_back(piece.offset, piece.offset + bytes_of(piece.span, whole.tensors));
      bytes += bytes_of(piece.span, whole.tensors);
    }
    std::sort(ranges.begin(), ranges.end());
    std::int64_t end = shard.payload_offset;
    for (const auto& [from, to] : ranges) {
      EXPECT_GE(from, end);
      end = to;
    }
    EXPECT_LE(end, writer.file_bytes());
    EXPECT_GE(writer.checkpoint_bytes(), 3 * (writer.file_bytes() - bytes));
  }
}

/// The bytes of a file do not depend on how many threads wrote it, or past which cache.
TEST(ShardWriter, writesTheSameFileInEveryWay) {
  Whole whole(vectors({300'000, 11, 70'001}), 5);
  whole.tensors[1].type = DType::bf16;
  whole.values[1].resize(22);
  const WriterLayout layout = ragged_layout(whole.tensors, 2, 3);
  const WriteOptions ways[] = {{ReadBack::none, false, 1, block_bytes},
                               {ReadBack::sample, true, 2, block_bytes},
                               {ReadBack::full, true, 5, 3 * block_bytes},
                               {ReadBack::full, false, 2, 8 << 20}};
  std::vector<std::string> votes, files;
  for (const WriteOptions& way : ways) {
    const Folder folder;
    ShardWriter writer(folder.path(), 1, {1, 1}, whole.tensors, layout, some_facts(2), way);
    votes.push_back(write_shard(writer, whole, {5, 0, 0}));
    files.push_back(read_file(temporary_path(folder.path(), 5, {1, 1}) / "shard-00001.h5"));
    EXPECT_EQ(writer.last_cost().bytes, std::ssize(files.back()));
    EXPECT_GT(writer.last_cost().cpu_seconds, 0);
    EXPECT_FALSE(writer.last_cost().direct && !way.direct);
  }
  for (std::size_t i = 1; i < votes.size(); ++i) {
    EXPECT_EQ(votes[i], votes[0]) << i;
    EXPECT_TRUE(files[i] == files[0]) << i;
  }
}

TEST(ShardWriter, aWriterWithNothingToWriteHasAHeadOnly) {
  const Folder folder;
  Whole whole(vectors({50}), 1);
  const WriterLayout layout{3, 1, {{1, 50, 50}}};
  const fs::path path = save(folder.path(), whole, 1, {0, 1}, layout).path;
  EXPECT_THAT(verify(path).problems, IsEmpty());
  const Manifest m = read_manifest(path);
  EXPECT_EQ(m.shards[1].bytes, m.shards[1].payload_offset);
  EXPECT_EQ(blocks_of(m.shards[2]).count(), 0);
}

/// Its own buffers are full of the first save when it makes the second one.
TEST(ShardWriter, leavesNothingOfOneSaveInTheNext) {
  const Folder folder, fresh;
  Whole first(vectors({70'001, 3, 50}), 1), second(vectors({70'001, 3, 50}), 2);
  const WriterLayout layout = ragged_layout(first.tensors, 1, 2);
  ShardWriter writer(folder.path(), 0, {1, 1}, first.tensors, layout, some_facts(1));
  ShardWriter other(fresh.path(), 0, {1, 1}, first.tensors, layout, some_facts(1));
  write_shard(writer, first, {1, 0, 0});
  EXPECT_EQ(write_shard(writer, second, {2, 0, 0}), write_shard(other, second, {2, 0, 0}));
  const fs::path file = "shard-00000.h5";
  EXPECT_TRUE(read_file(temporary_path(folder.path(), 2, {1, 1}) / file) ==
              read_file(temporary_path(fresh.path(), 2, {1, 1}) / file));
}

struct ReadsBack : ::testing::Test {
  const Folder folder;
  Whole whole{vectors({3'000'000}), 1};  // 12 MB: 184 blocks
  const WriterLayout layout = even_layout(whole.tensors, 1);
  ShardWriter writer{folder.path(), 0, {1, 1}, whole.tensors, layout, some_facts(1), {ReadBack::none}};
  const Vote vote = parse_vote(write_shard(writer, whole, {1, 0, 0}));
  const ShardInfo& shard = vote.shard;
  const fs::path file = temporary_path(folder.path(), 1, {1, 1}) / shard.file;
  const std::string metadata = read_file(file).substr(0, as_size(shard.data_offset));
  const std::string head =
      read_file(file).substr(as_size(shard.data_offset), as_size(shard.payload_offset - shard.data_offset));

  std::string problem(ReadBack how_much, std::int64_t step) {
    const AlignedBuffer buffer(read_back_bytes(shard, how_much));
    return problem_of([&] {
      read_back(file, shard, metadata, std::as_bytes(std::span(head)), how_much, step, buffer.span());
    });
  }
  std::string with_flipped(std::int64_t byte, ReadBack how_much, std::int64_t step = 1) {
    flip_bit(file, static_cast<std::uint64_t>(byte) * 8 + 3);
    const std::string text = problem(how_much, step);
    flip_bit(file, static_cast<std::uint64_t>(byte) * 8 + 3);
    return text;
  }
};

TEST_F(ReadsBack, whatItWrote) {
  for (const ReadBack how_much : {ReadBack::none, ReadBack::sample, ReadBack::full})
    EXPECT_EQ(problem(how_much, 1), "");
}

TEST_F(ReadsBack, andFindsWhatDiffers) {
  for (const ReadBack how_much : {ReadBack::sample, ReadBack::full}) {
    for (const std::int64_t byte : {std::int64_t{9}, shard.data_offset + 8, shard.payload_offset - 1})
      EXPECT_THAT(with_flipped(byte, how_much), HasSubstr("its head reads back otherwise"));
    EXPECT_THAT(with_flipped(shard.payload_offset, how_much), HasSubstr("block 0 of 184 reads back"));
    EXPECT_THAT(with_flipped(shard.bytes - 1, how_much), HasSubstr("block 183 of 184 reads back"));
  }
  EXPECT_THAT(with_flipped(shard.payload_offset + 100 * block_bytes, ReadBack::full),
              HasSubstr("block 100 of 184 reads back"));
  EXPECT_EQ(with_flipped(shard.payload_offset, ReadBack::none), "");
}

TEST_F(ReadsBack, otherBlocksAtOtherSteps) {
  int found = 0;
  for (std::int64_t step = 0; step < 1000; ++step)
    found += !with_flipped(shard.payload_offset + 100 * block_bytes, ReadBack::sample, step).empty();
  EXPECT_GT(found, 5);  // a 64th of them
  EXPECT_LT(found, 40);
}

TEST_F(ReadsBack, andAFileThatWasCutOrWent) {
  fs::resize_file(file, static_cast<std::uintmax_t>(shard.bytes - 4096));
  EXPECT_THAT(problem(ReadBack::sample, 1), HasSubstr("it ends too early"));
  fs::remove(file);
  EXPECT_THAT(problem(ReadBack::sample, 1), HasSubstr("it cannot be read back: No such file"));
}

TEST(Room, isAskedForBeforeAnyFolderIsMade) {
  const Folder folder;
  EXPECT_EQ(problem_of([&] { check_room(folder.path(), 1); }), "");
  EXPECT_THAT(problem_of([&] { check_room(folder.path(), std::int64_t{1} << 55); }),
              ::testing::AllOf(HasSubstr("there is no room for a checkpoint in " + folder.path().string()),
                               HasSubstr("are free, it takes 35.20 PiB to be safe")));
  EXPECT_THAT(problem_of([&] { check_room(folder.path() / "nowhere", 1); }), HasSubstr("cannot look at"));
}

TEST(NewFile, goesAwayUnlessItIsKept) {
  const Folder folder;
  const fs::path path = folder.path() / "file";
  { const NewFile file(path, 4096, true); }
  EXPECT_FALSE(fs::exists(path));
  {
    NewFile file(path, 4096, true);
    EXPECT_THROW(NewFile(path, 4096, true), Error);  // never over another one
    const AlignedBuffer page(4096);
    std::fill(page.span().begin(), page.span().end(), std::byte{7});
    file.write(page.span(), 0);
    file.finish();
    file.keep();
  }
  EXPECT_EQ(read_file(path), std::string(4096, '\7'));
}

/// A write that does not fit O_DIRECT goes through the page cache, and so does what follows it. In memory and
/// in the folder for temporary files, which as a rule is on a disk that insists.
TEST(NewFile, goesOnBuffered) {
  const Folder folder;
  std::string on_disk = (fs::temp_directory_path() / "holdfast-direct-XXXXXX").string();
  ASSERT_NE(::mkdtemp(on_disk.data()), nullptr);
  for (const fs::path& parent : {folder.path(), fs::path(on_disk)}) {
    NewFile file(parent / "file", 8192, true);
    const AlignedBuffer pages(8192);
    std::fill(pages.span().begin(), pages.span().end(), std::byte{7});
    file.write(pages.span().subspan(1, 4095), 0);  // neither memory nor size are aligned
    file.write(pages.span().first(4097), 4095);
    file.finish();
    EXPECT_EQ(read_file(file.path()), std::string(8192, '\7'));
  }
  fs::remove_all(on_disk);
}

}  // namespace
}  // namespace holdfast::checkpoint
