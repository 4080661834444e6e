//! The table of reports in `docs/TOOLS.md` says the truth: every test that it names is there, and it names every one.
#![allow(clippy::unwrap_used)] // a test panics on purpose

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The numbers at the start of a test's name: `f24_f25_...`.
fn numbers(name: &str) -> BTreeSet<u32> {
    name.split('_').map_while(|part| part.strip_prefix('f')?.parse().ok()).collect()
}

/// The tests below a folder that are named after a report.
fn collect(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let after = text.split("#[test]").skip(1);
            let names = after.filter_map(|text| text.split_once("fn ")?.1.split('(').next());
            tests.extend(names.filter(|name| !numbers(name).is_empty()).map(str::to_owned));
        }
    }
}

#[test]
fn every_report_has_its_tests_or_a_reason() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut tests = BTreeSet::new();
    for crate_folder in ["hands", "hands-posix", "tests", "cli"] {
        collect(&project.join(crate_folder), &mut tests);
    }
    let document = fs::read_to_string(project.join("docs/TOOLS.md")).unwrap();
    let (_, section) = document.split_once("## Reports from the field\n").unwrap();
    let number = |text: &str| text.strip_prefix('F').and_then(|number| number.parse::<u32>().ok());

    let mut told: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    let mut explained = BTreeSet::new();
    for line in section.lines() {
        if let Some((report, names)) = line.strip_prefix("| F").and_then(|row| row.split_once('|')) {
            let names = names.split('`').skip(1).step_by(2).collect();
            assert!(told.insert(report.trim().parse().unwrap(), names).is_none(), "{line}");
        } else if let Some((reports, _)) = line.strip_prefix("- ").and_then(|line| line.split_once([':', ','])) {
            let mut ends = reports.split(" to ").filter_map(number);
            let first = ends.next().unwrap();
            explained.extend(first..=ends.next().unwrap_or(first));
        }
    }
    for (report, names) in &told {
        let there: BTreeSet<&str> =
            tests.iter().map(String::as_str).filter(|name| numbers(name).contains(report)).collect();
        assert_eq!(*names, there, "F{report}");
    }
    // What a command, a file tool, or the confinement of either can show.
    for report in [1..=57, 77..=78, 113..=119].into_iter().flatten() {
        assert!(told.contains_key(&report) || explained.contains(&report), "F{report} is left out");
    }
}
