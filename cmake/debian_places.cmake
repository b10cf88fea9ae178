# Runs when CPack has laid out a package and not packed it yet. Debian has places of its own for three of the files.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
file(MAKE_DIRECTORY ${share}/zsh/vendor-completions)
file(RENAME ${share}/zsh/site-functions/_llmprof ${share}/zsh/vendor-completions/_llmprof)
file(REMOVE_RECURSE ${share}/zsh/site-functions)
file(READ ${share}/doc/llmprof/LICENSE license)
file(READ ${share}/doc/llmprof/third_party.txt others)
file(WRITE ${share}/doc/llmprof/copyright "llmprof is licensed as follows; what is linked into it, at the end.\n\n${license}\n\n${others}")
file(REMOVE ${share}/doc/llmprof/LICENSE ${share}/doc/llmprof/third_party.txt)
execute_process(COMMAND gzip --best --no-name ${share}/man/man1/llmprof.1 ${share}/doc/llmprof/CHANGELOG.md
                COMMAND_ERROR_IS_FATAL ANY)
