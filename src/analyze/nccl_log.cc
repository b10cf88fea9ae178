// How ranks talk to each other, by NCCL's log: what its lines said, joined over ranks and files.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analyze/analysis.h"
#include "trace/nccl_samples.h"
#include "trace/sample_labels.h"

namespace llmprof {
namespace {

class NcclLabels {
 public:
  explicit NcclLabels(std::string_view text) : labels_(labels_of(text)) {}
  std::string text(std::string_view name) const {
    for (const SampleLabel& label : labels_)
      if (label.name == name) return label.value;
    return {};
  }
  OptInt number(std::string_view name) const {
    const std::string value = text(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
    return number;
  }

 private:
  std::vector<SampleLabel> labels_;
};

OptText text_or_none(std::string text) { return text.empty() ? OptText() : OptText(std::move(text)); }

int64_t count_of(double value) { return value >= 0 && value < 9e18 ? static_cast<int64_t>(value) : 0; }

class NcclFacts {
 public:
  explicit NcclFacts(const Trace& trace) {
    const ScrapedValues& rows = trace.scraped_values;
    for (Row row = 0; row < rows.size(); ++row) {
      if (trace.text(rows.type[row]) != nccl::kSampleType) continue;
      any_ = true;
      add(trace.text(rows.name[row]), NcclLabels(trace.text(rows.labels[row])), rows.value[row]);
    }
  }
  bool any() const { return any_; }
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
    std::set<std::string> printers{};
  };

  void add(std::string_view name, const NcclLabels& labels, double value) {
    if (name == nccl::kRank) {
      rank(labels);
    } else if (name == nccl::kLink) {
      const auto key =
          std::make_tuple(labels.text("communicator"), labels.number("from").value_or(-1),
                          labels.number("to").value_or(-1), labels.text("side") == "receive", labels.text("path"));
      links_[key] += count_of(value);
    } else if (name == nccl::kWarning) {
      NcclWarningRecord& row =
          warnings_[std::make_tuple(labels.text("host"), labels.text("place"), labels.text("text"))];
      row.host = labels.text("host");
      row.place = text_or_none(labels.text("place"));
      row.text = labels.text("text");
      row.count += count_of(value);
    } else if (name.starts_with("nccl_choice_")) {
      choice(name, labels, value);
    } else if (name.starts_with("nccl_collective_")) {
      collective(name, labels, value);
    }
  }

  void rank(const NcclLabels& labels) {
    NcclRankRecord row;
    row.communicator = labels.text("communicator");
    row.rank = labels.number("rank").value_or(-1);
    row.ranks = labels.number("ranks").value_or(-1);
    row.host = labels.text("host");
    row.process_id = labels.number("process").value_or(-1);
    row.device = labels.number("device").value_or(-1);
    row.bus_id = text_or_none(labels.text("bus"));
    row.version = text_or_none(labels.text("version"));
    row.channels = labels.number("channels");
    row.p2p_channels = labels.number("p2p_channels");
    hosts_[{row.communicator, row.rank}] = row.host;
    ranks_.try_emplace({row.communicator, row.rank}, std::move(row));
  }

  void choice(std::string_view name, const NcclLabels& labels, double value) {
    const auto key = std::make_tuple(labels.text("operation"), labels.text("algorithm"), labels.text("protocol"));
    const auto [at, added] = choices_.try_emplace(key);
    NcclChoiceRecord& row = at->second;
    std::tie(row.operation, row.algorithm, row.protocol) = key;
    if (name == nccl::kChoiceCalls) row.calls += count_of(value);
    if (name == nccl::kChoiceBytesMin)
      row.bytes_min = smallest_choice_.insert(key).second ? value : std::min(row.bytes_min, value);
    if (name == nccl::kChoiceBytesMax) row.bytes_max = std::max(row.bytes_max, value);
    if (name == nccl::kChoiceChannels) row.channels_most = std::max(row.channels_most.value_or(0), count_of(value));
  }

  void collective(std::string_view name, const NcclLabels& labels, double value) {
    const auto key = std::make_tuple(labels.text("communicator"), labels.text("operation"), labels.text("dtype"));
    Collective& of = collectives_[key];
    NcclCollectiveRecord& row = of.row;
    std::tie(row.communicator, row.operation, row.dtype) = key;
    row.ranks = labels.number("ranks").value_or(0);
    if (name == nccl::kCalls) row.calls += count_of(value);
    if (name == nccl::kBytes) row.bytes += value;
    if (name == nccl::kBytesMin) row.bytes_min = of.printers.empty() ? value : std::min(row.bytes_min, value);
    if (name == nccl::kBytesMax) row.bytes_max = std::max(row.bytes_max, value);
    if (name == nccl::kBytesMin) of.printers.insert(labels.text("host") + ":" + labels.text("process"));
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

  bool any_ = false;
  std::map<RankKey, NcclRankRecord> ranks_;
  std::map<RankKey, std::string> hosts_;
  std::map<std::tuple<std::string, int64_t, int64_t, bool, std::string>, int64_t> links_;
  std::map<std::tuple<std::string, std::string, std::string>, Collective> collectives_;
  std::map<std::tuple<std::string, std::string, std::string>, NcclChoiceRecord> choices_;
  std::set<std::tuple<std::string, std::string, std::string>> smallest_choice_;
  std::map<std::tuple<std::string, std::string, std::string>, NcclWarningRecord> warnings_;
};

}  // namespace

void analyze_nccl_log(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  NcclFacts facts(context.trace);
  if (!facts.any()) return;
  facts.fill(report);
  if (!facts.calls())
    cannot_tell.push_back({"Which collectives ran, of which size?", "NCCL's log has none of their calls",
                           "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING; a recording has their times"});
}

}  // namespace llmprof
