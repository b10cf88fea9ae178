// Memory that holds nothing but zeros need not be there: the operating system gives a page of zeros to whoever reads
// where none is.
#pragma once

#include <cstddef>

namespace llmprof {

// Gives those pages of `bytes` bytes at `data` back to the operating system that hold zeros only; what is read there
// stays zero, and what is written takes a page again. For large arrays on the heap that are complete. Returns how many
// bytes were given back.
size_t give_back_zero_pages(void* data, size_t bytes);

}  // namespace llmprof
