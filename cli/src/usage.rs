//! Wrong usage of the command line, told in one line.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::common::{NOT_DONE, tell};

/// Prints help, the version, or what is wrong; gives the exit code.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Somebody who closed stdout has read enough.
            let _ = write!(std::io::stdout(), "{error}");
            ExitCode::SUCCESS
        }
        _ => {
            let not_text = if error.kind() == ErrorKind::InvalidUtf8 { not_text(std::env::args_os()) } else { None };
            tell(&format!("bma: {}", not_text.unwrap_or_else(|| explain(error))));
            ExitCode::from(NOT_DONE)
        }
    }
}

/// What is wrong: the argument, and what to do.
fn explain(error: &clap::Error) -> String {
    let argument = named(error, ContextKind::InvalidArg);
    let first = argument.first().map(String::as_str).unwrap_or_default();
    let problem = match error.kind() {
        ErrorKind::UnknownArgument if first.starts_with("--token") => {
            return format!(
                "{first}: a token is never an argument, since arguments can be read by everybody on this \
                machine: use --token-file FILE or the variable BMA_TOKEN"
            );
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "COMMAND: none is given: demo, hand, call or brain".into()
        }
        ErrorKind::InvalidSubcommand => {
            let given = named(error, ContextKind::InvalidSubcommand).concat();
            let similar = similar(error, ContextKind::SuggestedSubcommand);
            let instead = if similar.is_empty() { "; there are demo, hand, call and brain" } else { &similar };
            format!("COMMAND: there is no '{given}'{instead}")
        }
        ErrorKind::UnknownArgument if first.starts_with("--") => {
            format!("there is no option '{first}'{}", similar(error, ContextKind::SuggestedArg))
        }
        ErrorKind::UnknownArgument => format!(
            "'{first}': nothing takes it: options begin with two dashes, and a tool's JSON is a single argument, in \
            single quotes"
        ),
        ErrorKind::MissingRequiredArgument => {
            let missing: Vec<String> = argument.iter().map(|argument| missing(bare(argument))).collect();
            missing.join("; ")
        }
        // Of an option at the end of the line.
        ErrorKind::InvalidValue if named(error, ContextKind::InvalidValue).concat().is_empty() => {
            format!("{}: its value is missing: write {}", option(first), bare(first))
        }
        ErrorKind::ValueValidation => {
            let problem =
                std::error::Error::source(error).map_or_else(|| "it cannot be read".to_owned(), ToString::to_string);
            format!("{}: {problem}", option(first))
        }
        ErrorKind::ArgumentConflict => match named(error, ContextKind::PriorArg).first() {
            Some(other) if option(other) != option(first) => {
                format!("{}: it stands beside {}: give one of the two", option(first), option(other))
            }
            _ => format!("{}: it is given more than once: give it once", option(first)),
        },
        // What no argument here can cause, in the words of the parser.
        _ => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let line = text.lines().next().unwrap_or_default();
            line.to_owned()
        }
    };
    format!("{problem} (see --help)")
}

/// Options whose value is a path, which need not be text.
const PATHS: [&str; 2] = ["--token-file", "--work-root"];

/// The first argument that must be text and is none: the parser does not say which one that is.
fn not_text(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let mut before = String::new();
    for argument in arguments.skip(1) {
        let shown = argument.to_string_lossy().into_owned();
        let (name, value) = shown.split_once('=').unwrap_or((&shown, ""));
        let named = name.starts_with("--") && !value.is_empty();
        let option = if named { name } else { before.as_str() };
        if argument.to_str().is_none() && !PATHS.contains(&option) {
            let label = if option.starts_with("--") { option.to_owned() } else { format!("'{shown}'") };
            return Some(format!("{label}: it is not UTF-8 text: write it as UTF-8 (see --help)"));
        }
        before = shown;
    }
    None
}

/// The names that the parser gives with an error.
fn named(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    }
}

fn similar(error: &clap::Error, kind: ContextKind) -> String {
    let names: Vec<String> = named(error, kind).iter().map(|name| format!("'{name}'")).collect();
    if names.is_empty() { String::new() } else { format!("; there is {}", names.join(", ")) }
}

/// `--listen <ADDRESS>` without the brackets.
fn bare(argument: &str) -> String {
    argument.replace(['<', '>'], "")
}

/// `--listen <ADDRESS>` without its value.
fn option(argument: &str) -> &str {
    argument.split(' ').next().unwrap_or_default()
}

fn missing(argument: String) -> String {
    let fix = match argument.as_str() {
        "--listen ADDRESS" => "say where executors dial, such as --listen 127.0.0.1:8700, or --dial one that listens",
        "TOOL" => "name a tool, such as bash",
        "JSON" => r#"give the tool's input, such as '{"command":"date"}'"#,
        _ => "give it",
    };
    format!("{}: it is missing: {fix}", option(&argument))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

    use clap::Parser as _;

    use super::{OsString, explain, not_text};
    use crate::Cli;

    fn explained(arguments: &[&str]) -> String {
        explain(&Cli::try_parse_from(arguments).unwrap_err())
    }

    #[test]
    fn every_wrong_usage_is_one_line_that_names_the_argument() {
        for (arguments, named) in [
            (&["bma"][..], "COMMAND"),
            (&["bma", "serve"], "'serve'; there are demo, hand, call and brain"),
            (&["bma", "hand", "--ur", "ws://h/"], "'--ur'"),
            (&["bma", "hand", "--url"], "--url: its value is missing: write --url URL"),
            (&["bma", "hand", "stray"], "'stray'"),
            (&["bma", "call", "--listen", "a:0", "bash", "{}", "-1"], "'-1'"),
            (&["bma", "call", "--listen", "a:0", "bash", "{}", "--", "-1"], "'-1'"),
            (&["bma", "call", "--listen", "a:0", "bash", "{\"command\":", "date}"], "'date}': nothing takes it"),
            (&["bma", "call"], "--listen: it is missing: say where"),
            (&["bma", "call", "--token-file", "f", "bash"], "JSON: it is missing"),
            (&["bma", "call", "--listen", "127.0.0.1:0", "bash", "{}", "--deadline-ms", "soon"], "--deadline-ms: it"),
            (&["bma", "call", "--listen", "127.0.0.1:0", "bash", "{}", "--timeout", "-1"], "--timeout: it"),
            (&["bma", "brain", "--listen", "a:0", "--listen", "b:0"], "--listen: it is given more than once"),
            (&["bma", "brain", "--listen", "a:0", "--dial", "unix:///a"], "give one of the two"),
            (&["bma", "hand", "--listen", "unix:///a", "--url", "ws://h/"], "give one of the two"),
        ] {
            let line = explained(arguments);
            assert!(line.contains(named) && !line.contains('\n') && !line.contains(" tip"), "{arguments:?}: {line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_argument_that_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt;
        for (arguments, named) in [
            (&[&b"--url"[..], b"ws://\xff/"][..], Some("--url: it is not UTF-8")),
            (&[b"--url=ws://\xff/"], Some("--url: it is not UTF-8")),
            (&[b"--token-file", b"\xff", b"--name", b"\xfe"], Some("--name: it is not UTF-8")),
            (&[b"bash", b"\xff"], Some("'\u{fffd}': it is not UTF-8")),
            (&[b"--token-file", b"\xff", b"--work-root=\xff"], None),
        ] {
            let words = [&b"bma"[..], b"hand"].into_iter().chain(arguments.iter().copied());
            let arguments: Vec<OsString> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
            let told = not_text(arguments.into_iter());
            assert_eq!(
                told.as_deref().map(|told| told.starts_with(named.unwrap_or_default())),
                named.map(|_| true),
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_token_as_an_argument_is_refused_and_not_repeated() {
        for arguments in [&["bma", "hand", "--token", "s3cret"][..], &["bma", "hand", "--token=s3cret"]] {
            let line = explained(arguments);
            assert!(line.contains("--token-file") && line.contains("BMA_TOKEN"), "{line}");
            assert!(!line.contains("s3cret"), "{line}");
        }
    }

    /// A line as a shell takes it apart, as far as the guides need that.
    fn words(line: &str) -> Vec<String> {
        let quoted = line.split('\'').enumerate();
        let words = quoted.flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.take_while(|word| !matches!(word.as_str(), "&" | "|" | ">")).collect()
    }

    #[test]
    fn every_command_of_the_guides_is_one() {
        let guides = [include_str!("../../README.md"), include_str!("../../docs/BRAIN.md")];
        let mut commands = std::collections::BTreeSet::new();
        for line in guides.iter().flat_map(|guide| guide.split("\n```sh\n").skip(1)) {
            for line in line.split("\n```").next().unwrap_or_default().lines() {
                let Some(line) = line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("bma "))
                else {
                    assert!(!line.contains("bma ") && !line.contains("cargo run"), "{line}");
                    continue;
                };
                let words = words(line);
                commands.insert(words[0].clone());
                if let Err(error) = Cli::try_parse_from(["bma".to_owned()].into_iter().chain(words)) {
                    panic!("{line}: {}", explain(&error));
                }
            }
        }
        assert_eq!(commands.into_iter().collect::<Vec<_>>(), ["brain", "call", "demo", "hand"]);
    }
}
