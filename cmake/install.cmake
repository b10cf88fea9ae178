# What `cmake --install` puts under a prefix, and the packages made of it. The build folder is laid out as a prefix is (bin,
# lib, share): the program finds what belongs to it relative to itself, so any prefix will do, and a tree may be moved.
#
# Completions and the manual page are written by the program itself, from the declarations of its commands.
set(share ${CMAKE_BINARY_DIR}/share)
set(bash_completion ${share}/bash-completion/completions/llmprof)
set(zsh_completion ${share}/zsh/site-functions/_llmprof)
set(fish_completion ${share}/fish/vendor_completions.d/llmprof.fish)
set(manual_page ${share}/man/man1/llmprof.1)
foreach(file ${bash_completion} ${zsh_completion} ${fish_completion} ${manual_page})
  get_filename_component(folder ${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
endforeach()
add_custom_command(
  OUTPUT ${bash_completion} ${zsh_completion} ${fish_completion} ${manual_page}
  COMMAND llmprof completion bash > ${bash_completion}
  COMMAND llmprof completion zsh > ${zsh_completion}
  COMMAND llmprof completion fish > ${fish_completion}
  COMMAND llmprof man > ${manual_page}
  DEPENDS llmprof
  COMMENT "Writing completions and the manual page"
  VERBATIM)
add_custom_target(llmprof_shell_files ALL DEPENDS ${bash_completion} ${zsh_completion} ${fish_completion} ${manual_page})

# lib, not lib/x86_64-linux-gnu: nobody links the injection library, and llmprof looks for it at ../lib.
install(TARGETS llmprof RUNTIME DESTINATION bin)
install(TARGETS llmprof_inject LIBRARY DESTINATION lib)
install(FILES ${PROJECT_SOURCE_DIR}/src/capture/torch/sitecustomize.py ${PROJECT_SOURCE_DIR}/src/capture/torch/llmprof_frames.py
        DESTINATION share/llmprof/python)
install(FILES ${bash_completion} DESTINATION share/bash-completion/completions)
install(FILES ${zsh_completion} DESTINATION share/zsh/site-functions)
install(FILES ${fish_completion} DESTINATION share/fish/vendor_completions.d)
install(FILES ${manual_page} DESTINATION share/man/man1)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/cmake/third_party.txt
        DESTINATION share/doc/llmprof)

# ---- packages: a tarball that runs from where it is unpacked, and a .deb for Debian 12, Ubuntu 22.04 and later
string(TOLOWER ${CMAKE_SYSTEM_NAME} system)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_VENDOR llmprof)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "profiler and performance model for LLM inference on NVIDIA GPUs")
set(CPACK_PACKAGE_CONTACT "the llmprof developers")
set(CPACK_PACKAGE_FILE_NAME llmprof-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
# What tests/install/installed.py finds that the files ask for. oneDNN and OpenBLAS are opened where they are: bench and
# peaks of a CPU's matrix products say so when they are missing.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libgcc-s1 (>= 4.2)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libdnnl2, libopenblas0-openmp")
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian_places.cmake)
include(CPack)
