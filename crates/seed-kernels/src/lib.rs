//! Batch-invariant CPU operations with hand-written backward passes.
