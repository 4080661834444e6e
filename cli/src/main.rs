//! The `bma` command.
//!
//! `bma hand` serves this machine to a harness; `bma call` and `bma brain` are
//! small harnesses for the command line and for scripts; `bma demo` shows both
//! ends at work. Each command is one file; what they share is in [`common`].

mod brain;
mod call;
mod common;
mod demo;
mod hand;
mod host;
mod logs;
mod reach;
mod scratch;
mod signals;
mod token;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use common::{Failure, tell};

/// Connects machines to agents over the BMA Executor Protocol.
///
/// A machine's hands (`bma hand`) dial a harness, the brain, over WebSocket and
/// run tools for it: bash, read, write, edit, glob, grep, list_files.
///
/// Try it on this machine: `bma demo`.
#[derive(Debug, Parser)]
#[command(name = "bma", version, verbatim_doc_comment)]
#[command(after_help = "Logs go to stderr; BMA_LOG chooses which (default: warn; also: info, debug,\n\
    bma_runtime=trace). A token is never an argument: it is in a file or in BMA_TOKEN.\n\
    Exit codes: 0 done, 1 failed (see each command), 2 wrong usage or anything else.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Hand(hand::Args),
    Call(call::Args),
    Brain(brain::Args),
    Demo(demo::Args),
}

fn main() -> ExitCode {
    if let Some(exit_code) = host::helper_main() {
        return exit_code;
    }
    // First of all: from here on nobody but root reads a token out of this process.
    let hardened = host::harden();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let (name, done) = run(cli.command, hardened);
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            tell(&format!("{name}: {failure}"));
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: Command, hardened: std::io::Result<()>) -> (&'static str, Result<u8, Failure>) {
    let ready = logs::start().map(|()| {
        if let Err(error) = hardened {
            tracing::warn!(%error, "other programs of this user may read this process's memory");
        }
    });
    if let Err(failure) = ready {
        return ("bma", Err(failure));
    }
    match command {
        Command::Hand(args) => ("bma hand", hand::run(args)),
        Command::Call(args) => ("bma call", call::run(args)),
        Command::Brain(args) => ("bma brain", brain::run(args)),
        Command::Demo(args) => ("bma demo", demo::run(args)),
    }
}
