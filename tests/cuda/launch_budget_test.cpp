// What a step launches and moves on a GPU, counted: the trainer's own model, shards and optimizer on a
// runtime that runs nothing, at the size of Llama 2 7B. docs/gpu-budget.md has the formulas, and this test
// reads them there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <string>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "src/cuda/device/cuda_kernels.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"
#include "src/cuda/simt/simt.hpp"
#include "src/model/fp8_scaling.hpp"
#include "src/model/transformer.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/shard/sharded_weights.hpp"

namespace holdfast::cuda {
namespace {

/// The launches of one kernel, or the calls of the library.
struct Count {
  std::int64_t launches = 0, bytes = 0;
};

class CountingRuntime final : public Runtime {
 public:
  std::map<std::string, Count> counts;
  void clear() { counts.clear(); }
  void launched() { ++counts[declared_].launches; }

  const GpuTraits& facts() const override { return facts_; }
  std::int64_t free_bytes() override { return std::int64_t{80} << 30; }
  /// Addresses behind which nothing lies until somebody looks.
  void* device_alloc(std::int64_t bytes) override {
    void* const at = mmap(nullptr, as_size(bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw Error(Exit::runtime, "no addresses");
    return at;
  }
  void device_free(void*) noexcept override {}
  void* host_alloc(std::int64_t bytes) override { return device_alloc(bytes); }
  void host_free(void*) noexcept override {}
  void* host_register(void* memory, std::int64_t) override { return memory; }
  void host_unregister(void*) noexcept override {}
  IpcHandle ipc_export(void*) override { return {}; }
  void* ipc_open(const IpcHandle&, std::int64_t) override { return nullptr; }
  void ipc_close(void*) noexcept override {}
  StreamHandle stream_create(Priority) override { return StreamHandle{++handles_}; }
  void stream_destroy(StreamHandle) noexcept override {}
  EventHandle event_create() override { return EventHandle{++handles_}; }
  void event_destroy(EventHandle) noexcept override {}
  void event_record(EventHandle, StreamHandle) override {}
  bool event_passed(EventHandle) override { return true; }
  void stream_wait(StreamHandle, EventHandle) override {}
  void copy(StreamHandle, void*, const void*, std::int64_t bytes) override { count("copy", 2 * bytes); }
  void zero(StreamHandle, void*, std::int64_t bytes) override { count("zero", bytes); }
  void write_word(StreamHandle, std::uint32_t*, std::uint32_t) override {}
  void wait_word(StreamHandle, const std::uint32_t*, std::uint32_t) override {}
  void declare(StreamHandle, const char* name, std::initializer_list<Access> accesses) override {
    declared_ = name;
    for (const Access& access : accesses) counts[name].bytes += access.bytes;
  }
  void capture_begin(StreamHandle) override {}
  GraphHandle capture_end(StreamHandle) override { return {}; }
  void graph_launch(GraphHandle, StreamHandle) override {}
  void graph_destroy(GraphHandle) noexcept override {}

 private:
  void count(const char* name, std::int64_t bytes) {
    ++counts[name].launches;
    counts[name].bytes += bytes;
  }
  GpuTraits facts_{"a GPU that counts", "", 9, 0, 132, std::int64_t{80} << 30, "", ""};
  std::uintptr_t handles_ = 0;
  std::string declared_;
};
CountingRuntime* running = nullptr;

class CountingGemm final : public Gemm {
 public:
  void run(StreamHandle, const Product& p) override {
    const std::string kind = p.add                     ? "product that adds"
                             : p.y.type == DType::fp32 ? "product to fp32"
                                                       : "product";
    ++running->counts[(is_fp8(p.a.type) ? "8-bit " : "") + kind].launches;
  }
  std::string identity() const override { return ""; }
  void note(const Product&) override {}
  std::string choices(std::string_view) override { return ""; }
  void use_choices(std::string_view) override {}
};

class CountingAttention final : public AttentionEngine {
 public:
  std::int64_t workspace(const kernels::Attention&) override { return 0; }
  void forward(StreamHandle, const kernels::Attention&) override { ++running->counts["attention"].launches; }
  void backward(StreamHandle, const kernels::Attention&, const kernels::AttentionGradient&) override {
    ++running->counts["attention backward"].launches;
  }
  std::string identity() const override { return ""; }
};

/// A group of which only this member exists; the others' memory lies where its own does. Reductions come as
/// they do between GPUs of a node: a whole part at once.
class Alone final : public comm::Communicator {
 public:
  Alone(CudaStream& stream, int rank, int size) : stream_(stream), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::span<std::byte> symmetric_memory(std::int64_t) override { return {}; }
  comm::Event all_gather(std::span<const comm::Extent>, const comm::Event&) override { return {}; }
  comm::Event ordered_reduce_scatter(std::span<const comm::Extent> tensors, comm::OrderedReducer& reducer,
                                     const comm::Event&) override {
    return reduce(tensors, reducer, as_size(size_));
  }
  comm::Event exchange_partial_sums(std::span<const comm::Extent> tensors, std::int64_t,
                                    std::span<const int> sums_of, comm::OrderedReducer& reducer,
                                    const comm::Event&) override {
    std::size_t arrays = 0;
    for (const int count : sums_of) arrays += as_size(count);
    return reduce(tensors, reducer, arrays);
  }
  void all_reduce(std::span<std::uint64_t>, comm::Scalar) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int, std::string) override { return nullptr; }
  const comm::Wire& wire() const override { return wire_; }
  void abort(std::string_view) noexcept override {}

 private:
  comm::Event reduce(std::span<const comm::Extent> tensors, comm::OrderedReducer& reducer,
                     std::size_t arrays) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const auto& tensor = tensors[t];
      const std::int64_t first = std::min(tensor.elements, rank_ * tensor.part),
                         count = std::min(tensor.part, tensor.elements - first);
      const std::vector<const void*> sources(
          arrays, static_cast<const std::byte*>(tensor.data) + first * tensor::bytes_of(tensor.type));
      if (count > 0) reducer.reduce(stream_, static_cast<int>(t), 0, count, sources);
    }
    return {};
  }
  CudaStream& stream_;
  int rank_, size_;
  comm::Wire wire_;
};

class Weights final : public model::Weights {
 public:
  explicit Weights(shard::ShardedWeights& shards) : shards_(shards) {}
  void acquire(int unit) override { shards_.acquire(unit); }
  const void* weight(int stored) override { return shards_.weight(stored); }
  void release(int unit) override { shards_.release(unit); }
  float* gradient(int stored) override { return shards_.gradient(stored); }
  bool adds(int stored) override { return shards_.adds(stored); }
  tensor::DType gradient_type(int stored) override { return shards_.gradient_type(stored); }
  void reduce(int unit) override { shards_.reduce(unit); }

 private:
  shard::ShardedWeights& shards_;
};

config::ModelShape llama2_7b() {
  config::ModelShape m;
  m.vocabulary = 32000;
  m.width = 4096;
  m.layers = 32;
  m.heads = m.kv_heads = 32;
  m.ffn = 11008;
  return m;
}

struct Job {
  config::Strategy strategy = config::Strategy::no_shard;
  int group = 1, replicas = 1, micro_batches = 8, lanes = 0;
  DType reduce = DType::fp32;
  bool fp8 = false, keeps_copies = false;
};

/// What the steps behind the first one launch, by kernel.
std::map<std::string, Count> step_of(const Job& job) {
  CountingRuntime runtime;
  running = &runtime;
  CountingGemm gemm;
  CountingAttention attention;
  const auto scratch = std::span(static_cast<std::byte*>(runtime.device_alloc(CudaKernels::scratch_bytes)),
                                 as_size(CudaKernels::scratch_bytes));
  CudaKernels kernels(runtime, gemm, attention, scratch);
  CudaStream stream(runtime, "compute"), reductions(runtime, "reductions");
  stream.use_graphs(false);
  const config::ModelShape shape = llama2_7b();
  const shard::Layout layout =
      shard::layout_of(shape, shard::mesh_of(job.strategy, job.group, job.group, job.group * job.replicas,
                                             job.replicas > 1 ? job.group : 0));
  const config::LanePlan lanes(job.micro_batches, job.lanes, layout.mesh.replicas, layout.mesh.group);
  shard::Policy policy;
  policy.parameters = DType::bf16;
  policy.reduce = job.reduce;
  const int member = layout.mesh.member(), replica = layout.mesh.replica();
  const shard::Groups groups{std::make_unique<Alone>(reductions, member, layout.mesh.group),
                             std::make_unique<Alone>(reductions, member, layout.mesh.group),
                             std::make_unique<Alone>(reductions, replica, layout.mesh.replicas)};
  tensor::Arena symmetric, own, moments;
  shard::ShardedWeights shards(layout, lanes, policy, {groups, kernels, kernels, stream, symmetric, own});
  const auto tensors = config::tensors_of(shape);
  const optim::TensorGroups tensor_groups = optim::tensor_groups({}, tensors);
  optim::ShardedAdamW adamw(layout, tensor_groups, DType::fp32, kernels, stream, moments, own);
  model::Options options;
  options.sequence = 4096;
  options.activations = DType::bf16;
  options.activation_checkpointing = config::ActivationCheckpointing::selective;
  options.products = job.fp8 ? config::Products::fp8 : config::Products::bf16;
  options.keeps_copies = job.keeps_copies;
  model::Transformer transformer(shape, options, kernels, stream, own);
  for (tensor::Arena* arena : {&symmetric, &own, &moments})
    arena->commit({static_cast<std::byte*>(runtime.device_alloc(arena->planned_bytes())),
                   as_size(arena->planned_bytes())});
  Weights weights(shards);
  const std::vector<std::int32_t> tokens(as_size(options.tokens()));
  model::Batch batch;
  batch.inputs = batch.labels = tokens;
  const optim::StateArenas state{shards.parameters(), adamw.exp_avg(), adamw.exp_avg_sq()};
  const auto operands = as_size(shape.layers * model::fp8_roles);
  std::vector<std::uint32_t> amaxes(operands);
  for (int step = 0; step < 2; ++step) {
    runtime.clear();
    transformer.new_weights();
    shards.begin_step();
    for (int i = 0; i < lanes.micro_steps(replica); ++i) {
      shards.begin_micro_step(i);
      transformer.forward_backward(weights, batch);
    }
    shards.finish_step();
    transformer.take_loss();
    if (job.fp8) transformer.take_amaxes(amaxes);
    adamw.squares(shards.gradients());
    adamw.update(state, shards.gradients(), {}, state);
    shards.publish();
    if (job.fp8) transformer.set_scales(std::vector<float>(operands, 1.0f));
  }
  return runtime.counts;
}

/// A formula of the page: numbers, names, + - * / and parentheses.
class Formula {
 public:
  Formula(const std::string& text, const std::map<std::string, double>& names) : text_(text), names_(names) {}
  std::int64_t value() {
    const double result = sum();
    EXPECT_EQ(at_, text_.size()) << text_;
    return std::llround(result);
  }

 private:
  char next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) { return next() == c && ++at_ > 0; }
  double sum() {
    double out = product();
    for (;;)
      if (take('+'))
        out += product();
      else if (take('-'))
        out -= product();
      else
        return out;
  }
  double product() {
    double out = factor();
    for (;;)
      if (take('*'))
        out *= factor();
      else if (take('/'))
        out /= factor();
      else
        return out;
  }
  double factor() {
    if (take('(')) {
      const double out = sum();
      EXPECT_TRUE(take(')')) << text_;
      return out;
    }
    std::size_t end = at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0)) ++end;
    const std::string word = text_.substr(at_, end - at_);
    at_ = end;
    if (word.empty()) return ADD_FAILURE() << "in " << text_, 0;
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return std::stod(word);
    const auto found = names_.find(word);
    EXPECT_NE(found, names_.end()) << word << " in " << text_;
    return found == names_.end() ? 0 : found->second;
  }

  std::string text_;
  const std::map<std::string, double>& names_;
  std::size_t at_ = 0;
};

/// The rows of a table of the page: what, launches, bytes.
std::vector<std::array<std::string, 3>> table_of(const std::string& heading) {
  const std::string page = files::read_text(HOLDFAST_SOURCE_DIR "/docs/gpu-budget.md");
  std::size_t at = page.find("## " + heading + "\n");
  EXPECT_NE(at, std::string::npos) << heading;
  std::vector<std::array<std::string, 3>> rows;
  for (at = page.find("|---", at); (at = page.find("\n| ", at)) != std::string::npos;) {
    const std::size_t end = page.find('\n', at + 1);
    const std::string line = page.substr(at + 1, end - at - 1);
    std::array<std::string, 3> row;
    std::size_t from = 1;
    for (std::string& cell : row) {
      const std::size_t to = line.find('|', from);
      cell = line.substr(from, to - from);
      cell.erase(0, cell.find_first_not_of(" `"));
      cell.erase(cell.find_last_not_of(" `") + 1);
      from = to + 1;
    }
    rows.push_back(row);
    if (page.compare(end, 3, "\n| ") != 0) break;
    at = end;
  }
  return rows;
}

/// `most`: launches of own kernels in all.
void expect_as_written(const std::string& heading, const Job& job, std::int64_t most = 10'000) {
  const auto counts = step_of(job);
  const config::ModelShape shape = llama2_7b();
  const auto all = static_cast<double>(config::parameters_of(shape));
  double linear = 0;
  for (const auto& tensor : config::stored_tensors_of(shape))
    if (tensor.linear) linear += static_cast<double>(tensor.elements());
  const double micro_steps = static_cast<double>(job.micro_batches) / (job.group * job.replicas);
  const std::map<std::string, double> names = {
      {"L", shape.layers}, {"M", micro_steps}, {"S", job.group},       {"R", job.replicas},
      {"P", all},          {"A", linear},      {"B", all - linear},    {"V", shape.vocabulary},
      {"d", shape.width},  {"f", shape.ffn},   {"K", job.keeps_copies}};
  std::map<std::string, Count> left = counts;
  std::int64_t total = 0;
  for (const auto& [what, launches, bytes] : table_of(heading)) {
    const auto found = counts.find(what);
    const Count is = found == counts.end() ? Count{} : found->second;
    EXPECT_EQ(is.launches, Formula(launches, names).value()) << heading << ": launches of " << what;
    if (!bytes.empty()) {
      const auto wanted = static_cast<double>(Formula(bytes, names).value());
      EXPECT_NEAR(static_cast<double>(is.bytes), wanted, 0.01 * wanted) << heading << ": bytes of " << what;
    }
    left.erase(what);
    if (what.find("product") == std::string::npos && !what.starts_with("attention")) total += is.launches;
  }
  EXPECT_LT(total, most) << heading;
  for (const auto& [what, count] : left)
    ADD_FAILURE() << heading << ": " << what << " is not in the table: " << count.launches << " launches, "
                  << count.bytes << " bytes";
}

TEST(LaunchBudget, OneCard) { expect_as_written("One card", {}); }

TEST(LaunchBudget, OneCardWithOneLane) { expect_as_written("One card, one lane", {.lanes = 1}); }

/// Issue 39: copies of weights may be kept for a step.
TEST(LaunchBudget, OneCardWithEightBitProducts) {
  for (const bool keeps : {false, true})
    expect_as_written("One card, 8-bit products", {.lanes = 1, .fp8 = true, .keeps_copies = keeps});
}

TEST(LaunchBudget, OneHundredAndTwentyFourReplicas) {
  expect_as_written("124 replicas", {config::Strategy::hybrid_shard, 8, 124, 992, 0, DType::bf16}, 2000);
}

}  // namespace

namespace simt {

// Nothing runs.
thread_local constinit Here here __attribute__((tls_model("initial-exec")));
void enqueue(StreamHandle, Launch) { running->launched(); }
void block_barrier(Site) { std::abort(); }
std::uint64_t exchange(Site, unsigned, std::uint64_t, int) { std::abort(); }
unsigned ballot(Site, unsigned, bool) { std::abort(); }
void* shared(const void*, const char*, std::size_t) { std::abort(); }

}  // namespace simt

}  // namespace holdfast::cuda
