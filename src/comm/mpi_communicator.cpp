#include "src/comm/mpi_communicator.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/slice.hpp"
#include "src/comm/solo_communicator.hpp"

namespace holdfast::comm {
namespace {

constexpr int tag_gather = 1, tag_exchange = 2;
constexpr std::int64_t smallest_round = 1 << 10;  // floats of one array in one round
constexpr std::int64_t inbox_elements =
    4 << 20;  // floats of one inbox over all arrays, so that it does not grow with the group
constexpr std::int64_t largest_message = 1 << 28;  // floats; MPI counts are ints

void check(int code, const char* operation, const std::string& group) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Exit::runtime, fmt::format("{} over {} failed", operation, group),
              std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm group, std::string name, std::chrono::milliseconds limit)
    : group_(group), name_(std::move(name)), limit_(limit) {
  MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(group_, &rank_);
  MPI_Comm_size(group_, &size_);
  one_each_.assign(static_cast<std::size_t>(size_), 1);
}

MpiCommunicator::~MpiCommunicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  // MPI_Comm_free is collective: while an exception unwinds the others are not there.
  if (finalized == 0 && std::uncaught_exceptions() == 0) MPI_Comm_free(&group_);
}

void MpiCommunicator::all_gather(std::span<const Extent> tensors) {
  auto& requests = requests_[0];
  requests.clear();
  for (const Extent& tensor : tensors) {
    for (int distance = 1; distance < size_; ++distance) {  // everybody starts with another peer
      const int peer = (rank_ + distance) % size_;
      const Slice mine = slice_of(tensor.elements, size_, rank_),
                  theirs = slice_of(tensor.elements, size_, peer);
      for (std::int64_t at = 0; at < theirs.count; at += largest_message)
        check(MPI_Irecv(tensor.data + theirs.first + at,
                        static_cast<int>(std::min(largest_message, theirs.count - at)), MPI_FLOAT, peer,
                        tag_gather, group_, &requests.emplace_back()),
              "all-gather", name_);
      for (std::int64_t at = 0; at < mine.count; at += largest_message)
        check(MPI_Isend(tensor.data + mine.first + at,
                        static_cast<int>(std::min(largest_message, mine.count - at)), MPI_FLOAT, peer,
                        tag_gather, group_, &requests.emplace_back()),
              "all-gather", name_);
      wire_.all_gather += mine.count * 4;
    }
  }
  wait(requests, "all-gather");
}

void MpiCommunicator::fold_leaves(std::span<const Extent> leaves, const Fold& fold) {
  leaf_pointers_.resize(leaves.size());
  contributions_.resize(leaves.size());
  for (std::size_t t = 0; t < leaves.size(); ++t) {
    leaf_pointers_[t] = leaves[t].data;
    contributions_[t] = {{&leaf_pointers_[t], 1}, leaves[t].elements};
  }
  exchange(contributions_, one_each_, fold, "leaf exchange", wire_.fold_leaves);
}

void MpiCommunicator::exchange_nodes(std::span<const float* const> nodes, std::span<const int> arrays_of,
                                     std::int64_t elements, const Fold& fold) {
  expects(arrays_of.size() == static_cast<std::size_t>(size_), "a count of tree nodes for every member");
  expects(nodes.size() == static_cast<std::size_t>(arrays_of[static_cast<std::size_t>(rank_)]),
          "as many nodes as announced");
  contributions_.assign(1, {nodes, elements});
  exchange(contributions_, arrays_of, fold, "exchange of tree nodes", wire_.exchange_nodes);
}

void MpiCommunicator::exchange(std::span<const Contribution> tensors, std::span<const int> arrays_of,
                               const Fold& fold, const char* operation, std::int64_t& sent) {
  std::int64_t arrays = 0;
  for (int count : arrays_of) arrays += count;
  round_elements_ =
      std::clamp(inbox_elements / std::max<std::int64_t>(1, arrays), smallest_round, largest_fold);
  for (auto& inbox : inbox_)
    if (inbox.size() < static_cast<std::size_t>(arrays * round_elements_))
      inbox.resize(static_cast<std::size_t>(arrays * round_elements_));
  cut_into_rounds(tensors, round_elements_);
  const int rounds = static_cast<int>(rounds_.size()) - 1;
  if (rounds > 0) post(0, tensors, arrays_of, 0, sent);
  for (int round = 0; round < rounds; ++round) {
    if (round + 1 < rounds)
      post(round + 1, tensors, arrays_of, (round + 1) % 2, sent);  // travels while this one is folded
    wait(requests_[round % 2], operation);
    hand_over(round, tensors, arrays_of, round % 2, fold);
  }
}

void MpiCommunicator::cut_into_rounds(std::span<const Contribution> tensors, std::int64_t round_elements) {
  items_.clear();
  rounds_.assign(1, 0);
  std::int64_t used = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::int64_t stride = slice_stride(tensors[t].elements, size_);
    for (std::int64_t from = 0; from < stride;) {
      if (used == round_elements) rounds_.push_back(items_.size()), used = 0;
      const std::int64_t to = std::min(stride, from + round_elements - used);
      items_.push_back({static_cast<int>(t), from, to, used});
      used += to - from;
      from = to;
    }
  }
  if (items_.size() > rounds_.back()) rounds_.push_back(items_.size());
}

const float* MpiCommunicator::inbox(int parity, std::int64_t array, const Item& item) const {
  return inbox_[parity].data() + array * round_elements_ + item.inbox;
}

void MpiCommunicator::post(int round, std::span<const Contribution> tensors, std::span<const int> arrays_of,
                           int parity, std::int64_t& sent) {
  auto& requests = requests_[parity];
  requests.clear();
  auto count_of = [&](const Item& item,
                      int member) {  // the part of a late member may end before the item does
    const Slice part = slice_of(tensors[static_cast<std::size_t>(item.tensor)].elements, size_, member);
    return static_cast<int>(std::max<std::int64_t>(0, std::min(item.to, part.count) - item.from));
  };
  for (std::size_t i = rounds_[static_cast<std::size_t>(round)];
       i < rounds_[static_cast<std::size_t>(round) + 1]; ++i) {
    const Item& item = items_[i];
    const Contribution& tensor = tensors[static_cast<std::size_t>(item.tensor)];
    const int wanted = count_of(item, rank_);
    std::int64_t array = 0;
    for (int peer = 0; peer < size_; ++peer)
      for (int k = 0; k < arrays_of[static_cast<std::size_t>(peer)]; ++k, ++array)
        if (peer != rank_ && wanted > 0)
          check(MPI_Irecv(const_cast<float*>(inbox(parity, array, item)), wanted, MPI_FLOAT, peer,
                          tag_exchange, group_, &requests.emplace_back()),
                "exchange", name_);
    for (int distance = 1; distance < size_; ++distance) {
      const int peer = (rank_ + distance) % size_, count = count_of(item, peer);
      if (count == 0) continue;
      const std::int64_t at = slice_stride(tensor.elements, size_) * peer + item.from;
      for (const float* mine : tensor.arrays) {
        check(MPI_Isend(mine + at, count, MPI_FLOAT, peer, tag_exchange, group_, &requests.emplace_back()),
              "exchange", name_);
        sent += count * 4;
      }
    }
  }
}

void MpiCommunicator::hand_over(int round, std::span<const Contribution> tensors,
                                std::span<const int> arrays_of, int parity, const Fold& fold) {
  for (std::size_t i = rounds_[static_cast<std::size_t>(round)];
       i < rounds_[static_cast<std::size_t>(round) + 1]; ++i) {
    const Item& item = items_[i];
    const Contribution& tensor = tensors[static_cast<std::size_t>(item.tensor)];
    const Slice part = slice_of(tensor.elements, size_, rank_);
    const std::int64_t count = std::min(item.to, part.count) - item.from;
    if (count <= 0) continue;
    sources_.clear();
    std::int64_t array = 0;
    for (int peer = 0; peer < size_; ++peer)
      for (int k = 0; k < arrays_of[static_cast<std::size_t>(peer)]; ++k, ++array)
        sources_.push_back(peer == rank_ ? tensor.arrays[static_cast<std::size_t>(k)] + part.first + item.from
                                         : inbox(parity, array, item));
    fold(item.tensor, item.from, count, sources_);
  }
}

void MpiCommunicator::all_reduce(std::span<std::uint64_t> words, Scalar how) {
  expects(words.size() <= INT_MAX, "all_reduce of at most 2^31 words");
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, words.data(), static_cast<int>(words.size()), MPI_UINT64_T,
                       how == Scalar::sum ? MPI_SUM : MPI_MAX, group_, &request),
        "all-reduce", name_);
  wait(request, "all-reduce");
  wire_.all_reduce += static_cast<std::int64_t>(words.size_bytes());
}

void MpiCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  constexpr std::size_t most = 1 << 30;
  for (std::size_t at = 0; at < bytes.size(); at += most) {
    const auto part = bytes.subspan(at, std::min(most, bytes.size() - at));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(part.data(), static_cast<int>(part.size()), MPI_BYTE, root, group_, &request),
          "broadcast", name_);
    wait(request, "broadcast");
  }
  if (rank_ == root) wire_.broadcast += static_cast<std::int64_t>(bytes.size());
}

void MpiCommunicator::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(group_, &request), "barrier", name_);
  wait(request, "barrier");
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(group_, color, key, &part), "split", name_);
  int members = 0;
  MPI_Comm_size(part, &members);
  if (members > 1)
    return std::make_unique<MpiCommunicator>(part, fmt::format("group {} of {}", color, name_), limit_);
  MPI_Comm_free(&part);
  return std::make_unique<SoloCommunicator>();
}

void MpiCommunicator::abort(std::string_view why) noexcept {
  try {
    log::error("ending all ranks: {}", why);
  } catch (...) {
  }
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(Exit::runtime));
}

void MpiCommunicator::wait(MPI_Request request, const char* operation) {
  requests_[0].assign(1, request);
  wait(requests_[0], operation);
}

void MpiCommunicator::wait(std::vector<MPI_Request>& requests, const char* operation) {
  constexpr int polls_before_sleep =
      2000;  // ranks may share cores: give way at once, and sleep when it takes long
  const Deadline deadline = Deadline::in(limit_);
  for (int polls = 0;; ++polls) {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
          operation, name_);
    if (done != 0) return;
    if (polls < polls_before_sleep) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (deadline.passed())
      throw Error(Exit::runtime,
                  fmt::format("{} over {} did not finish within {} s", operation, name_,
                              static_cast<double>(limit_.count()) / 1000),
                  fmt::format("rank {} of {} waited for its peers", rank_, size_),
                  "Has a peer died or fallen behind?");
  }
}

}  // namespace holdfast::comm
