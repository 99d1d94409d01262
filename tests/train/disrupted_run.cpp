#include "tests/train/disrupted_run.hpp"

#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/run_dir.hpp"
#include "src/snapshot/seal.hpp"

namespace holdfast::train::testing {
namespace {

constexpr std::uint64_t this_run = 42;
constexpr int buffers = 2;

config::ModelShape shape_of(int vocabulary) {
  config::ModelShape shape;
  shape.name = "small", shape.vocabulary = vocabulary, shape.width = 8, shape.layers = 1, shape.heads = 2,
  shape.kv_heads = 1, shape.ffn = 11;
  return shape;
}

struct BrokenExchange final : comm::PeerExchange {
  comm::ExchangeRate run(std::span<const comm::PieceOut> out, std::span<const comm::PieceIn> in,
                         const Deadline&) override {
    if (out.empty() && in.empty()) return {};
    throw Error(Exit::runtime, "the cable is cut");
  }
  std::string describe() const override { return "a cut cable"; }
};

/// Room for the arenas of a rank.
struct Arenas {
  explicit Arenas(const shard::Layout& layout)
      : parameters(as_size(layout.arena_elements)),
        exp_avg(4 * parameters.size()),
        exp_avg_sq(4 * parameters.size()) {}
  std::vector<float> parameters;
  std::vector<std::byte> exp_avg, exp_avg_sq;
};

}  // namespace

DisruptedRun::DisruptedRun(const Cluster& cluster, const fs::path& root)
    : cluster_(cluster), root_(root), shape_(shape_of(cluster.vocabulary)) {
  fs::create_directories(dir().checkpoints());
  for (int rank = 0; rank < world(); ++rank) {
    const auto layout = shard::layout_of(shape_, mesh_of(rank));
    Arenas arenas(layout);
    const StateViews views = views_of(shape_, layout, arenas.parameters.data(), arenas.exp_avg.data(),
                                      arenas.exp_avg_sq.data(), cluster_.moments);
    tensors_ = views.held.tensors;
    writers_ = views.writers;
    auto& spans = spans_.emplace_back();
    for (const auto& piece : views.held.pieces) spans.push_back(piece.span());
  }
}

shard::Mesh DisruptedRun::mesh_of(int rank) const {
  return shard::mesh_of(cluster_.strategy, cluster_.group, cluster_.ranks_per_node, world(), rank);
}

LocalRun DisruptedRun::local_run(int rank) const {
  return {shape_, mesh_of(rank), cluster_.moments, this_run, 1 << 14};
}

fs::path DisruptedRun::file(int node, int of, bool copy) const {
  return folder(node) / snapshot::folder_name(of, copy);
}

std::vector<int> DisruptedRun::pieces_of_writer(int writer) const {
  const auto& held = spans_[writer];
  std::vector<int> out;
  for (int i = 0; i < std::ssize(held); ++i)
    for (const auto& span : checkpoint::spans_of(tensors_, writers_, writer))
      if (const auto& piece = held[i]; span.count > 0 && span.tensor == piece.tensor &&
                                       span.first < piece.first + piece.count &&
                                       piece.first < span.first + span.count) {
        out.push_back(i);
        break;
      }
  return out;
}

std::int64_t DisruptedRun::state_bytes() const {
  std::int64_t sum = 0;
  for (const auto& tensor : tensors_) sum += tensor.elements() * bytes_of(tensor.type);
  return sum;
}

checkpoint::StateFolder DisruptedRun::open(int node, int of, bool copy, std::uint64_t run) const {
  fs::create_directories(folder(node).parent_path());
  auto identity = local_identity_of(local_run(of), of);
  if (run != 0) identity.run = run;
  return {file(node, of, copy),      identity, buffer_shape_of(local_run(of), of).bytes, buffers, false,
          local_run(of).record_bytes};
}

void DisruptedRun::snapshot(int node, int of, bool copy, int buffer, std::int64_t step,
                            std::uint64_t run) const {
  checkpoint::StateFolder local = open(node, of, copy, run);
  const checkpoint::State view = buffer_view_of(local_run(of), of, local.buffer(buffer).data());
  checkpoint::testing::Whole truth(tensors_, step);
  const checkpoint::State from = truth.view(spans_[of]);
  local.open(buffer);
  for (std::size_t i = 0; i < view.pieces.size(); ++i)
    std::memcpy(view.pieces[i].data, from.pieces[i].data,
                checkpoint::bytes_of(view.pieces[i].span(), tensors_));
  local.seal(buffer, {point(step), checkpoint::piece_digests(view)});
}

void DisruptedRun::save(std::int64_t step) const {
  checkpoint::testing::Whole truth(tensors_, step);
  checkpoint::testing::save(dir().checkpoints(), truth, step, {1, 1}, writers_, 10);
}

void DisruptedRun::flip(int node, int of, bool copy, int buffer, int piece, std::uint64_t bit) const {
  const checkpoint::StateFolder local = open(node, of, copy);
  const auto view = buffer_view_of(local_run(of), of, local.buffer(buffer).data());
  const auto& p = view.pieces[piece];
  bit %= 8 * static_cast<std::uint64_t>(checkpoint::bytes_of(p.span(), tensors_));
  static_cast<std::byte*>(p.data)[bit / 8] ^= std::byte{1} << (bit % 8);
}

void DisruptedRun::unseal(int node, int of, bool copy, int buffer) const {
  open(node, of, copy).open(buffer);
}

fs::path DisruptedRun::shard(std::int64_t step, int writer) const {
  return checkpoint::committed_path(dir().checkpoints(), step) / checkpoint::shard_file_name(writer);
}

bool DisruptedRun::flip_shard(std::int64_t step, int writer, std::uint64_t bit) const {
  const auto manifest = checkpoint::read_manifest(checkpoint::committed_path(dir().checkpoints(), step));
  const auto& info = manifest.shards[writer];
  const std::int64_t payload = info.bytes - info.payload_offset;
  if (payload <= 0) return false;
  const auto offset = static_cast<std::uint64_t>(info.payload_offset);
  checkpoint::testing::flip_bit(shard(step, writer),
                                8 * offset + bit % (8 * static_cast<std::uint64_t>(payload)));
  return true;
}

bool DisruptedRun::holds(const checkpoint::State& held, std::int64_t step) const {
  checkpoint::testing::Whole truth(tensors_, step);
  std::vector<checkpoint::PieceSpan> spans;
  for (const auto& piece : held.pieces) spans.push_back(piece.span());
  const checkpoint::State expected = truth.view(spans);
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (std::memcmp(held.pieces[i].data, expected.pieces[i].data, checkpoint::bytes_of(spans[i], tensors_)) !=
        0)
      return false;
  return true;
}

std::string DisruptedRun::digest(std::int64_t step) const {
  const checkpoint::testing::Whole truth(tensors_, step);
  return checkpoint::digest_text(checkpoint::state_digest(tensors_, truth.digests()));
}

RankAfter DisruptedRun::restart_rank(int rank, int node, const RestartOptions& options,
                                     comm::Communicator& world, tests::FakeNetwork& network) const {
  const LocalRun run = local_run(rank);
  const auto layout = shard::layout_of(shape_, run.mesh);
  Arenas arenas(layout);
  const StateViews views = views_of(shape_, layout, arenas.parameters.data(), arenas.exp_avg.data(),
                                    arenas.exp_avg_sq.data(), cluster_.moments);
  RankAfter after;
  std::span<std::byte> live;
  std::unique_ptr<Snapshots> local;
  if (options.local)
    local = make_host_snapshots(
        {run, rank, open(node, rank, false), {}, 1, [&](std::span<std::byte> buffer) { live = buffer; }});
  RestoreContext context{run, local.get()};
  if (options.network)
    context.open_exchange = [&]() -> std::unique_ptr<comm::PeerExchange> {
      return options.network_breaks ? std::make_unique<BrokenExchange>() : network.of(rank);
    };
  context.limit = std::chrono::seconds(20);
  context.patience = options.patience;
  const RunDir run_dir = dir();
  const checkpoint::Facts facts = checkpoint::testing::some_facts(world.size());
  after.from = restore(run_dir, options.order, views, facts, world, context);
  const std::int64_t step = after.from.point.step;
  if (after.from.fresh) return after;
  if (!local) {
    after.holds_truth = holds(views.held, step);
    return after;
  }
  for (int buffer = 0; buffer < local->file().buffers(); ++buffer)
    if (local->file().buffer(buffer).data() == live.data()) after.buffer = buffer;
  after.holds_truth = holds(local->view(after.buffer), step);
  const auto what = local->file().sealed(after.buffer);
  after.sealed = what && what->point == after.from.point &&
                 what->digests == checkpoint::piece_digests(local->view(after.buffer));
  return after;
}

std::vector<RankAfter> DisruptedRun::restart(const std::vector<int>& node_of, const RestartOptions& options,
                                             tests::FakeNetwork& network) const {
  tests::ThreadWorld threads(world());
  std::vector<RankAfter> out(node_of.size());
  for (const int node : node_of) fs::create_directories(folder(node).parent_path());
  tests::FakeNetwork::each_rank(world(), [&](int rank) {
    const auto world = threads.of(rank);
    const auto at = as_size(rank);
    out[at] = restart_rank(rank, node_of[at], options, *world, network);
  });
  return out;
}

std::vector<Error> DisruptedRun::failed_restart(const std::vector<int>& node_of,
                                                const RestartOptions& options,
                                                tests::FakeNetwork& network) const {
  std::vector<Error> out(node_of.size(), Error(Exit::done, "it did not fail"));
  tests::ThreadWorld threads(world());
  for (const int node : node_of) fs::create_directories(folder(node).parent_path());
  tests::FakeNetwork::each_rank(world(), [&](int rank) {
    const auto at = as_size(rank);
    const auto world = threads.of(rank);
    try {
      restart_rank(rank, node_of[at], options, *world, network);
    } catch (const Error& error) {
      out[at] = error;
    }
  });
  return out;
}

}  // namespace holdfast::train::testing
