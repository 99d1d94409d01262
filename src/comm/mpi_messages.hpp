#pragma once
// Outstanding messages of one group: a fixed number of places, so that a step allocates nothing and what is
// in flight is bounded. Only the communication thread uses it.
#include <mpi.h>

#include <cstdint>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::comm {

constexpr std::size_t message_window = 4;  ///< messages under way to or from one peer

class MpiMessages {
 public:
  explicit MpiMessages(MPI_Comm comm) : comm_(comm) {}

  /// At least so many messages may be outstanding; only while none is.
  void reserve(std::size_t places);
  std::size_t sends() const { return requests_.size() - free_.size() - receives_; }
  std::size_t receives() const { return receives_; }
  bool none() const { return free_.size() == requests_.size(); }
  /// Calls f(rank) for the peer of every outstanding message.
  template <class F>
  void each_peer(F f) const {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL) f(places_[i].peer);
  }

  /// `note` comes back when it is done. At most 2^31 - 1 bytes.
  void send(const void* data, std::int64_t bytes, int to, int tag, std::uint32_t note);
  void receive(void* data, std::int64_t bytes, int from, int tag, std::uint32_t note);

  /// Calls done(note, is_receive) for every message that has ended since; true when there was one. A message
  /// that is shorter or longer than expected is an Error.
  template <class Done>
  bool poll(Done done) {
    if (none()) return false;
    const int count = test();
    for (int i = 0; i < count; ++i) {
      const auto place = as_size(ended_[i]);
      check_length(i);
      free_.push_back(place);
      if (places_[place].is_receive) --receives_;
      done(places_[place].note, places_[place].is_receive);
    }
    return count > 0;
  }

  /// Gives up what can be given up. Memory of the messages must stay where it is: sends that the peer never
  /// takes cannot be called back.
  void cancel() noexcept;

 private:
  struct Place {
    std::uint32_t note = 0;
    bool is_receive = false;
    std::int64_t bytes = 0;
    int peer = 0;
  };
  std::size_t take(std::uint32_t note, bool is_receive, std::int64_t bytes, int peer);
  int test();
  void check_length(int i) const;

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Place> places_;
  std::vector<std::size_t> free_;
  std::size_t receives_ = 0;
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace holdfast::comm
