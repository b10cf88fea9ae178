#include "nvidia/find_library.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace llmprof::nvidia {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string resolved(const std::string& path) {
  char buffer[PATH_MAX];
  return realpath(path.c_str(), buffer) != nullptr ? std::string(buffer) : std::string();
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  return paths;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// The file that a command names, as execvp would find it; empty if there is none.
std::string on_path(const std::string& program) {
  if (program.empty()) return {};
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0 ? program : std::string();
  for (const std::string& folder : split(environment("PATH"), ':')) {
    const std::string path = folder + "/" + program;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// The interpreter that runs `path`: itself, or what its "#!" line names; empty if neither is Python.
std::string python_of(const std::string& path) {
  if (path.empty()) return {};
  if (base_name(path).rfind("python", 0) == 0) return path;
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line) || line.rfind("#!", 0) != 0) return {};
  std::istringstream words(line.substr(2));
  std::string interpreter, argument;
  words >> interpreter >> argument;
  if (base_name(interpreter) == "env") interpreter = on_path(argument);
  return base_name(interpreter).rfind("python", 0) == 0 ? interpreter : std::string();
}

// Prefixes of an interpreter: where its link lies (a virtual environment's bin holds links), then where the link leads.
void add_python_prefixes(const std::string& interpreter, std::vector<std::string>& prefixes) {
  if (interpreter.empty()) return;
  prefixes.push_back(parent(parent(interpreter)));
  const std::string real = resolved(interpreter);
  if (!real.empty()) prefixes.push_back(parent(parent(real)));
}

void add_site_packages(const std::string& packages, const LibrarySearch& search, std::vector<std::string>& patterns) {
  for (const std::string& folder : search.package_folders) patterns.push_back(packages + "/" + folder);
}

std::vector<std::string> python_patterns(const LibrarySearch& search) {
  std::vector<std::string> prefixes;
  const std::string named = python_of(on_path(search.program));
  if (!named.empty()) {
    add_python_prefixes(named, prefixes);
  } else {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
      if (!environment(name).empty()) prefixes.push_back(environment(name));
    for (const char* name : {"python3", "python"}) add_python_prefixes(on_path(name), prefixes);
  }
  std::vector<std::string> patterns;
  for (const std::string& prefix : prefixes) {
    for (const char* lib : {"/lib", "/lib64", "/local/lib"}) {
      for (const char* packages : {"site-packages", "dist-packages"})
        add_site_packages(prefix + lib + "/python3*/" + packages, search, patterns);
    }
    // Debian's own packages stand under lib/python3, without a minor version.
    add_site_packages(prefix + "/lib/python3/dist-packages", search, patterns);
  }
  if (!environment("HOME").empty())
    add_site_packages(environment("HOME") + "/.local/lib/python3*/site-packages", search, patterns);
  return patterns;
}

std::vector<std::string> toolkit_patterns(const LibrarySearch& search) {
  std::vector<std::string> patterns = split(environment("LD_LIBRARY_PATH"), ':');
  std::vector<std::string> roots;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (!environment(name).empty()) roots.push_back(environment(name));
  roots.emplace_back("/usr/local/cuda");
  std::vector<std::string> versions = matches("/usr/local/cuda-*");
  std::reverse(versions.begin(), versions.end());  // the newest first
  roots.insert(roots.end(), versions.begin(), versions.end());
  for (const std::string& root : roots)
    for (const std::string& folder : search.toolkit_folders) patterns.push_back(root + "/" + folder);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}) patterns.emplace_back(folder);
  return patterns;
}

void add_file(const std::string& path, std::vector<std::string>& files) {
  const std::string real = resolved(path);
  if (!real.empty() && std::find(files.begin(), files.end(), real) == files.end()) files.push_back(real);
}

// In one folder the library may be there under several names; wheels carry only the one with the major version. Names
// sort so that the last is the newest.
void add_folder(const std::string& pattern, const LibrarySearch& search, std::vector<std::string>& files) {
  std::vector<std::string> found = matches(pattern + "/" + search.file + ".[0-9]*");
  std::reverse(found.begin(), found.end());
  for (const std::string& path : found) add_file(path, files);
  for (const std::string& path : matches(pattern + "/" + search.file)) add_file(path, files);
}

}  // namespace

std::vector<std::string> find_library(const LibrarySearch& search) {
  std::vector<std::string> files;
  const std::string chosen = environment(search.variable.c_str());
  if (!chosen.empty()) add_file(chosen, files);
  for (const std::string& pattern : python_patterns(search)) add_folder(pattern, search, files);
  for (const std::string& pattern : toolkit_patterns(search)) add_folder(pattern, search, files);
  return files;
}

}  // namespace llmprof::nvidia
