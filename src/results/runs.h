// What the run store holds and `llmprof runs` answers (src/store/). The manifest is also the file that makes a folder
// of the store a run: docs/formats/run-store.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "results/values.h"

namespace llmprof {

enum class RunKind : uint8_t { kRun, kBench, kPeaks, kAnalysis, kCount };
std::string_view name_of(RunKind kind);  // "run", "bench", "peaks", "analysis"

// kRunning and kDamaged are found out by looking; no manifest says so.
enum class RunState : uint8_t { kWhole, kIncomplete, kRunning, kDamaged, kCount };
std::string_view name_of(RunState state);  // "whole", "incomplete", "running", "damaged"

enum class RetentionAction : uint8_t { kCompress, kRemove };
std::string_view name_of(RetentionAction action);  // "compress", "remove"

#define LLMPROF_STORED_FILE_FIELDS(F)                                                            \
  F(std::string, path, "", "Below the run's folder")                                             \
  F(int64_t, bytes, "bytes", "Of its content, as it was written")                                \
  F(int64_t, stored_bytes, "bytes", "On the disk: fewer where it has been compressed (as zstd)") \
  F(std::string, xxh3, "", "XXH3 of its content, 64 bits in hexadecimal")
LLMPROF_RECORD(StoredFile, "files", "The files of a stored run", LLMPROF_STORED_FILE_FIELDS)

#define LLMPROF_RUN_VARIABLE_FIELDS(F) \
  F(std::string, name, "", "Of the variable") F(std::string, value, "", "At most 1,000 bytes of it")
LLMPROF_RECORD(RunVariable, "environment", "Environment variables that change what CUDA and PyTorch do",
               LLMPROF_RUN_VARIABLE_FIELDS)

#define LLMPROF_RUN_GIT_FIELDS(F)                                  \
  F(std::string, commit, "", "Of the working folder's repository") \
  F(OptText, branch, "", "Null where none is checked out")         \
  F(std::optional<bool>, dirty, "", "Whether tracked files differ from the commit; null where git did not say in time")
LLMPROF_RECORD(RunGit, "git", "The repository that a run was started in", LLMPROF_RUN_GIT_FIELDS)

#define LLMPROF_MANIFEST_FIELDS(F)                                                                        \
  F(int64_t, number, "", "Never given twice")                                                             \
  F(RunKind, kind, "", "run, bench, peaks or analysis")                                                   \
  F(std::string, name, "", "Of --name, else of the program, the operations or the file")                  \
  F(RunState, state, "", "whole, or incomplete: it is still going on, or ended before it was kept whole") \
  F(bool, pinned, "", "Kept whatever its age and size")                                                   \
  F(bool, compressed, "", "Its large files have been compressed")                                         \
  F(std::vector<std::string>, command, "", "The words of llmprof's own command line")                     \
  F(std::string, working_folder, "", "Where it was typed")                                                \
  F(std::optional<RunGit>, git, "", "Null outside a repository")                                          \
  F(std::vector<RunVariable>, environment, "", "Variables that change what CUDA and PyTorch do")          \
  F(std::string, host, "", "Name of the machine")                                                         \
  F(std::string, kernel, "", "Release of its Linux kernel")                                               \
  F(int64_t, start_unix_ns, "ns", "When it began")                                                        \
  F(OptInt, end_unix_ns, "ns", "When it was kept; null while it is incomplete")                           \
  F(std::string, tool_version, "", "Version of llmprof")                                                  \
  F(std::vector<std::string>, gpus, "",                                                                   \
    "Names of the GPUs, or of the CPU that was measured, as far as they are known")                       \
  F(OptText, driver, "", "Version of NVIDIA's driver; null where it is not known")                        \
  F(OptInt, exit_code, "", "Of the program that was run")                                                 \
  F(OptText, recording, "", "The recording: below the run's folder, or an absolute path elsewhere")       \
  F(std::vector<std::string>, inputs, "", "Of an analysis: the files that were read, as absolute paths")  \
  F(OptText, result, "", "The file with the result as JSON, below the run's folder")                      \
  F(OptDouble, ttft_ms, "ms", "TTFT of the headline")                                                     \
  F(OptDouble, tpot_ms, "ms", "TPOT of the headline")                                                     \
  F(std::vector<StoredFile>, files, "", "All files but the manifest")
LLMPROF_RECORD(RunManifest, "manifest", "A run, bench, peaks or analysis in the run store", LLMPROF_MANIFEST_FIELDS)

// With what only its page says.
struct RunShown : RunManifest {
  std::string folder;
};

#define LLMPROF_RUN_ROW_FIELDS(F)                                                          \
  F(int64_t, number, "", "Never given twice")                                              \
  F(RunKind, kind, "", "run, bench, peaks or analysis")                                    \
  F(std::string, name, "", "Of --name, else of the program, the operations or the file")   \
  F(RunState, state, "", "whole, incomplete, running or damaged")                          \
  F(bool, pinned, "", "Kept whatever its age and size")                                    \
  F(bool, compressed, "", "Its large files have been compressed")                          \
  F(int64_t, start_unix_ns, "ns", "When it began")                                         \
  F(OptDouble, ttft_ms, "ms", "TTFT of the headline")                                      \
  F(OptDouble, tpot_ms, "ms", "TPOT of the headline")                                      \
  F(int64_t, bytes, "bytes", "Of the content of its files")                                \
  F(int64_t, stored_bytes, "bytes", "On the disk: fewer where files have been compressed") \
  F(std::string, gpu, "", "The first one's name")                                          \
  F(std::string, command, "", "In one line")                                               \
  F(std::string, folder, "", "Where it is")
LLMPROF_RECORD(RunRow, "runs", "The runs of a store, the newest first", LLMPROF_RUN_ROW_FIELDS)

#define LLMPROF_RUN_LIST_FIELDS(F)                  \
  F(std::string, folder, "", "Of the store")        \
  F(int64_t, stored_bytes, "bytes", "All together") \
  F(std::vector<RunRow>, runs, "", "The newest first")
LLMPROF_RECORD(RunList, "run_list", "What the run store holds", LLMPROF_RUN_LIST_FIELDS)

#define LLMPROF_RETENTION_FIELDS(F)                       \
  F(int64_t, number, "", "Of the run")                    \
  F(RunKind, kind, "", "run, bench, peaks or analysis")   \
  F(std::string, name, "", "Of the run")                  \
  F(RetentionAction, action, "", "compress or remove")    \
  F(std::string, why, "", "The rule")                     \
  F(int64_t, stored_bytes, "bytes", "On the disk before") \
  F(std::string, failed, "", "Why it was not done; else empty")
LLMPROF_RECORD(RetentionStep, "steps", "What retention does with runs", LLMPROF_RETENTION_FIELDS)

#define LLMPROF_PRUNED_FIELDS(F)                                               \
  F(bool, dry_run, "", "Nothing was changed")                                  \
  F(int64_t, before_bytes, "bytes", "On the disk before")                      \
  F(OptInt, after_bytes, "bytes", "On the disk afterwards; null of a dry run") \
  F(std::vector<RetentionStep>, steps, "", "In their order")
LLMPROF_RECORD(PrunedRuns, "pruned", "What retention does", LLMPROF_PRUNED_FIELDS)

#define LLMPROF_RUN_PROBLEM_FIELDS(F)                                                                 \
  F(OptInt, number, "", "Of the run; null for what belongs to none")                                  \
  F(bool, damage, "",                                                                                 \
    "Something of a run is lost; else it is incomplete, or left behind by a run that was broken off") \
  F(std::string, where, "", "The file or folder")                                                     \
  F(std::string, what, "", "What was expected, and what was found")
LLMPROF_RECORD(RunProblem, "problems", "What is wrong in a run store", LLMPROF_RUN_PROBLEM_FIELDS)

#define LLMPROF_VERIFIED_FIELDS(F)                                      \
  F(std::string, folder, "", "Of the store")                            \
  F(int64_t, runs, "", "Looked at")                                     \
  F(int64_t, files, "", "Whose content was compared with its checksum") \
  F(int64_t, bytes, "bytes", "Of their content")                        \
  F(std::vector<RunProblem>, problems, "", "Damage first")
LLMPROF_RECORD(VerifiedRuns, "verified", "Whether a run store is as its manifests say", LLMPROF_VERIFIED_FIELDS)

}  // namespace llmprof
