// Other words in every sentence of the declarations (base/fields.h).
#define LLMPROF_SENTENCE(doc) doc " (reworded)"
