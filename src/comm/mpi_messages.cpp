#include "src/comm/mpi_messages.hpp"

#include <fmt/core.h>

#include <climits>
#include <string>

#include "src/base/as_size.hpp"

namespace holdfast::comm {
namespace {

void check(int code, const char* call, int peer) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Exit::runtime,
              peer < 0 ? fmt::format("{} failed", call) : fmt::format("{} with rank {} failed", call, peer),
              std::string(text, as_size(length)));
}

}  // namespace

void MpiMessages::reserve(std::size_t places) {
  expects(none(), "no message is outstanding");
  if (places <= requests_.size()) return;
  requests_.assign(places, MPI_REQUEST_NULL);
  places_.resize(places);
  ended_.resize(places);
  statuses_.resize(places);
  free_.clear();
  for (std::size_t i = places; i-- > 0;) free_.push_back(i);
}

std::size_t MpiMessages::take(std::uint32_t note, bool is_receive, std::int64_t bytes, int peer) {
  expects(!free_.empty() && bytes <= INT_MAX, "a place for a message of int bytes");
  const std::size_t place = free_.back();
  free_.pop_back();
  places_[place] = {note, is_receive, bytes, peer};
  if (is_receive) ++receives_;
  return place;
}

void MpiMessages::send(const void* data, std::int64_t bytes, int to, int tag, std::uint32_t note) {
  const std::size_t place = take(note, false, bytes, to);
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &requests_[place]), "MPI_Isend",
        to);
}

void MpiMessages::receive(void* data, std::int64_t bytes, int from, int tag, std::uint32_t note) {
  const std::size_t place = take(note, true, bytes, from);
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_, &requests_[place]), "MPI_Irecv",
        from);
}

int MpiMessages::test() {
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended_.data(),
                     statuses_.data()),
        "MPI_Testsome", -1);
  return count == MPI_UNDEFINED ? 0 : count;
}

void MpiMessages::check_length(int i) const {
  const Place& place = places_[ended_[i]];
  if (!place.is_receive) return;
  int count = 0;
  MPI_Get_count(&statuses_[i], MPI_BYTE, &count);
  if (count != place.bytes)
    throw Error(Exit::runtime,
                fmt::format("rank {} sent {} bytes instead of {}", place.peer, count, place.bytes),
                "it is in another operation, or in the same with other sizes");
}

void MpiMessages::cancel() noexcept {
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i] != MPI_REQUEST_NULL && places_[i].is_receive) MPI_Cancel(&requests_[i]);
}

}  // namespace holdfast::comm
