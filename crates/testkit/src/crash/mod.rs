//! The crash matrix (NEW-148, T5): a controller is killed at each of its boundaries, started anew, and what follows must
//! be as if nothing had happened.
//!
//! A *boundary* is something that the controller does to the outside: a call on the wire, seen by a [proxy](wire), or a
//! change of its state folder, seen by a [tracer](writes). A scene is played once to [record()] its boundaries, and
//! then once for each of them and each [`Moment`]. The program is the real one, in processes of its own, and nothing
//! here looks inside it.
//!
//! What is general and what is Gitea's: [`Register`] numbers boundaries and kills, whatever they are. The proxy carries
//! HTTP to any server, to Gitea and to the API of Kubernetes, by names that somebody else gives its requests; a [relay]
//! does the same for NATS. Only [`names`] knows what is said to each of them.

mod judge;
mod keeper;
mod names;
mod play;
mod point;
mod register;
mod relay;
mod scene;
mod stage;
mod wire;
mod writes;

pub use play::{Verdict, record, strike};
pub use point::{Boundary, Kind, Moment, NoPoint, Point};
pub use register::Register;
pub use relay::{Name as MessageName, Relay};
pub use scene::Scene;
pub use stage::Setting;
pub use wire::{Name, Proxy};
