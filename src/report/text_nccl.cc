// Communicators, connections and collectives by NCCL's log, and operations by its Inspector.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

// Pairs of ranks that are connected in one way.
struct NcclWay {
  std::set<std::pair<int64_t, int64_t>> pairs{};
  int64_t channels_least = 0, channels_most = 0;
};

// The page has the most important rows, of tables that may be as long as the job is wide.
size_t most_rows(const RenderOptions& options, size_t of_page) {
  return options.one_page ? std::min(of_page, options.top) : options.top;
}

std::string rest_text(size_t all, size_t most, const Ink& ink) {
  return all > most ? ink.dim(fmt::format("  {} more: --full, --format csv\n", all - most)) : std::string();
}

std::string range_text(int64_t least, int64_t most) {
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

// GPUs of one host that do not reach each other's memory.
std::string indirect_in_words(const Report& report, const RenderOptions& options) {
  std::set<std::tuple<std::string, int64_t, int64_t>> pairs;
  for (const NcclLinkRecord& row : report.nccl_links)
    if (row.hosts == OptText("one") && row.transport != "P2P")
      pairs.insert({row.communicator, row.from_rank, row.to_rank});
  if (pairs.empty()) return {};
  return wrap_text(fmt::format("{} pair{} of ranks on one host {} not connected directly (P2P): it is switched off "
                               "(NCCL_P2P_DISABLE, NCCL_P2P_LEVEL) or not possible; `nvidia-smi topo -p2p r` says",
                               pairs.size(), pairs.size() == 1 ? "" : "s", pairs.size() == 1 ? "is" : "are"),
                   options.width, "  ", "      ");
}

std::string text_nccl_links(const Report& report, const RenderOptions& options, const Ink& ink) {
  std::map<std::tuple<std::string, std::string, std::string>, NcclWay> ways;  // by communicator, hosts, path
  for (const NcclLinkRecord& row : report.nccl_links) {
    // Cards of a network are numbered: NET/IB/3/GDRDMA.
    std::string path = row.path;
    if (row.transport == "NET") {
      const size_t card = path.find_first_of("0123456789", path.find('/', 4));
      if (card != std::string::npos) path.replace(card, path.find('/', card) - card, "*");
    }
    NcclWay& way = ways[{row.communicator, row.hosts.value_or("-"), path}];
    way.channels_least = way.pairs.empty() ? row.channels : std::min(way.channels_least, row.channels);
    way.channels_most = std::max(way.channels_most, row.channels);
    way.pairs.insert({row.from_rank, row.to_rank});
  }
  if (ways.empty()) return {};
  std::map<std::string, const NcclRankRecord*> of;
  std::map<std::string, size_t> logged;
  for (const NcclRankRecord& row : report.nccl_ranks) {
    of.try_emplace(row.communicator, &row);
    ++logged[row.communicator];
  }
  TextTable table({{"communicator", kLeft, 24},
                   {"ranks", kRight, 0, 2},
                   {"logged", kRight, 0, 3},
                   {"path", kLeft, 30},
                   {"hosts", kLeft},
                   {"pairs", kRight},
                   {"channels each", kRight, 0, 1}});
  const size_t most = most_rows(options, 14);
  size_t shown = 0;
  for (const auto& [key, way] : ways) {
    if (++shown > most) break;
    const auto& [communicator, hosts, path] = key;
    const auto rank = of.find(communicator);
    table.add_row({printable(communicator.empty() ? "-" : communicator),
                   rank == of.end() ? "-" : std::to_string(rank->second->ranks), std::to_string(logged[communicator]),
                   printable(path), hosts, std::to_string(way.pairs.size()),
                   range_text(way.channels_least, way.channels_most)});
  }
  const std::string version = report.nccl_ranks.empty() ? "" : report.nccl_ranks.front().version.value_or("");
  return title(ink, "NCCL's connections",
               version.empty() ? "pairs of ranks, sender to receiver" : "version " + printable(version)) +
         table.render("  ", options) + rest_text(ways.size(), most, ink) + indirect_in_words(report, options) + "\n";
}

std::string text_nccl_calls(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.nccl_collectives.empty()) return {};
  TextTable table({{"communicator", kLeft, 24, 2},
                   {"collective", kLeft},
                   {"type", kLeft},
                   {"ranks", kRight, 0, 3},
                   {"calls", kRight},
                   {"smallest", kRight, 0, 1},
                   {"largest", kRight},
                   {"all", kRight}});
  const size_t most = most_rows(options, 10);
  size_t shown = 0;
  for (const NcclCollectiveRecord& row : report.nccl_collectives) {
    if (++shown > most) break;
    table.add_row({printable(row.communicator), printable(row.operation), row.dtype, std::to_string(row.ranks),
                   format_count(static_cast<double>(row.calls)), format_bytes(row.bytes_min),
                   format_bytes(row.bytes_max), format_bytes(row.bytes)});
  }
  return title(ink, "NCCL's collectives", "calls of all ranks that logged them; replays of CUDA graphs log none") +
         table.render("  ", options) + rest_text(report.nccl_collectives.size(), most, ink) + "\n";
}

std::string text_nccl_choices(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.nccl_choices.empty() || options.one_page) return {};
  TextTable table({{"collective", kLeft},
                   {"algorithm", kLeft},
                   {"protocol", kLeft},
                   {"calls", kRight},
                   {"smallest", kRight},
                   {"largest", kRight},
                   {"channels at most", kRight, 0, 1}});
  for (const NcclChoiceRecord& row : report.nccl_choices)
    table.add_row({printable(row.operation), printable(row.algorithm), printable(row.protocol),
                   format_count(static_cast<double>(row.calls)), format_bytes(row.bytes_min),
                   format_bytes(row.bytes_max), row.channels_most ? std::to_string(*row.channels_most) : "-"});
  return title(ink, "Algorithms that NCCL took", "") + table.render("  ", options) + "\n";
}

std::string text_nccl_warnings(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.nccl_warnings.empty()) return {};
  std::string out = title(ink, "NCCL's warnings", "");
  const size_t most = most_rows(options, 3);
  size_t shown = 0;
  for (const NcclWarningRecord& row : report.nccl_warnings) {
    if (++shown > most) break;
    out += wrap_text(fmt::format("{} x {}: {} ({})", row.count, printable(row.host), printable(row.text),
                                 printable(row.place.value_or("-"))),
                     options.width, "  ", "      ");
  }
  return out + rest_text(report.nccl_warnings.size(), most, ink) + "\n";
}

std::string text_nccl_operations(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (report.nccl_operations.empty()) return {};
  TextTable table({{"communicator", kLeft, 24, 2},
                   {"operation", kLeft},
                   {"algorithm", kLeft, 0, 4},
                   {"protocol", kLeft, 0, 4},
                   {"size", kRight},
                   {"ranks", kRight, 0, 3},
                   {"count", kRight},
                   {"median", kRight},
                   {"p99", kRight, 0, 1},
                   {"bus GB/s", kRight},
                   {"least", kRight, 0, 2},
                   {"all", kRight, 0, 5}});
  const auto rate = [](const OptDouble& gbs) { return gbs ? format_rate(*gbs) : std::string("-"); };
  const size_t most = most_rows(options, 16);
  size_t shown = 0;
  for (const NcclOperationRecord& row : report.nccl_operations) {
    if (++shown > most) break;
    table.add_row({printable(row.name.value_or(row.communicator)), printable(row.operation),
                   printable(row.algorithm.value_or("-")), printable(row.protocol.value_or("-")),
                   format_bytes(row.bytes), fmt::format("{} of {}", row.ranks_logged, row.ranks),
                   format_count(static_cast<double>(row.operations)), format_ms(row.median_us / 1e3),
                   format_ms(row.p99_us / 1e3), rate(row.bus_gbs), rate(row.bus_least_gbs), format_ms(row.total_ms)});
  }
  return title(ink, "NCCL's operations", "by its Inspector, of all ranks that were logged; bus: median") +
         table.render("  ", options) + rest_text(report.nccl_operations.size(), most, ink) + "\n";
}

}  // namespace

std::string text_nccl(const Report& report, const RenderOptions& options, const Ink& ink) {
  if (options.one_page && !profiled_alone(report)) return {};
  return text_nccl_links(report, options, ink) + text_nccl_calls(report, options, ink) +
         text_nccl_choices(report, options, ink) + text_nccl_operations(report, options, ink) +
         text_nccl_warnings(report, options, ink);
}

}  // namespace llmprof
