//! Manual pages, made of the same command line that `--help` shows, so that neither can say what the other does not.

use std::io;
use std::path::Path;

use clap_mangen::Man;

use crate::args::documented;

/// The page of the program itself, as roff.
///
/// # Errors
/// None that is expected: it is written into memory.
pub fn page() -> io::Result<String> {
    render(documented())
}

/// Writes a page for the program and for every command into `dir`; returns their names, one per line.
///
/// # Errors
/// The folder is missing or cannot be written to.
pub fn write(dir: &Path) -> io::Result<String> {
    let mut program = documented();
    // Gives every command its full name, `gitea-dynamic-runner config effective`.
    program.build();
    let mut names = String::new();
    write_with_parts(program, "", dir, &mut names)?;
    Ok(names)
}

fn write_with_parts(command: clap::Command, above: &str, dir: &Path, names: &mut String) -> io::Result<()> {
    let name = if above.is_empty() { command.get_name().to_owned() } else { format!("{above}-{}", command.get_name()) };
    for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
        write_with_parts(part.clone(), &name, dir, names)?;
    }
    let file = format!("{name}.1");
    // The title is the name that `man` is asked for.
    std::fs::write(dir.join(&file), render(command.display_name(name))?)?;
    names.push_str(&file);
    names.push('\n');
    Ok(())
}

fn render(command: clap::Command) -> io::Result<String> {
    let mut roff = Vec::new();
    Man::new(command).render(&mut roff)?;
    String::from_utf8(roff).map_err(io::Error::other)
}
