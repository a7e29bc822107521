//! The small program of the executor image.

fn main() -> std::process::ExitCode {
    executor::command(std::env::args_os().skip(1), |name| std::env::var(name).ok())
}
