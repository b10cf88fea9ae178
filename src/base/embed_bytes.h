// A file placed in the program by the assembler: compilers are slow with megabytes of literals.
#pragma once

// At namespace scope: declares `symbol`, where the bytes of the file at `path` begin, and `symbol`_end behind the last.
// Both are global names; a zero follows the file.
#define LLMPROF_EMBED_BYTES(symbol, path)                                                                            \
  asm(".section .rodata\n.global " #symbol "\n" #symbol ":\n.incbin \"" path "\"\n.global " #symbol "_end\n" #symbol \
      "_end:\n.byte 0\n.previous\n");                                                                                \
  extern "C" const char symbol[], symbol##_end[];
