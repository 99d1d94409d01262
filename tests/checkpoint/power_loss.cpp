#include "tests/checkpoint/power_loss.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "src/base/as_size.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint::testing {
namespace {

std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

void put(std::string& content, std::int64_t offset, std::string_view data) {
  const auto at = as_size(offset);
  content.resize(std::max(content.size(), at + data.size()));
  content.replace(at, data.size(), data);
}

}  // namespace

Disk::Disk(const std::filesystem::path& folder) { scan(folder); }

int Disk::scan(const std::filesystem::path& path) {
  const auto id = nodes_.size();
  nodes_.emplace_back();
  if (!std::filesystem::is_directory(path)) {
    nodes_[id].durable = read_file(path);
    return static_cast<int>(id);
  }
  nodes_[id].folder = true;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const int child = scan(entry.path());
    nodes_[id].entries[entry.path().filename().string()] = child;
  }
  nodes_[id].live = nodes_[id].entries;
  return static_cast<int>(id);
}

int Disk::find(const std::string& path) const {
  if (path.empty()) return 0;
  const auto [folder, name] = split(path);
  const Entries& live = nodes_[find(folder)].live;
  const auto found = live.find(name);
  if (found == live.end()) throw std::logic_error("the log speaks of " + path + ", which is not there");
  return found->second;
}

/// One change of a folder.
void Disk::set(const std::string& path, const Entries& entries) {
  Node& folder = nodes_[find(path)];
  folder.changes.push_back(entries);
  for (const auto& [name, node] : entries)
    if (node < 0)
      folder.live.erase(name);
    else
      folder.live[name] = node;
}

void Disk::apply(const Change& change) {
  using What = Change::What;
  if (change.what == What::mark) return;
  const auto [folder, name] = split(change.path);
  const auto [to_folder, to_name] = split(change.to);
  switch (change.what) {
    case What::create:
    case What::make_folder:
      nodes_.emplace_back().folder = change.what == What::make_folder;
      return set(folder, {{name, static_cast<int>(nodes_.size()) - 1}});
    case What::remove:
      return set(folder, {{name, -1}});
    case What::rename:
      if (to_folder != folder) throw std::logic_error("a rename between folders is not modelled");
      return set(folder, {{name, -1}, {to_name, find(change.path)}});
    case What::exchange:
      if (to_folder != folder) throw std::logic_error("a rename between folders is not modelled");
      return set(folder, {{name, find(change.to)}, {to_name, find(change.path)}});
    default:
      break;
  }
  Node& node = nodes_[find(change.path)];
  if (change.what == What::write) node.writes.push_back({change.offset, change.data});
  if (change.what == What::resize) node.writes.push_back({0, "", change.offset});
  if (change.what != What::sync) return;
  node.durable = content(node, [] { return true; });
  node.writes.clear();
  node.entries = node.live;
  node.changes.clear();
}

/// Small writes tear at the sectors of a disk, large ones at pages: enough, and not too many.
std::int64_t Disk::sector_of(const Write& write) { return write.data.size() <= 16384 ? 512 : 4096; }

std::size_t Disk::atoms_of(const Node& node) {
  std::size_t atoms = node.changes.size();
  for (const Write& write : node.writes) {
    const std::int64_t sector = sector_of(write), end = write.offset + std::ssize(write.data);
    atoms += write.size >= 0 ? 1 : as_size((end + sector - 1) / sector - write.offset / sector);
  }
  return atoms;
}

std::size_t Disk::atoms() const {
  std::size_t atoms = 0;
  for (const Node& node : nodes_) atoms += atoms_of(node);
  return atoms;
}

/// `keep()` is asked once for each atom, in order.
template <class Keep>
std::string Disk::content(const Node& node, Keep keep) {
  std::string content = node.durable;
  for (const Write& write : node.writes) {
    if (write.size >= 0) {
      // Room given in advance only makes a file longer; a file that is cut was opened anew.
      if (keep()) content.resize(write.size == 0 ? 0 : std::max(content.size(), as_size(write.size)));
      continue;
    }
    const std::int64_t sector = sector_of(write), end = write.offset + std::ssize(write.data);
    for (std::int64_t at = write.offset; at < end;) {
      const std::int64_t next = std::min(end, (at / sector + 1) * sector);
      if (keep())
        put(content, at, std::string_view(write.data).substr(at - write.offset, as_size(next - at)));
      at = next;
    }
  }
  return content;
}

std::map<std::string, std::string> Disk::after(const std::vector<bool>& kept) const {
  std::size_t atom = 0;
  std::vector<std::string> contents(nodes_.size());
  std::vector<Entries> entries(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    contents[i] = content(node, [&] { return kept[atom++]; });
    entries[i] = node.entries;
    for (const Entries& change : node.changes)
      if (kept[atom++])
        for (const auto& [name, child] : change) entries[i][name] = child;
  }
  std::map<std::string, std::string> tree;
  const auto add = [&](const auto& self, int id, const std::string& path) -> void {
    const Node& node = nodes_[id];
    if (!node.folder) {
      tree[path] = contents[id];
      return;
    }
    if (!path.empty()) tree[path + "/"];
    for (const auto& [name, child] : entries[id])
      if (child >= 0) self(self, child, path.empty() ? name : path + "/" + name);
  };
  add(add, 0, "");
  return tree;
}

void materialise(const std::map<std::string, std::string>& tree, const std::filesystem::path& folder) {
  for (const auto& [path, content] : tree)
    if (path.ends_with('/'))
      std::filesystem::create_directories(folder / path);
    else
      write_file(folder / path, content);
}

}  // namespace holdfast::checkpoint::testing
