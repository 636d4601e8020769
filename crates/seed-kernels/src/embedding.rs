//! Looking rows up in an embedding table, and adding their gradients back.
//!
//! Not for: the output head (see [`crate::head`]).

/// Copies row `ids[r]` of `table` `[vocabulary, dim]` to row `r` of `out` `[ids.len(), dim]`.
///
/// # Panics
///
/// Panics when `out` does not hold `ids.len() * dim` values or an id is not in the table.
pub fn gather(table: &[f32], dim: usize, ids: &[u32], out: &mut [f32]) {
    let _span = tracing::trace_span!("gather", rows = ids.len(), dim).entered();
    assert_eq!(out.len(), ids.len() * dim, "`out` must be [ids, dim]");
    for (r, id) in ids.iter().enumerate() {
        out[r * dim..][..dim].copy_from_slice(&table[*id as usize * dim..][..dim]);
    }
}

/// Adds row `r` of `dout` `[ids.len(), dim]` to row `ids[r]` of `dtable` `[vocabulary, dim]`, in row order.
///
/// # Panics
///
/// Panics when `dout` does not hold `ids.len() * dim` values or an id is not in the table.
pub fn scatter_add(dout: &[f32], dim: usize, ids: &[u32], dtable: &mut [f32]) {
    let _span = tracing::trace_span!("scatter_add", rows = ids.len(), dim).entered();
    assert_eq!(dout.len(), ids.len() * dim, "`dout` must be [ids, dim]");
    for (r, id) in ids.iter().enumerate() {
        let sums = &mut dtable[*id as usize * dim..][..dim];
        for (sum, value) in sums.iter_mut().zip(&dout[r * dim..][..dim]) {
            *sum += value;
        }
    }
}
