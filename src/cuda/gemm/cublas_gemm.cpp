#include "src/cuda/gemm/cublas_gemm.hpp"

#include <fmt/core.h>

#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/units.hpp"
#include "src/cuda/gemm/cublas_search.hpp"

namespace holdfast::cuda {

namespace {
/// Settings of the library that change bits and that no call can override.
constexpr const char* overrides[] = {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION",
                                     "CUBLAS_EMULATION_STRATEGY",
                                     "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT"};

std::string library() {
  std::string text = cublas_version();
  for (const char* name : overrides)
    if (const auto value = env::get(name)) text += fmt::format(", {}={}", name, *value);
  return text;
}

}  // namespace

std::int64_t gemm_scratch_bytes(const GpuTraits& gpu) {
  return (gpu.major == 9 ? 64 : 32) * std::int64_t{1 << 20};
}

std::unique_ptr<Gemm> make_cublas_gemm(Runtime& runtime, bool deterministic) {
  return std::make_unique<CublasGemm>(runtime, deterministic);
}

CublasGemm::CublasGemm(Runtime& runtime, bool deterministic)
    : runtime_(runtime), rules_{deterministic, gemm_scratch_bytes(runtime.facts())} {
  scratch_.push_back({std::nullopt, runtime_.device_alloc(rules_.workspace)});
}

CublasGemm::~CublasGemm() {
  for (const Scratch& scratch : scratch_) runtime_.device_free(scratch.memory);
}

std::string CublasGemm::identity() const {
  return fmt::format("{}, sums in fp32 and added whole, {}", library(),
                     rules_.deterministic ? "deterministic" : "free");
}

void CublasGemm::run(StreamHandle stream, const Product& product) {
  const ProductPlan plan = plan_product(product);
  if (is_empty(plan)) return run_empty(runtime_, stream, product);
  const ProductPointers pointers = pointers_of(product);
  Prepared& prepared = prepare(plan, pointers);
  prepared.problem.set_pointers(pointers);
  const cublasStatus_t status =
      prepared.problem.run(stream, prepared.algorithm, scratch_of(stream), rules_.workspace);
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(Exit::runtime, fmt::format("a product of matrices failed on the GPU: {}", describe(plan)),
                fmt::format("{}: {}, algorithm {}", cublasLtGetStatusName(status),
                            cublasLtGetStatusString(status), prepared.algorithm.algorithm));
}

CublasGemm::Prepared& CublasGemm::prepare(const ProductPlan& plan, const ProductPointers& pointers) {
  const auto found = prepared_.find(plan);
  if (found != prepared_.end()) return found->second;
  require_supported(plan, runtime_.facts());
  Prepared made{CublasProblem(handle_.get(), plan), {}};
  made.problem.set_pointers(pointers);
  made.algorithm = algorithm_for(made.problem);
  return prepared_.emplace(plan, std::move(made)).first->second;
}

Algorithm CublasGemm::algorithm_for(CublasProblem& problem) const {
  if (choices_) {
    const auto chosen = choices_->entries.find(key_of(problem.plan()));
    if (chosen != choices_->entries.end()) {
      if (problem.accepts(chosen->second, rules_)) return chosen->second;
      throw Error(Exit::runtime,
                  "an algorithm of this run's choices (tuning.json) does not work on this GPU, so the run "
                  "cannot go on "
                  "with the same bits",
                  fmt::format("algorithm {} for {}", chosen->second.algorithm, describe(problem.plan())),
                  "Is the file damaged? A new run chooses anew.");
    }
  }
  constexpr int enough = 8;  // the first ones may break the rules
  const std::vector<Algorithm> candidates = problem.candidates(rules_, enough);
  if (candidates.empty())
    throw Error(Exit::runtime,
                fmt::format("{} has no algorithm for {}", cublas_version(), describe(problem.plan())),
                fmt::format("within {} of scratch, {}", size_text(rules_.workspace),
                            rules_.deterministic ? "deterministic" : "in any order"));
  return candidates.front();
}

void* CublasGemm::scratch_of(StreamHandle stream) {
  for (Scratch& scratch : scratch_) {
    if (!scratch.owner) scratch.owner = stream;
    if (*scratch.owner == stream) return scratch.memory;
  }
  scratch_.push_back({stream, runtime_.device_alloc(rules_.workspace)});
  return scratch_.back().memory;
}

void CublasGemm::note(const Product& product) {
  ProductPlan plan = plan_product(product);
  if (is_empty(plan)) return;
  require_supported(plan, runtime_.facts());
  plan.add = false;
  noted_.emplace(key_of(plan), plan);
}

Choices CublasGemm::here() const {
  const GpuTraits& gpu = runtime_.facts();
  return {gpu.name,
          fmt::format("{}.{}", gpu.major, gpu.minor),
          gpu.multiprocessors,
          library(),
          rules_.deterministic,
          {}};
}

std::string CublasGemm::choices(std::string_view known) {
  Choices choices = here();
  if (!known.empty()) {
    choices = parse_choices(known);
    require_same_place(choices, here());
  }
  std::optional<CublasSearch> search;
  for (const auto& [key, plan] : noted_) {
    if (choices.entries.contains(key)) continue;
    if (!search) search.emplace(runtime_, handle_.get(), rules_);
    choices.entries.emplace(key, search->best(plan));
  }
  return choices.entries.empty() ? std::string() : print_choices(choices);
}

void CublasGemm::use_choices(std::string_view text) {
  std::optional<Choices> choices;
  if (!text.empty()) {
    choices = parse_choices(text);
    require_same_place(*choices, here());
  }
  choices_ = std::move(choices);
  prepared_.clear();
}

}  // namespace holdfast::cuda
