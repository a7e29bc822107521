//! What lies between a client and its servers, and can be cut or led elsewhere.

mod cable;
mod switchboard;

pub use cable::Cable;
pub use switchboard::Switchboard;
