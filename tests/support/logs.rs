//! The log of the crates under test, kept at its finest level, to be read back:
//! an ERROR that no test expects is a failure, and a credential must never show.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

/// Past this the log is no longer kept; its errors always are.
const MAX_KEPT_BYTES: usize = 64 << 20;

/// Set in the environment, it has the log shown as it comes.
const SHOW: &str = "BMA_TEST_LOG";

static LOG: Mutex<Log> = Mutex::new(Log { text: String::new(), errors: Vec::new(), expected: Vec::new() });

struct Log {
    text: String,
    errors: Vec<String>,
    expected: Vec<&'static str>,
}

fn log() -> MutexGuard<'static, Log> {
    // A test that fails while it holds the lock leaves nothing half done.
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the log of this process from now on. Any number of calls.
pub fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let recorded = tracing::subscriber::set_global_default(Registry::default().with(Recorder));
        recorded.expect("no other subscriber was set");
    });
}

/// From now on an ERROR with this text is no failure.
///
/// The log is the whole process's, and tests run side by side: it holds for
/// all of them. Say it before it can happen.
pub fn expect(text: &'static str) {
    log().expected.push(text);
}

/// Fails when there is an ERROR in the log that nobody expects. Each is told
/// once: by the test that it happened in, or by one that ended before it.
#[track_caller]
pub fn assert_no_unexpected_error() {
    let mut log = log();
    let errors = std::mem::take(&mut log.errors);
    let expected = |error: &String| log.expected.iter().any(|text| error.contains(text));
    let unexpected: Vec<_> = errors.into_iter().filter(|error| !expected(error)).collect();
    drop(log);
    assert!(unexpected.is_empty(), "logged as ERROR: {unexpected:#?}");
}

/// Whether the log has this text anywhere.
pub fn contains(text: &str) -> bool {
    log().text.contains(text)
}

struct Recorder;

impl<S: Subscriber> Layer<S> for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("bma_")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut line = Line::new(attributes.metadata());
        attributes.record(&mut line);
        line.keep();
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut line = Line { level: Level::TRACE, text: String::new() };
        values.record(&mut line);
        line.keep();
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::new(event.metadata());
        event.record(&mut line);
        line.keep();
    }
}

struct Line {
    level: Level,
    text: String,
}

impl Line {
    fn new(metadata: &Metadata<'_>) -> Self {
        Line { level: *metadata.level(), text: format!("{} {}:", metadata.level(), metadata.target()) }
    }

    fn keep(self) {
        if std::env::var_os(SHOW).is_some() {
            eprintln!("{}", self.text);
        }
        let mut log = log();
        if self.level == Level::ERROR {
            log.errors.push(self.text.clone());
        }
        if log.text.len() < MAX_KEPT_BYTES {
            log.text.push_str(&self.text);
            log.text.push('\n');
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, " {}={value:?}", field.name());
    }
}
