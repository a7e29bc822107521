//! The program for operators.

fn main() {}
