#include "tests/cuda/sim/reference_attention.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::cuda::sim {

namespace {

using kernels::Attention;
using kernels::AttentionGradient;
using tensor::Bf16;
using tensor::ConstMat;
using tensor::DType;
using tensor::Mat;

/// work(row of the batch, head, place, its first element) for every row of elements of a placed tensor.
template <class Byte, class Work>
void for_rows(Byte* base, std::int64_t element_bytes, const Placement& p, const Work& work) {
  for (std::int64_t b = 0; b < p.dims[0]; ++b)
    for (std::int64_t h = 0; h < p.dims[1]; ++h)
      for (std::int64_t i = 0; i < p.dims[2]; ++i)
        work(b, h, i,
             base + (p.offset + b * p.strides[0] + h * p.strides[1] + i * p.strides[2]) * element_bytes);
}

/// A part of a call in memory of its own, where its heads and rows are all that there is.
struct Packed {
  PartLayout layout;
  std::int64_t sequence, tokens, heads, kv_heads, head_size;
  std::vector<Bf16> qkv, out, d_out, d_qkv;
  std::vector<float> log_sum;
  std::vector<std::int32_t> starts;

  explicit Packed(const PartLayout& part)
      : layout(part),
        sequence(part.shape().sequence),
        tokens(part.part().rows * sequence),
        heads(part.heads()),
        kv_heads(part.part().kv_heads),
        head_size(part.shape().head_size) {
    for (std::vector<Bf16>* packed : {&qkv, &d_qkv}) packed->resize(as_size(tokens * packed_width()));
    for (std::vector<Bf16>* rows : {&out, &d_out}) rows->resize(as_size(tokens * heads * head_size));
    log_sum.resize(heads * tokens);
  }
  std::int64_t packed_width() const { return (heads + 2 * kv_heads) * head_size; }

  Attention call() {
    Attention a;
    a.qkv = tensor::dense(qkv.data(), tokens, packed_width());
    a.out = tensor::dense(out.data(), tokens, heads * head_size);
    a.log_sum = log_sum.data();
    a.heads = static_cast<int>(heads);
    a.kv_heads = static_cast<int>(kv_heads);
    a.head_size = static_cast<int>(head_size);
    a.sequence = static_cast<int>(sequence);
    a.documents.start = starts.empty() ? nullptr : starts.data();
    return a;
  }

  /// Copies between a placed tensor and columns from `first_head` on of a packed matrix of `width` columns.
  template <class Byte>
  void copy(Byte* base, const Placement& placement, std::vector<Bf16>& packed, std::int64_t width,
            std::int64_t first_head, bool in) {
    const auto bytes = as_size(head_size) * sizeof(Bf16);
    for_rows(base, sizeof(Bf16), placement,
             [&](std::int64_t b, std::int64_t h, std::int64_t i, Byte* outside) {
               Bf16* inside = packed.data() + (b * sequence + i) * width + (first_head + h) * head_size;
               if constexpr (std::is_const_v<Byte>)
                 std::memcpy(inside, outside, bytes);
               else
                 std::memcpy(in ? static_cast<void*>(inside) : outside,
                             in ? static_cast<const void*>(outside) : inside, bytes);
             });
  }
  template <class M>
  void copy_qkv(const M& m, std::vector<Bf16>& packed, bool in) {
    copy(m.data, layout.queries(m.stride), packed, packed_width(), 0, in);
    copy(m.data, layout.keys(m.stride), packed, packed_width(), heads, in);
    copy(m.data, layout.values(m.stride), packed, packed_width(), heads + kv_heads, in);
  }
  template <class M>
  void copy_out(const M& m, std::vector<Bf16>& packed, bool in) {
    copy(m.data, layout.outputs(m.stride), packed, heads * head_size, 0, in);
  }
  void copy_log_sum(float* outside, bool in) {
    for_rows(outside, 1, layout.log_sums(), [&](std::int64_t b, std::int64_t h, std::int64_t i, float* x) {
      float& y = log_sum[(h * layout.part().rows + b) * sequence + i];
      (in ? y : *x) = in ? *x : y;
    });
  }
  void copy_starts(const std::int32_t* outside) {
    if (outside == nullptr) return;
    starts.resize(tokens);
    for_rows(outside, 1, layout.starts(),
             [&](std::int64_t b, std::int64_t, std::int64_t i, const std::int32_t* x) {
               starts[b * sequence + i] = *x;
             });
  }
};

void run(kernels::Kernels& kernels, const PartLayout& layout, const Attention& call,
         const AttentionGradient* gradient) {
  Packed packed(layout);
  packed.copy_qkv(call.qkv, packed.qkv, true);
  packed.copy_starts(call.documents.start);
  tensor::InlineStream stream;
  Attention part = packed.call();
  part.scale = call.scale;
  std::vector<std::byte> memory(kernels.workspace(part) + 64);
  part.workspace = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  if (gradient == nullptr) {
    kernels.attention(stream, part);
    packed.copy_out(call.out, packed.out, false);
    packed.copy_log_sum(call.log_sum, false);
    return;
  }
  packed.copy_out(call.out, packed.out, true);
  packed.copy_out(gradient->d_out, packed.d_out, true);
  packed.copy_log_sum(call.log_sum, true);
  kernels.attention_backward(
      stream, part,
      {tensor::dense(packed.d_out.data(), packed.tokens, packed.heads * packed.head_size),
       tensor::dense(packed.d_qkv.data(), packed.tokens, packed.packed_width())});
  packed.copy_qkv(gradient->d_qkv, packed.d_qkv, false);
}

template <class Byte>
Access touched(const tensor::MatOf<Byte>& matrix, const Placement& p, bool writes) {
  return {matrix.data + p.offset * bytes_of(matrix.type), p.span_bytes(bytes_of(matrix.type)), writes};
}
template <class T>
Access touched(const T* data, const Placement& p, bool writes) {
  return {data + p.offset, p.span_bytes(sizeof(T)), writes};
}

}  // namespace

ReferenceAttention::ReferenceAttention(SimRuntime& runtime, bool deterministic, std::int64_t budget)
    : runtime_(runtime),
      deterministic_(deterministic),
      budget_(budget),
      kernels_(kernels::make_cpu_kernels(1)) {}

std::int64_t ReferenceAttention::scratch_bytes(const AttentionShape& shape, const AttentionPart& part) const {
  return backward_scratch(shape, part, deterministic_).library +
         (deterministic_ ? score_bytes(shape, part) : 0);
}

std::int64_t ReferenceAttention::workspace(const Attention& call) {
  const AttentionShape shape = shape_of(call);
  check_supported(shape, call.qkv.type);
  std::int64_t bytes = 0;
  for (const AttentionPart& part : backward_parts(shape, deterministic_, budget_))
    bytes = std::max(bytes, scratch_bytes(shape, part));
  return bytes;
}

void ReferenceAttention::enqueue(StreamHandle stream, const char* name, const PartLayout& layout,
                                 const Attention& call, const AttentionGradient* gradient) {
  const bool forward = gradient == nullptr;
  std::vector<Access> accesses{touched(call.qkv, layout.queries(call.qkv.stride), false),
                               touched(call.qkv, layout.keys(call.qkv.stride), false),
                               touched(call.qkv, layout.values(call.qkv.stride), false),
                               touched(call.out, layout.outputs(call.out.stride), forward),
                               touched(call.log_sum, layout.log_sums(), forward)};
  if (call.documents.start != nullptr)
    accesses.push_back(touched(call.documents.start, layout.starts(), false));
  std::int64_t scratch = 0;
  if (!forward) {
    scratch = scratch_bytes(layout.shape(), layout.part());
    accesses.push_back(touched(gradient->d_out, layout.outputs(gradient->d_out.stride), false));
    for (const Placement& p : {layout.queries(gradient->d_qkv.stride), layout.keys(gradient->d_qkv.stride),
                               layout.values(gradient->d_qkv.stride)})
      accesses.push_back(touched(gradient->d_qkv, p, true));
    accesses.push_back(writes(call.workspace, scratch));
  }
  const AttentionShape& shape = layout.shape();
  const AttentionPart& part = layout.part();
  const std::array arguments{shape.rows,         shape.sequence,  shape.heads,    shape.kv_heads,
                             shape.head_size,    part.rows,       part.first_row, part.kv_heads,
                             part.first_kv_head, call.qkv.stride, call.out.stride};
  const AttentionGradient given = forward ? AttentionGradient{} : *gradient;
  runtime_.enqueue(
      stream, name, accesses,
      [kernels = kernels_, layout, call, forward, given, scratch] {
        if (scratch > 0) std::memset(call.workspace, 0xff, scratch);
        run(*kernels, layout, call, forward ? nullptr : &given);
      },
      std::as_bytes(std::span(arguments)));
}

void ReferenceAttention::forward(StreamHandle stream, const Attention& call) {
  const AttentionShape shape = shape_of(call);
  check_supported(shape, call.qkv.type);
  for (const AttentionPart& part : forward_parts(shape))
    enqueue(stream, "attention", PartLayout(shape, part), call, nullptr);
}

void ReferenceAttention::backward(StreamHandle stream, const Attention& call,
                                  const AttentionGradient& gradient) {
  const AttentionShape shape = shape_of(call);
  check_supported(shape, call.qkv.type);
  for (const AttentionPart& part : backward_parts(shape, deterministic_, budget_))
    enqueue(stream, "attention backward", PartLayout(shape, part), call, &gradient);
}

std::string ReferenceAttention::identity() const {
  return fmt::format("reference attention 1, {}", deterministic_ ? "deterministic" : "free");
}

}  // namespace holdfast::cuda::sim
