# Flags that every target shares.
add_library(llmprof_flags INTERFACE)
set(LLMPROF_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast -Wundef)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 reports -Wrestrict inside its own std::string at -O3 (GCC bug 105651).
  list(APPEND LLMPROF_WARNINGS -Wno-restrict)
endif()
if(LLMPROF_WERROR)
  list(APPEND LLMPROF_WARNINGS -Werror)
endif()
target_compile_options(llmprof_flags INTERFACE ${LLMPROF_WARNINGS})
if(LLMPROF_SANITIZE)
  target_compile_options(llmprof_flags INTERFACE -fsanitize=${LLMPROF_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  target_link_options(llmprof_flags INTERFACE -fsanitize=${LLMPROF_SANITIZE})
  target_compile_definitions(llmprof_flags INTERFACE LLMPROF_SANITIZED=1)
endif()
if(LLMPROF_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "LLMPROF_FUZZ needs clang (libFuzzer): configure with CXX=clang++ or the preset 'fuzz'")
  endif()
  # fuzzer-no-link instruments everything; only the fuzz targets link the libFuzzer main.
  target_compile_options(llmprof_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_compile_definitions(llmprof_flags INTERFACE LLMPROF_VERSION="${PROJECT_VERSION}")
if(CMAKE_BUILD_TYPE STREQUAL Debug AND NOT LLMPROF_FUZZ)
  target_compile_definitions(llmprof_flags INTERFACE _GLIBCXX_ASSERTIONS=1)
endif()

# Of what runs once an answer, and of tests: -O1 compiles in two thirds of the time of -O3, which is for what goes over the
# rows of a recording.
set(LLMPROF_RUNS_ONCE $<$<CONFIG:Release>:-O1>)
# Of what the preset asan optimises, which else compiles in less than half of the time: where its tests spend most of theirs,
# and what has to keep up with a program.
set(LLMPROF_RUNS_MOST)
if(LLMPROF_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL Debug)
  set(LLMPROF_RUNS_MOST -O2)
endif()

# What ships runs where another C++ library lives, or an older one: it carries its own (ADR 15). libgcc stays shared: a
# static one asks for glibc 2.35. Sections that nothing uses go, because some of libstdc++ ask for glibc 2.36.
set(LLMPROF_OWN_CXX_LIBRARY -static-libstdc++ -Wl,--gc-sections)

# One room of the house: every .cc file in the folder, exported under src/ as the include root.
function(llmprof_room name)
  cmake_parse_arguments(ROOM "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    add_library(llmprof_${name} INTERFACE)
    return()
  endif()
  add_library(llmprof_${name} STATIC ${sources})
  set_target_properties(llmprof_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(llmprof_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(llmprof_${name} PUBLIC ${ROOM_DEPENDS} PRIVATE llmprof_flags)
endfunction()
