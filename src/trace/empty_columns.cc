#include "trace/empty_columns.h"

namespace llmprof {

void give_back_empty_columns(Trace& trace) {
  trace.for_each_table(
      [](auto& table) { table.for_each_column([](const FieldInfo&, auto& column) { give_back_empty(column); }); });
}

}  // namespace llmprof
