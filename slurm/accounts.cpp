// accounts_of() asks at most four questions, each of which depends on the answer before it. The settings of
// SLURM say whether jobs need an association and whether limits are enforced; where no association is needed,
// nothing more is asked. Then slurmctld lists the user's associations and those of accounts: the user's
// accounts, their limits, and in add_shared() the group limits of these accounts and of all accounts above
// them. Last, accounting is asked for the QOS that the user may name, and for their limits where these are
// enforced.
//
// A question that fails adds a sentence to `unknown` and ends those that rest on it; what is known by then is
// returned. Limits are kept by sacctmgr's names; limit_names translates scontrol's.
#include "slurm/accounts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include "slurm/asking.hpp"
#include "slurm/site.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::slurm {
namespace {

/// Limits of an association: scontrol's names, and sacctmgr's.
constexpr std::array<std::pair<std::string_view, const char*>, 12> limit_names = {
    {{"GrpJobs", "GrpJobs"},
     {"GrpSubmitJobs", "GrpSubmit"},
     {"GrpWall", "GrpWall"},
     {"GrpTRES", "GrpTRES"},
     {"GrpTRESMins", "GrpTRESMins"},
     {"GrpTRESRunMins", "GrpTRESRunMins"},
     {"MaxJobs", "MaxJobs"},
     {"MaxSubmitJobs", "MaxSubmit"},
     {"MaxWallPJ", "MaxWall"},
     {"MaxTRESPJ", "MaxTRES"},
     {"MaxTRESPN", "MaxTRESPerNode"},
     {"MaxTRESMinsPJ", "MaxTRESMins"}}};

/// Those of a QOS.
constexpr std::array qos_limit_names = {"GrpJobs",   "GrpSubmit", "GrpTRES",     "GrpTRESMins",
                                        "GrpWall",   "MaxJobsPU", "MaxSubmitPU", "MaxTRES",
                                        "MaxTRESPU", "MaxWall",   "MinTRES"};

/// "users" of "users(17)", which scontrol adds the number to.
std::string without_number(std::string_view text) { return std::string(text.substr(0, text.find('('))); }

/// Minutes as sacctmgr writes them.
std::string as_time(const std::string& minutes) {
  int value = 0;
  const auto [end, error] = std::from_chars(minutes.data(), minutes.data() + minutes.size(), value);
  if (error != std::errc{} || end != minutes.data() + minutes.size()) return minutes;
  const int hours = value / 60;
  return hours < 24 ? fmt::format("{:02}:{:02}:00", hours, value % 60)
                    : fmt::format("{}-{:02}:{:02}:00", hours / 24, hours % 24, value % 60);
}

/// "2(1)": 1 of 2 are in use; N(1): there is no limit.
std::optional<Limit> limit_in(std::string_view text) {
  const auto open = text.find('(');
  Limit limit{std::string(text.substr(0, open)), ""};
  if (limit.value.empty() || limit.value == "N") return std::nullopt;
  if (open != std::string_view::npos && text.ends_with(')'))
    limit.used = text.substr(open + 1, text.size() - open - 2);
  return limit;
}

/// The same for a list: "cpu=N(4),node=2(1)".
std::optional<Limit> tres_limit_in(std::string_view text) {
  Limit all;
  for (const auto part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string_view::npos) continue;
    const auto one = limit_in(part.substr(equals + 1));
    if (!one) continue;
    const auto add = [&](std::string& list, const std::string& value) {
      if (!value.empty())
        list += fmt::format("{}{}={}", list.empty() ? "" : ",", part.substr(0, equals), value);
    };
    add(all.value, one->value);
    add(all.used, one->used);
  }
  return all.value.empty() ? std::nullopt : std::optional(all);
}

void read_word(std::string_view word, Association& into) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) return;
  const auto name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "Account") into.account = value;
  if (name == "UserName") into.user = without_number(value);
  if (name == "Partition") into.partition = value;
  if (name == "ParentAccount") into.parent = without_number(value);
  if (name == "DefAssoc") into.is_default = value == "Yes";
  const auto known = std::ranges::find(limit_names, name, &decltype(limit_names)::value_type::first);
  if (known == limit_names.end()) return;
  auto limit = name.find("TRES") != std::string_view::npos ? tres_limit_in(value) : limit_in(value);
  if (!limit) return;
  if (name.find("Wall") != std::string_view::npos) limit->value = as_time(limit->value);
  into.limits[known->second] = *limit;
}

std::string with_commas(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ","));
}

/// Those of the user's accounts, and of the accounts above them. What a user may have at most is said of an
/// account, too, as what its users have by default.
void add_shared(std::vector<std::string> accounts, const std::vector<Association>& all,
                std::vector<Limits>& limits) {
  for (std::size_t i = 0; i < accounts.size(); ++i)
    for (const Association& one : all) {
      if (!one.user.empty() || one.account != accounts[i]) continue;
      Limits shared{one.account, one.partition, "", true, one.limits};
      std::erase_if(shared.limits, [](const auto& entry) { return !entry.first.starts_with("Grp"); });
      if (!shared.limits.empty()) limits.push_back(std::move(shared));
      if (!one.parent.empty() && std::ranges::find(accounts, one.parent) == accounts.end())
        accounts.push_back(one.parent);
    }
}

/// Names of QOS in the lists of associations: "physics|high,low".
std::vector<std::string> read_qos(std::string_view out) {
  std::vector<std::string> names;
  for (const auto line : lines_of(out)) {
    const auto fields = split(trimmed(line), '|');
    if (fields.size() != 2) continue;
    for (const auto name : split(fields[1], ','))
      if (!name.empty() && std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  }
  return names;
}

void ask_qos(const std::string& user, const std::string& cluster, bool limited,
             std::chrono::milliseconds limit, Accounts& into) {
  const std::vector<std::string> show = {"sacctmgr", "--noheader", "--parsable2", "--readonly", "show"};
  auto associations = show, qos = show;
  associations.insert(associations.end(),
                      {"associations", "where", "user=" + user, "cluster=" + cluster, "format=Account,QOS"});
  into.qos = read_qos(answer(associations, limit));
  if (into.qos.empty() || !limited) return;
  qos.insert(qos.end(), {"qos", "where", "name=" + with_commas(into.qos),
                         fmt::format("format=Name,{}", fmt::join(qos_limit_names, ","))});
  std::ranges::move(read_qos_limits(answer(qos, limit)), std::back_inserter(into.limits));
}

}  // namespace

std::vector<Association> read_associations(std::string_view out) {
  std::vector<Association> all;
  bool inside = false;
  for (const auto line : lines_of(out)) {
    // Lines that belong to a record are indented.
    if (line.front() != ' ' && line.front() != '\t') {
      inside = line.starts_with("ClusterName=");
      if (inside) all.emplace_back();
    }
    if (inside)
      for (const auto word : split(trimmed(line), ' ')) read_word(word, all.back());
  }
  return all;
}

std::vector<Limits> read_qos_limits(std::string_view out) {
  std::vector<Limits> all;
  for (const auto line : lines_of(out)) {
    const auto fields = split(trimmed(line), '|');
    if (fields.size() != 1 + qos_limit_names.size()) continue;
    Limits one{"", "", std::string(fields[0]), false, {}};
    for (std::size_t i = 0; i < qos_limit_names.size(); ++i)
      if (!fields[1 + i].empty()) one.limits[qos_limit_names[i]] = {std::string(fields[1 + i]), ""};
    if (!one.limits.empty()) all.push_back(std::move(one));
  }
  return all;
}

Accounts accounts_of(const std::string& user, std::chrono::milliseconds limit,
                     std::vector<std::string>& unknown) {
  Accounts out;
  const auto try_to = [&](const char* what, const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      unknown.push_back(std::string(what) + ": " + error.what());
    }
  };
  try_to("accounts and limits", [&] {
    const auto settings = read_settings(answer({"scontrol", "show", "config"}, limit));
    const auto setting = [&](const char* name) {
      const auto it = settings.find(name);
      return it == settings.end() ? std::string() : it->second;
    };
    const std::string enforced = setting("AccountingStorageEnforce");
    const auto enforces = [&](const char* what) { return enforced.find(what) != std::string::npos; };
    if (!enforces("associations")) return;
    // Those of the user, and of all accounts as such.
    const auto all =
        read_associations(answer({"scontrol", "show", "assoc_mgr", "users=" + user, "flags=assoc"}, limit));
    out.accounts.emplace();
    for (const Association& one : all) {
      if (one.user != user) continue;
      if (std::ranges::find(*out.accounts, one.account) == out.accounts->end())
        out.accounts->insert(one.is_default ? out.accounts->begin() : out.accounts->end(), one.account);
      if (enforces("limits") && !one.limits.empty())
        out.limits.push_back({one.account, one.partition, "", false, one.limits});
    }
    if (out.accounts->empty()) return;
    if (enforces("limits")) add_shared(*out.accounts, all, out.limits);
    try_to("QOS", [&] { ask_qos(user, setting("ClusterName"), enforces("limits"), limit, out); });
  });
  return out;
}

}  // namespace holdfast::slurm
