//! The programs: collect, annotate, sft, train, eval, compare.
