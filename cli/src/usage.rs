//! Wrong usage of the command line, told in one line.

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
            tell(&format!("bma: {}", explain(error)));
            ExitCode::from(NOT_DONE)
        }
    }
}

fn explain(error: &clap::Error) -> String {
    if let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && argument.starts_with("--token")
    {
        return format!(
            "{argument}: a token is never an argument, since arguments can be read by everybody on this \
            machine: use --token-file FILE or the variable BMA_TOKEN"
        );
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "COMMAND: none is given: demo, hand, call or brain (see --help)".to_owned();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // What follows are the usage and a pointer to the help: two lines more than one.
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let text = &text[..end.unwrap_or(text.len())];
    // No value of any argument begins with a dash, but for the dash alone: the advice how to pass one leads nowhere.
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("tip: to pass '"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    format!("{} (see --help)", words.join(" ").replace(" tip: ", "; "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

    use clap::Parser as _;

    use super::explain;
    use crate::Cli;

    fn explained(arguments: &[&str]) -> String {
        explain(&Cli::try_parse_from(arguments).unwrap_err())
    }

    #[test]
    fn every_wrong_usage_is_one_line_that_names_the_argument() {
        for (arguments, named) in [
            (&["bma"][..], "COMMAND"),
            (&["bma", "serve"], "'serve'"),
            (&["bma", "hand", "--ur", "ws://h/"], "'--ur'"),
            (&["bma", "hand", "--url"], "--url"),
            (&["bma", "hand", "stray"], "'stray'"),
            (&["bma", "call", "--listen", "a:0", "bash", "-1"], "'-1'"),
            (&["bma", "call", "--listen", "a:0", "bash", "{}", "--", "-1"], "'-1'"),
            (&["bma", "call", "--token-file", "f", "bash"], "<JSON>"),
            (&["bma", "call", "--listen", "127.0.0.1:0", "bash", "{}", "--deadline-ms", "soon"], "--deadline-ms"),
            (&["bma", "brain", "--listen", "a:0", "--listen", "b:0"], "--listen"),
        ] {
            let line = explained(arguments);
            assert!(line.contains(named) && !line.contains('\n') && !line.contains("to pass"), "{arguments:?}: {line}");
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
