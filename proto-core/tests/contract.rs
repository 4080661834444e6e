//! The wire types and the catalogue, held against the contract file.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test panics on purpose
#![allow(clippy::disallowed_methods)] // and reads the sources that it is about

#[path = "contract/catalogue.rs"]
mod catalogue;
#[path = "contract/description.rs"]
mod description;
#[path = "contract/members.rs"]
mod members;
#[path = "contract/reports.rs"]
mod reports;
#[path = "contract/round_trip.rs"]
mod round_trip;
#[path = "contract/secrecy.rs"]
mod secrecy;
#[path = "contract/table.rs"]
mod table;
