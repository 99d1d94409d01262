#include "src/train/local/offers.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"
#include "src/snapshot/seal.hpp"
#include "src/train/common/agree.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json to_json(const Offer& o) {
  return json::array(
      {o.of, o.copy, o.buffer, o.point.samples, o.point.step, o.point.tokens, o.point.memory, o.seal});
}

Offer offer_from_json(const json& j, int reader) {
  Offer out;
  out.reader = reader;
  j.at(0).get_to(out.of), j.at(1).get_to(out.copy), j.at(2).get_to(out.buffer);
  j.at(3).get_to(out.point.samples), j.at(4).get_to(out.point.step), j.at(5).get_to(out.point.tokens);
  j.at(6).get_to(out.point.memory), j.at(7).get_to(out.seal);
  return out;
}

/// Names of files may be anything; a text that is not UTF-8 must not end the restore.
std::string to_text(const json& j) {
  return j.is_null() ? "" : j.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// What the file of `of` has sealed.
void append_offers(NodeFiles& files, int of, bool copy, json& out) {
  const checkpoint::StateFolder* file = files.find(of, copy);
  for (int buffer = 0; file != nullptr && buffer < file->buffers(); ++buffer) {
    const auto what = file->sealed(buffer);
    if (what && what->digests.size() == files.view(of, copy, buffer).pieces.size())
      out.push_back(to_json({0, of, copy, buffer, id_of(what->point), seal_of(what->digests), {}}));
  }
}

}  // namespace

NodeFiles::NodeFiles(fs::path folder, const LocalRun& run, int rank, const checkpoint::StateFolder* own)
    : folder_(std::move(folder)), run_(run), rank_(rank), own_(own) {}

std::string NodeFiles::node() const {
  // Nodes may share a kernel (containers) or a name, but never both a kernel and the folder.
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat info {};
  if (::stat(folder_.c_str(), &info) != 0) return fmt::format("{} rank {}", boot, rank_);
  return fmt::format("{} {} {}", boot, info.st_dev, info.st_ino);
}

std::vector<std::pair<int, bool>> NodeFiles::names() const {
  std::vector<std::pair<int, bool>> out;
  for (const std::string& name : files::list(folder_))
    // Where replicas hold the same, also of ranks of a larger world that was: their state is as good.
    if (const auto whose = snapshot::folder_called(name);
        whose && (whose->first < run_.mesh.world || !run_.mesh.split_optimizer))
      out.push_back(*whose);
  std::sort(out.begin(), out.end());
  return out;
}

const checkpoint::StateFolder* NodeFiles::find(int of, bool copy) {
  if (of == rank_ && !copy && own_ != nullptr) return own_;
  const auto [at, is_new] = found_.try_emplace({of, copy});
  if (is_new) try {
      at->second =
          checkpoint::StateFolder::find(folder_ / snapshot::folder_name(of, copy),
                                        local_identity_of(run_, of), buffer_shape_of(run_, of).bytes);
    } catch (const Error& error) {
      log::warn("a file of the local level is not used: {}", error.what());
    }
  return at->second ? &*at->second : nullptr;
}

checkpoint::State NodeFiles::view(int of, bool copy, int buffer) {
  const checkpoint::StateFolder* file = find(of, copy);
  expects(file != nullptr, "the file was found");
  return buffer_view_of(run_, of, file->buffer(buffer).data());
}

PointId id_of(const checkpoint::RunPoint& point) {
  const std::string memory = point.detector + '\n' + point.scaling;
  return {point.samples, point.step, point.tokens, hash_name(memory.data(), memory.size())};
}

std::uint64_t seal_of(std::span<const std::uint64_t> digests) {
  return hash_name(reinterpret_cast<const char*>(digests.data()), digests.size_bytes());
}

std::optional<checkpoint::Sealed> sealed_as(const checkpoint::StateFolder* file, const Offer& offer) {
  if (file == nullptr || offer.buffer >= file->buffers()) return std::nullopt;
  auto what = file->sealed(offer.buffer);
  if (!what || id_of(what->point) != offer.point || seal_of(what->digests) != offer.seal) return std::nullopt;
  return what;
}

LocalOffers gather_offers(NodeFiles& files, comm::Communicator& world) {
  LocalOffers out;
  const auto nodes = texts_of_all(world, files.node());
  for (const std::string& node : nodes)
    out.node_of.push_back(static_cast<int>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin()));
  std::vector<int> here;
  const int my_node = out.node_of[world.rank()];
  for (int rank = 0; rank < world.size(); ++rank)
    if (out.node_of[rank] == my_node) here.push_back(rank);
  json mine = json::array();
  for (const auto& [of, copy] : files.names()) {
    const bool owner_is_here = !copy && std::find(here.begin(), here.end(), of) != here.end();
    const int reader = owner_is_here ? of : here[as_size(of) % here.size()];
    if (reader == world.rank()) append_offers(files, of, copy, mine);
  }
  const auto all = texts_of_all(world, mine.dump());
  for (int reader = 0; reader < world.size(); ++reader)
    for (const json& offer : json_from(all[reader])) out.offers.push_back(offer_from_json(offer, reader));
  return out;
}

BadPieces agree_on(const BadPieces& mine, comm::Communicator& world) {
  const json text = mine.none() && mine.reasons.empty()
                        ? json()
                        : json::array({mine.pieces, mine.shared, mine.reasons, mine.refused, mine.network,
                                       mine.refused_code});
  BadPieces out;
  const auto append = [](auto& to, const json& from) {
    const auto values = from.get<std::decay_t<decltype(to)>>();
    to.insert(to.end(), values.begin(), values.end());
  };
  for (const std::string& of_rank : texts_of_all(world, to_text(text))) {
    if (of_rank.empty()) continue;
    const json j = json_from(of_rank);
    append(out.pieces, j.at(0)), append(out.shared, j.at(1)), append(out.reasons, j.at(2));
    if (const int code = j.at(5); code > out.refused_code) {
      out.refused_code = code;
      j.at(3).get_to(out.refused);
    }
    if (out.network.empty()) j.at(4).get_to(out.network);
  }
  return out;
}

}  // namespace holdfast::train
