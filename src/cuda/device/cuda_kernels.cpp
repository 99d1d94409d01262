// Each operator puts its own kernel, or the call of a library, on the stream that it is given.
#include "src/cuda/device/cuda_kernels.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/cuda/kernels/adamw.hpp"
#include "src/cuda/kernels/add.hpp"
#include "src/cuda/kernels/block_code.hpp"
#include "src/cuda/kernels/column_sums.hpp"
#include "src/cuda/kernels/convert.hpp"
#include "src/cuda/kernels/digest.hpp"
#include "src/cuda/kernels/dropout.hpp"
#include "src/cuda/kernels/embedding.hpp"
#include "src/cuda/kernels/head.hpp"
#include "src/cuda/kernels/head_norm.hpp"
#include "src/cuda/kernels/norm.hpp"
#include "src/cuda/kernels/ordered_sum.hpp"
#include "src/cuda/kernels/quantize.hpp"
#include "src/cuda/kernels/rope.hpp"
#include "src/cuda/kernels/squares.hpp"
#include "src/cuda/kernels/swiglu.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"

namespace holdfast::cuda {

using kernels::head_chunk;
using kernels::Write;

CudaKernels::CudaKernels(Runtime& runtime, Gemm& gemm, AttentionEngine& attention,
                         std::span<std::byte> scratch)
    : runtime_(runtime), gemm_(gemm), attention_(attention), scratch_(scratch) {}

std::string CudaKernels::identity(DType type) const {
  const GpuTraits& gpu = runtime_.facts();
  // The number after "cuda" is that of the own kernels: it grows when one of them changes bits.
  return fmt::format("cuda {} 1, {}, sm_{}{}, {}, {}, head chunk {}, choices {}", name_of(type), gpu.name,
                     gpu.major, gpu.minor, gemm_.identity(), attention_.identity(), head_chunk,
                     choices_.empty() ? "none" : choices_);
}

template <class Work>
void CudaKernels::enqueue(Stream& stream, const Work& work) const {
  if (!taking_notes_) work(CudaStream::of(stream).handle());
}

std::byte* CudaKernels::scratch(std::int64_t bytes, const char* operation) const {
  if (bytes > static_cast<std::int64_t>(scratch_.size()))
    throw Error(Exit::usage, fmt::format("{} of this shape does not fit the GPU's kernels", operation),
                fmt::format("its partial sums take {} bytes and there are {}", bytes, scratch_.size()),
                "use smaller micro-batches?");
  return scratch_.data();
}

void CudaKernels::multiply(Stream& stream, const Product& product) {
  if (taking_notes_)
    gemm_.note(product);
  else
    gemm_.run(CudaStream::of(stream).handle(), product);
}

void CudaKernels::matmul(Stream& stream, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b,
                         Write write, ConstMat bias) {
  Product p;
  p.y = y;
  p.a = a;
  p.b = b;
  p.transpose_a = transpose_a;
  p.transpose_b = transpose_b;
  p.add = write == Write::add;
  p.bias = bias;
  multiply(stream, p);
}

void CudaKernels::matmul_fp8(Stream& stream, Mat y, ConstMat a, ConstMat b, const float* inverse_a,
                             const float* inverse_b, Write write, ConstMat bias) {
  Product p;
  p.y = y;
  p.a = a;
  p.b = b;
  p.transpose_b = true;
  p.add = write == Write::add;
  p.bias = bias;
  p.inverse_a = inverse_a;
  p.inverse_b = inverse_b;
  multiply(stream, p);
}

void CudaKernels::column_sums(Stream& stream, float* out, ConstMat x) {
  enqueue(stream, [&](StreamHandle s) {
    const std::int64_t bytes = column_sums_scratch(x.rows, x.cols) * 4;
    cuda::column_sums(runtime_, s, out, x, reinterpret_cast<float*>(scratch(bytes, "a sum over tokens")));
  });
}

void CudaKernels::quantize(Stream& stream, ConstMat x, const kernels::Quantize& wanted) {
  enqueue(stream, [&](StreamHandle s) { cuda::quantize(runtime_, s, x, wanted); });
}
void CudaKernels::amax(Stream& stream, ConstMat x, std::uint32_t* amax) {
  enqueue(stream, [&](StreamHandle s) { cuda::amax(runtime_, s, x, amax); });
}
void CudaKernels::scales(Stream& stream, float* scale, float* inverse, const std::uint32_t* amax, DType type,
                         int count) {
  enqueue(stream, [&](StreamHandle s) { cuda::scales(runtime_, s, scale, inverse, amax, type, count); });
}

void CudaKernels::rope(Stream& stream, const kernels::Rope& call) {
  enqueue(stream, [&](StreamHandle s) { cuda::rope(runtime_, s, call); });
}

std::int64_t CudaKernels::workspace(const kernels::Attention& shape) const {
  return attention_.workspace(shape);
}
void CudaKernels::attention(Stream& stream, const kernels::Attention& call) {
  enqueue(stream, [&](StreamHandle s) { attention_.forward(s, call); });
}
void CudaKernels::attention_backward(Stream& stream, const kernels::Attention& call,
                                     const kernels::AttentionGradient& gradient) {
  enqueue(stream, [&](StreamHandle s) { attention_.backward(s, call, gradient); });
}

void CudaKernels::add(Stream& stream, Mat out, ConstMat a, ConstMat b) {
  enqueue(stream, [&](StreamHandle s) { cuda::add(runtime_, s, out, a, b); });
}
void CudaKernels::norm(Stream& stream, const kernels::Norm& call) {
  enqueue(stream, [&](StreamHandle s) { cuda::norm(runtime_, s, call); });
}
void CudaKernels::norm_backward(Stream& stream, const kernels::NormGradient& call) {
  enqueue(stream, [&](StreamHandle s) {
    const std::int64_t bytes =
        call.d_gain == nullptr ? 0 : norm_backward_scratch(call.sum.rows, call.sum.cols) * 4;
    cuda::norm_backward(runtime_, s, call,
                        reinterpret_cast<float*>(scratch(bytes, "the gradient of a norm")));
  });
}

void CudaKernels::head_norm(Stream& stream, const kernels::HeadNorm& call) {
  enqueue(stream, [&](StreamHandle s) { cuda::head_norm(runtime_, s, call); });
}
void CudaKernels::head_norm_backward(Stream& stream, const kernels::HeadNorm& call,
                                     const kernels::HeadNormGradient& gradient) {
  enqueue(stream, [&](StreamHandle s) {
    const bool sums = gradient.d_q_gain != nullptr || gradient.d_k_gain != nullptr;
    const std::int64_t bytes = sums ? head_norm_backward_scratch(call.in.rows, call.head_size) * 4 : 0;
    cuda::head_norm_backward(runtime_, s, call, gradient,
                             reinterpret_cast<float*>(scratch(bytes, "the gradient of norms of heads")));
  });
}

void CudaKernels::swiglu(Stream& stream, Mat out, ConstMat gate_up, const kernels::Quantize* quantize) {
  enqueue(stream, [&](StreamHandle s) { cuda::swiglu(runtime_, s, out, gate_up, quantize); });
}
void CudaKernels::swiglu_backward(Stream& stream, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) {
  enqueue(stream, [&](StreamHandle s) { cuda::swiglu_backward(runtime_, s, d_gate_up, d_out, gate_up); });
}

void CudaKernels::embed(Stream& stream, Mat out, ConstMat table, const std::int32_t* tokens) {
  enqueue(stream, [&](StreamHandle s) { cuda::embed(runtime_, s, out, table, tokens); });
}
void CudaKernels::embed_backward(Stream& stream, Mat d_table, ConstMat d_out, const std::int32_t* tokens,
                                 Write write) {
  enqueue(stream, [&](StreamHandle s) {
    const std::int64_t bytes = embed_backward_scratch(d_out.rows) * 4;
    cuda::embed_backward(runtime_, s, d_table, d_out, tokens, write,
                         reinterpret_cast<std::int32_t*>(scratch(bytes, "the gradient of an embedding")));
  });
}

void CudaKernels::head_loss(Stream& stream, const kernels::HeadLoss& h) {
  expects(h.head.cols == h.hidden.cols && h.head.type == h.hidden.type,
          "head_loss: the head reads the hidden size");
  expects(h.logits.cols == h.head.rows && h.logits.rows >= std::min(h.hidden.rows, head_chunk),
          "head_loss: room for a chunk of logits");
  const DType type = h.hidden.type;
  for (std::int64_t first = 0; first < h.hidden.rows; first += head_chunk) {
    const std::int64_t tokens = std::min(head_chunk, h.hidden.rows - first);
    const ConstMat hidden = h.hidden.rows_at(first, tokens);
    const Mat logits = h.logits.rows_at(0, tokens);
    const std::int32_t* const labels = h.labels + first;
    matmul(stream, logits, hidden, false, h.head, true, Write::replace);
    enqueue(stream, [&](StreamHandle s) {
      auto* const losses = reinterpret_cast<double*>(scratch(head_chunk * 8, "a loss"));
      cross_entropy(runtime_, s, logits, labels, static_cast<bool>(h.d_hidden), type, losses);
      for (std::int64_t at = 0; at < tokens;) {
        const auto part = h.part_at(first + at, first + tokens);
        add_losses(runtime_, s, losses + at, labels + at, part.tokens, h.loss + part.sum, h.valid + part.sum);
        at += part.tokens;
      }
    });
    if (!h.d_hidden) continue;
    const ConstMat d_logits = logit_gradients(logits, type);
    matmul(stream, h.d_hidden.rows_at(first, tokens), d_logits, false, h.head, false, Write::replace);
    if (h.d_head)
      matmul(stream, h.d_head, d_logits, true, hidden, false, first == 0 ? Write::replace : Write::add);
  }
}

void CudaKernels::dropout(Stream& stream, const kernels::Dropout& call) {
  enqueue(stream, [&](StreamHandle s) { cuda::dropout(runtime_, s, call); });
}
void CudaKernels::convert(Stream& stream, void* out, DType to, const void* in, DType from,
                          std::int64_t count) {
  enqueue(stream, [&](StreamHandle s) { cuda::convert(runtime_, s, out, to, in, from, count); });
}
void CudaKernels::decode_blocks(Stream& stream, void* out, DType to, BlockCode code, const std::byte* codes,
                                const float* scales, std::int64_t count) {
  enqueue(stream,
          [&](StreamHandle s) { cuda::decode_blocks(runtime_, s, out, to, code, codes, scales, count); });
}
void CudaKernels::add_up(Stream& stream, const kernels::OrderedSum& sum) {
  enqueue(stream, [&](StreamHandle s) { cuda::ordered_sum(runtime_, s, sum); });
}
void CudaKernels::sum_squares(Stream& stream, const float* x, std::int64_t count, tensor::ExactSum* sum) {
  enqueue(stream, [&](StreamHandle s) {
    cuda::sum_squares(runtime_, s, x, count, sum, scratch(sum_squares_scratch(), "a sum of squares"));
  });
}
void CudaKernels::digest(Stream& stream, const void* x, DType type, std::int64_t first, std::int64_t count,
                         kernels::DigestSums* sums) {
  enqueue(stream, [&](StreamHandle s) { cuda::digest(runtime_, s, x, type, first, count, sums); });
}
void CudaKernels::adamw(Stream& stream, const kernels::AdamW& call, const kernels::StepScalars& scalars) {
  enqueue(stream, [&](StreamHandle s) { cuda::adamw(runtime_, s, call, scalars); });
}

}  // namespace holdfast::cuda
