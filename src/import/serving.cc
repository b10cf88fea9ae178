#include "import/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/json_scan.h"
#include "import/serving_names.h"
#include "import/serving_rows.h"
#include "import/serving_walk.h"

namespace llmprof::serving {
namespace {

constexpr size_t kRunsMax = 100'000;
constexpr size_t kFiguresOfRunMax = 1'000;
constexpr size_t kTextOfRunMax = 200;  // a name of a model, a backend
constexpr size_t kTextOfErrorMax = 400;

class ServingReader : DocumentWalk {
 public:
  ServingReader(InputFile& input, Trace& trace)
      : DocumentWalk(input, trace.diagnostics), rows_(trace, name_of(input, trace)) {}

  void read() {
    bool in_list = false;
    for (;;) {
      stopped_ = false;
      const Token token = document_.next();
      if (token == Token::kEnd) break;
      if (token == Token::kArray && document_.depth() == 1)
        in_list = true;
      else if (token == Token::kArrayEnd && in_list)
        in_list = false;
      else if (!top_value(token) && !go_on(in_list))
        break;
    }
    if (record_source_ != StringId::kEmpty) rows_.set_starts(first_record_);
    rows_.finish();
  }

  size_t documents() const { return documents_; }

 private:
  // Files of one name in several folders stay apart.
  static std::string name_of(const InputFile& input, const Trace& trace) {
    std::string name(input.name().substr(input.name().rfind('/') + 1));
    int64_t same = 1;
    for (const std::string& earlier : trace.source.files) same += earlier.substr(earlier.rfind('/') + 1) == name;
    if (same > 1) name += fmt::format(" ({})", same);
    return name;
  }

  // ---- the top ----

  // False where it is not read to its end.
  bool top_value(Token token) {
    if (token == Token::kObject) return document();
    if (!is_scalar(token) && token != Token::kArray) return stop(token);
    count(DiagnosticId::kMalformedEvent, "a value that is no object");
    return skip(token);
  }

  // Behind what is no JSON: goes on in the next line, where a document is a line.
  bool go_on(bool in_list) {
    if (cut_ || in_list || document_.line() != document_.document_line()) return false;
    document_.skip_line();
    return true;
  }

  // ---- texts and figures ----

  void keep_text(ReadRun& run, const char* what, Token token) {
    if (token == Token::kText && !document_.text().empty()) run.texts[what] = document_.text().substr(0, kTextOfRunMax);
  }

  void add_figure(ReadRun& run, std::string_view name, std::string_view statistic, double value, std::string_view unit,
                  std::string_view field) {
    if (std::isnan(value)) return;
    if (value < 0) return count(DiagnosticId::kBadNumber, fmt::format("{} is negative", field));
    if (run.figures.size() == kFiguresOfRunMax) return count(DiagnosticId::kLimitReached, "figures of a run");
    run.figures.push_back(
        {std::string(name), std::string(statistic), std::string(unit), std::string(field.substr(0, 120)), value});
  }

  // ---- documents ----

  // A document whose brace was read. False where it cannot be read to its end.
  bool document() {
    ++documents_;
    stopped_ = false;
    ReadRun run;
    ReadRequest record;
    AiperfParts parts;
    bool benchmarks = false;
    const bool whole_document = members([&](std::string_view key, Token first) {
      if (key == "benchmarks" && first == Token::kArray) {
        benchmarks = true;
        return guidellm_runs(run.texts);
      }
      if (first == Token::kArray) return column(run.columns, key);
      if (first == Token::kObject) return top_object(run, record, parts, key);
      top_scalar(run, parts, key, first);
      return true;
    });
    if (benchmarks) return whole_document;
    if (parts.is_record())
      add_record(record, parts);
    else
      add_run(run, whole_document);
    return whole_document;
  }

  struct AiperfParts {
    bool metadata = false, metrics = false;
    bool failed = false, warm_up = false;
    std::vector<int64_t> chunks{};
    bool is_record() const { return metadata && (metrics || failed); }
  };

  void top_scalar(ReadRun& run, AiperfParts& parts, std::string_view key, Token token) {
    if (key == "backend") return keep_text(run, "backend", token);
    if (key == "model_id" || key == "model") return keep_text(run, "model", token);
    if (key == "aiperf_version" && token == Token::kText) run.texts["format"] = "aiperf";
    if (key == "dataset_name" || key == "total_output_tokens_retokenized") run.texts.emplace("format", "sglang");
    if (key == "tokenizer_id" || key == "burstiness") run.texts.emplace("format", "vllm");
    if (key == "error" && token == Token::kText) parts.failed = true;
    if (const FlatName* flat = find_flat(key)) {
      // "inf" is how vLLM writes that nothing holds requests back.
      const bool rate_as_text = flat->name == "request-rate" && token == Token::kText;
      const bool unlimited = rate_as_text && document_.text() == "inf";
      if (rate_as_text && document_.text() == "trace") return;  // SGLang: requests come when those of a trace came
      add_figure(run, flat->name, "", unlimited ? INFINITY : number(token, key), flat->unit, key);
      return;
    }
    std::string statistic;
    std::string_view metric;
    if (split_distribution(key, statistic, metric))
      add_figure(run, metric, statistic, number(token, key) / 1e3, "s", key);
  }

  bool top_object(ReadRun& run, ReadRequest& record, AiperfParts& parts, std::string_view key) {
    if (key == "metadata") return aiperf_metadata(run, record, parts);
    if (key == "metrics") return aiperf_metrics(record, parts);
    if (key == "error") return aiperf_error(record, parts);
    if (key == "input_config") return aiperf_config(run);
    if (key == "server_info" || key == "args")
      return members([&](std::string_view inner, Token first) {
        if (inner == "model_path" || inner == "model") keep_text(run, "model", first);
        return skip(first);
      });
    return aiperf_block(run, key);
  }

  // ---- arrays of vLLM and SGLang ----

  bool column(Columns& columns, std::string_view name) {
    if (name == "itls") return intervals(columns);
    std::vector<int64_t>* whole_numbers = name == "input_lens"    ? &columns.input_lens
                                          : name == "output_lens" ? &columns.output_lens
                                                                  : nullptr;
    std::vector<int64_t>* seconds = name == "ttfts"         ? &columns.ttfts
                                    : name == "latencies"   ? &columns.latencies
                                    : name == "start_times" ? &columns.starts
                                                            : nullptr;
    const bool errors = name == "errors";
    if (whole_numbers == nullptr && seconds == nullptr && !errors) return skip(Token::kArray);
    if (whole_numbers != nullptr) whole_numbers->clear();
    if (seconds != nullptr) seconds->clear();
    if (errors) columns.errors.clear();
    size_t at = 0;
    const bool read = entries([&](Token token) {
      if (!room_for_requests(at++)) return skip(token);
      const std::string field = fmt::format("{}[{}]", name, at - 1);
      if (whole_numbers != nullptr) whole_numbers->push_back(whole(token, field));
      if (seconds != nullptr) seconds->push_back(length(token, 1e9, field));
      if (errors)
        columns.errors.emplace_back(token == Token::kText ? document_.text().substr(0, kTextOfErrorMax)
                                                          : std::string_view());
      return skip(token);
    });
    columns.sizes[std::string(name)] = at;
    return read;
  }

  bool intervals(Columns& columns) {
    columns.itls.clear();
    columns.itl_counts.clear();
    columns.itl_whole.clear();
    size_t at = 0;
    const bool read = entries([&](Token token) {
      if (!room_for_requests(at++)) return skip(token);
      columns.itl_counts.push_back(0);
      columns.itl_whole.push_back(token == Token::kArray);
      if (token != Token::kArray) {
        if (token == Token::kObject || document_.text() != "null")
          count(DiagnosticId::kBadNumber, fmt::format("itls[{}] is no list", at - 1));
        return skip(token);
      }
      return entries([&](Token inner) {
        if (rows_.intervals() + columns.itls.size() >= kIntervalsMax) {
          limit("times between pieces of output");
          columns.itl_whole.back() = 0;
          return skip(inner);
        }
        const int64_t ns = length(inner, 1e9, "itls");
        if (ns >= 0) {
          columns.itls.push_back(ns);
          ++columns.itl_counts.back();
        } else {
          columns.itl_whole.back() = 0;
        }
        return skip(inner);
      });
    });
    columns.sizes["itls"] = at;
    return read;
  }

  bool room_for_requests(size_t more) {
    if (rows_.requests() + more < kRequestsMax) return true;
    limit("requests");
    return false;
  }
  void limit(std::string_view what) { count(DiagnosticId::kLimitReached, what); }

  // Nothing says which entries of arrays of different lengths belong together.
  bool arrays_agree(const Columns& columns) {
    if (columns.sizes.empty()) return false;
    const auto [least, most] = std::minmax_element(columns.sizes.begin(), columns.sizes.end(),
                                                   [](const auto& a, const auto& b) { return a.second < b.second; });
    if (least->second == most->second) return true;
    count(DiagnosticId::kMalformedEvent, fmt::format("{} has {} entries and {} has {}: no request was kept",
                                                     most->first, most->second, least->first, least->second));
    return false;
  }

  // ---- AIPerf and GenAI-Perf ----

  bool aiperf_metadata(ReadRun& run, ReadRequest& record, AiperfParts& parts) {
    return members([&](std::string_view key, Token first) {
      if (key == "request_start_ns") {
        parts.metadata = true;
        if (first != Token::kNumber || !json::parse_int(document_.text(), record.start_ns) || record.start_ns < 0) {
          record.start_ns = -1;
          count(DiagnosticId::kBadNumber, key);
        }
      }
      if (key == "benchmark_phase" && first == Token::kText) parts.warm_up = document_.text() == "warmup";
      if (key == "guidellm_version") run.texts["format"] = "guidellm";
      return skip(first);
    });
  }

  bool aiperf_error(ReadRequest& record, AiperfParts& parts) {
    parts.failed = true;
    std::string type, message;
    const bool read = members([&](std::string_view key, Token first) {
      if (key == "type" && first == Token::kText) type = document_.text().substr(0, kTextOfErrorMax / 4);
      if (key == "message" && first == Token::kText) message = document_.text().substr(0, kTextOfErrorMax);
      return skip(first);
    });
    record.error = type + (type.empty() || message.empty() ? "" : ": ") + message;
    return read;
  }

  // "time_to_first_token": {"value": 12.5, "unit": "ms"}; a value may be a list.
  bool aiperf_metrics(ReadRequest& record, AiperfParts& parts) {
    parts.metrics = true;
    return members([&](std::string_view name, Token first) {
      if (first != Token::kObject) return skip(first);
      double value = NAN;
      std::string unit;
      std::vector<double> list;
      const bool read = members([&](std::string_view key, Token inner) {
        if (key == "unit" && inner == Token::kText) unit = document_.text().substr(0, 40);
        if (key == "value" && inner == Token::kArray)
          return entries([&](Token entry) {
            if (list.size() < kRequestsMax) list.push_back(number(entry, name));
            return skip(entry);
          });
        if (key == "value" && is_scalar(inner) && is_record_metric(name)) value = number(inner, name);
        return skip(inner);
      });
      take_metric(record, parts, name, value, unit, list);
      return read;
    });
  }

  static bool is_record_metric(std::string_view name) {
    return name == "time_to_first_token" || name == "request_latency" || name == "input_sequence_length" ||
           name == "output_sequence_length";
  }

  void take_metric(ReadRequest& record, AiperfParts& parts, std::string_view name, double value,
                   const std::string& unit, const std::vector<double>& list) {
    const bool tokens = name == "input_sequence_length" || name == "output_sequence_length";
    if (!is_record_metric(name) && name != "inter_chunk_latency") return;
    if (tokens) {
      const bool good = value >= 0 && value <= 1e15 && value == std::floor(value);
      if (!good && !std::isnan(value)) count(DiagnosticId::kBadNumber, name);
      if (good) (name[0] == 'i' ? record.input_tokens : record.output_tokens) = static_cast<int64_t>(value);
      return;
    }
    const UnitName* found = find_unit(unit);
    if (found == nullptr || found->unit != "s") return unknown_unit(name, unit);
    const auto to_ns = [&](double given) -> int64_t {
      const double ns = given * found->factor * 1e9;
      if (std::isnan(ns)) return -1;
      if (ns < 0 || ns >= 9e18) {
        count(ns < 0 ? DiagnosticId::kNegativeDuration : DiagnosticId::kBadNumber, name);
        return -1;
      }
      return std::llround(ns);
    };
    if (name == "time_to_first_token") record.ttft_ns = to_ns(value);
    if (name == "request_latency") record.latency_ns = to_ns(value);
    if (name != "inter_chunk_latency") return;
    for (const double one : list)
      if (const int64_t ns = to_ns(one); ns >= 0) parts.chunks.push_back(ns);
  }

  void unknown_unit(std::string_view name, std::string_view unit) {
    count(DiagnosticId::kUnknownCategory, fmt::format("{} in the unit '{}'", name, unit));
  }

  void add_record(ReadRequest& record, const AiperfParts& parts) {
    if (parts.warm_up) return;
    if (record.error.empty() && parts.failed) record.error = kUnsaid;
    if (!room_for_requests(0)) return;
    if (record_source_ == StringId::kEmpty) {
      record_source_ = rows_.new_source({{"format", "aiperf"}});
      first_record_ = rows_.requests();
    }
    if (!record.error.empty()) record.latency_ns = record.ttft_ns = -1;
    record.wall_clock = true;
    size_t pieces = record.error.empty() ? parts.chunks.size() : 0;
    if (rows_.intervals() + pieces > kIntervalsMax) {
      limit("times between pieces of output");
      pieces = 0;
    }
    rows_.add_request(record, record_source_, parts.chunks.data(), pieces);
  }

  // "time_to_first_token": {"unit": "ms", "avg": 12.5, "p50": 12.1, ...}.
  bool aiperf_block(ReadRun& run, std::string_view key) {
    const BlockName* block = find_block(key);
    if (block == nullptr) return skip(Token::kObject);
    std::string unit;
    std::vector<std::pair<std::string, double>> values;
    const bool read = members([&](std::string_view statistic, Token first) {
      if (statistic == "unit" && first == Token::kText) unit = document_.text().substr(0, 40);
      const std::string known = known_statistic(statistic);
      if (statistic != "unit" && !known.empty() && is_scalar(first))
        values.emplace_back(known, number(first, fmt::format("{}.{}", key, statistic)));
      return skip(first);
    });
    const UnitName* found = find_unit(unit);
    if (found == nullptr || found->unit != block->unit) {
      unknown_unit(key, unit);
      return read;
    }
    run.texts.emplace("format", "aiperf");
    for (const auto& [statistic, value] : values)
      add_figure(run, block->name, block->single && statistic == "mean" ? "" : statistic, value * found->factor,
                 block->unit, key);
    return read;
  }

  // The model and the load lie at different depths in different versions.
  bool aiperf_config(ReadRun& run) {
    const auto model = [&](Token first) {
      if (first != Token::kArray) return skip(first);
      return entries([&](Token entry) {
        if (run.texts.count("model") == 0) keep_text(run, "model", entry);
        return skip(entry);
      });
    };
    return members([&](std::string_view key, Token first) {
      if (key == "model_names") return model(first);
      const auto load = [&](std::string_view inner, Token value) {
        if (is_scalar(value) && inner == "concurrency")
          add_figure(run, "max-concurrency", "", number(value, inner), "requests", inner);
        if (is_scalar(value) && inner == "request_rate")
          add_figure(run, "request-rate", "", number(value, inner), "requests/s", inner);
        return skip(value);
      };
      if (first != Token::kObject) return skip(first);
      if (key == "loadgen") return members(load);
      if (key != "endpoint" && key != "perf_analyzer") return skip(first);
      return members([&](std::string_view inner, Token value) {
        if (inner == "model_names") return model(value);
        return inner == "stimulus" && value == Token::kObject ? members(load) : skip(value);
      });
    });
  }

  // ---- GuideLLM ----

  bool guidellm_runs(const std::map<std::string, std::string>& texts) {
    return entries([&](Token token) {
      if (token != Token::kObject) return skip(token);
      ReadRun run;
      run.texts = texts;
      run.texts["format"] = "guidellm";
      const StringId source = rows_.new_source({});
      const size_t first_request = rows_.requests();
      const bool read = members([&](std::string_view key, Token first) {
        if (key == "duration" && is_scalar(first))
          add_figure(run, "duration", "", number(first, "duration"), "s", "duration");
        if (first != Token::kObject) return skip(first);
        if (key == "config" || key == "args") return guidellm_config(run);
        if (key == "worker")
          return members([&](std::string_view inner, Token value) {
            if (inner == "backend_model") keep_text(run, "model", value);
            if (inner == "backend_type") keep_text(run, "backend", value);
            return skip(value);
          });
        if (key == "metrics") return guidellm_metrics(run);
        if (key == "requests") return guidellm_requests(source);
        return skip(first);
      });
      rows_.set_starts(first_request);
      rows_.add_figures(run, source);
      rows_.set_texts(run.texts);
      return read;
    });
  }

  bool guidellm_config(ReadRun& run) {
    return members([&](std::string_view key, Token first) {
      if (key != "strategy" || first != Token::kObject) return skip(first);
      return members([&](std::string_view inner, Token value) {
        if (is_scalar(value) && (inner == "streams" || inner == "max_concurrency"))
          add_figure(run, "max-concurrency", "", number(value, inner), "requests", "strategy." + std::string(inner));
        if (is_scalar(value) && inner == "rate")
          add_figure(run, "request-rate", "", number(value, inner), "requests/s", "strategy.rate");
        if (inner == "type_" && value == Token::kText && document_.text() == "throughput")
          add_figure(run, "request-rate", "", INFINITY, "requests/s", "strategy.type_");
        return skip(value);
      });
    });
  }

  bool guidellm_metrics(ReadRun& run) {
    return members([&](std::string_view key, Token first) {
      if (first != Token::kObject) return skip(first);
      if (key == "request_totals")
        return members([&](std::string_view status, Token value) {
          const char* name = status == "successful"   ? "completed"
                             : status == "errored"    ? "failed"
                             : status == "incomplete" ? "incomplete"
                                                      : nullptr;
          if (name != nullptr && is_scalar(value))
            add_figure(run, name, "", number(value, status), "requests", "request_totals." + std::string(status));
          return skip(value);
        });
      const GuideName* metric = find_guide(key);
      if (metric == nullptr) return skip(first);
      const std::string field(key);
      return members([&](std::string_view status, Token value) {
        if (status != "successful" || value != Token::kObject) return skip(value);
        return guidellm_distribution(run, *metric, field);
      });
    });
  }

  bool guidellm_distribution(ReadRun& run, const GuideName& metric, const std::string& field) {
    const auto take = [&](std::string_view statistic, Token value) {
      const std::string known = known_statistic(statistic);
      if (!known.empty() && is_scalar(value))
        add_figure(run, metric.name, known, number(value, field) * metric.factor, metric.unit, field);
      return skip(value);
    };
    return members([&](std::string_view statistic, Token value) {
      return statistic == "percentiles" && value == Token::kObject ? members(take) : take(statistic, value);
    });
  }

  bool guidellm_requests(StringId source) {
    return members([&](std::string_view status, Token first) {
      if (first != Token::kArray) return skip(first);
      const std::string failure(status == "successful" ? "" : status);
      return entries([&](Token token) {
        if (token != Token::kObject) return skip(token);
        ReadRequest request;
        std::string why;
        const bool read = members([&](std::string_view key, Token value) {
          if (!is_scalar(value)) return key == "info" && value == Token::kObject ? guidellm_info(why) : skip(value);
          if (key == "request_start_time" || key == "start_time") request.start_ns = length(value, 1e9, key);
          if (key == "request_latency") request.latency_ns = length(value, 1e9, key);
          if (key == "time_to_first_token_ms") request.ttft_ns = length(value, 1e6, key);
          if (key == "prompt_tokens") request.input_tokens = whole(value, key);
          if (key == "output_tokens") request.output_tokens = whole(value, key);
          if (key == "error" && value == Token::kText) why = document_.text().substr(0, kTextOfErrorMax);
          return true;
        });
        if (!failure.empty()) {
          request.error = why.empty() ? failure : why;
          request.latency_ns = request.ttft_ns = -1;
        }
        request.wall_clock = true;
        if (room_for_requests(0)) rows_.add_request(request, source, nullptr, 0);
        return read;
      });
    });
  }

  bool guidellm_info(std::string& why) {
    return members([&](std::string_view key, Token value) {
      if (key == "error" && value == Token::kText) why = document_.text().substr(0, kTextOfErrorMax);
      return skip(value);
    });
  }

  // ---- runs ----

  static bool says_anything(const ReadRun& run) {
    return !run.columns.sizes.empty() ||
           std::any_of(run.figures.begin(), run.figures.end(), [](const RunFigure& figure) {
             return figure.name != "request-rate" && figure.name != "max-concurrency";
           });
  }

  // Arrays of a document that is cut may lack what says that a request failed: its figures are kept, its requests are
  // not.
  void add_run(ReadRun& run, bool whole_document) {
    if (!says_anything(run)) return count(DiagnosticId::kMalformedEvent, "no figure of a benchmark");
    if (rows_.runs() >= kRunsMax) return limit("runs");
    run.texts.emplace("format", "bench");
    const StringId source = rows_.new_source(run.texts);
    const size_t first_request = rows_.requests();
    rows_.add_figures(run, source);
    if (whole_document && arrays_agree(run.columns)) rows_.add_columns(run.columns, source);
    rows_.set_starts(first_request);
  }

  RunRows rows_;
  size_t documents_ = 0;
  StringId record_source_ = StringId::kEmpty;
  size_t first_record_ = 0;
};

}  // namespace

int sniff(std::string_view head) {
  const size_t at = head.find_first_not_of(" \n\r\t\xEF\xBB\xBF");
  if (at == std::string_view::npos || (head[at] != '{' && head[at] != '[')) return 0;
  const auto has = [&](std::string_view key) { return head.find(key) != std::string_view::npos; };
  if (has("\"traceEvents\"") || has("\"ph\"")) return 0;
  // vLLM and SGLang; the arrays of requests may stand before the distributions.
  const bool totals = has("\"completed\"") && has("\"duration\"");
  if (totals && (has("\"total_input_tokens\"") || has("\"request_throughput\""))) return 70;
  if (has("\"backend\"") && has("\"request_rate\"") && (has("\"dataset_name\"") || has("\"num_prompts\""))) return 60;
  if (has("\"request_start_ns\"") && has("\"metadata\"") && (has("\"metrics\"") || has("\"error\""))) return 70;
  const bool blocks = has("\"request_throughput\"") || has("\"request_latency\"") || has("\"time_to_first_token\"");
  if (blocks && has("\"unit\"") && has("\"avg\"")) return 70;
  if (has("\"benchmarks\"") &&
      (has("\"generative_benchmark") || has("\"guidellm") || has("\"time_to_first_token_ms\"")))
    return 70;
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  ServingReader reader(input, trace);
  reader.read();
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (!trace.client_figures.empty() || !trace.client_requests.empty()) return {};
  return fail(fmt::format("expected figures or requests of a server benchmark (vllm bench serve, SGLang "
                          "bench_serving, AIPerf, GenAI-Perf, GuideLLM), found {} JSON document{} without",
                          reader.documents(), reader.documents() == 1 ? "" : "s"),
              input.name(),
              "give the result file of the benchmark: vllm bench serve --save-result, bench_serving --output-file, "
              "profile_export_aiperf.json, guidellm --output-path");
}

}  // namespace llmprof::serving
