//! The small program of the executor image.

fn main() {}
