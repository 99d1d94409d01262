// What a checkpoint costs on this machine, beside what the same bytes cost without one: memory copied, raw
// direct writes and reads. One round; prints one JSON object. Ranks are threads here, as quick as processes
// are.
//   holdfast_checkpoint_bench FOLDER [GIB=2] [RANKS=2]     GIB = 0: what plans cost, without any data
// Needs twice GIB of memory and twice GIB of room in FOLDER. scripts/bench/checkpoint.sh runs it.
#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/exchange/index_file.hpp"
#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/shards/h5.hpp"
#include "checkpoint/shards/load.hpp"
#include "checkpoint/shards/load_plan.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "checkpoint/shards/shard_writer.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/slice.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::checkpoint {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t chunk = 8 << 20;
constexpr double gib = 1 << 30;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

/// Runs `work(rank)` on a thread per rank, all beginning at once; returns the seconds until the last is done.
template <class Work>
double on_all(int ranks, Work work) {
  std::atomic<double> begin = 0;
  std::barrier start(ranks, [&]() noexcept { begin = now(); });
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      start.arrive_and_wait();
      work(rank);
    });
  for (std::thread& thread : threads) thread.join();
  return now() - begin;
}

template <class Work>
double seconds_of(Work work) {
  const double begin = now();
  work();
  return now() - begin;
}

config::ModelShape llama_of(double gib_of_state) {
  config::ModelShape shape;
  shape.vocabulary = 32000;
  shape.width = 1024;
  shape.heads = 16;
  shape.kv_heads = 16;
  shape.ffn = 2752;
  const double layer = 4.0 * 1024 * 1024 + 3.0 * 1024 * 2752, ends = 2.0 * 32000 * 1024;
  shape.layers = std::max(1, static_cast<int>((gib_of_state * gib / 12 - ends) / layer + 0.5));
  return shape;
}

std::vector<LogicalTensor> tensors_of_run(const config::ModelShape& shape) {
  std::vector<LogicalTensor> tensors;
  for (const char* family : {"model/", "optim/exp_avg/", "optim/exp_avg_sq/"})
    for (const auto& spec : config::tensors_of(shape))
      tensors.push_back({family + spec.name, spec.rows, spec.cols});
  return tensors;
}

WriterLayout layout_of(const config::ModelShape& shape, int world) {
  WriterLayout out{world, 1, {}};
  for (int family = 0; family < 3; ++family)
    for (const auto& stored : config::stored_tensors_of(shape)) {
      const std::int64_t stride = slice_stride(stored.elements(), world);
      out.cuts.push_back({stored.parts, stride, stride});
    }
  return out;
}

/// Pages of memory that are there already.
struct Memory {
  explicit Memory(std::int64_t bytes) : buffer(bytes) { std::memset(data(), 0, buffer.span().size()); }
  std::byte* data() const { return buffer.span().data(); }
  AlignedBuffer buffer;
};

/// The pieces of a rank, one behind the other.
struct RankState {
  State state;
  std::int64_t bytes = 0;
  std::unique_ptr<Memory> memory;

  RankState(const std::vector<LogicalTensor>& tensors, const std::vector<PieceSpan>& spans)
      : state{tensors, {}} {
    for (const PieceSpan& span : spans) bytes += bytes_of(span, tensors);
    memory = std::make_unique<Memory>(bytes);
    std::byte* at = memory->data();
    for (const PieceSpan& span : spans) {
      state.pieces.push_back({span.tensor, span.first, span.count, at});
      at += bytes_of(span, tensors);
    }
  }
  void fill() {
    for (const PieceView& piece : state.pieces)
      for (std::int64_t i = 0; i < piece.count; ++i) {
        const auto index =
            static_cast<std::uint64_t>(piece.tensor) << 40 ^ static_cast<std::uint64_t>(piece.first + i);
        static_cast<float*>(piece.data)[i] = static_cast<float>(mix64(index) >> 40) * 0x1p-24f;
      }
  }
};

void forget(const fs::path& path) {
  const files::Fd fd = files::open(path, O_RDONLY);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void forget_all(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) forget(entry.path());
}

/// As dd oflag=direct bs=8M conv=fsync does it.
void write_raw(const fs::path& path, std::span<std::byte> bytes) {
  const files::Fd fd = files::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT);
  for (std::size_t at = 0; at < bytes.size(); at += chunk)
    files::write_all(fd.get(), bytes.data() + at, std::min<std::size_t>(chunk, bytes.size() - at), at, path);
  files::sync(fd.get(), path);
}

/// As dd iflag=direct bs=8M does it.
void read_raw(const fs::path& path) {
  const DirectReader file(path);
  const AlignedBuffer room(chunk);
  for (std::int64_t at = 0; at < file.bytes(); at += chunk) file.read(room.span(), at);
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A run's state in memory, saved and loaded. Raw and ours take turns: a shared disk changes its mind from
/// second to second.
class Round {
 public:
  Round(fs::path folder, double gib_of_state, int ranks)
      : folder_(std::move(folder)), ranks_(ranks), shape_(llama_of(gib_of_state)) {
    const WriterLayout layout = layout_of(shape_, ranks);
    state_.resize(at(ranks)), writers_.resize(at(ranks)), copies_.resize(at(ranks));
    Facts facts;
    facts.world = ranks;
    on_all(ranks, [&](int rank) {
      state_[at(rank)] = std::make_unique<RankState>(tensors_, spans_of(tensors_, layout, rank));
      state_[at(rank)]->fill();
      writers_[at(rank)] =
          std::make_unique<ShardWriter>(checkpoints_, rank, Generation{0, 1}, tensors_, layout, facts);
      copies_[at(rank)] = std::make_unique<Memory>(state_[at(rank)]->bytes);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      bytes_ += state_[at(rank)]->bytes;
      disk_ += writers_[at(rank)]->file_bytes();
    }
  }

  Json run() {
    out_ = {{"bytes", bytes_},
            {"disk_bytes", disk_},
            {"tensors", tensors_.size()},
            {"ranks", ranks_},
            {"layers", shape_.layers}};
    copies();
    saves();
    loads();
    reshards();
    fs::remove_all(checkpoints_);
    return out_;
  }

 private:
  static constexpr int turns = 3;
  static std::size_t at(int rank) { return as_size(rank); }

  /// What memory can do: a copy of the state, which training never waits for.
  void copies() {
    std::vector<double> moved;
    for (int i = 0; i < turns; ++i)
      moved.push_back(on_all(ranks_, [&](int rank) {
        std::memcpy(copies_[at(rank)]->data(), state_[at(rank)]->memory->data(), state_[at(rank)]->bytes);
      }));
    out_["memcpy_s"] = median(moved);
  }

  void saves() {
    std::vector<double> raw, saved;
    double cpu = 0;
    for (int turn = 0; turn < turns; ++turn) {
      const auto path = [&](int rank) { return folder_ / ("raw-" + std::to_string(rank)); };
      raw.push_back(
          on_all(ranks_, [&](int rank) { write_raw(path(rank), copies_[at(rank)]->buffer.span()); }));
      for (int rank = 0; rank < ranks_; ++rank) fs::remove(path(rank));
      std::vector<std::string> votes(at(ranks_));
      Commit commit(checkpoints_, turn, {0, 1}, ranks_);
      const double begin = now();
      on_all(ranks_, [&](int rank) {
        votes[at(rank)] = writers_[at(rank)]->write({turn, 0, 0}, state_[at(rank)]->state.pieces);
      });
      for (int rank = 0; rank < ranks_; ++rank) commit.add(rank, true, votes[at(rank)]);
      if (commit.failed()) throw Error(Exit::runtime, "the save failed", commit.why());
      step_dir_ = commit.commit().path;
      saved.push_back(now() - begin);
      for (const auto& writer : writers_) cpu += writer->last_cost().cpu_seconds;
      if (turn > 0) fs::remove_all(committed_path(checkpoints_, turn - 1));
    }
    out_["raw_write_s"] = median(raw), out_["save_s"] = median(saved);
    out_["direct"] = writers_[0]->last_cost().direct;
    out_["writer_cpu_s_per_gib"] = cpu / turns / (static_cast<double>(disk_) / gib);
    writers_.clear(), copies_.clear();
  }

  void loads() {
    std::vector<double> raw, loaded;
    std::atomic<std::int64_t> read = 0;
    double cpu = 0;
    for (int turn = 0; turn < turns; ++turn) {
      forget_all(step_dir_);
      raw.push_back(on_all(ranks_, [&](int rank) { read_raw(step_dir_ / shard_file_name(rank)); }));
      for (const auto& rank : state_) std::memset(rank->memory->data(), 0xff, rank->bytes);
      forget_all(step_dir_);
      cpu -= cpu_seconds();
      loaded.push_back(
          on_all(ranks_, [&](int rank) { read += load(step_dir_, state_[at(rank)]->state).bytes_read; }));
      cpu += cpu_seconds();
    }
    out_["raw_read_s"] = median(raw), out_["load_s"] = median(loaded);
    out_["load_cpu_s_per_gib"] = cpu / turns / (static_cast<double>(disk_) / gib);
    out_["load_bytes_ratio"] = static_cast<double>(read) / turns / static_cast<double>(bytes_);
    std::vector<std::uint64_t> digests(tensors_.size(), 0);
    for (const auto& rank : state_)
      for (std::size_t t = 0; const std::uint64_t part : partial_digests(rank->state)) digests[t++] += part;
    if (digests != read_manifest(step_dir_).digests)
      throw Error(Exit::runtime, "the load brought other bytes");
    state_.clear();
  }

  /// Into one rank more.
  void reshards() {
    const int ranks = ranks_ + 1;
    const WriterLayout layout = layout_of(shape_, ranks);
    std::vector<std::unique_ptr<RankState>> state(at(ranks));
    on_all(ranks, [&](int rank) {
      state[at(rank)] = std::make_unique<RankState>(tensors_, spans_of(tensors_, layout, rank));
    });
    std::vector<double> loaded;
    std::atomic<std::int64_t> read = 0;
    for (int turn = 0; turn < turns; ++turn) {
      forget_all(step_dir_);
      loaded.push_back(
          on_all(ranks, [&](int rank) { read += load(step_dir_, state[at(rank)]->state).bytes_read; }));
    }
    out_["reshard_s"] = median(loaded);
    out_["reshard_bytes_ratio"] = static_cast<double>(read) / turns / static_cast<double>(bytes_);
  }

  fs::path folder_, checkpoints_ = folder_ / "checkpoints", step_dir_;
  int ranks_;
  config::ModelShape shape_;
  std::vector<LogicalTensor> tensors_ = tensors_of_run(shape_);
  std::vector<std::unique_ptr<RankState>> state_;
  std::vector<std::unique_ptr<ShardWriter>> writers_;
  std::vector<std::unique_ptr<Memory>> copies_;
  std::int64_t bytes_ = 0, disk_ = 0;
  Json out_;
};

/// Plans of 1,200 tensors over 16 ranks, and the index of 300 over 128 and 1024. No data.
Json plans(const fs::path& folder) {
  std::vector<LogicalTensor> tensors;
  for (int i = 0; i < 1200; ++i)
    tensors.push_back({"model/model.layers." + std::to_string(i) + ".self_attn.q_proj.weight", 4096, 4096});
  const auto spread = [](std::size_t count, int world) {
    const std::int64_t each = 4096 * 4096 / world;
    return WriterLayout{world, 1, std::vector<Cut>(count, Cut{1, each, each})};
  };
  const WriterLayout layout = spread(1200, 16);
  Manifest manifest;
  manifest.tensors = tensors;
  manifest.layout = layout;
  Json out;
  out["writer_plans_16_s"] = seconds_of([&] {
    for (int rank = 0; rank < 16; ++rank)
      manifest.shards.push_back(plan_shard(rank, 16, tensors, spans_of(tensors, layout, rank)).info);
  });
  // 16 ranks that read what 12 of another run would hold: every piece is cut.
  out["load_plans_16_s"] = seconds_of([&] {
    for (int rank = 0; rank < 16; ++rank) {
      State into{tensors, {}};
      static std::byte nowhere[1];
      for (int t = 0; t < 1200; ++t) into.pieces.push_back({t, 1048575 * rank + 1, 1048575, nowhere});
      if (plan_load(folder, manifest, into).runs.empty()) throw Error(Exit::runtime, "a plan is empty");
    }
  });
  for (const int world : {128, 1024}) {
    Manifest wide;
    tensors.resize(300);
    wide.tensors = tensors;
    wide.layout = spread(300, world);
    wide.shards.resize(as_size(world));
    for (int rank = 0; rank < world; ++rank) wide.shards[as_size(rank)].file = shard_file_name(rank);
    const std::string of = "_" + std::to_string(world);
    std::string index;
    out["index_make" + of + "_s"] = seconds_of([&] { index = index_text(wide); });
    out["index_bytes" + of] = index.size();
    const fs::path path = folder / ("index" + of + ".h5");
    std::ofstream(path, std::ios::binary) << index;
    std::vector<double> opened;
    for (int i = 0; i < 7; ++i)
      opened.push_back(seconds_of([&] {
        const h5::Id file = h5::open_file(path);
        const h5::Id dataset(H5Dopen2(file.get(), tensors[40 * i].name.c_str(), H5P_DEFAULT), H5Dclose);
        if (dataset.get() < 0) throw Error(Exit::runtime, "a tensor is not in the index");
      }));
    out["index_open" + of + "_s"] = median(opened);
    fs::remove(path);
  }
  return out;
}

}  // namespace
}  // namespace holdfast::checkpoint

int main(int argc, char** argv) {
  using namespace holdfast::checkpoint;
  if (argc < 2) {
    std::cerr << "holdfast_checkpoint_bench FOLDER [GIB=2] [RANKS=2]\n";
    return 2;
  }
  try {
    const fs::path folder = argv[1];
    fs::create_directories(folder);
    const double size = argc > 2 ? std::atof(argv[2]) : 2;
    const int ranks = argc > 3 ? std::atoi(argv[3]) : 2;
    const Json out = size > 0 ? Round(folder, size, ranks).run() : plans(folder);
    std::cout << out.dump() << "\n";
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "holdfast_checkpoint_bench: " << e.what() << "\n";
    return 1;
  }
}
