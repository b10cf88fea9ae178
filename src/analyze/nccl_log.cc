// How ranks talk to each other, by NCCL's log: what its lines said, joined over ranks and files.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/without_program.h"

namespace llmprof {
namespace {

OptText text_or_none(std::string_view text) { return text.empty() ? OptText() : OptText(std::string(text)); }
OptInt number_or_none(int64_t value) { return value < 0 ? OptInt() : OptInt(value); }

class NcclFacts {
 public:
  explicit NcclFacts(const Trace& trace) : trace_(trace) {
    for (Row row = 0; row < trace.logged_ranks.size(); ++row) rank(row);
    for (Row row = 0; row < trace.logged_links.size(); ++row) link(row);
    for (Row row = 0; row < trace.logged_collectives.size(); ++row) collective(row);
    for (Row row = 0; row < trace.logged_choices.size(); ++row) choice(row);
    for (Row row = 0; row < trace.logged_warnings.size(); ++row) warning(row);
  }
  bool calls() const { return !collectives_.empty(); }

  void fill(Report& report) {
    for (auto& [key, row] : ranks_) report.nccl_ranks.push_back(std::move(row));
    fill_links(report);
    for (auto& [key, of] : collectives_) {
      of.row.ranks_logged = static_cast<int64_t>(of.printers.size());
      report.nccl_collectives.push_back(std::move(of.row));
    }
    std::stable_sort(report.nccl_collectives.begin(), report.nccl_collectives.end(),
                     [](const NcclCollectiveRecord& a, const NcclCollectiveRecord& b) { return a.bytes > b.bytes; });
    for (auto& [key, row] : choices_) report.nccl_choices.push_back(std::move(row));
    for (auto& [key, row] : warnings_) report.nccl_warnings.push_back(std::move(row));
  }

 private:
  using RankKey = std::pair<std::string, int64_t>;
  struct Collective {
    NcclCollectiveRecord row{};
    std::set<std::tuple<std::string, int64_t, int64_t>> printers{};
  };

  std::string text(StringId id) const { return std::string(trace_.text(id)); }

  void rank(Row at) {
    const LoggedRanks& from = trace_.logged_ranks;
    NcclRankRecord row;
    row.communicator = text(from.communicator[at]);
    row.rank = from.rank[at];
    row.ranks = from.ranks[at];
    row.host = text(from.host[at]);
    row.process_id = from.process_id[at];
    row.device = from.device[at];
    row.bus_id = text_or_none(trace_.text(from.bus_id[at]));
    row.version = text_or_none(trace_.text(from.version[at]));
    row.channels = number_or_none(from.channels[at]);
    row.p2p_channels = number_or_none(from.p2p_channels[at]);
    hosts_[{row.communicator, row.rank}] = row.host;
    ranks_.try_emplace({row.communicator, row.rank}, std::move(row));
  }

  void link(Row at) {
    const LoggedLinks& from = trace_.logged_links;
    links_[{text(from.communicator[at]), from.from_rank[at], from.to_rank[at], trace_.text(from.side[at]) == "receive",
            text(from.path[at])}] += from.channels[at];
  }

  void collective(Row at) {
    const LoggedCollectives& from = trace_.logged_collectives;
    const auto key = std::tuple(text(from.communicator[at]), text(from.operation[at]), text(from.dtype[at]));
    Collective& of = collectives_[key];
    NcclCollectiveRecord& row = of.row;
    std::tie(row.communicator, row.operation, row.dtype) = key;
    row.ranks = from.ranks[at];
    row.calls += from.calls[at];
    row.bytes += from.bytes[at];
    row.bytes_min = of.printers.empty() ? from.bytes_min[at] : std::min(row.bytes_min, from.bytes_min[at]);
    row.bytes_max = std::max(row.bytes_max, from.bytes_max[at]);
    of.printers.insert({text(from.host[at]), from.process_id[at], from.device[at]});
  }

  void choice(Row at) {
    const LoggedChoices& from = trace_.logged_choices;
    const auto key = std::tuple(text(from.operation[at]), text(from.algorithm[at]), text(from.protocol[at]));
    const auto [found, added] = choices_.try_emplace(key);
    NcclChoiceRecord& row = found->second;
    std::tie(row.operation, row.algorithm, row.protocol) = key;
    row.calls += from.calls[at];
    row.bytes_min = added ? from.bytes_min[at] : std::min(row.bytes_min, from.bytes_min[at]);
    row.bytes_max = std::max(row.bytes_max, from.bytes_max[at]);
    if (from.channels[at] >= 0) row.channels_most = std::max(row.channels_most.value_or(0), from.channels[at]);
  }

  void warning(Row at) {
    const LoggedWarnings& from = trace_.logged_warnings;
    NcclWarningRecord& row = warnings_[{text(from.host[at]), text(from.place[at]), text(from.text[at])}];
    row.host = text(from.host[at]);
    row.place = text_or_none(trace_.text(from.place[at]));
    row.text = text(from.text[at]);
    row.count += from.times[at];
  }

  // What goes over a network is printed on both sides, each with its own card: the sender counts, where it is known.
  void fill_links(Report& report) {
    std::set<std::tuple<std::string, int64_t, int64_t>> sent;
    for (const auto& [key, channels] : links_) {
      const auto& [communicator, from, to, receives, path] = key;
      if (!receives) sent.insert({communicator, from, to});
    }
    for (const auto& [key, channels] : links_) {
      const auto& [communicator, from, to, receives, path] = key;
      if (receives && sent.count({communicator, from, to}) != 0) continue;
      NcclLinkRecord row;
      row.communicator = communicator;
      row.from_rank = from;
      row.to_rank = to;
      const auto a = hosts_.find({communicator, from}), b = hosts_.find({communicator, to});
      const bool named = a != hosts_.end() && b != hosts_.end() && !a->second.starts_with('[');  // [host]: redacted
      if (named) row.hosts = a->second == b->second ? "one" : "two";
      row.transport =
          path.starts_with("direct shared memory") ? "SHM" : path.substr(0, path.find('/'));  // the old name
      row.path = path;
      row.channels = channels;
      report.nccl_links.push_back(std::move(row));
    }
  }

  const Trace& trace_;
  std::map<RankKey, NcclRankRecord> ranks_;
  std::map<RankKey, std::string> hosts_;
  std::map<std::tuple<std::string, int64_t, int64_t, bool, std::string>, int64_t> links_;
  std::map<std::tuple<std::string, std::string, std::string>, Collective> collectives_;
  std::map<std::tuple<std::string, std::string, std::string>, NcclChoiceRecord> choices_;
  std::map<std::tuple<std::string, std::string, std::string>, NcclWarningRecord> warnings_;
};

}  // namespace

void analyze_nccl_log(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  if (!of_nccl_log(context.trace)) return;
  NcclFacts facts(context.trace);
  facts.fill(report);
  if (!facts.calls())
    cannot_tell.push_back({"Which collectives ran, of which size?", "NCCL's log has none of their calls",
                           "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING; a recording has their times"});
}

}  // namespace llmprof
