#include "import/nccl_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "import/bounded_lines.h"
#include "trace/trace_builder.h"

namespace llmprof::nccl_log {
namespace {

constexpr size_t kNcclLineMax = 16 * 1024;  // NCCL's own lines have at most 1,024 bytes; others may stand in front
constexpr size_t kNcclTextMax = 400;        // of a host, a path, a warning
constexpr size_t kFactsMax = 200'000;       // of each kind: communicators, links, kinds of calls, warnings
constexpr int64_t kRanksMax = 10'000'000;
constexpr double kNcclBytesMax = 1e18;
constexpr std::string_view kInfoMark = " NCCL INFO ", kWarnMark = " NCCL WARN ", kNcclVersion = "NCCL version ";

struct NcclType {
  std::string_view name;
  int64_t bytes;
};
// ncclDataType_t of nccl.h.
constexpr std::array kNcclTypes = {NcclType{"int8", 1},   NcclType{"uint8", 1},    NcclType{"int32", 4},
                                   NcclType{"uint32", 4}, NcclType{"int64", 8},    NcclType{"uint64", 8},
                                   NcclType{"fp16", 2},   NcclType{"fp32", 4},     NcclType{"fp64", 8},
                                   NcclType{"bf16", 2},   NcclType{"fp8_e4m3", 1}, NcclType{"fp8_e5m2", 1}};

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// The word behind "key ", where the key is a word of its own.
std::string_view word_behind(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at > 0 && text[at - 1] != ' ') continue;
    const size_t from = at + key.size();
    if (from >= text.size() || text[from] != ' ') continue;
    return text.substr(from + 1, std::min(text.find_first_of(" ,", from + 1), text.size()) - from - 1);
  }
  return {};
}

std::optional<int64_t> number_behind(std::string_view text, std::string_view key) {
  return whole_number(word_behind(text, key));
}

// The number that stands in front of " words".
std::optional<int64_t> number_before(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  size_t from = at;
  while (from > 0 && text[from - 1] >= '0' && text[from - 1] <= '9') --from;
  return whole_number(text.substr(from, at - from));
}

// "0[0]" and, before NCCL 2.18, "0[1b000]" with the bus id.
std::optional<int64_t> rank_of(std::string_view text) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return std::nullopt;
  return whole_number(text.substr(0, open));
}

// Who printed a line: host:pid:tid [device].
struct NcclPrinter {
  std::string host;
  int64_t process = -1;
  int64_t device = -1;
  auto key() const { return std::tie(host, process, device); }
};

// Of what stands in front of the mark: a time, or what a launcher puts before every line, may come first.
std::optional<NcclPrinter> printer_of(std::string_view front) {
  std::optional<NcclPrinter> found;
  for (size_t at = 0; at < front.size();) {
    const size_t end = std::min(front.find(' ', at), front.size());
    const std::string_view word = front.substr(at, end - at);
    at = end + 1;
    if (found && found->device < 0 && word.starts_with('[') && word.ends_with(']')) {
      found->device = whole_number(word.substr(1, word.size() - 2)).value_or(-1);
      continue;
    }
    const size_t last = word.rfind(':');
    const size_t second = last == std::string_view::npos || last == 0 ? last : word.rfind(':', last - 1);
    if (second == std::string_view::npos || second == 0 || second >= last) continue;
    const std::optional<int64_t> process = whole_number(word.substr(second + 1, last - second - 1));
    if (!process || !whole_number(word.substr(last + 1))) continue;
    std::string_view host = word.substr(0, second);
    if (const size_t before = host.find_last_of(":>"); before != std::string_view::npos) host.remove_prefix(before + 1);
    found = NcclPrinter{std::string(host.substr(0, kNcclTextMax)), *process, -1};
  }
  return found && !found->host.empty() ? found : std::nullopt;
}

struct NcclChannels {
  std::optional<int64_t> collective, p2p;
};

struct NcclCommunicator {
  std::string id, bus;
  NcclPrinter printer;
  int64_t rank = 0, ranks = 0;
  NcclChannels channels;
};

struct LinkKey {
  int64_t communicator = -1;  // index, -1 while it is not known
  NcclPrinter printer;
  int64_t from = 0, to = 0;
  bool receives = false;
  std::string path;
  auto key() const { return std::tuple_cat(std::tie(communicator, from, to, receives, path), printer.key()); }
  bool operator<(const LinkKey& other) const { return key() < other.key(); }
};

struct CallKey {
  std::string communicator, operation, dtype;
  int64_t ranks = 0;
  NcclPrinter printer;
  auto key() const { return std::tuple_cat(std::tie(communicator, operation, dtype, ranks), printer.key()); }
  bool operator<(const CallKey& other) const { return key() < other.key(); }
};

struct ChoiceKey {
  std::string operation, algorithm, protocol;
  auto key() const { return std::tie(operation, algorithm, protocol); }
  bool operator<(const ChoiceKey& other) const { return key() < other.key(); }
};

struct WarningKey {
  std::string host, place, text;
  auto key() const { return std::tie(host, place, text); }
  bool operator<(const WarningKey& other) const { return key() < other.key(); }
};

struct CallSizes {
  int64_t calls = 0;
  double bytes = 0, least = 0, most = 0;
  int64_t channels = -1;
  void add(double size) {
    least = calls == 0 ? size : std::min(least, size);
    most = calls == 0 ? size : std::max(most, size);
    bytes += size;
    ++calls;
  }
};

class NcclLogReader {
 public:
  NcclLogReader(Trace& trace, std::string_view source)
      : trace_(trace), builder_(trace), source_(builder_.text(source)) {}

  void line(const BoundedLine& line) {
    ++line_;
    std::string_view text = line.text;
    while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    if (text.starts_with(kNcclVersion)) version({}, text);
    const size_t info = text.find(kInfoMark), warn = text.find(kWarnMark);
    const size_t mark = std::min(info, warn);
    if (mark == std::string_view::npos) return;  // of the program
    if (line.too_long) return count(DiagnosticId::kLimitReached, fmt::format("more than {} bytes", kNcclLineMax));
    if (line.cut) return count(DiagnosticId::kTruncatedFile, "no end of line");
    const std::optional<NcclPrinter> printer = printer_of(text.substr(0, mark));
    if (!printer) return count(DiagnosticId::kCutRecord, "no host:pid:tid");
    const std::string_view message = text.substr(mark + kInfoMark.size());
    if (warn < info)
      warning(*printer, text.substr(0, mark), message);
    else
      said(*printer, message);
  }

  // Whether there was any fact.
  bool finish() {
    for (const NcclCommunicator& comm : communicators_) add_rank(comm);
    for (const auto& [key, channels] : links_)
      builder_.add<LoggedLinks>(
          {.source = source_,
           .communicator = key.communicator < 0 ? StringId::kEmpty : builder_.text(at(key.communicator).id),
           .from_rank = key.from,
           .to_rank = key.to,
           .side = builder_.text(key.receives ? "receive" : "send"),
           .path = builder_.text(key.path),
           .channels = static_cast<int64_t>(channels.size())});
    for (const auto& [key, sizes] : calls_)
      builder_.add<LoggedCollectives>({.source = source_,
                                       .communicator = builder_.text(key.communicator),
                                       .operation = builder_.text(key.operation),
                                       .dtype = builder_.text(key.dtype),
                                       .ranks = key.ranks,
                                       .host = builder_.text(key.printer.host),
                                       .process_id = key.printer.process,
                                       .device = key.printer.device,
                                       .calls = sizes.calls,
                                       .bytes = sizes.bytes,
                                       .bytes_min = sizes.least,
                                       .bytes_max = sizes.most});
    for (const auto& [key, sizes] : choices_)
      builder_.add<LoggedChoices>({.source = source_,
                                   .operation = builder_.text(key.operation),
                                   .algorithm = builder_.text(key.algorithm),
                                   .protocol = builder_.text(key.protocol),
                                   .calls = sizes.calls,
                                   .bytes_min = sizes.least,
                                   .bytes_max = sizes.most,
                                   .channels = sizes.channels});
    for (const auto& [key, times] : warnings_)
      builder_.add<LoggedWarnings>({.source = source_,
                                    .host = builder_.text(key.host),
                                    .place = builder_.text(key.place),
                                    .text = builder_.text(key.text),
                                    .times = times});
    return !communicators_.empty() || !links_.empty() || !calls_.empty() || !choices_.empty() || !warnings_.empty();
  }

 private:
  using Device = std::tuple<std::string, int64_t, int64_t>;

  void count(DiagnosticId id, std::string_view what) {
    const bool kept = trace_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces;
    trace_.diagnostics.add(id, kept ? fmt::format("line {} ({})", line_, what) : std::string());
  }
  // Whether one more of a kind is kept.
  bool room(size_t facts) {
    if (facts < kFactsMax) return true;
    count(DiagnosticId::kLimitReached, fmt::format("more than {} of a kind", kFactsMax));
    return false;
  }
  void cut() { count(DiagnosticId::kCutRecord, "incomplete"); }
  NcclCommunicator& at(int64_t index) { return communicators_[static_cast<size_t>(index)]; }

  void said(const NcclPrinter& printer, std::string_view message) {
    if (message.find(kNcclVersion) == 0) return version(printer, message);
    if (message.ends_with("Init COMPLETE") || message.ends_with("Init START")) return communicator(printer, message);
    const bool channel = message.starts_with("Channel ") || message.starts_with("Ring ");
    if (channel && message.find(" via ") != std::string_view::npos) return link(printer, message);
    if (message.find(" coll channels, ") != std::string_view::npos) return channels(printer, message);
    if (message.find(": opCount ") != std::string_view::npos) return call(printer, message);
    if (message.find(" Bytes -> Algo ") != std::string_view::npos) return choice(message);
  }

  void version(const NcclPrinter& printer, std::string_view text) {
    std::string_view word = text.substr(kNcclVersion.size());
    word = word.substr(0, std::min(word.find(' '), kNcclTextMax));
    if (word.empty()) return;
    any_version_ = std::string(word);
    if (printer.process >= 0 && versions_.size() < kFactsMax) versions_[{printer.host, printer.process}] = any_version_;
  }

  // "[ncclCommInitRank ]comm 0x... rank 0 nranks 2 cudaDev 0 [nvmlDev 0 ]busId 1b000 [parent ... |commId 0x...]".
  void communicator(const NcclPrinter& printer, std::string_view message) {
    const std::string_view address = word_behind(message, "comm");
    const std::optional<int64_t> rank = number_behind(message, "rank"), ranks = number_behind(message, "nranks"),
                                 device = number_behind(message, "cudaDev");
    if (address.empty() || !rank || !ranks || !device || *rank >= *ranks || *ranks > kRanksMax) return cut();
    NcclCommunicator comm;
    comm.printer = {printer.host, printer.process, *device};
    comm.rank = *rank;
    comm.ranks = *ranks;
    comm.bus = std::string(word_behind(message, "busId").substr(0, kNcclTextMax));
    comm.id = id_of(printer, message, address);
    const int64_t known = known_communicator(printer, address);
    if (known >= 0 && at(known).id == comm.id) return;  // its START came before
    if (!room(communicators_.size())) return;
    const int64_t index = static_cast<int64_t>(communicators_.size());
    communicators_.push_back(comm);
    by_address_[{printer.host, printer.process, std::string(address.substr(0, kNcclTextMax))}] = index;
    const Device on(printer.host, printer.process, *device);
    if (const auto said = next_channels_.find(on); said != next_channels_.end()) {
      at(index).channels = said->second;
      next_channels_.erase(said);
    }
    std::vector<int64_t>& own = of_device_[on];
    own.push_back(index);
    if (own.size() == 1) adopt(index);
  }

  // commId is the same on all ranks. A split communicator has none: its parent, which of its splits, and the color are.
  std::string id_of(const NcclPrinter& printer, std::string_view message, std::string_view address) const {
    if (const std::string_view id = word_behind(message, "commId"); !id.empty())
      return std::string(id.substr(0, kNcclTextMax));
    const std::string_view parent = word_behind(message, "parent");
    if (parent.empty()) return std::string(address.substr(0, kNcclTextMax));
    const int64_t known = known_communicator(printer, parent);
    std::string_view child = word_behind(message, "childCount");
    if (child.empty()) child = word_behind(message, "splitCount");
    const std::string of = known < 0 ? std::string(parent) : communicators_[static_cast<size_t>(known)].id;
    return fmt::format("{}/{}/{}", of, child, word_behind(message, "color")).substr(0, kNcclTextMax);
  }

  int64_t known_communicator(const NcclPrinter& printer, std::string_view address) const {
    const auto found = by_address_.find({printer.host, printer.process, std::string(address.substr(0, kNcclTextMax))});
    return found == by_address_.end() ? -1 : found->second;
  }

  // Connections may be printed before the line that names the communicator.
  void adopt(int64_t index) {
    const NcclPrinter& printer = at(index).printer;
    std::vector<LinkKey> moved;
    for (const auto& [key, channels] : links_)
      if (key.communicator < 0 && key.printer.key() == printer.key() && mine(at(index), key)) moved.push_back(key);
    for (const LinkKey& key : moved) {
      LinkKey now = key;
      now.communicator = index;
      links_[now].merge(links_[key]);
      links_.erase(key);
    }
  }
  static bool mine(const NcclCommunicator& comm, const LinkKey& key) {
    return (key.receives ? key.to : key.from) == comm.rank && std::max(key.from, key.to) < comm.ranks;
  }

  // "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA"; lines of SHM and old ones have no "/0".
  void link(const NcclPrinter& printer, std::string_view message) {
    const size_t via = message.find(" via "), colon = message.find(" : "), arrow = message.find(" -> ");
    if (colon == std::string_view::npos || arrow == std::string_view::npos || colon > arrow || arrow > via)
      return cut();
    const std::string_view channel = message.substr(0, colon);
    std::string_view to = message.substr(arrow + 4, via - arrow - 4);
    LinkKey key;
    key.receives = to.ends_with(" [receive]");
    to = to.substr(0, to.find(' '));
    const std::optional<int64_t> from_rank = rank_of(message.substr(colon + 3, arrow - colon - 3)),
                                 to_rank = rank_of(to);
    const std::string_view path = message.substr(via + 5);
    if (!from_rank || !to_rank || path.empty() || std::max(*from_rank, *to_rank) > kRanksMax) return cut();
    key.printer = printer;
    key.from = *from_rank;
    key.to = *to_rank;
    key.path = std::string(path.substr(0, kNcclTextMax));
    key.communicator = communicator_of(key);
    if (!room(connections_)) return;
    if (links_[key].insert(std::string(channel.substr(0, kNcclTextMax))).second) ++connections_;
  }

  // The last that the device has begun in which it is this rank.
  int64_t communicator_of(const LinkKey& key) {
    const auto own = of_device_.find(Device(key.printer.host, key.printer.process, key.printer.device));
    if (own == of_device_.end()) return -1;
    for (size_t i = own->second.size(); i-- > 0;)
      if (mine(at(own->second[i]), key)) return own->second[i];
    return -1;
  }

  // "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer": before the
  // end of the initialisation, and so before the communicator is named where its start was not printed.
  void channels(const NcclPrinter& printer, std::string_view message) {
    const NcclChannels said{number_before(message, " coll channels"), number_before(message, " p2p channels,")};
    const Device device(printer.host, printer.process, printer.device);
    const auto own = of_device_.find(device);
    if (own != of_device_.end() && !at(own->second.back()).channels.collective)
      at(own->second.back()).channels = said;
    else if (next_channels_.size() < kFactsMax)
      next_channels_[device] = said;
  }

  // "AllReduce: opCount 2 sendbuff 0x.. recvbuff 0x.. count 1024 datatype 7 op 0 root 0 comm 0x.. [nranks=2] stream
  // ..".
  void call(const NcclPrinter& printer, std::string_view message) {
    constexpr std::string_view kRanks = "[nranks=";
    const std::string_view operation = message.substr(0, message.find(':'));
    const std::optional<int64_t> elements = number_behind(message, "count"), type = number_behind(message, "datatype");
    const std::string_view address = word_behind(message, "comm");
    const size_t from = message.find(kRanks);
    if (from == std::string_view::npos || !elements || !type || address.empty()) return cut();
    const std::string_view rest = message.substr(from + kRanks.size());
    const std::optional<int64_t> ranks = whole_number(rest.substr(0, rest.find(']')));
    if (!ranks || operation.find(' ') != std::string_view::npos) return cut();
    if (static_cast<size_t>(*type) >= kNcclTypes.size())
      return count(DiagnosticId::kUnknownCategory, fmt::format("datatype {}", *type));
    const NcclType& dtype = kNcclTypes[static_cast<size_t>(*type)];
    const double bytes = static_cast<double>(*elements) * static_cast<double>(dtype.bytes);
    if (bytes > kNcclBytesMax) return count(DiagnosticId::kBadNumber, "count");
    const int64_t known = known_communicator(printer, address);
    const CallKey key{known < 0 ? std::string(address.substr(0, kNcclTextMax)) : at(known).id,
                      std::string(operation.substr(0, kNcclTextMax)), std::string(dtype.name), *ranks, printer};
    if (calls_.count(key) != 0 || room(calls_.size())) calls_[key].add(bytes);
  }

  // "AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}"; before 2.23 numbers, and a time.
  void choice(std::string_view message) {
    constexpr std::array<std::string_view, 7> kAlgorithms = {
        "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
    constexpr std::array<std::string_view, 3> kProtocols = {"LL", "LL128", "SIMPLE"};
    constexpr std::string_view kRange = "={";
    const size_t colon = message.find(": ");
    std::string_view operation = colon == std::string_view::npos ? "collective" : message.substr(0, colon);
    const std::optional<int64_t> bytes = number_before(message, " Bytes -> Algo ");
    std::string_view algorithm = word_behind(message, "Algo"), protocol = word_behind(message, "proto");
    if (!bytes || algorithm.empty() || protocol.empty() || operation.find(' ') != std::string_view::npos) return cut();
    if (const std::optional<int64_t> number = whole_number(algorithm); number && *number < 7)
      algorithm = kAlgorithms[static_cast<size_t>(*number)];
    if (const std::optional<int64_t> number = whole_number(protocol); number && *number < 3)
      protocol = kProtocols[static_cast<size_t>(*number)];
    const ChoiceKey key{std::string(operation.substr(0, kNcclTextMax)), std::string(algorithm.substr(0, kNcclTextMax)),
                        std::string(protocol.substr(0, kNcclTextMax))};
    if (choices_.count(key) == 0 && !room(choices_.size())) return;
    CallSizes& sizes = choices_[key];
    sizes.add(static_cast<double>(*bytes));
    const size_t range = message.find(kRange), dots = message.find("..", range);
    if (range == std::string_view::npos || dots == std::string_view::npos) return;
    const std::optional<int64_t> low =
        whole_number(message.substr(range + kRange.size(), dots - range - kRange.size()));
    const std::optional<int64_t> high = whole_number(message.substr(dots + 2, message.find('}', dots) - dots - 2));
    if (low && high && *low <= *high && *high < kRanksMax) sizes.channels = std::max(sizes.channels, *high - *low + 1);
  }

  // "host:pid:tid [0] misc/socket.cc:484 (ncclSocketConnect) NCCL WARN text".
  void warning(const NcclPrinter& printer, std::string_view front, std::string_view text) {
    std::string_view place;
    for (size_t at = 0; at < front.size();) {
      const size_t end = std::min(front.find(' ', at), front.size());
      const std::string_view word = front.substr(at, end - at);
      if (word.find(".cc:") != std::string_view::npos || word.find(".h:") != std::string_view::npos) place = word;
      at = end + 1;
    }
    const WarningKey key{printer.host, std::string(place.substr(0, kNcclTextMax)),
                         std::string(text.substr(0, kNcclTextMax))};
    if (warnings_.count(key) != 0 || room(warnings_.size())) ++warnings_[key];
  }

  void add_rank(const NcclCommunicator& comm) {
    const auto own = versions_.find({comm.printer.host, comm.printer.process});
    builder_.add<LoggedRanks>({.source = source_,
                               .communicator = builder_.text(comm.id),
                               .rank = comm.rank,
                               .ranks = comm.ranks,
                               .host = builder_.text(comm.printer.host),
                               .process_id = comm.printer.process,
                               .device = comm.printer.device,
                               .bus_id = builder_.text(comm.bus),
                               .version = builder_.text(own != versions_.end() ? own->second : any_version_),
                               .channels = comm.channels.collective.value_or(-1),
                               .p2p_channels = comm.channels.p2p.value_or(-1)});
  }

  Trace& trace_;
  TraceBuilder builder_;
  StringId source_;
  uint64_t line_ = 0;
  std::string any_version_;  // rank 0 prints it for all
  std::map<std::pair<std::string, int64_t>, std::string> versions_;
  std::vector<NcclCommunicator> communicators_;
  std::map<std::tuple<std::string, int64_t, std::string>, int64_t> by_address_;  // the last that had it
  std::map<Device, std::vector<int64_t>> of_device_;                             // in the order of the log
  std::map<LinkKey, std::set<std::string>> links_;
  std::map<Device, NcclChannels> next_channels_;  // of the communicator that the device names next
  size_t connections_ = 0;
  std::map<CallKey, CallSizes> calls_;
  std::map<ChoiceKey, CallSizes> choices_;
  std::map<WarningKey, int64_t> warnings_;
};

}  // namespace

// A program's own output may come first.
int sniff(std::string_view head) {
  constexpr int kLikely = 60;
  for (size_t at = head.find(kInfoMark); at != std::string_view::npos; at = head.find(kInfoMark, at + 1)) {
    const size_t line = head.rfind('\n', at);
    const size_t from = line == std::string_view::npos ? 0 : line + 1;
    if (at - from <= kNcclLineMax && printer_of(head.substr(from, at - from))) return kLikely;
  }
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  NcclLogReader reader(trace, input.name());
  read_bounded_lines(input, kNcclLineMax, [&](const BoundedLine& line) { reader.line(line); });
  const bool any = reader.finish();
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (any) return {};
  return fail("expected lines of NCCL about communicators, channels or collectives, found none of them", input.name(),
              "let the program make its communicators: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING "
              "NCCL_DEBUG_FILE=nccl.%h.%p.log COMMAND");
}

}  // namespace llmprof::nccl_log
