//! Completions and the manual page, made from the definition of the command line.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Failure};

pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gateway", &mut script);
    String::from_utf8_lossy(&script).trim_end().to_owned()
}

/// The manual page of the program, followed by a section for each command.
pub fn manual() -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::Other(format!("cannot write the manual page: {error}"));
    let command = Cli::command();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(failed)?;
    let mut pending: Vec<clap::Command> = subcommands(&command, "gateway");
    while let Some(command) = pending.pop() {
        let name = command.get_display_name().unwrap_or_default().to_owned();
        let man = clap_mangen::Man::new(command.clone());
        page.extend_from_slice(format!(".SH \"{}\"\n", name.to_uppercase()).as_bytes());
        let mut section = Vec::new();
        man.render_description_section(&mut section).map_err(failed)?;
        man.render_synopsis_section(&mut section).map_err(failed)?;
        man.render_options_section(&mut section).map_err(failed)?;
        let section = String::from_utf8_lossy(&section).replace(".SH ", ".SS ");
        page.extend_from_slice(section.as_bytes());
        pending.extend(subcommands(&command, &name));
    }
    Ok(String::from_utf8_lossy(&page).trim_end().to_owned())
}

/// The commands below one, in reverse order, with their full names.
fn subcommands(command: &clap::Command, prefix: &str) -> Vec<clap::Command> {
    let below = command.get_subcommands().filter(|below| below.get_name() != "help");
    let named = below.map(|below| {
        let name = format!("{prefix} {}", below.get_name());
        below.clone().display_name(name.clone()).bin_name(name)
    });
    let mut named: Vec<clap::Command> = named.collect();
    named.reverse();
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn completions_and_manual_name_all_commands() {
        let manual = manual().unwrap_or_else(|_| panic!("no manual page"));
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            for name in ["serve", "doctor", "upgrade-check", "usage"] {
                assert!(script.contains(name), "{name} is missing for {shell}");
            }
        }
        for name in ["GATEWAY SERVE", "GATEWAY KEYS CREATE", "GATEWAY ADMIN ROTATE-MASTER-KEY"] {
            assert!(manual.contains(name), "{name} is missing in {manual}");
        }
    }
}
