// The whole backend behind kernels::Kernels against the CPU's, with the simulator's products and attention.
#include "src/cuda/device/cuda_kernels.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/base/error.hpp"
#include "src/base/fp8.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"
#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/sim/reference_attention.hpp"
#include "tests/cuda/sim/reference_gemm.hpp"
#include "tests/cuda/test_gpu.hpp"
#include "tests/kernels/plain_sum.hpp"

namespace holdfast::cuda {
namespace {

using kernels::head_chunk;
using kernels::Kernels;
using kernels::Write;
using tensor::dense;
using tensor::ExactSum;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

/// Kernels with memory and a stream that suit them.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Kernels& kernels() = 0;
  virtual tensor::Stream& stream() = 0;
  virtual std::byte* allocate(std::int64_t bytes) = 0;

  template <class T>
  T* put(const std::vector<T>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
    std::byte* const at = allocate(bytes);
    stream().upload(at, values.data(), bytes);
    return reinterpret_cast<T*>(at);
  }
  template <class T>
  T* room(std::int64_t count) {
    return put(std::vector<T>(count));
  }
  template <class T>
  std::vector<T> get(const T* at, std::int64_t count) {
    std::vector<T> values(count);
    stream().download(values.data(), at, count * static_cast<std::int64_t>(sizeof(T)));
    return values;
  }
};

class Cpu final : public Backend {
 public:
  Kernels& kernels() override { return *kernels_; }
  tensor::Stream& stream() override { return stream_; }
  std::byte* allocate(std::int64_t bytes) override {
    // Whole cache lines of 64 bytes.
    memory_.emplace_back(as_size(bytes / 64 + 1));
    return memory_.back().data()->bytes;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Kernels> kernels_ = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream_;
  std::vector<std::vector<Line>> memory_;
};

class Gpu final : public Backend {
 public:
  explicit Gpu(std::int64_t scratch_bytes = CudaKernels::scratch_bytes) : scratch(as_size(scratch_bytes)) {}

  Kernels& kernels() override { return cuda; }
  tensor::Stream& stream() override { return compute; }
  std::byte* allocate(std::int64_t bytes) override {
    memory_.push_back(std::make_unique<test::DeviceArray<std::byte>>(bytes));
    return memory_.back()->data();
  }

  sim::SimRuntime& runtime = dynamic_cast<sim::SimRuntime&>(test::gpu());
  CudaStream compute{runtime, "compute"};
  sim::ReferenceGemm gemm{runtime};
  sim::ReferenceAttention attention{runtime};
  test::DeviceArray<std::byte> scratch;
  CudaKernels cuda{runtime, gemm, attention, {scratch.data(), scratch.size()}};

 private:
  std::vector<std::unique_ptr<test::DeviceArray<std::byte>>> memory_;
};

Floats numbers(const Floats& x) { return x; }
template <class T>
Floats numbers(const std::vector<T>& x) {
  Floats out;
  for (const T e : x) out.push_back(to_float(e));
  return out;
}
/// max |a - b| / max |b|
double distance(const Floats& a, const Floats& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY, size = 1e-30;
  for (std::size_t i = 0; i < b.size() && i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    worst = difference <= worst ? worst : difference;  // a NaN stays
    size = std::fmax(size, std::fabs(b[i]));
  }
  return worst / size;
}

template <class T>
class CudaHead : public ::testing::Test {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(CudaHead, Types);

struct HeadResult {
  ExactSum loss;
  std::int64_t valid = 0;
  Floats d_hidden, d_head;
  ExactSum other_loss = {};  // of the second sum
  std::int64_t other_valid = 0;
};
enum class Want { all, no_head, loss };

template <class T>
HeadResult head_loss(Backend& on, std::int64_t tokens, Want want, std::span<const std::int32_t> sum_of = {}) {
  const std::int64_t d = 16, vocabulary = 67;
  std::vector<std::int32_t> labels;
  for (std::int64_t t = 0; t < tokens; ++t)
    labels.push_back(t % 5 == 0 ? -100 : static_cast<std::int32_t>(t * 7 % vocabulary));
  T* const d_hidden = on.put(test::random_elements<T>(tokens * d, 8));
  float* const d_head = on.put(test::random_elements<float>(vocabulary * d, 9));
  kernels::HeadLoss h;
  h.hidden = dense(on.put(test::random_elements<T>(tokens * d, 1)), tokens, d);
  h.head = dense(on.put(test::random_elements<T>(vocabulary * d, 2)), vocabulary, d);
  h.labels = on.put(labels);
  const std::int64_t chunk = std::min(tokens, head_chunk);
  h.logits = dense(on.template room<float>(chunk * vocabulary), chunk, vocabulary);
  if (want != Want::loss) h.d_hidden = dense(d_hidden, tokens, d);
  if (want == Want::all) h.d_head = dense(d_head, vocabulary, d);
  h.loss = on.put(std::vector<ExactSum>(2));
  h.valid = on.put(std::vector<std::int64_t>{5, 0});
  h.sum_of = sum_of;
  on.kernels().head_loss(on.stream(), h);
  const auto losses = on.get(h.loss, 2);
  const auto valid = on.get(h.valid, 2);
  return {losses[0], valid[0], numbers(on.get(d_hidden, tokens * d)), on.get(d_head, vocabulary * d),
          losses[1], valid[1]};
}

TYPED_TEST(CudaHead, LossAndGradientsInChunks) {
  // The gradient of a logit may be rounded to the other side of a bf16.
  const double tolerance = std::is_same_v<TypeParam, float> ? 1e-5 : 0x1p-7;
  for (const std::int64_t tokens :
       {7, static_cast<int>(head_chunk) + 3, 2 * static_cast<int>(head_chunk) + 40}) {
    Cpu cpu;
    Gpu gpu;
    const HeadResult want = head_loss<TypeParam>(cpu, tokens, Want::all);
    const HeadResult is = head_loss<TypeParam>(gpu, tokens, Want::all);
    EXPECT_EQ(is.valid, want.valid);
    EXPECT_NEAR(is.loss.value(), want.loss.value(), 1e-6 * want.loss.value());
    EXPECT_LT(distance(is.d_hidden, want.d_hidden), tolerance);
    EXPECT_LT(distance(is.d_head, want.d_head), tolerance);
    // What is not wanted is not touched, and the rest is the same.
    const HeadResult frozen = head_loss<TypeParam>(gpu, tokens, Want::no_head),
                     evaluated = head_loss<TypeParam>(gpu, tokens, Want::loss);
    EXPECT_EQ(frozen.loss, is.loss);
    EXPECT_EQ(frozen.d_hidden, is.d_hidden);
    EXPECT_EQ(frozen.d_head, test::random_elements<float>(67 * 16, 9));
    EXPECT_EQ(evaluated.loss, is.loss);
    EXPECT_EQ(evaluated.valid, is.valid);
    EXPECT_EQ(evaluated.d_hidden, numbers(test::random_elements<TypeParam>(tokens * 16, 8)));
  }
}

TYPED_TEST(CudaHead, LossesGoToTheSumsOfTheirPartsAndAreTheSameTogether) {
  const std::int64_t tokens = 3 * 500;  // a part ends inside a chunk
  const std::int32_t sum_of[] = {1, 0, 1};
  Cpu cpu;
  Gpu gpu;
  const HeadResult whole = head_loss<TypeParam>(gpu, tokens, Want::all),
                   parts = head_loss<TypeParam>(gpu, tokens, Want::all, sum_of),
                   want = head_loss<TypeParam>(cpu, tokens, Want::all, sum_of);
  ExactSum all = parts.loss;
  all.add(parts.other_loss);
  EXPECT_EQ(all, whole.loss);
  EXPECT_EQ(parts.valid + parts.other_valid, whole.valid);
  EXPECT_EQ(parts.valid, want.valid);
  EXPECT_EQ(parts.other_valid, want.other_valid);
  EXPECT_NEAR(parts.loss.value(), want.loss.value(), 1e-6 * want.loss.value());
  EXPECT_NEAR(parts.other_loss.value(), want.other_loss.value(), 1e-6 * want.other_loss.value());
  EXPECT_EQ(parts.d_hidden, whole.d_hidden);
  EXPECT_EQ(parts.d_head, whole.d_head);
}

/// Every other operator once, on small shapes; results by name.
std::vector<std::pair<std::string, Floats>> every_operator(Backend& on) {
  const std::int64_t tokens = 96, sequence = 48, d = 32, f = 16, vocabulary = 11;
  const int heads = 4, kv_heads = 2, head_size = 8;
  const std::int64_t packed = (heads + 2 * kv_heads) * head_size;
  Kernels& k = on.kernels();
  tensor::Stream& s = on.stream();
  std::vector<std::pair<std::string, Floats>> results;
  unsigned seed = 0;
  const auto input = [&](std::int64_t rows, std::int64_t cols) {
    return dense(on.put(test::random_elements<Bf16>(rows * cols, ++seed)), rows, cols);
  };
  const auto numbers_in = [&](std::int64_t rows, std::int64_t cols) {
    return dense(on.put(test::random_elements<float>(rows * cols, ++seed)), rows, cols);
  };
  const auto keep = [&](const std::string& name, const tensor::ConstMat& m) {
    const std::int64_t count = m.rows * m.cols;
    Floats x;
    if (m.type == DType::fp32) x = on.get(m.row<const float>(0), count);
    if (m.type == DType::bf16) x = numbers(on.get(m.row<const Bf16>(0), count));
    if (m.type == DType::e4m3) x = numbers(on.get(m.row<const E4m3>(0), count));
    results.emplace_back(name, x);
  };
  const auto words = [&](const std::string& name, const std::uint32_t* at) {
    results.emplace_back(name, Floats{std::bit_cast<float>(on.get(at, 1)[0])});
  };

  const Mat y = input(tokens, d), x = input(tokens, f), w = input(d, f), bias = input(1, d),
            sum = numbers_in(tokens, d);
  k.matmul(s, y, x, false, w, true, Write::replace, bias), keep("matmul", y);
  k.matmul(s, sum, x, false, w, true, Write::add), keep("matmul, added", sum);
  const Mat d_w = numbers_in(d, f);
  k.matmul(s, d_w, y, true, x, false, Write::replace), keep("matmul, transposed", d_w);
  const Mat totals = numbers_in(1, d);
  k.column_sums(s, totals.row<float>(0), y), keep("column_sums", totals);

  auto* const amax = on.put(std::vector<std::uint32_t>(2));
  constexpr int next = kernels::inverse_stride;
  auto *const scale = on.room<float>(2), *const inverse = on.room<float>(2 * next);
  k.amax(s, x, amax), words("amax", amax);
  k.amax(s, w, amax + 1);
  for (int i = 0; i < 2; ++i) k.scales(s, scale + i, inverse + i * next, amax + i, DType::e4m3, 1);
  keep("scales", dense(scale, 1, 2)), keep("", dense(inverse, 1, 1)), keep("", dense(inverse + next, 1, 1));
  const Mat x8 = dense(on.room<E4m3>(tokens * f), DType::e4m3, tokens, f),
            x8t = dense(on.room<E4m3>(tokens * f), DType::e4m3, f, tokens),
            w8 = dense(on.room<E4m3>(d * f), DType::e4m3, d, f);
  k.quantize(s, x, {x8, x8t, scale, amax}), keep("quantize", x8), keep("quantize, transposed", x8t);
  k.quantize(s, w, {w8, {}, scale + 1, nullptr});
  k.matmul_fp8(s, y, x8, w8, inverse, inverse + next, Write::replace, bias), keep("matmul_fp8", y);

  kernels::Rope rope;
  const Mat qkv = input(tokens, packed);
  rope.qkv = qkv;
  rope.heads = heads;
  rope.kv_heads = kv_heads;
  rope.head_size = head_size;
  rope.sequence = static_cast<int>(sequence);
  rope.cosine = input(sequence, head_size / 2);
  rope.sine = input(sequence, head_size / 2);
  k.rope(s, rope), keep("rope", qkv);
  kernels::Attention a;
  const Mat attended = input(tokens, heads * head_size), d_attended = input(tokens, heads * head_size),
            d_qkv = input(tokens, packed);
  a.qkv = qkv;
  a.out = attended;
  a.log_sum = on.room<float>(heads * tokens);
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_size = head_size;
  a.sequence = static_cast<int>(sequence);
  a.workspace = on.allocate(k.workspace(a));
  k.attention(s, a), keep("attention", attended), keep("log_sum", dense(a.log_sum, heads, tokens));
  k.attention_backward(s, a, {d_attended, d_qkv}), keep("attention_backward", d_qkv);

  kernels::Norm n;
  const Mat normed = input(tokens, d), d_sum = input(tokens, d);
  auto* const d_gain = on.room<float>(d);
  n.residual = input(tokens, d);
  n.branch = input(tokens, d);
  n.sum = input(tokens, d);
  n.out = normed;
  n.gain = input(1, d);
  n.inverse_rms = on.room<float>(tokens);
  k.norm(s, n), keep("norm", normed), keep("norm's sum", n.sum),
      keep("inverse_rms", dense(n.inverse_rms, 1, tokens));
  k.norm_backward(s, {n.sum, input(tokens, d), n.gain, n.inverse_rms, d_sum, d_gain, Write::add});
  keep("norm_backward", d_sum), keep("d_gain", dense(d_gain, 1, d));
  k.add(s, y, d_sum, normed), keep("add", y);
  kernels::HeadNorm h;
  const Mat heads_normed = input(tokens, packed);
  auto *const d_q_gain = on.room<float>(head_size), *const d_k_gain = on.room<float>(head_size);
  h.in = qkv;
  h.out = heads_normed;
  h.q_gain = input(1, head_size);
  h.k_gain = input(1, head_size);
  h.inverse_rms = on.room<float>((heads + kv_heads) * tokens);
  h.heads = heads;
  h.kv_heads = kv_heads;
  h.head_size = head_size;
  k.head_norm(s, h), keep("head_norm", heads_normed);
  k.head_norm_backward(s, h, {d_qkv, d_q_gain, d_k_gain}), keep("head_norm_backward", d_qkv);
  keep("d_q_gain", dense(d_q_gain, 1, head_size)), keep("d_k_gain", dense(d_k_gain, 1, head_size));
  const Mat gate_up = input(tokens, 2 * f), d_gate_up = input(tokens, 2 * f);
  k.swiglu(s, x, gate_up), keep("swiglu", x);
  k.swiglu_backward(s, d_gate_up, input(tokens, f), gate_up), keep("swiglu_backward", d_gate_up);

  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t)
    ids.push_back(t % 6 == 0 ? -1 : static_cast<std::int32_t>(t * t % vocabulary));
  const auto* const id = on.put(ids);
  const Mat d_table = numbers_in(vocabulary, d);
  k.embed(s, y, input(vocabulary, d), id), keep("embed", y);
  k.embed_backward(s, d_table, y, id, Write::add), keep("embed_backward", d_table);

  const Mat wide = numbers_in(tokens, d);
  k.convert(s, wide.data, DType::fp32, y.data, DType::bf16, tokens * d), keep("convert", wide);
  const void* const terms[] = {sum.data, wide.data};
  const Mat reduced = numbers_in(tokens, d);
  plain_sum(k, s, reduced.row<float>(0), terms, DType::fp32, tokens * d, false), keep("add_up", reduced);
  auto* const squares = on.put(std::vector<ExactSum>(1));
  k.sum_squares(s, reduced.row<float>(0), tokens * d, squares);
  results.emplace_back("sum_squares", Floats{static_cast<float>(on.get(squares, 1)[0].value())});
  auto* const digests = on.put(std::vector<kernels::DigestSums>(1));
  k.digest(s, reduced.row<float>(0), DType::fp32, 5, tokens * d, digests);
  results.emplace_back("digest", Floats{static_cast<float>(on.get(digests, 1)[0].digest % (1 << 24))});
  float *const p = reduced.row<float>(0), *const m = on.room<float>(tokens * d),
               *const v = on.room<float>(tokens * d);
  k.adamw(s, {p, sum.row<float>(0), m, v, p, m, v, DType::fp32, tokens * d},
          kernels::step_scalars(1e-2, 0.1, 0.9, 0.95, 1e-8, 1, 1));
  keep("adamw", reduced), keep("m", dense(m, tokens, d)), keep("v", dense(v, tokens, d));
  return results;
}

TEST(CudaKernels, EveryOperatorIsTheCpus) {
  Cpu cpu;
  Gpu gpu;
  const auto want = every_operator(cpu), is = every_operator(gpu);
  ASSERT_EQ(is.size(), want.size());
  for (std::size_t i = 0; i < is.size(); ++i) {
    EXPECT_EQ(is[i].first, want[i].first);
    EXPECT_LT(distance(is[i].second, want[i].second), 0x1p-7) << want[i].first;
  }
}

TEST(CudaKernels, NotesAreTakenInsteadOfWork) {
  Gpu gpu;
  gpu.cuda.take_notes(true);
  const std::int64_t before = gpu.runtime.operations_run();
  const float* const x = gpu.room<float>(16);
  auto* const sum = gpu.room<ExactSum>(1);
  const std::int64_t uploads = gpu.runtime.operations_run() - before;
  gpu.cuda.sum_squares(gpu.compute, x, 16, sum);
  EXPECT_EQ(head_loss<Bf16>(gpu, head_chunk + 3, Want::all).valid, 5);  // as it was
  gpu.compute.record().wait();
  EXPECT_EQ(gpu.get(sum, 1)[0], ExactSum());
  EXPECT_GT(uploads, 0);
  // Logits, their gradient's two products, of a whole chunk and of the rest, which is added.
  EXPECT_EQ(parse_choices(gpu.gemm.choices("")).entries.size(), 6u);
  gpu.cuda.take_notes(false);
  EXPECT_GT(head_loss<Bf16>(gpu, 9, Want::all).valid, 5);
}

TEST(CudaKernels, IdentityNamesWhatBitsDependOn) {
  Gpu gpu;
  gpu.cuda.set_choices("0123abcd");
  const std::string text = gpu.cuda.identity(DType::bf16);
  for (const std::string& part : {gpu.runtime.facts().name, gpu.gemm.identity(), gpu.attention.identity(),
                                  std::string("bf16"), std::string("0123abcd"), std::to_string(head_chunk)})
    EXPECT_THAT(text, HasSubstr(part));
  gpu.cuda.set_choices("");
  EXPECT_NE(gpu.cuda.identity(DType::bf16), text);
}

TEST(CudaKernels, SaysWhatDoesNotFitTheScratch) {
  Gpu gpu(0);
  const float* const x = gpu.put(Floats(16, 2.0f));
  auto* const sum = gpu.room<ExactSum>(1);
  try {
    gpu.cuda.sum_squares(gpu.compute, x, 16, sum);
    FAIL() << "there is no scratch";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_THAT(error.what(), HasSubstr("sum of squares"));
  }
  // What reduces on several streams needs none.
  float* const out = gpu.room<float>(16);
  const void* const terms[] = {x};
  plain_sum(gpu.cuda, gpu.compute, out, terms, DType::fp32, 16, true);
  EXPECT_EQ(gpu.get(out, 16), Floats(16, 2.0f));
}

TEST(CudaKernels, HeadsWithoutRoomForLogitsAreRefused) {
  Gpu gpu;
  kernels::HeadLoss h;
  h.hidden = dense(gpu.room<float>(64), 8, 8);
  h.head = dense(gpu.room<float>(64), 8, 8);
  h.logits = dense(gpu.room<float>(56), 7, 8);
  EXPECT_THROW(gpu.cuda.head_loss(gpu.compute, h), std::logic_error);
}

}  // namespace
}  // namespace holdfast::cuda
