// Saves and loads: the same bits come back, whatever the layouts.
#include <gmock/gmock.h>

#include "checkpoint/exchange/index_file.hpp"
#include "checkpoint/verify/verify.hpp"
#include "src/base/as_size.hpp"
#include "src/base/subprocess.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;

TEST(RoundTrip, bringsBackEverything) {
  const Folder folder;
  Whole whole(odd_tensors(), 7);
  const Committed committed = save(folder.path(), whole, 7, {1, 2}, even_layout(whole.tensors, 3));
  EXPECT_EQ(committed.path, folder.path() / "step-00000007");
  EXPECT_EQ(committed.note, "");

  Whole into(whole.tensors, 0);
  const Loaded loaded = load(committed.path, into.view(whole_spans(whole.tensors)));
  EXPECT_EQ(into.values, whole.values);
  EXPECT_EQ(loaded.manifest.point, (RunPoint{7, 7 * 4096, 56, "calm", "even"}));
  EXPECT_EQ(loaded.manifest.facts, some_facts(3));
  EXPECT_EQ(loaded.manifest.generation, (Generation{1, 2}));
  EXPECT_EQ(loaded.manifest.digests, whole.digests());
  EXPECT_EQ(loaded.manifest.state_digest, state_digest(whole.tensors, whole.digests()));
  EXPECT_EQ(partial_digests(into.view(whole_spans(whole.tensors))), whole.digests());
}

TEST(RoundTrip, anyLayoutLoadsAnyOther) {
  const std::vector<LogicalTensor> tensors = odd_tensors();
  Whole whole(tensors, 3);
  for (int writers = 1; writers <= 4; ++writers)
    for (const WriterLayout& layout :
         {even_layout(tensors, writers),
          ragged_layout(tensors, writers, static_cast<std::uint64_t>(writers))}) {
      const Folder folder;
      const fs::path path = save(folder.path(), whole, 3, {0, 1}, layout).path;
      for (int readers = 1; readers <= 4; ++readers) {
        EXPECT_EQ(load_all(path, tensors, even_layout(tensors, readers)), whole.values)
            << writers << " -> " << readers;
        EXPECT_EQ(load_all(path, tensors, ragged_layout(tensors, readers, 99)), whole.values)
            << writers << " -> " << readers;
      }
    }
}

TEST(RoundTrip, crossesBlocksAndReadsOnlyWhatIsAskedFor) {
  const Folder folder;
  Whole whole(vectors({3'000'017, 5, 2'000'003}), 1);  // 12 MB, 5 blocks
  const fs::path path = save(folder.path(), whole, 1, {0, 1}, ragged_layout(whole.tensors, 2, 5)).path;
  EXPECT_EQ(load_all(path, whole.tensors, even_layout(whole.tensors, 3)), whole.values);
  Whole into(whole.tensors, 0);
  const Loaded loaded = load(path, into.view({{1, 0, 5}}));
  // Of 20 MB: the head and a block of each shard, or two where the piece lies across their border.
  EXPECT_LE(loaded.bytes_read, 2 * (page_bytes + 2 * block_bytes));
}

TEST(RoundTrip, savesAgainAndAgainWithOneWriter) {
  const Folder folder;
  Whole whole(vectors({1000}), 0);
  const WriterLayout layout = even_layout(whole.tensors, 1);
  ShardWriter writer(folder.path() / "checkpoints", 0, {0, 1}, whole.tensors, layout, some_facts(1));
  for (std::int64_t step = 1; step <= 3; ++step) {
    Commit commit(folder.path() / "checkpoints", step, {0, 1}, 1);
    commit.add(0, true, write_shard(writer, Whole(whole.tensors, step), {step, 0, 0}));
    ASSERT_FALSE(commit.failed()) << commit.why();
    const fs::path path = commit.commit().path;
    EXPECT_THAT(verify(path).problems, ::testing::IsEmpty());
    EXPECT_TRUE(holds(path, whole.tensors, step));
  }
}

TEST(RoundTrip, refusesAnotherModel) {
  const Folder folder;
  Whole whole(vectors({100, 200}), 1);
  const fs::path path = save(folder.path(), whole, 1, {0, 1}, even_layout(whole.tensors, 2)).path;
  Whole larger(vectors({100, 201}), 1), more(vectors({100, 200, 300}), 1);
  for (Whole* other : {&larger, &more}) {
    try {
      load(path, other->view(whole_spans(other->tensors)));
      FAIL() << "loaded another model";
    } catch (const Damaged& e) {
      FAIL() << "damaged: " << e.what();
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr("of another model"));
    }
  }
}

TEST(RoundTrip, refusesAnotherPrecision) {
  const Folder folder;
  Whole whole(vectors({100}), 1);
  const fs::path path = save(folder.path(), whole, 1, {0, 1}, even_layout(whole.tensors, 1)).path;
  std::vector<LogicalTensor> tensors = whole.tensors;
  tensors[0].type = DType::bf16;
  Whole other(tensors, 1);
  try {
    load(path, other.view({{0, 0, 100}}));
    FAIL() << "read fp32 as bf16";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("is fp32 there, bf16 here"));
  }
}

TEST(RoundTrip, aLargeListOfPiecesFitsOneMetadataExtent) {
  const Folder folder;
  std::vector<LogicalTensor> tensors;
  for (int i = 0; i < 700; ++i)
    tensors.push_back({"model/model.layers." + std::to_string(i) + ".self_attn.q_proj.weight", 2, 3});
  Whole whole(tensors, 1);
  const fs::path path = save(folder.path(), whole, 1, {0, 1}, even_layout(tensors, 2)).path;
  EXPECT_THAT(verify(path).problems, ::testing::IsEmpty());
}

std::vector<float> h5dump(const fs::path& file, const std::string& dataset) {
  const Finished dump =
      run({{"h5dump", "-d", dataset, "-y", "-m", "%.9g", "-w", "0", file.string()}, {}, {}, {}, false},
          std::chrono::seconds(60));
  EXPECT_EQ(dump.status, 0) << dump.err;
  std::vector<float> values;
  std::string data = dump.out.substr(std::min(dump.out.find("DATA {"), dump.out.size() - 6) + 6);
  std::replace(data.begin(), data.end(), ',', ' ');
  std::istringstream in(data);
  for (float value; in >> value;) values.push_back(value);
  return values;
}

TEST(RoundTrip, h5dumpReadsShardsAndWholeTensors) {
  const Folder folder;
  Whole whole(odd_tensors(), 4);
  for (const WriterLayout& layout : {even_layout(whole.tensors, 3), ragged_layout(whole.tensors, 3, 8)}) {
    fs::path path = save(folder.path(), whole, 4, {0, 1}, layout).path;
    write_index(path, read_manifest(path));
    const fs::path moved = folder.path() / "moved elsewhere";
    fs::rename(path, moved);                         // the index finds its shards beside it
    for (std::size_t t : {0u, 1u, 2u, 3u, 5u, 13u})  // the last one is bf16
      EXPECT_EQ(h5dump(moved / "index.h5", "/" + whole.tensors[t].name), whole.as_floats(t)) << t;
    const PieceSpan span = spans_of(whole.tensors, layout, 1).at(0);
    const auto values = whole.as_floats(as_size(span.tensor));
    EXPECT_EQ(h5dump(moved / "shard-00001.h5",
                     "/" + whole.tensors[span.tensor].name + "@" + std::to_string(span.first)),
              std::vector<float>(values.begin() + span.first, values.begin() + span.first + span.count));
    fs::remove_all(moved);
  }
}

}  // namespace
}  // namespace holdfast::checkpoint
