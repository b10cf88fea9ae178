#include "trace/redact.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace llmprof {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

// Ends a path: what separates it from the text around it. A blank within a path is one where the path is quoted.
bool ends_path(char c) { return std::string_view(" \t\n\"'`,;:()[]{}<>|=").find(c) != std::string_view::npos; }

// The part of a path that says nothing of a machine: below an installed package, else the last name.
std::string_view kept_of(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = path.rfind(folder); at != std::string_view::npos) return path.substr(at + folder.size());
  return path.substr(path.rfind('/') + 1);
}

// An absolute path, or one of a home folder, at `at`; its length, 0: none.
size_t path_at(std::string_view text, size_t at) {
  const bool home = text[at] == '~' && at + 1 < text.size() && (text[at + 1] == '/' || is_word(text[at + 1]));
  if (text[at] != '/' && !home) return 0;
  if (at > 0 && !ends_path(text[at - 1])) return 0;  // a relative path, or a ratio
  const char quote = at > 0 && (text[at - 1] == '"' || text[at - 1] == '\'') ? text[at - 1] : '\0';
  size_t end = at;
  const size_t closed = quote != '\0' ? text.find(quote, at) : std::string_view::npos;
  if (closed != std::string_view::npos)
    end = closed;
  else
    while (end < text.size() && !ends_path(text[end])) ++end;
  const std::string_view path = text.substr(at, end - at);
  const bool names = std::any_of(path.begin(), path.end(), is_word);
  return names && path.find('/') != std::string_view::npos ? path.size() : 0;
}

// The same of a path of Windows.
size_t drive_path_at(std::string_view text, size_t at) {
  if (at + 3 > text.size() || std::isalpha(static_cast<unsigned char>(text[at])) == 0 || text[at + 1] != ':' ||
      text[at + 2] != '\\' || (at > 0 && is_word(text[at - 1])))
    return 0;
  size_t end = at + 3;
  while (end < text.size() && !ends_path(text[end])) ++end;
  return end - at;
}

// Four numbers of at most three digits.
size_t address_at(std::string_view text, size_t at) {
  if (!is_digit(text[at]) || (at > 0 && (is_word(text[at - 1]) || text[at - 1] == '.'))) return 0;
  size_t end = at;
  for (int part = 0; part < 4; ++part) {
    if (part > 0 && (end >= text.size() || text[end++] != '.')) return 0;
    const size_t from = end;
    while (end < text.size() && is_digit(text[end]) && end - from < 4) ++end;
    if (end == from || end - from > 3) return 0;
  }
  const bool more = end < text.size() &&
                    (is_word(text[end]) || (text[end] == '.' && end + 1 < text.size() && is_word(text[end + 1])));
  return more ? 0 : end - at;
}

// GPU-6b8..., MIG-...: a prefix and 36 characters of a UUID.
size_t uuid_at(std::string_view text, size_t at) {
  constexpr size_t kPrefix = 4, kUuid = 36;
  const std::string_view rest = text.substr(at);
  if (!rest.starts_with("GPU-") && !rest.starts_with("MIG-")) return 0;
  if (rest.size() < kPrefix + kUuid) return 0;
  for (size_t i = 0; i < kUuid; ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? rest[kPrefix + i] != '-' : !is_hex(rest[kPrefix + i])) return 0;
  }
  return kPrefix + kUuid;
}

size_t host_at(std::string_view text, size_t at, std::span<const std::string> hosts) {
  if (at > 0 && is_word(text[at - 1])) return 0;
  for (const std::string& host : hosts) {
    if (host.empty() || !text.substr(at).starts_with(host)) continue;
    if (at + host.size() < text.size() && is_word(text[at + host.size()])) continue;
    return host.size();
  }
  return 0;
}

// Hosts that the recording names: facts about it, and columns of that name, whichever table has them.
std::vector<std::string> named_hosts(const Trace& trace) {
  std::vector<std::string> out;
  for (const auto& [key, value] : trace.metadata)
    if (key == "host_name" || key == "hostname") out.push_back(value);
  std::set<StringId> texts;
  trace.for_each_table([&texts](const auto& table) {
    table.for_each_column([&texts](const FieldInfo& field, const auto& column) {
      if constexpr (std::is_same_v<std::decay_t<decltype(column[0])>, StringId>)
        if (field.name == "host")
          for (Row row = 0; row < column.size(); ++row) texts.insert(column[row]);
    });
  });
  for (const StringId text : texts)
    if (text != StringId::kEmpty) out.emplace_back(trace.text(text));
  return out;
}

}  // namespace

std::string redacted(std::string_view text, std::span<const std::string> hosts) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (const size_t path = path_at(text, at); path > 0) {
      out += redacted(kept_of(text.substr(at, path)), hosts);
      at += path;
    } else if (const size_t drive = drive_path_at(text, at); drive > 0) {
      const std::string_view whole = text.substr(at, drive);
      out += redacted(whole.substr(whole.rfind('\\') + 1), hosts);
      at += drive;
    } else if (const size_t host = host_at(text, at, hosts); host > 0) {
      out += "[host]";
      at += host;
    } else if (const size_t address = address_at(text, at); address > 0) {
      out += "[address]";
      at += address;
    } else if (const size_t uuid = uuid_at(text, at); uuid > 0) {
      out += text.substr(at, 4);
      out += "[uuid]";
      at += uuid;
    } else {
      out += text[at++];
    }
  }
  return out;
}

void redact(Trace& trace, std::span<const std::string> machine) {
  std::vector<std::string> hosts = named_hosts(trace);
  hosts.insert(hosts.end(), machine.begin(), machine.end());
  // A name with its domain before the name alone.
  std::stable_sort(hosts.begin(), hosts.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  const auto of = [&](std::string_view text) { return redacted(text, hosts); };
  trace.strings.rewrite(of);
  trace.diagnostics.rewrite_places(of);
  for (std::string& file : trace.source.files) file = of(file.find('/') == std::string::npos ? file : "/" + file);
  for (auto& [key, value] : trace.metadata) {
    const bool arguments = key.find("command") != std::string::npos || key.find("argument") != std::string::npos;
    const bool host = key.find("host") != std::string::npos;
    value = arguments ? "[arguments]" : host ? "[host]" : of(value);
  }
}

}  // namespace llmprof
