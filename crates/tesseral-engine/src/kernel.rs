//! Hot loops over plain slices, each beside the naive loop it must agree with.
