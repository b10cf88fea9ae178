// Where the run store is and what it keeps: environment variables, else settings.json in the store, else the defaults.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace llmprof::store {

struct Settings {
  int64_t keep = 5;               // newest runs of each kind that stay as they are
  int64_t keep_compressed = 15;   // runs of each kind behind them that stay compressed
  double total_gb = 20;           // all runs together; older ones go first, never those of `keep`
  double run_gb = 2;              // of one recording in the store: `run` stops recording then
  int64_t compress_from_kb = 64;  // smaller files are not worth it
  bool recordings = true;         // recordings of `run` lie in the store, unless -o names a place

  int64_t total_bytes() const { return static_cast<int64_t>(total_gb * 1e9); }
  int64_t run_bytes() const { return static_cast<int64_t>(run_gb * 1e9); }
};

// $LLMPROF_STORE, else runs/ in $LLMPROF_HOME, $XDG_STATE_HOME/llmprof or ~/.local/state/llmprof. Empty: there is none
// (LLMPROF_STORE=off), or no home to put it in.
std::string store_folder();

// Errors name the variable or the key, and what was expected. Retention removes things, so a setting that cannot be
// read is no reason to take the default.
Result<Settings> read_settings(const std::string& folder);

}  // namespace llmprof::store
