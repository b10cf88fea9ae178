// Macros that kernels define for themselves, and those that choose a variant of them: gone before the next variant.
#undef EACH_TILE
#undef EACH_WORD
#undef WORD_INDEX
#undef EACH_PACK
#undef EACH_ROW
#undef EACH_ITEM
#undef ITEM_INDEX
#undef HAS_ITEM
#undef EACH_ELEMENT
#undef ITEMS
#undef UNROLL
#undef LAYERNORM_BOUNDS
