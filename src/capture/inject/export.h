// The few functions that libllmprof_inject.so shows to the program; everything else in it is hidden.
#pragma once

#define LLMPROF_EXPORT __attribute__((visibility("default")))
