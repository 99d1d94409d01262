// What comes from nodes and from SLURM: flight records, lists of hosts, choices of algorithms.
#include <algorithm>
#include <cstring>
#include <memory>

#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"
#include "src/cuda/gemm/choices.hpp"
#include "src/flight/memory.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

void try_flight(std::string_view bytes) {
  // Two copies of the memory, of which the later one differs in what the input has twice as long.
  const auto first = std::make_unique<flight::FlightMemory>(),
             second = std::make_unique<flight::FlightMemory>();
  const std::size_t whole = sizeof(flight::FlightMemory), size = std::min(bytes.size(), whole);
  std::memcpy(static_cast<void*>(first.get()), bytes.data(), size);
  std::memcpy(static_cast<void*>(second.get()), bytes.data(), size);
  if (bytes.size() > whole)
    std::memcpy(static_cast<void*>(second.get()), bytes.data() + whole,
                std::min(bytes.size() - whole, whole));
  const flight::FlightRecord record = flight::decode(*first, *second);
  for (const flight::FlightGroup& group : record.groups)
    expects(group.finished <= group.started && std::memchr(group.name, 0, sizeof group.name),
            "a group is valid");
  for (const flight::FlightEntry& entry : record.entries)
    expects(entry.state <= flight::FlightState::failed && std::memchr(entry.name, 0, sizeof entry.name),
            "an entry is valid");
  flight::to_text(record);
  const flight::FlightRecord records[] = {record, flight::decode(*second, *second)};
  flight::stuck_ranks(records);
}

void try_hostlist(std::string_view bytes) {
  try {
    const auto names = slurm::expand(bytes);
    expects(names.size() <= slurm::max_hosts, "a list has a limit");
    expects(slurm::expand(slurm::compress(names)) == names, "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
}

void try_tuning(std::string_view bytes) {
  try {
    const cuda::Choices read = cuda::parse_choices(bytes);
    expects(cuda::parse_choices(cuda::print_choices(read)) == read,
            "what is accepted is written and accepted again");
    cuda::hash_choices(read);
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
